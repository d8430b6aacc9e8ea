"""GLB-OMD of Zhang, Xu, Zhao and Sugiyama (2025): mirror descent on quadratic surrogates.

Why the set holds. As in ``policies/ecolog.py``, with the loss divided by a(phi) and eta = 1 + M m1
max_norm, M the self-concordance constant. The step minimises the second-order surrogate of the
loss at theta_i, so the derivative of the loss at theta_{i+1} differs from that of the surrogate by

    r = (mu(z') - mu(z) - mu'(z) (z' - z)) / a(phi),      z = x'theta_i, z' = x'theta_{i+1},

a number that is known. It enters the variational inequality times x'(theta* - theta_{i+1}), which
is at most m1 ||x|| + |z'|. The predictable point of the likelihood ratios is theta_i itself.
"""

import math
from typing import Any, NamedTuple

from belated.core.arguments import Flag, Positive, Probability, derives, parameters, resolved, wrong
from belated.estimators.one_pass import GAINED, MirrorSteps
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    ellipsoid,
    radius,
    self_concordance,
    sqrt_beta,
)
from belated.model.state import OBSERVED, State
from belated.policies.shared.one_pass import check_ridge, curved, is_quasi
from belated.policies.shared.optimism import certified_width, optimistic


@deterministic
@derives("eta", "slope", "a_phi", "max_norm")
@parameters
class GLBOMD(NamedTuple):
    """Experimental. Mirror descent for any exponential family: constant memory, one pass.

    Rewards are taken in one by one as they return. With l(theta) = (b(x'theta) - y x'theta) /
    a(phi), and its quadratic surrogate at theta,

        theta <- argmin over the ball of surrogate + ||. - theta||_H^2 / (2 eta),
        H <- H + mu'(x'theta) / a(phi) x x'      (theta the new one; H begins as lam I).

    It plays ``argmax x'theta + radius ||x||_{H^-1}`` with ``eta = 1 + M m1 max_norm``, M the
    self-concordance constant, and

        radius^2 = lam m1^2 + 2 eta log(1 / delta) + sum of [2 eta (l(old) - l(new))
                   - ||new - old||_H^2 + 2 eta |r| (m1 ||x|| + |x'new|)],

    r the error of the surrogate's derivative at the new theta.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    lam
        Ridge in H; default d (times max_norm^2 / a(phi)), that of the paper's experiments.
    literal
        The radius as we remember the paper: ``radius^2 = 4 lam m1^2 + 2 eta log(1 / delta) + d eta
        log(1 + 2 L_mu n max_norm^2 / (d lam a(phi)))``, with its lam = max(14 d eta M^2
        max_norm^2, 6 eta M m1 max_norm L_mu max_norm^2 / a(phi)). Not proved.

    Assumptions
    -----------
    ``||theta_star|| <= m1``. Rewards of an exponential family with b its cumulant, or sub-Gaussian
    of scale sd (Gaussian), or bounded with the mean of a law on the two ends (Bounded, Tanh).
    Delays that do not depend on the reward. Then the set holds in all rounds at once with
    probability 1 - delta, unless ``literal``. No R is needed: Poisson rewards will do.

    Cost
    ----
    A decision O(K d), plus O(d^2) for each action that is scored. A returned reward O(d^2), and
    O(d^3) where the step leaves the ball by far. Memory O(d^2), whatever the number of rewards.

    Deviations
    ----------
    Experimental. Rewards are processed in the order in which they return, ties in the order of
    decisions: the estimate depends on that order, the guarantee does not. The radius of Zhang et
    al. (2025), which could not be read, is from memory with little confidence and serves only where
    ``literal`` asks for it; ours is computed from the data and proved in ``policies/glb_omd.py``,
    for any lam. The paper's regret bound is not claimed for it.

    References
    ----------
    Y.-J. Zhang, S.-A. Xu, P. Zhao, M. Sugiyama: Generalized Linear Bandits: Almost Optimal Regret
    with One-Pass Update. NeurIPS 2025, arXiv 2507.11847.

    Examples
    --------
    >>> from belated import Poisson
    >>> GLBOMD(m1=1.0).resolve(Poisson(), dim=10, max_norm=1.0).lam
    10.0
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    literal: Flag = False

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: for likelihood ratios b must be the cumulant."""
        if is_quasi(family):
            return "needs an exponential family: b is not the cumulant of these rewards"
        return ""

    def resolve(self, family: Family, dim: int, max_norm: float) -> "GLBOMD":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        reach = self.m1 * max_norm
        if not family.kappa(reach) > 0.0:
            name = type(family).__name__
            raise wrong("m1", self.m1, f"a bound at which the slope of {name} is above 0")
        M, slope, lam = self_concordance(family, reach), family.lipschitz(reach), self.lam
        eta = 1.0 + M * reach
        if lam is None:
            lam = dim * max_norm**2 / family.a_phi
            if self.literal and M > 0.0:
                errors = 6.0 * eta * M * reach * slope * max_norm**2 / family.a_phi
                lam = max(14.0 * dim * eta * (M * max_norm) ** 2, errors)
        return resolved(
            self,
            lam=check_ridge(lam, max_norm**2 / family.a_phi),
            eta=eta,
            slope=slope,
            a_phi=family.a_phi,
            max_norm=max_norm,
        )

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The steps of mirror descent."""
        return MirrorSteps(self.m1, self.lam, self.eta, family.a_phi)


@sqrt_beta.case(GLBOMD)
def _sqrt_beta(policy: Any, state: State) -> float:
    ball, d = policy.lam * policy.m1**2, state.theta.shape[0]
    square = -2.0 * policy.eta * math.log(policy.delta)
    if policy.literal:
        rows = state.counts[OBSERVED] * policy.max_norm**2
        volume = math.log1p(2.0 * policy.slope * rows / (d * policy.lam * policy.a_phi))
        square += 4.0 * ball + d * policy.eta * volume
    else:
        square += ball + state.fit.scalars[GAINED]
    return math.sqrt(max(0.0, square))


radius.case(GLBOMD)(certified_width)
ellipsoid.case(GLBOMD)(curved)
choose.case(GLBOMD)(optimistic)
