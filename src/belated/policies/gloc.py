"""GLOC of Jun, Bhargava, Nowak and Willett (2017): online Newton steps turned into a set."""

import math
from typing import Any, NamedTuple

from belated.core.arguments import Positive, Probability, parameters, resolved
from belated.estimators.one_pass import SQUARED_PREDICTIONS, SQUARED_PULLS, NewtonSteps
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    radius,
    sqrt_beta,
)
from belated.model.state import State
from belated.numerics.lowered.products import dot
from belated.policies.shared.constants import derive
from belated.policies.shared.one_pass import check_ridge
from belated.policies.shared.optimism import certified_width, optimistic


@deterministic
@parameters
class GLOC(NamedTuple):
    """Online Newton steps turned into a confidence set: constant memory, one pass.

    Rewards are taken in one by one as they return. The iterate predicts ``z = x'iterate``, then
    moves against ``g = mu(z) - y``,

        iterate <- projection of iterate - (g / kappa) W^-1 x on the ball, in the norm of W,

    W with x in it. The set is centred not on the iterate but on the ridge regression of the
    predictions, ``theta = W^-1 sum of z x``. It plays ``argmax x'theta + radius ||x||_{W^-1}``,

        B = 2 kappa lam m1^2 + (1 / 2 kappa) sum of g^2 ||x||^2_{W^-1},
        alpha = 1 + 4 B / kappa + (8 R^2 / kappa^2)
                log((2 / delta) sqrt(1 + 2 B / kappa + 4 R^4 / (kappa^4 delta^2))),
        radius^2 = alpha + lam m1^2 - (sum of z^2 - theta'sum of z x).

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    lam
        Ridge in W; default 1.
    kappa
        Least slope of the mean over ``|x'theta| <= max_norm m1``.
    R
        Sub-Gaussian scale of the noise.

    Assumptions
    -----------
    ``||theta_star|| <= m1``. Noise sub-Gaussian of scale R. Delays that do not depend on the
    reward. Then the set holds in all rounds at once with probability 1 - delta.

    Cost
    ----
    A decision O(K d), plus O(d^2) for each action that is scored. A returned reward O(d^2), and
    O(d^3) where the step leaves the ball by far. Memory O(d^2), whatever the number of rewards.

    Deviations
    ----------
    Rewards are processed in the order in which they return, ties in the order of decisions: the
    estimate depends on that order, the guarantee does not. The theorem is from memory of Jun et al.
    (2017), which could not be read; Faury et al. (2022, Appendix B.3) say of it that a step and,
    with it, the radius have a factor 1 / kappa, as here. Its formula follows from the regret of the
    steps, Lemma 2 of Abbasi-Yadkori et al. (2012) and the square completed, which is how it was
    checked. B keeps the paper's first term, which allows for any first iterate; ours is zero.

    References
    ----------
    K.-S. Jun, A. Bhargava, R. Nowak, R. Willett: Scalable Generalized Linear Bandits: Online
    Computation and Hashing. NeurIPS 2017.
    Y. Abbasi-Yadkori, D. Pal, C. Szepesvari: Online-to-Confidence-Set Conversions and Application
    to Sparse Stochastic Bandits. AISTATS 2012.

    Examples
    --------
    >>> from belated import Bernoulli
    >>> GLOC(m1=1.0).resolve(Bernoulli(), dim=10, max_norm=1.0).lam
    1.0
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    kappa: Positive | None = None
    R: Positive | None = None

    def resolve(self, family: Family, dim: int, max_norm: float) -> "GLOC":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        R, kappa, lam, _ = derive(self, family, max_norm)
        return resolved(self, lam=check_ridge(lam, max_norm**2), kappa=kappa, R=R)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The online Newton steps."""
        return NewtonSteps(self.m1, self.kappa)


@sqrt_beta.case(GLOC)
def _sqrt_beta(policy: Any, state: State) -> float:
    fit, kappa = state.fit, policy.kappa
    spread = policy.R / kappa
    B = 2.0 * kappa * policy.lam * policy.m1**2 + fit.scalars[SQUARED_PULLS] / (2.0 * kappa)
    # hypot: the fourth power may overflow
    root = math.hypot(math.sqrt(1.0 + 2.0 * B / kappa), 2.0 * spread * spread / policy.delta)
    alpha = 1.0 + 4.0 * B / kappa + 8.0 * spread * spread * math.log(2.0 / policy.delta * root)
    unexplained = max(0.0, fit.scalars[SQUARED_PREDICTIONS] - dot(fit.b, state.theta))
    return math.sqrt(max(0.0, alpha + policy.lam * policy.m1**2 - unexplained))


radius.case(GLOC)(certified_width)
choose.case(GLOC)(optimistic)
