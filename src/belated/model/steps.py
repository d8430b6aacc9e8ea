"""The steps of a bandit, shared by ``Bandit``, by the fold of a log and by a lane of the engine.

A decision calls ``pick``, then ``record``; with sparse rows ``play_sparse_step`` does both, from
the law of scores, or ``play_exact_step``, from exact probabilities, without ``pick``. A reward
calls ``take_reward``; ``catch_up`` follows the last of several.
"""

from typing import Any

import numpy as np

from belated.core.generic import generic_with_default
from belated.core.jit import allocating_kernel, inlined_kernel, kernel
from belated.core.sparse import SparseRows
from belated.core.types import Coarse, Integers, Matrix, Vector
from belated.model.protocols import (
    Estimator,
    ResolvedPolicy,
    choose,
    draw_parameter,
    hear,
    is_sparse,
    probabilities,
    radius,
    refit,
    remake,
    remember,
    revise_row,
    score_law,
    set_norm,
    take_in_row,
)
from belated.model.state import (
    DECIDED,
    Nothing,
    SparseHistory,
    State,
    absorb,
    new_state,
    put,
    remake_design,
    renew_cap,
)
from belated.numerics.entries import inner
from belated.numerics.gaussian_scores import fill_chances, highest_draw
from belated.numerics.pruning import DecisionSet, decision_set
from belated.numerics.row_draws import drawn_row

DECIDE, LEARN, REVISE = 0, 1, 2  # moves of fold_step


def first_state(policy: ResolvedPolicy, estimator: Estimator, dim: int) -> State:
    """Returns the state of a resolved policy before its first decision."""
    new_memory = getattr(policy, "new_memory", None)
    memory = Nothing() if new_memory is None else new_memory(dim)
    designed = not is_sparse(policy)
    lam = policy.lam if designed else 1.0
    return new_state(dim, lam, estimator.new_fit(dim), memory, designed)


@inlined_kernel
def pick(
    policy: Any,
    state: State,
    history: Any,
    options: Any,
    rng: np.random.Generator | None,
) -> tuple[int, float, float, float]:
    """Chooses one of ``options``, records nothing; returns its row, score, estimate and width."""
    draw_parameter(policy, state, history, rng)
    return choose(policy, state, options, rng)


@generic_with_default
def remember_row(history: Any, policy: Any, state: State, rows: Any, k: int) -> None:
    """Lets the policy remember row ``k`` of ``rows``; one with sparse rows has no memory."""
    remember(policy, state, rows[k])


@remember_row.case(SparseHistory)
def _nothing_to_remember(
    history: SparseHistory, policy: Any, state: State, rows: Any, k: int
) -> None:
    return


@inlined_kernel
def record(policy: Any, state: State, history: Any, row: int, rows: Any, k: int) -> None:
    """Records that row ``k`` of ``rows`` was played, in ``row`` of the history.

    Nothing is written into the history where ``row`` is -1.
    """
    if row >= 0:
        put(history, row, rows, k)
    state.counts[DECIDED] += 1
    remember_row(history, policy, state, rows, k)


@allocating_kernel
def choose_step(
    policy: Any,
    state: State,
    history: Any,
    actions: Matrix,
    max_norm: float,
    rng: np.random.Generator | None,
) -> tuple[int, float, float, float]:
    """``pick`` one of ``actions``; row -1 where one of them is longer than ``max_norm``."""
    options = decision_set(actions)
    if not are_within(actions, max_norm):
        return -1, 0.0, 0.0, 0.0
    return pick(policy, state, history, options, rng)


@allocating_kernel
def choose_from_step(
    policy: Any,
    state: State,
    history: Any,
    options: Any,
    rng: np.random.Generator | None,
) -> tuple[int, float, float, float]:
    """``pick`` one of ``options``, whose norms were checked when they were made."""
    return pick(policy, state, history, options, rng)


@allocating_kernel
def decide_step(
    policy: Any,
    state: State,
    history: Any,
    actions: Matrix,
    max_norm: float,
    rng: np.random.Generator | None,
) -> tuple[int, int, float, float, float]:
    """Chooses and records; returns history row, row of ``actions``, score, estimate, width.

    Returns row -1 and records nothing where an action is longer than ``max_norm``.
    """
    index, score, estimate, width = choose_step(policy, state, history, actions, max_norm, rng)
    if index < 0:
        return -1, 0, 0.0, 0.0, 0.0
    row = state.counts[DECIDED]
    record(policy, state, history, row, actions, index)
    return row, index, score, estimate, width


@kernel
def play_sparse_step(
    policy: Any,
    state: State,
    history: SparseHistory,
    options: SparseRows,
    z: Vector,
    points: Coarse,
    mean: Vector,
    root: Matrix,
    shares: Vector,
    records: bool,
) -> tuple[int, int, float]:
    """Does the same as ``decide_step`` for sparse rows, whose entries were checked before.

    ``z`` has one standard normal number for each action: to hand a generator to compiled code
    takes longer than to draw them. The law of scores is filled into ``mean`` and ``root``, and the
    probability of every action, from the same law, into ``shares``: see ``gaussian_chances``.
    Nothing is recorded unless ``records`` says so. Returns how many columns of ``root`` count, and
    the row of ``options`` and its score.
    """
    r = score_law(policy, state, options, mean, root)
    index, score = highest_draw(mean, root, r, z)
    fill_chances(mean, root, r, points, shares)
    if records:
        record(policy, state, history, state.counts[DECIDED], options, index)
    return r, index, score


@kernel
def play_exact_step(
    policy: Any,
    state: State,
    history: SparseHistory,
    options: SparseRows,
    u: float,
    mean: Vector,
    shares: Vector,
    records: bool,
) -> int:
    """Does the same for a policy with a case of ``probabilities``, which are filled in.

    ``u`` is uniform in [0, 1); ``mean`` becomes the estimates. Returns the row of ``options``.
    """
    probabilities(policy, state, options, shares)
    index = drawn_row(shares, u)
    for a in range(mean.shape[0]):
        mean[a] = inner(options, a, state.theta)
    if records:
        record(policy, state, history, state.counts[DECIDED], options, index)
    return index


@allocating_kernel
def exact_chances(policy: Any, state: State, options: DecisionSet, out: Vector) -> None:
    """Fills in the probability of each option, for a policy with a case of ``probabilities``."""
    probabilities(policy, state, options, out)


@allocating_kernel
def gaussian_chances(
    policy: Any, state: State, options: DecisionSet, points: Coarse, out: Vector
) -> None:
    """Fills in the share of ``points`` at which each option wins: see ``score_law``."""
    K, d = options.rows.shape
    mean, root = np.empty(K), np.empty((K, max(K, d)))
    r = score_law(policy, state, options, mean, root)
    fill_chances(mean, root, r, points, out)


@allocating_kernel
def count_choices(
    policy: Any,
    state: State,
    history: Any,
    options: Any,
    rng: np.random.Generator | None,
    times: int,
    out: Vector,
) -> None:
    """``pick`` so many ``times``; counts in ``out`` how often each option was chosen."""
    for _ in range(times):
        out[pick(policy, state, history, options, rng)[0]] += 1.0


@kernel
def is_within(x: Vector, max_norm: float) -> bool:
    """Returns whether ``x`` is finite and no longer than ``max_norm``."""
    square = 0.0
    for i in range(x.shape[0]):
        v = float(x[i])  # Python's float: its overflow is infinite, without a warning
        square += v * v
    return square <= max_norm * max_norm


@kernel
def are_within(actions: Matrix, max_norm: float) -> bool:
    """Returns whether every row is finite and no longer than ``max_norm``."""
    for a in range(actions.shape[0]):  # noqa: SIM110 (Numba compiles no generator)
        if not is_within(actions[a], max_norm):
            return False
    return True


@inlined_kernel
def take_reward(
    estimator: Any, family: Any, state: State, history: Any, row: int, y: float
) -> None:
    """Takes in the reward of a history row. ``catch_up`` must follow the last of several."""
    absorb(state, history, row, y)
    take_in_row(estimator, family, state, history, row, y)


@inlined_kernel
def catch_up(estimator: Any, family: Any, state: State, history: Any) -> None:
    """Bring the estimate up to date with the rewards taken in."""
    refit(estimator, family, state, history)
    renew_cap(history, state)


@kernel
def learn_step(
    estimator: Any,
    family: Any,
    state: State,
    history: Any,
    rows: Integers,
    rewards: Vector,
) -> None:
    """Absorb the rewards of these history rows, then bring the estimate up to date once."""
    for k in range(rows.shape[0]):
        take_reward(estimator, family, state, history, rows[k], rewards[k])
    catch_up(estimator, family, state, history)


@kernel
def remake_step(estimator: Any, family: Any, state: State, history: Any, lam: float) -> None:
    """Makes the estimate anew from the history as it is: rewards or weights have changed.

    ``lam`` is the ridge of ``W``. Costs about one pass over the rewards that weigh anything.
    """
    remake_design(history, state, lam)
    remake(estimator, family, state, history)
    catch_up(estimator, family, state, history)


@kernel
def hear_step(estimator: Any, family: Any, state: State, history: Any, silence: Vector) -> None:
    """Lets open rows be as silent as ``silence`` says, then brings the estimate up to date."""
    hear(estimator, family, state, history, silence)
    catch_up(estimator, family, state, history)


@kernel
def fold_step(
    policy: Any,
    estimator: Any,
    family: Any,
    state: State,
    history: Any,
    moves: Integers,
    X: Any,
    rows: Integers,
    rewards: Vector,
    last: Integers,
) -> None:
    """Takes in a run of events, in their order. The history must have room for them.

    A move is DECIDE (the next row of ``X`` was played), LEARN (the reward of a history row
    returned) or REVISE (another reward takes its place). The estimate is brought up to date after
    the moves marked in ``last``, each the last reward of its transaction.
    """
    before = state.counts[DECIDED]  # not a count from 0: Numba would compile for 0, then for others
    for k in range(moves.shape[0]):
        if moves[k] == DECIDE:
            row = state.counts[DECIDED]
            record(policy, state, history, row, X, row - before)
        elif moves[k] == LEARN:
            take_reward(estimator, family, state, history, rows[k], rewards[k])
        else:
            row = rows[k]
            revise_row(estimator, family, state, history, row, history.y[row], rewards[k])
            history.y[row] = rewards[k]
        if last[k]:
            catch_up(estimator, family, state, history)


@inlined_kernel
def covers(policy: Any, state: State, theta_star: Vector) -> bool:
    """Returns whether ``theta_star`` is in the confidence set; False where the policy has none."""
    if state.W.shape[0] == 0:
        return False
    error = state.work[0]
    for i in range(theta_star.shape[0]):
        error[i] = state.theta[i] - theta_star[i]
    return set_norm(policy, state, error) <= radius(policy, state)
