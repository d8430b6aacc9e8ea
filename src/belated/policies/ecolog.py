"""ada-OFU-ECOLog of Faury, Abeille, Jun and Calauzenes (2022): implicit steps, logistic rewards.

Why the set holds. With l the loss of a reward, b(z) - y z, and steps that minimise

    ||theta - theta_i||^2_{H_i} / (2 eta) + l_i(theta)      over the ball,

the variational inequality at theta_{i+1} and self-concordance, l(theta*) >= l(theta) + l'(theta) u
+ mu' u^2 / (2 + |u|) for u = x'(theta* - theta) with |u| <= 2 m1 max_norm, give, for eta = 1 + m1
max_norm and H_{i+1} = H_i + mu'(x'theta_{i+1}) x x',

    ||theta_{i+1} - theta*||^2_{H_{i+1}} <= ||theta_i - theta*||^2_{H_i}
        + 2 eta (l_i(theta*) - l_i(theta_{i+1})) - ||theta_{i+1} - theta_i||^2_{H_i}.

The step is the paper's (28), (2 + D)^-1 ||.||^2_H + l with D = 2 m1 max_norm the diameter of the
ball; the first inequality is its Lemma 3, the second its Proposition 6, both together its Lemma 4
without the error of its solver. Summed from theta_1 = 0, what is left to bound is the sum of
l_i(theta*) - l_i(bar_i), for points bar_i that do not depend on y_i. Its exponential is a product
of likelihood ratios, a martingale of mean 1 (at most 1 for rewards between 0 and 1, since e^(-uy)
is convex in y), so by Ville's inequality the sum never exceeds log(1 / delta), with probability 1 -
delta. That replaces the paper's Lemma 5, whose bound is (1 + m1) nu / 2 + 2 m1^2 / (1 + m1) with
its (13), nu = 1/2 + 2 log(2 sqrt(n / 4 + 1) / delta), for actions of length 1.
"""

import math
from typing import Any, NamedTuple

from belated.core.arguments import Flag, Positive, Probability, derives, parameters, resolved
from belated.estimators.one_pass import LOSSES, MOVES, ImplicitSteps
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    ellipsoid,
    radius,
    sqrt_beta,
)
from belated.model.state import OBSERVED, State
from belated.policies.shared.constants import is_logistic
from belated.policies.shared.one_pass import check_ridge, curved
from belated.policies.shared.optimism import certified_width, optimistic

SAFE_BOUND = 2.0 * math.acosh(math.sqrt(2.0))  # up to this |z| all slopes are within a factor of 2


@deterministic
@derives("eta", "max_norm")
@parameters
class AdaOFUECOLog(NamedTuple):
    """Implicit steps for logistic rewards: no kappa in the width, constant memory, one pass.

    Rewards are taken in one by one as they return. With l(theta) = b(x'theta) - y x'theta,

        theta <- argmin over the ball of ||. - theta||_H^2 / (2 eta) + l,
        H <- H + mu'(x'theta) x x'      (theta the new one; H begins as lam I),

    solved exactly. It plays ``argmax x'theta + radius ||x||_{H^-1}`` with

        radius^2 = lam m1^2 + 2 eta log(1 / delta) + 2 eta sum of (l(bar) - l(theta)),

    eta = 1 + m1 max_norm: Algorithm 2 of the paper, with Procedure 2 for the step. The point bar,
    its (30), solves the same problem with the losses of both rewards, so it does not depend on
    which came back.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    lam
        Ridge in H. Default 1, and as much more as keeps mu' at bar below twice mu' at theta.
    literal
        The formulas of the authors' code instead, which are not those of the paper: eta = 1 and
        ``radius^2 = 2 lam m1^2 + (1 + S)^2 gamma + 2 (1 + S) sum of (l(bar) - l(theta))``, ``gamma
        = sqrt(lam) / 2 + (2 / sqrt(lam)) log(2 sqrt(1 + n max_norm^2 / (4 lam)) / delta)``, S = m1
        max_norm. Not proved.
    subtract
        Take the sum of ``||theta_new - theta||_H^2`` off radius^2, which the proof allows.

    Assumptions
    -----------
    ``||theta_star|| <= m1``. Rewards with a logistic mean: 0 or 1, fractions, counts of successes.
    Delays that do not depend on the reward. Then the set holds in all rounds at once with
    probability 1 - delta, unless ``literal``.

    Cost
    ----
    A decision O(K d), plus O(d^2) for each action that is scored. A returned reward O(d^2), and
    O(d^3) where the step leaves the ball by far. Memory O(d^2), whatever the number of rewards.

    Deviations
    ----------
    Rewards are processed in the order in which they return, ties in the order of decisions: the
    estimate depends on that order, the guarantee does not. The paper's step weighs the distance
    with 1 / (2 + D), D = 2 m1 max_norm on the ball, which is our 1 / (2 eta): no deviation. Its
    radius, (15) in Appendix A.1, is deterministic, ``4 + 4 log n + 16 S^2 + (2 + 2 S)^2 nu / 2 + 8
    (1 + S) d log(1 + n / d)`` with nu of (13), and for it Proposition 7 claims a probability of 1 -
    2 delta. Its last term falls short of the proof: Lemmas 4 and 6 with condition C1 give ``8 (1 +
    S) (1 + 2 S) d log(1 + n / (4 d))``. Ours keeps the sum that those lemmas bound, as the authors'
    code does, starts from theta = 0 and has likelihood ratios for Lemma 5; it is proved in
    ``policies/ecolog.py``. Where C1 fails, mu' at bar above twice mu' at theta, Algorithm 2 sets
    the reward aside and shrinks the ball with all that were set aside, and the code stops; here the
    row is learned from like any other, and counted if it breaks C0, C1 for the reward that came.
    Our radius does not rest on C1; the paper's and its regret bound do. C1 cannot fail for m1
    max_norm <= 1.76, nor with the default lam; the paper has lam = 1. The code takes eta = 1, for
    which the telescoping sum behind the set does not close, and subtracts an unsquared norm of
    theta - bar; we do not. The index is on the scale of x'theta, as in Algorithm 2.

    References
    ----------
    L. Faury, M. Abeille, K.-S. Jun, C. Calauzenes: Jointly Efficient and Optimal Algorithms for
    Logistic Bandits. AISTATS 2022.

    Examples
    --------
    >>> from belated import Bernoulli
    >>> AdaOFUECOLog(m1=1.0).resolve(Bernoulli(), dim=10, max_norm=1.0).lam
    1.0
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    literal: Flag = False
    subtract: Flag = False

    def checked(self) -> "AdaOFUECOLog":
        """Raises where two parameters do not fit together."""
        if self.literal and self.subtract:
            raise ValueError(
                "literal = True, subtract = True: expected one of them; the subtraction is proved "
                "for our own steps only"
            )
        return self

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: only ratios of logistic likelihoods are used."""
        return "" if is_logistic(family) else "needs rewards with a logistic mean"

    def resolve(self, family: Family, dim: int, max_norm: float) -> "AdaOFUECOLog":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        reach = self.m1 * max_norm
        eta = 1.0 if self.literal else 1.0 + reach
        lam = self.lam
        if lam is None:
            # x'(bar - theta) <= eta trials ||x||^2_{H^-1}; below log 2 no slope doubles
            enough = eta * family.support.high * max_norm**2 / math.log(2.0)
            lam = 1.0 if reach <= SAFE_BOUND else max(1.0, enough)
        return resolved(self, lam=check_ridge(lam, max_norm**2), eta=eta, max_norm=max_norm)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The implicit steps."""
        return ImplicitSteps(self.m1, self.lam, self.eta, family.support.high)


@sqrt_beta.case(AdaOFUECOLog)
def _sqrt_beta(policy: Any, state: State) -> float:
    scalars, ball = state.fit.scalars, policy.lam * policy.m1**2
    if policy.literal:
        reach, n = 1.0 + policy.m1 * policy.max_norm, state.counts[OBSERVED]
        root = math.sqrt(1.0 + n * policy.max_norm**2 / (4.0 * policy.lam))
        spread = 2.0 / math.sqrt(policy.lam) * math.log(2.0 * root / policy.delta)
        gamma = 0.5 * math.sqrt(policy.lam) + spread
        square = 2.0 * ball + reach * reach * gamma + 2.0 * reach * scalars[LOSSES]
    else:
        square = ball + 2.0 * policy.eta * (scalars[LOSSES] - math.log(policy.delta))
        if policy.subtract:
            square -= scalars[MOVES]
    return math.sqrt(max(0.0, square))


radius.case(AdaOFUECOLog)(certified_width)
ellipsoid.case(AdaOFUECOLog)(curved)
choose.case(AdaOFUECOLog)(optimistic)
