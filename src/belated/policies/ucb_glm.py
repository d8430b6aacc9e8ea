"""UCB-GLM of Li, Lu and Zhou (2017): explore, then a bonus of fixed width.

Numbers of equations are those of the paper (PMLR 70); Lemma 8 is in its supplement.
"""

import math
from typing import Any, NamedTuple

from belated.core.arguments import (
    Flag,
    Positive,
    Probability,
    Tolerance,
    Whole,
    derives,
    parameters,
    resolved,
)
from belated.estimators import penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    probabilities,
    radius,
    sqrt_beta,
)
from belated.model.state import State
from belated.policies.shared.constants import derive, known_horizon
from belated.policies.shared.exploration import (
    chances_of_explore_first,
    explore_first,
    width_once_explored,
)


@derives("max_norm")
@parameters
class UCBGLM(NamedTuple):
    """Explore until every direction was seen, then ``x'theta + a ||x||_{W^-1}`` with a fixed a.

    Plays at random until ``lambda_min(sum of x x') >= explore_until`` over the rounds whose reward
    has returned; then theta is the maximum likelihood estimate of those rewards in the ball of
    radius m1, and with T the number of rounds

        a = sqrt(lam) m1 + (R / kappa) sqrt(3 b),
        b = (d / 2) log(1 + 2 T max_norm^2 / (d explore_until)) + log(1 / delta).

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    kappa
        Least slope of the mean, by default over ``|x'theta| <= max_norm m1``. The paper's is over
        ``||theta - theta_star|| <= 1``: pass ``family.kappa(max_norm * (m1 + 1))`` for that.
    R
        Sub-Gaussian scale of the noise; the family's by default.
    horizon
        T. A simulation fills it in.
    explore_until
        Least eigenvalue of the returned design that ends the exploration.
    guaranteed
        True, the default: the width above, which is proved. False: the printed one of Theorem 2,
        ``a = (R / kappa) sqrt(b)``, and the estimate of equation (6), which no ball confines. That
        width is not proved and too small, so no confidence set is claimed then.
    lam
        A ridge that keeps the first matrices invertible, so small that it does not matter later.
    tol
        Largest certified distance of the estimate from the exact one, in the norm of the Hessian.

    Assumptions
    -----------
    ``||theta_star|| <= m1``, R-sub-Gaussian noise, and delays that do not depend on the reward. The
    paper also needs actions drawn independently of each other while it explores.

    Cost
    ----
    A decision O(K d) and O(d^2) for each of the few actions that are scored, while exploring
    O(d^3); a returned reward O(d^2), or O(d^3) up to 30 dimensions, and a rare pass over the data.

    Deviations
    ----------
    Sums run over returned rewards. Algorithm 1 explores for tau rounds, which Theorem 2 leaves
    with an unspecified constant C; here the exploration ends with the condition that Lemma 3
    rests on, ``lambda_min >= 1`` in print and ``explore_until`` here.

    The printed width is too small. Lemma 3 has ``(R / kappa) sqrt(b)``, with ``max_norm =
    explore_until = 1``; its proof rests on Lemma 8, which bounds the noise by ``4 R^2 b``: a factor
    of 2 was lost on the way, and Theorem 2 takes over what is left. With Gaussian noise, d = 1,
    T = 2, delta = 0.001 and one action of length 1 the printed width fails after the first reward
    with probability 0.005. Here 4 became 3, by a ridge of ``explore_until / 2`` in place of Lemma
    8's last step. The paper's kappa is the least slope over ``||theta - theta_star|| <= 1``
    (Assumption 1), and nothing in Lemma 3's proof keeps the estimate there; the ball of radius m1
    does, with the kappa above.

    References
    ----------
    L. Li, Y. Lu, D. Zhou: Provably Optimal Algorithms for Generalized Linear Contextual Bandits.
    ICML 2017.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    kappa: Positive | None = None
    R: Positive | None = None
    horizon: Whole | None = None
    explore_until: Positive = 1.0
    guaranteed: Flag = True
    lam: Positive = 1e-6
    tol: Tolerance = 1e-2

    def resolve(self, family: Family, dim: int, max_norm: float) -> "UCBGLM":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        known_horizon(self)
        R, kappa, _, _ = derive(self, family, max_norm)
        return resolved(self, kappa=kappa, R=R, max_norm=max_norm)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The maximum likelihood estimate, in the ball if guaranteed, next to no penalty."""
        return penalised_mle(
            family,
            dim,
            max_norm,
            m1=self.m1,
            lam=self.lam,
            kappa=self.kappa,
            constrained=self.guaranteed,
            tol=self.tol,
        )


# The proved width. With M the sum of x x' over returned rounds, e = explore_until, M >= e I and S
# the sum of x times noise, ||S||^2 in the norm of M^-1 is at most 3/2 of that in the norm of
# (M + e/2 I)^-1, which by the method of mixtures is at most R^2 (log det(I + 2 M / e) + 2 log(1 /
# delta)) in all rounds at once: 3 R^2 b. Lemma 8 has (1 - 1/2)^-1 for our 3/2. The rest is the
# variational inequality of Delayed OFU-GLM; the ridge adds sqrt(lam) m1.


@sqrt_beta.case(UCBGLM)
def _sqrt_beta(policy: Any, state: State) -> float:
    d = state.theta.shape[0]
    growth = 2.0 * policy.horizon * policy.max_norm**2 / (d * policy.explore_until)
    square = 0.5 * d * math.log1p(growth) - math.log(policy.delta)
    if policy.guaranteed:
        least = math.sqrt(policy.lam) * policy.m1
        return policy.R / policy.kappa * math.sqrt(3.0 * square) + least
    return policy.R / policy.kappa * math.sqrt(square)


radius.case(UCBGLM)(width_once_explored)
choose.case(UCBGLM)(explore_first)
probabilities.case(UCBGLM)(chances_of_explore_first)
