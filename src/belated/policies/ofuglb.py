"""OFUGLB and OFULog-r: optimism over a level set of the likelihood itself, not an ellipsoid."""

import math
from typing import Any, NamedTuple

from belated.core.arguments import (
    Positive,
    Probability,
    Tolerance,
    Whole,
    derives,
    parameters,
    resolved,
)
from belated.core.generic import generic_with_default
from belated.core.jit import kernel
from belated.core.types import Vector
from belated.estimators.likelihood import likelihood
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    dual_norm,
    radius,
    set_norm,
    sqrt_beta,
)
from belated.model.state import DECIDED, State
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.constants import is_logistic, known_horizon
from belated.policies.shared.level_set import farthest, highest_index, objective
from belated.policies.shared.likelihood_ratio import (
    derive_constants,
    ellipsoid_radius,
    log_ratio_bound,
)
from belated.policies.shared.logistic_radius import logistic_gamma


@deterministic
@derives("a_phi", "max_norm", "M", "family")
@parameters
class OFUGLB(NamedTuple):
    """Optimism over the level set of the likelihood: no kappa, no ellipsoid.

    Plays the action with the largest ``x'theta`` over all theta with ``||theta|| <= m1`` and

        L(theta) - L(theta_hat) <= beta^2,

    L the negative log-likelihood of the returned rewards and beta^2 as in ``OFUGLBe``. The
    ellipsoid of that policy holds the set and decides for which actions the maximum has to be
    computed. The width of a decision is the larger of the two distances, up and down, of the set
    from the estimate.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    lam
        Ridge of the estimate at the centre. The set holds for any centre in the ball. Default
        ``2 a(phi) / m1^2``, as in ``OFUGLBe``.
    tol
        Largest certified distance of the estimate from the exact one, in the norm of the Hessian.
    horizon
        Number of rounds: so many rewards are kept in the state. Filled in by a simulation. A
        decision after that many is refused.

    Assumptions
    -----------
    Those of ``OFUGLBe``.

    Cost
    ----
    A decision O(K d^2), and O(n d^2) some ten to thirty times for each action that the ellipsoid
    does not rule out: for small problems. A returned reward as in ``OFUGLBe``, without its passes
    for the drift of the Hessian.

    Deviations
    ----------
    The paper's estimate is not penalised; theta_hat here is, by lam, and is certified to within
    tol. The set around it is as likely to hold, and a little larger: L is higher there. Lip is the
    exact maximum. The formulas are from the authors' code; Lee et al. (2024) could not be read.

    References
    ----------
    J. Lee, S.-Y. Yun, K.-S. Jun: A Unified Confidence Sequence for Generalized Linear Models, with
    Applications to Bandits. NeurIPS 2024.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    tol: Tolerance = 1e-2
    horizon: Whole | None = None

    def resolve(self, family: Family, dim: int, max_norm: float) -> "OFUGLB":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        known_horizon(self)
        return resolved(self, **derive_constants(self, family, max_norm), family=family)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball; returned rewards are kept."""
        return _estimator(self, family, dim, max_norm)


@deterministic
@derives("a_phi", "max_norm", "M", "family")
@parameters
class OFULogR(NamedTuple):
    """Optimism over the level set of the penalised logistic likelihood (Abeille et al. 2021).

    As ``OFUGLB``, with the set

        F(theta) - F(theta_hat) <= (gamma + gamma^2 / sqrt(lam))^2,      ||theta|| <= m1,
        gamma = sqrt(lam) (m1 + 1/2)
                + (2 / sqrt(lam)) (log(1 / delta) + (d / 2) log(1 + n / (4 d lam)) + d log 2),

    F the negative log-likelihood of the n returned rewards plus ``lam / 2 ||theta||^2``: the set
    (11) of the paper's Appendix B.3, played as in its Algorithm 2. (For max_norm 1; otherwise lam
    stands for lam / max_norm^2 and m1 for m1 max_norm.) Until many thousands of rewards have
    returned that set holds the whole ball, and the longest action is played; ``OFUGLB`` supersedes
    it.

    Parameters
    ----------
    m1, delta, tol, horizon
        As in ``OFUGLB``.
    lam
        Penalty of the likelihood. Default ``d log(2 + horizon) max_norm^2``.

    Assumptions
    -----------
    Rewards in [0, 1] with a logistic mean, ``||theta_star|| <= m1``, and delays that do not depend
    on the reward.

    Cost
    ----
    As ``OFUGLB``: the same code.

    Deviations
    ----------
    theta_hat is the minimiser over the ball, certified to within tol, not over all of R^d: F is no
    lower there, so the set only grows. lam is d log(2 + T) at the horizon T from the first round
    on. The paper has d log t: the proof of its Theorem 4, which allows for a ridge that changes,
    takes the mean of a mixture whose law depends on the stopping time as if it did not. gamma is
    that of Faury et al. (2020, Section 3.2), which is what Theorem 4 and the trace bound of Lemma
    11 give. The printed (10) is ``sqrt(lam) (m1 + 1/2) + (d / sqrt(lam)) log((4 / delta) (1 + t /
    (16 d lam)))``, and does not follow from them: mu' <= 1/4 bounds the trace by t / 4, not t / 16,
    and in one dimension log(1 / delta) has lost a factor of 2. It is below ours for d = 1 and d =
    2, and above it in high dimensions. The main text has ``lam ||theta||^2`` in the loss; Appendix
    A and the gradient have half of that, and so do we. The authors' code has gamma^2 / lam where
    (11) has gamma^2 / sqrt(lam).

    References
    ----------
    M. Abeille, L. Faury, C. Calauzenes: Instance-Wise Minimax-Optimal Algorithms for Logistic
    Bandits. AISTATS 2021.
    L. Faury, M. Abeille, C. Calauzenes, O. Fercoq: Improved Optimistic Algorithms for Logistic
    Bandits. ICML 2020.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    tol: Tolerance = 1e-2
    horizon: Whole | None = None

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1] with a logistic mean."""
        fits = is_logistic(family) and family.support.high == 1.0
        return "" if fits else "is for rewards in [0, 1] with a logistic mean: use OFUGLB"

    def resolve(self, family: Family, dim: int, max_norm: float) -> "OFULogR":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        horizon = known_horizon(self)
        self = self._replace(lam=self.lam or dim * math.log(2.0 + horizon) * max_norm**2)
        return resolved(self, **derive_constants(self, family, max_norm), family=family)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball; returned rewards are kept."""
        return _estimator(self, family, dim, max_norm)


def _estimator(policy: Any, family: Family, dim: int, max_norm: float) -> Estimator:
    return likelihood(
        family,
        dim,
        max_norm,
        m1=policy.m1,
        ridge=policy.lam,
        tol=policy.tol,
        rows=policy.horizon,
    )


@generic_with_default
def set_ridge(policy: Any) -> float:
    """Returns the penalty in the function of the level set: none by default."""
    return 0.0


@set_ridge.case(OFULogR)
def _ridge(policy: Any) -> float:
    return policy.lam


@sqrt_beta.case(OFUGLB)
def _sqrt_beta(policy: Any, state: State) -> float:
    return math.sqrt(policy.a_phi * log_ratio_bound(policy, state))


@sqrt_beta.case(OFULogR)
def _sqrt_beta_logistic(policy: Any, state: State) -> float:
    gamma, root = logistic_gamma(policy, state, policy.lam), math.sqrt(policy.lam) / policy.max_norm
    return gamma + gamma * gamma / root


@radius.case(OFUGLB, OFULogR)
def _radius(policy: Any, state: State) -> float:
    return sqrt_beta(policy, state)  # holds for any centre: no slack


@set_norm.case(OFUGLB, OFULogR)
def _set_norm(policy: Any, state: State, error: Vector) -> float:
    """Returns the root of the height of F above its value at the estimate."""
    other, ridge = state.work[1], set_ridge(policy)
    for i in range(error.shape[0]):
        other[i] = state.theta[i] - error[i]
    there = objective(policy.family, state, ridge, other)
    return math.sqrt(max(0.0, there - objective(policy.family, state, ridge, state.theta)))


@kernel
def _farthest(policy: Any, state: State, x: Vector, sign: float) -> float:
    """Returns the largest ``sign x'theta`` in the set."""
    height = sqrt_beta(policy, state) ** 2
    return farthest(policy.family, state, set_ridge(policy), policy.m1, height, x, sign)


@dual_norm.case(OFUGLB, OFULogR)
def _dual_norm(policy: Any, state: State, x: Vector) -> float:
    estimate = dot(x, state.theta)
    up, down = _farthest(policy, state, x, 1.0), _farthest(policy, state, x, -1.0)
    return max(up - estimate, down + estimate) / radius(policy, state)


@choose.case(OFUGLB, OFULogR)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    if state.counts[DECIDED] >= policy.horizon:
        raise ValueError("the horizon has passed: no room is left for more rewards")
    ridge, height = set_ridge(policy), sqrt_beta(policy, state) ** 2
    above = height + 0.5 * (policy.lam - ridge) * policy.m1**2  # of the penalised F
    reach = ellipsoid_radius(policy, state, above)
    row, score = highest_index(policy.family, state, ridge, policy.m1, height, reach, actions)
    x = actions.rows[row]
    estimate, down = dot(x, state.theta), _farthest(policy, state, x, -1.0)
    return row, score, estimate, max(score - estimate, down + estimate)
