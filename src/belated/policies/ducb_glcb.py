"""DUCB-GLCB of Zhou, Xu and Blanchet (2019): the bonus inflated by the rewards still missing.

Reconstructed from memory of the paper (Zhou, Xu, Blanchet: Learning in Generalized Linear
Contextual Bandits with Stochastic Delays, NeurIPS 2019; Blanchet, Xu, Zhou, arXiv 2003.05174),
which we could not read. The inflation follows from

    ||e||_V^2 = ||e||_W^2 + sum over missing rounds of (x'e)^2 <= ||e||_W^2 + G ||e||^2,

e = theta - theta_star: W counts the rewards that returned, V all rounds, G the missing ones.
"""

import math
from typing import Any, NamedTuple

from belated.core.arguments import (
    Flag,
    NotNegative,
    Positive,
    Probability,
    derives,
    parameters,
    resolved,
)
from belated.core.jit import inlined_kernel
from belated.core.types import Matrix, Vector
from belated.estimators import penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    ellipsoid,
    probabilities,
    radius,
    remember,
    sqrt_beta,
)
from belated.model.state import DECIDED, OBSERVED, SLACK, State
from belated.policies.shared.all_rounds import AllRounds, add_round, all_rounds
from belated.policies.shared.constants import derive, paper_width
from belated.policies.shared.exploration import chances_of_explore_first, explore_first
from belated.policies.shared.optimism import optimistic


@deterministic
@derives("max_norm")
@parameters
class DUCBRidge(NamedTuple):
    """Delay-inflated bonus (Zhou et al. 2019), with the estimate and width of Delayed OFU-GLM.

    Plays ``argmax x'theta + (sqrt_beta + c sqrt(G)) ||x||_{V^-1}``: V is the design matrix of all
    rounds, G the number of rewards still missing. Our variant for a fair comparison: ridge, no
    exploration phase.

    Parameters
    ----------
    m1, delta, lam, kappa, R
        As in ``DelayedOFUGLM``.
    c
        Factor of the inflation; 1 is the paper's, which needs ``||theta - theta_star|| <= 1``.
    guaranteed
        Take ``sqrt(beta + 4 G m1^2 max_norm^2)`` instead: a width that is proved, for an estimate
        in the ball of radius m1. Without it no confidence set is claimed.

    Assumptions
    -----------
    With ``guaranteed``: those of Delayed OFU-GLM. The default width also needs ``c >= max_norm
    ||theta - theta_star||`` in every round, which nothing enforces: it is a rule for playing, and
    no set is claimed with it. In the ball of radius m1 the distance may be ``2 m1``.

    Cost
    ----
    A decision: O(K d), O(d^2) for each of the few actions that pruning leaves, and O(d^2) to add it
    to V. A returned reward: as in Delayed OFU-GLM with its defaults.

    Deviations
    ----------
    Reconstructed from memory of Zhou et al. (2019), which we could not read: the bonus and the
    matrix with confidence. The paper explores first and has no ridge, see ``DUCBLiteral``. The
    width of the returned rewards is that of Delayed OFU-GLM.

    References
    ----------
    Z. Zhou, R. Xu, J. Blanchet: Learning in Generalized Linear Contextual Bandits with Stochastic
    Delays. NeurIPS 2019.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    kappa: Positive | None = None
    R: Positive | None = None
    c: NotNegative = 1.0
    guaranteed: Flag = False

    def resolve(self, family: Family, dim: int, max_norm: float) -> "DUCBRidge":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        R, kappa, lam, _ = derive(self, family, max_norm)
        return resolved(self, lam=lam, kappa=kappa, R=R, max_norm=max_norm)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball."""
        return penalised_mle(family, dim, max_norm, m1=self.m1, lam=self.lam, kappa=self.kappa)

    def new_memory(self: Any, dim: int) -> AllRounds:
        """Returns the memory before the first decision."""
        return all_rounds(dim, self.lam)


@parameters
class DUCBLiteral(NamedTuple):
    """Delay-inflated bonus (Zhou et al. 2019) as we remember the paper: explore, no ridge.

    Plays at random until the returned rounds span the space, ``lambda_min(sum of x x') >=
    explore_until``; then ``argmax x'theta + beta ||x||_{V^-1}`` with the unpenalised maximum
    likelihood estimate and

        beta = (R / kappa) sqrt((d / 2) log(1 + 2 n / d) + log(1 / delta)) + sqrt(G),

    n the rewards returned, plus one, and G those missing.

    Parameters
    ----------
    m1, delta, kappa, R
        As in ``DelayedOFUGLM``.
    explore_until
        Least eigenvalue of the returned design that ends the exploration.
    lam
        A ridge that keeps the first matrices invertible, so small that it does not matter later.

    Assumptions
    -----------
    None: no guarantee is claimed. The paper's argument is that of Delayed OFU-GLM, once exploration
    has brought the estimate to within ``1 / max_norm`` of theta_star, where kappa bounds the slope.

    Cost
    ----
    A decision: as in ``DUCBRidge``, and O(d^3) while exploring. A returned reward: as in Delayed
    OFU-GLM with its defaults.

    Deviations
    ----------
    Reconstructed from memory of Zhou et al. (2019), which we could not read. The bonus and the
    matrix are remembered with confidence, the length of the exploration is not: the paper's
    constants are unspecified, so the condition its proof uses stands in for them. The first term
    of the width, that printed in Theorem 2 of Li et al. (2017), is too small in general (see
    ``UCBGLM``), and so is the set: in short logistic runs it loses theta_star far more often than
    delta. None is claimed.

    References
    ----------
    Z. Zhou, R. Xu, J. Blanchet: Learning in Generalized Linear Contextual Bandits with Stochastic
    Delays. NeurIPS 2019.
    J. Blanchet, R. Xu, Z. Zhou: Delay-Adaptive Learning in Generalized Linear Contextual Bandits.
    arXiv 2003.05174.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    kappa: Positive | None = None
    R: Positive | None = None
    explore_until: Positive = 1.0
    lam: Positive = 1e-6

    def resolve(self, family: Family, dim: int, max_norm: float) -> "DUCBLiteral":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        R, kappa, _, _ = derive(self, family, max_norm)
        return resolved(self, kappa=kappa, R=R)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The maximum likelihood estimate, penalised by next to nothing."""
        return penalised_mle(
            family,
            dim,
            max_norm,
            m1=self.m1,
            lam=self.lam,
            kappa=self.kappa,
            constrained=False,
        )

    def new_memory(self, dim: int) -> AllRounds:
        """Returns the memory before the first decision."""
        return all_rounds(dim, self.lam)


@remember.case(DUCBRidge, DUCBLiteral)
def _remember(policy: Any, state: State, x: Vector) -> None:
    add_round(state.memory, state, x)


@ellipsoid.case(DUCBRidge, DUCBLiteral)
def _ellipsoid(policy: Any, state: State) -> tuple[Matrix, Matrix, Vector]:
    return state.memory.V, state.memory.V_inv, state.memory.cap


@inlined_kernel
def _missing(state: State) -> int:
    return state.counts[DECIDED] - state.counts[OBSERVED]


@inlined_kernel
def _inflated(policy: Any, state: State, width: float) -> float:
    if policy.guaranteed:
        reach = 2.0 * policy.m1 * policy.max_norm
        return math.sqrt(width * width + _missing(state) * reach * reach)
    return width + policy.c * math.sqrt(_missing(state))


@sqrt_beta.case(DUCBRidge)
def _sqrt_beta_ridge(policy: Any, state: State) -> float:
    return _inflated(policy, state, paper_width(policy, state))


@radius.case(DUCBRidge)
def _radius_ridge(policy: Any, state: State) -> float:
    return _inflated(policy, state, paper_width(policy, state) + state.scalars[SLACK])


choose.case(DUCBRidge)(optimistic)


# no ``radius``: this width does not hold, see the docstring
@sqrt_beta.case(DUCBLiteral)
def _sqrt_beta_literal(policy: Any, state: State) -> float:
    d, n = state.theta.shape[0], state.counts[OBSERVED] + 1
    spread = math.sqrt(0.5 * d * math.log(1.0 + 2.0 * n / d) - math.log(policy.delta))
    return policy.R / policy.kappa * spread + math.sqrt(_missing(state))


choose.case(DUCBLiteral)(explore_first)
probabilities.case(DUCBLiteral)(chances_of_explore_first)
