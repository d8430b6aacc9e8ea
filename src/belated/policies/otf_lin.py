"""On-the-fly LinUCB and LinTS of Vernade et al. (2020): only conversions return, in a window.

A decision without a conversion in its window did not convert; for a younger decision that is not
known yet. Both policies learn from the first day on: they count all decisions in the design matrix,
as if a conversion that has not come were a zero, and add the possible error to the width: the norms
of the actions whose window is still open. Numbers of equations and algorithms are those of the
paper (PMLR 119, vernade20a).
"""

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

from belated.core.arguments import (
    Count,
    Flag,
    NotNegative,
    Positive,
    Probability,
    derives,
    parameters,
    resolved,
    wrong,
)
from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    factor_precision,
    refit,
    remember,
    score_law,
    take_in,
)
from belated.model.state import DECIDED, WORK, History, State
from belated.numerics.linalg import cholesky, copy, solve_upper
from belated.numerics.lowered.products import dot, matvec, quadratic
from belated.numerics.pruning import DecisionSet, most_optimistic
from belated.policies.shared.all_rounds import add_round, all_rounds
from belated.policies.shared.constants import known_window
from belated.policies.shared.only_successes import learns_from_successes
from belated.policies.shared.sampling import SAMPLE, fill_scores

P = TypeVar("P")
WAITING, REFRESH_AT = 0, 1  # slots of OpenWindows.scalars


class OpenWindows(NamedTuple):
    """The design matrix of all rounds, and the actions whose window is still open."""

    V: Matrix  # (d, d) as in AllRounds
    V_inv: Matrix  # (d, d)
    cap: Vector  # (d + 4,)
    recent: Matrix  # (window, d) the last actions played, a ring
    norms: Vector  # (window,) ||a||_{V^-1} of each, or of an earlier V: then larger
    scalars: Vector  # (2,) sum of the norms; number of decisions at which all are renewed


class ConversionFit(NamedTuple):
    """The sufficient statistic besides ``V``."""

    b: Vector  # (d,) sum of the actions that converted


class ConversionRidge(NamedTuple):
    """``theta = V^-1 sum of the actions that converted``, V over all rounds: exact, O(d^2)."""

    @property
    def looks_back(self) -> bool:
        """False: old rewards are never needed again."""
        return False

    def new_fit(self, dim: int) -> ConversionFit:
        """Returns the fit without any conversion."""
        return ConversionFit(np.zeros(dim))


@take_in.case(ConversionRidge)
def _take_in(estimator: Any, family: Any, state: State, x: Vector, y: float) -> None:
    b = state.fit.b
    for i in range(x.shape[0]):
        b[i] += y * x[i]


@factor_precision.case(ConversionFit)
def _factor_precision(fit: ConversionFit, state: State, U: Matrix) -> None:
    cholesky(state.memory.V, 0.0, U)


@refit.case(ConversionRidge)
def _refit(estimator: Any, family: Any, state: State, history: History) -> None:
    matvec(state.memory.V_inv, state.fit.b, state.theta)


def _resolve(self: Any, family: Family, dim: int, max_norm: float) -> Any:
    """Returns the policy; raises where the window is not known."""
    known_window(self)
    policy, least = accepted(self, family), 1e-9 * max_norm**2
    if not least <= policy.lam < 1e100:  # outside the matrices are singular before long
        raise wrong("lam", policy.lam, f"a number from {least:g} to 1e100")
    return resolved(policy, max_norm=max_norm)


def _estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
    """Ridge regression that counts a reward that has not returned as zero."""
    return ConversionRidge()


def _new_memory(self: Any, dim: int) -> OpenWindows:
    """Returns the memory before the first decision."""
    m = known_window(self)
    return OpenWindows(
        *all_rounds(dim, self.lam), np.zeros((m, dim)), np.zeros(m), np.array([0.0, 1.0])
    )


def _on_the_fly(policy_type: type[P]) -> type[P]:
    """Class decorator with what both policies have besides their parameters and ``choose``."""
    made: Any = learns_from_successes(policy_type)
    made.linear_mean = True  # rewards themselves are regressed on actions
    made.resolve, made.estimator, made.new_memory = _resolve, _estimator, _new_memory
    return policy_type


@deterministic
@_on_the_fly
@derives("max_norm")
@parameters
class OTFLinUCB(NamedTuple):
    """Optimism where only conversions return, and none after the window (Vernade et al. 2020).

    Plays ``argmax x'theta + (2 f + B) ||x||_{V^-1}`` in round t, with V the design matrix of all
    rounds before, theta = V^-1 b, b the sum of the actions whose conversion has returned,

        f = sqrt(lam) + sqrt(2 log(1 / delta) + d log(1 + t max_norm^2 / (d lam))),

    and B the sum of ``||a||_{V^-1}`` over the last ``window`` actions a, whose conversions may
    still come. theta estimates ``tau theta_star``, tau the share of conversions that come within
    the window: a common factor, unknown, which does not change what is best. So there is no
    confidence set for theta_star itself. The guarantee is one of regret.

    Parameters
    ----------
    window
        Rounds a conversion is waited for, m; finite. A simulation fills in that of its feedback.
        A bandit must not be handed conversions that come later.
    delta
        Probability: the width holds in all rounds at once with probability 1 - 2 delta.
    lam
        Ridge in V.
    width_scale
        Factor on the width, for practitioners. The guarantee goes when it is below 1.
    exact
        Renew the norms behind B in every round, O(window d^2). By default they are renewed once
        the number of rounds has grown by a sixteenth and a quarter of the actions is new, O(d^2)
        per round; in between they are a little too large, which keeps the guarantee.

    Assumptions
    -----------
    The mean reward is linear in the action, x'theta_star in [0, 1], with ``||theta_star|| <= 1``;
    delays are independent and of one law, and depend on neither action nor reward. The mean of a
    family here is a function of x'theta_star: that is linear in one-hot actions, whose coefficients
    are then the mean rewards, and in general not in others. Their norm may exceed 1: up to
    ``1 + f / sqrt(lam)`` the width holds all the same, because noise of rewards in [0, 1] is half
    of what the paper allows for.

    Cost
    ----
    A decision O(K d) and a few O(d^2), and O(d^2) more to count it; a conversion O(d^2). Memory
    O(window d).

    Deviations
    ----------
    This is Algorithm 1: the estimate of equation (2), the width of (3) and (4), the index of (6).
    For a logistic family the linear mean is a working model, exact for one-hot actions only: it
    has no constant, unless a feature is constant, and sigma(0) is 1/2.
    Norms behind B may be those of an earlier V, see ``exact``; Section 5 of the paper advises
    those of the rounds in which the actions were played, which are larger. ``max_norm`` other than
    1, which the paper has, enters f. With the width as printed the regret of Figure 1 cannot be
    had: in its world OTFLinUCB loses some seven times as much, more than uniform play.

    References
    ----------
    C. Vernade, A. Carpentier, T. Lattimore, G. Zappella, B. Ermis, M. Brueckner: Linear Bandits
    with Stochastic Delayed Feedback. ICML 2020.
    """

    window: Count | None = None
    delta: Probability = 0.05
    lam: Positive = 1.0
    width_scale: Positive = 1.0
    exact: Flag = False


@_on_the_fly
@derives("max_norm")
@parameters
class OTFLinTS(NamedTuple):
    """Thompson sampling where only conversions return, within a window (Vernade et al. 2020).

    Plays what is best for a parameter drawn from ``N(theta, scale^2 beta V^-1)`` with ``beta = 1 +
    B / f``, in the notation of ``OTFLinUCB``: f grows with log t, B is the sum of the norms of the
    actions whose window is still open.

    Parameters
    ----------
    window, delta, lam, exact
        As in ``OTFLinUCB``.
    scale
        Factor on the standard deviation of the draw; 0 plays the action that looks best.

    Assumptions
    -----------
    None: no guarantee is claimed, and the paper has none: it calls beta "rather heuristic". The
    linear mean is that of ``OTFLinUCB``.

    Cost
    ----
    A decision O(K d + d^3), and O(d^2) more to count it; a conversion O(d^2). Memory O(window d).

    Deviations
    ----------
    This is Algorithm 2; ``scale`` is ours, and 1 is the paper's. Algorithm 2 prints the norms
    behind B in the V of the round in which an action was played, the text of Section 7 in the
    present V: ``exact`` has the latter, the default norms in between. In the world of Figure 1 it
    loses some 1.5 times what the figure shows. The rest as in ``OTFLinUCB``.

    References
    ----------
    C. Vernade, A. Carpentier, T. Lattimore, G. Zappella, B. Ermis, M. Brueckner: Linear Bandits
    with Stochastic Delayed Feedback. ICML 2020.
    """

    window: Count | None = None
    delta: Probability = 0.05
    lam: Positive = 1.0
    scale: NotNegative = 1.0
    exact: Flag = False


@kernel
def _norm(V_inv: Matrix, a: Vector, work: Vector) -> float:
    return math.sqrt(max(0.0, quadratic(V_inv, a, work)))


@kernel
def _open_window(policy: Any, state: State, x: Vector) -> None:
    """Puts ``x`` in the place of the action whose window has closed. V contains it already."""
    memory, decided = state.memory, state.counts[DECIDED]
    V_inv, norms, scalars = memory.V_inv, memory.norms, memory.scalars
    m = norms.shape[0]
    slot = (decided - 1) % m
    copy(x, memory.recent[slot])
    if policy.exact or decided >= scalars[REFRESH_AT]:
        total, waiting = 0.0, min(decided, m)
        for s in range(waiting):
            norms[s] = _norm(V_inv, memory.recent[s], state.work[0])
            total += norms[s]
        scalars[WAITING] = total
        scalars[REFRESH_AT] = decided + 1 + max(decided // 16, waiting // 4)
        return
    norm = _norm(V_inv, x, state.work[0])
    scalars[WAITING] += norm - norms[slot]
    norms[slot] = norm


@remember.case(OTFLinUCB, OTFLinTS)
def _remember(policy: Any, state: State, x: Vector) -> None:
    add_round(state.memory, state, x)
    matvec(state.memory.V_inv, state.fit.b, state.theta)
    if state.memory.norms.shape[0] > 0:
        _open_window(policy, state, x)


@kernel
def _noise(policy: Any, state: State) -> float:
    """Returns f for the round to come, equation (4)."""
    d, t = state.theta.shape[0], state.counts[DECIDED] + 1
    growth = math.log1p(t * policy.max_norm * policy.max_norm / (d * policy.lam))
    return math.sqrt(policy.lam) + math.sqrt(d * growth - 2.0 * math.log(policy.delta))


@choose.case(OTFLinUCB)
def _choose_ucb(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    memory = state.memory
    width = policy.width_scale * (2.0 * _noise(policy, state) + memory.scalars[WAITING])
    return most_optimistic(state.theta, memory.V_inv, memory.cap, width, actions, state.work)


@kernel
def _sd(policy: Any, state: State) -> float:
    """Returns the factor on the standard deviation of a draw."""
    excess = state.memory.scalars[WAITING] / _noise(policy, state)
    return float(policy.scale * math.sqrt(1.0 + excess))


@choose.case(OTFLinTS)
def _choose_ts(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    memory, sample, U = state.memory, state.work[SAMPLE], state.work[WORK:]
    d = state.theta.shape[0]
    for i in range(d):
        sample[i] = rng.standard_normal()
    cholesky(memory.V, 0.0, U)
    solve_upper(U, sample)
    sd = _sd(policy, state)
    for i in range(d):
        sample[i] = state.theta[i] + sd * sample[i]
    row, score, _, _ = most_optimistic(sample, memory.V_inv, memory.cap, 0.0, actions, state.work)
    return row, score, dot(actions.rows[row], state.theta), 0.0


@score_law.case(OTFLinTS)
def _score_law(policy: Any, state: State, actions: DecisionSet, mean: Vector, root: Matrix) -> int:
    U = state.work[WORK:]
    cholesky(state.memory.V, 0.0, U)
    return fill_scores(state.theta, U, _sd(policy, state), actions, mean, root)
