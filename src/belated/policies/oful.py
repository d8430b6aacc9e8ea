"""OFUL of Abbasi-Yadkori, Pal and Szepesvari (2011), and its variant with rare switches."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import (
    Flag,
    NotNegative,
    Positive,
    Probability,
    derives,
    parameters,
    resolved,
)
from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.estimators import ridge_regression
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    radius,
    remember,
    sqrt_beta,
)
from belated.model.state import LOG_DET, OBSERVED, State
from belated.numerics.linalg import copy
from belated.numerics.pruning import DecisionSet, most_optimistic, new_cap
from belated.policies.shared.constants import linear_only, noise_scale
from belated.policies.shared.optimism import certified_width, optimistic

THEN_LOG_DET, THEN_OBSERVED = 0, 1  # slots of LastSwitch.scalars


@deterministic
@derives("max_norm")
@parameters
class OFUL(NamedTuple):
    """Optimism over the ellipsoid of ridge regression, for rewards with a linear mean.

    Plays ``argmax x'theta + sqrt_beta ||x||_{W^-1}`` with ``theta = W^-1 sum of y x``, ``W = lam I
    + sum of x x'`` over the n rounds whose reward has returned, and

        sqrt_beta = sqrt(lam) m1 + R sqrt(log det(W / lam) + 2 log(1 / delta)),

    or, with ``determinant=False``, the wider ``sqrt(lam) m1 + R sqrt(d log((1 + n max_norm^2 / lam)
    / delta))``, which needs no determinant (in one dimension with ``delta^2`` for ``delta``). For
    Gaussian rewards the first is Delayed OFU-GLM.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    lam
        Ridge.
    R
        Sub-Gaussian scale of the noise; the family's by default.
    determinant
        True for the first of the two widths, False for the second.

    Assumptions
    -----------
    ``||theta_star|| <= m1``, a mean reward of ``x'theta_star``, R-sub-Gaussian noise, and delays
    that do not depend on the reward. Families with another mean are refused.

    Cost
    ----
    A decision O(K d) and O(d^2) for each of the few actions that are scored; a returned reward
    O(d^2).

    Deviations
    ----------
    Sums run over returned rewards. In one dimension the width without determinant has ``2 log(1 /
    delta)``; the paper's ``d log(1 / delta)`` is not enough for its own proof there.

    References
    ----------
    Y. Abbasi-Yadkori, D. Pal, C. Szepesvari: Improved Algorithms for Linear Stochastic Bandits.
    NeurIPS 2011.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive = 1.0
    R: Positive | None = None
    determinant: Flag = True

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: the model is linear."""
        return linear_only(family)

    def resolve(self, family: Family, dim: int, max_norm: float) -> "OFUL":
        """Returns the policy with R filled in."""
        self = accepted(self, family)
        return resolved(self, R=noise_scale(self, family), max_norm=max_norm)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """Ridge regression."""
        return ridge_regression(max_norm, self.lam)


class LastSwitch(NamedTuple):
    """Estimate, matrix and counts at the time when the policy last looked up."""

    theta: Vector  # (d,)
    W_inv: Matrix  # (d, d)
    cap: Vector  # (d + 4,)
    scalars: Vector  # (2,) log det W, and the number of rewards returned


@deterministic
@derives("max_norm")
@parameters
class OFULRarely(NamedTuple):
    """OFUL that looks up only when the determinant of W has grown by the factor 1 + C.

    Until then it plays on with the estimate, the matrix and the width it had at the last switch.
    ``radius`` and ``interval`` are those of all rewards returned by now, as in OFUL.

    Parameters
    ----------
    m1, delta, lam, R, determinant
        As in ``OFUL``.
    C
        Growth of the determinant between switches, less 1; 0 is OFUL. The regret bound grows by the
        factor ``sqrt(1 + C)``.

    Assumptions
    -----------
    As in ``OFUL``.

    Cost
    ----
    A decision O(K d) and O(d^2) for each of the few actions that are scored, a switch O(d^2), a
    returned reward O(d^2): the estimate is kept up to date all the same, so nothing is saved here.
    There are O(d log(n)) switches.

    Deviations
    ----------
    Sums run over returned rewards. From memory of Abbasi-Yadkori et al. (2011), which could not be
    read, the paper keeps the optimistic parameter of the last switch, which is optimistic for the
    actions of that round only; here estimate, matrix and width are kept, and the actions of every
    round are scored with them.

    References
    ----------
    Y. Abbasi-Yadkori, D. Pal, C. Szepesvari: Improved Algorithms for Linear Stochastic Bandits.
    NeurIPS 2011, Section 5.1.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive = 1.0
    R: Positive | None = None
    determinant: Flag = True
    C: NotNegative = 0.5

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: the model is linear."""
        return linear_only(family)

    def resolve(self, family: Family, dim: int, max_norm: float) -> "OFULRarely":
        """Returns the policy with R filled in."""
        self = accepted(self, family)
        return resolved(self, R=noise_scale(self, family), max_norm=max_norm)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """Ridge regression."""
        return ridge_regression(max_norm, self.lam)

    def new_memory(self, dim: int) -> LastSwitch:
        """Returns the switch before the first reward."""
        scalars = np.array([dim * math.log(self.lam), 0.0])
        return LastSwitch(np.zeros(dim), np.eye(dim) / self.lam, new_cap(dim, self.lam), scalars)


@kernel
def _width(policy: Any, d: int, log_det: float, n: float) -> float:
    """Returns ``sqrt_beta`` after n rewards, with this log det W."""
    if policy.determinant:
        growth, tails = max(0.0, log_det - d * math.log(policy.lam)), 2
    else:
        growth = d * math.log1p(n * policy.max_norm * policy.max_norm / policy.lam)
        tails = max(d, 2)
    spread = math.sqrt(growth - tails * math.log(policy.delta))
    return math.sqrt(policy.lam) * policy.m1 + policy.R * spread


@sqrt_beta.case(OFUL, OFULRarely)
def _sqrt_beta(policy: Any, state: State) -> float:
    n = float(state.counts[OBSERVED])
    return _width(policy, state.theta.shape[0], state.scalars[LOG_DET], n)


radius.case(OFUL, OFULRarely)(certified_width)
choose.case(OFUL)(optimistic)


@kernel
def _outgrown(policy: Any, state: State) -> bool:
    """Returns whether det W > (1 + C) det W at the last switch."""
    return state.scalars[LOG_DET] > state.memory.scalars[THEN_LOG_DET] + math.log1p(policy.C)


@choose.case(OFULRarely)
def _choose_rarely(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    if _outgrown(policy, state):
        return optimistic(policy, state, actions, rng)
    last, d = state.memory, state.theta.shape[0]
    reach = _width(policy, d, last.scalars[THEN_LOG_DET], last.scalars[THEN_OBSERVED])
    return most_optimistic(last.theta, last.W_inv, last.cap, reach, actions, state.work)


@remember.case(OFULRarely)
def _remember(policy: Any, state: State, x: Vector) -> None:
    """Stores the switch that ``choose`` made but must not store; no reward came in between."""
    if _outgrown(policy, state):
        last = state.memory
        copy(state.theta, last.theta)
        copy(state.cap, last.cap)
        for i in range(x.shape[0]):
            copy(state.W_inv[i], last.W_inv[i])
        last.scalars[THEN_LOG_DET] = state.scalars[LOG_DET]
        last.scalars[THEN_OBSERVED] = state.counts[OBSERVED]
