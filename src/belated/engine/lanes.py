"""Many bandits play one world in compiled code: lanes that share a policy and a family.

A lane is one bandit with its pending rewards. Lanes of a group differ only in how late their
rewards are; their arrays are stacked along a leading axis. ``play_block`` plays some rounds of all
of them with the kernels that ``Bandit`` uses, so a lane makes the same decisions as ``play`` would.

Rewards wait in a calendar: for every round, a chain of the history rows whose reward is due at its
end. Entering and leaving are O(1). A reward due after the last round is never stored.
"""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import parameters, positive
from belated.core.generic import generic_with_default
from belated.core.jit import allocating_kernel, inlined_kernel, kernel
from belated.core.nested import at, stacked
from belated.core.types import Coarse, Integers, Matrix, Vector
from belated.engine.audit import Audit, audit_decision, audit_regret
from belated.model.protocols import (
    Estimator,
    ResolvedPolicy,
    delay_quantile_of,
    luck,
    mean,
    radius,
    reward_of_luck,
    set_norm,
)
from belated.model.state import DECIDED, OBSERVED, PASSES, History, State
from belated.model.steps import catch_up, covers, first_state, pick, record, take_reward
from belated.numerics.pruning import DecisionSet, columns
from belated.worlds.delays import dim_of, is_informative
from belated.worlds.feedback import Conversions, Feedback

NONE = -1  # end of a chain

# Slots of Lanes.sums, running totals, and of a row of Lanes.record, the totals at a checkpoint.
REGRET, CERTIFICATE, MISSING, DELAY, FAILURES = 0, 1, 2, 3, 4
RECORD = (
    "regret",
    "certificate",
    "missing_sum",
    "delay_sum",
    "failures",
    "observed",
    "missing",
    "passes",
    "radius",
)
FREE, IN_USE, NEXT_CHECKPOINT = 0, 1, 2  # slots of Lanes.cursors


class Lanes(NamedTuple):
    """A group of bandits with their pending rewards; the leading axis is the lane."""

    state: State
    history: History  # rows of decisions; only pending ones where the estimator never looks back
    reward: Vector  # (L, rows) reward of a row, before the lane knows it
    chain: Integers  # (L, rows) next row due in the same round, or next free row
    due: Integers  # (L, T + 1) latest row due in a round
    sums: Matrix  # (L, 5)
    cursors: Integers  # (L, 3) first free row, rows in use, next checkpoint
    record: Any  # (L, checkpoints, 9)
    earlier_squares: Matrix  # (L, columns + 1) see DecisionSet; (L, 0) where decision sets change


class Block(NamedTuple):
    """Some rounds of a world, as all lanes see them."""

    rows: Any  # (B, K, d) decision sets
    coarse: Any  # (B, d + 1, columns) the same, see DecisionSet
    longest: Vector  # (B,) of squared norms
    z: Matrix  # (B, K) x'theta_star
    best: Vector  # (B,) largest of z
    luck: Vector  # (B,) uniforms behind the rewards
    lateness: Vector  # (B,) uniforms behind the delays


class Schedule(NamedTuple):
    """Delays that depend on neither reward nor action: ``rounds[which[lane], t]``."""

    rounds: Integers  # (delays, T) whole rounds late, T + 1 for never
    which: Integers  # (L,)


class Seen(NamedTuple):
    """Delays where only successes within ``window`` rounds are seen."""

    delay: Any  # a law or a Schedule
    window: float


@parameters
class Batched(NamedTuple):
    """Rewards that are learned from in batches, one every ``every`` rounds.

    Batch k ends with the first round that is not before ``k every``. A reward waits for the first
    batch that does not end before it returns. This is not a law: the wait depends on the round.
    """

    delay: Any
    every: float

    def checked(self) -> "Batched":
        """Raises where a parameter does not fit."""
        return self._replace(every=positive("every", self.every))

    @property
    def informative(self) -> bool:
        """Returns whether the delay depends on the reward."""
        return is_informative(self.delay)

    @property
    def dim(self) -> int:
        """Returns the length of the actions that the delay depends on."""
        return dim_of(self.delay)


class Game(NamedTuple):
    """The settings that do not change during a run."""

    theta_star: Vector
    checkpoints: Integers  # (C,) rounds, counted from 1, after which totals are recorded
    horizon: int
    slope: float  # L_mu, of the regret certificate
    largest_gap: float  # between two mean rewards
    set_moves: bool  # whether decisions change the confidence set, not only rewards
    max_norm: float  # of an action


def seen(delay: Any, feedback: Feedback) -> Any:
    """Returns the rounds in which rewards are seen, if at all."""
    return Seen(delay, float(feedback.window)) if isinstance(feedback, Conversions) else delay


def looks_back(estimator: Estimator) -> bool:
    """Returns whether the estimator may pass over old rewards again; True by default."""
    return bool(getattr(estimator, "looks_back", True))


def new_lanes(
    policy: ResolvedPolicy,
    estimator: Estimator,
    dim: int,
    count: int,
    horizon: int,
    checkpoints: int,
    fixed_actions: int = 0,
) -> Lanes:
    """Returns ``count`` lanes of a resolved policy before the first round.

    ``fixed_actions`` is the number of actions if they are the same in every round, else 0.
    """
    rows = horizon if looks_back(estimator) else 0
    history = History(
        np.empty((count, rows, dim)), np.full((count, rows), np.nan), np.empty((count, 0))
    )
    cursors = np.zeros((count, 3), np.int64)
    cursors[:, FREE] = NONE
    return Lanes(
        state=stacked([first_state(policy, estimator, dim)] * count),
        history=history,
        reward=np.empty((count, rows)),
        chain=np.full((count, rows), NONE, np.int32),
        due=np.full((count, horizon + 1), NONE, np.int32),
        sums=np.zeros((count, 5)),
        cursors=cursors,
        record=np.empty((count, checkpoints, len(RECORD))),
        earlier_squares=np.full(
            (count, columns(fixed_actions) + 1 if fixed_actions else 0), np.nan
        ),
    )


def with_room(lanes: Lanes, rounds: int) -> Lanes:
    """Returns the same lanes with free rows for ``rounds`` more pending rewards."""
    count, old = lanes.reward.shape
    needed = int(lanes.cursors[:, IN_USE].max()) + rounds
    if needed <= old:
        return lanes
    new = max(needed, 2 * old)

    def longer(array: Any) -> Any:
        return np.concatenate(
            [array, np.empty((count, new - old, *array.shape[2:]), array.dtype)], 1
        )

    chain = longer(lanes.chain)
    chain[:, old:] = np.arange(old + 1, new + 1)
    chain[:, -1] = lanes.cursors[:, FREE]
    lanes.cursors[:, FREE] = old
    history = lanes.history._replace(x=longer(lanes.history.x), y=longer(lanes.history.y))
    return lanes._replace(history=history, reward=longer(lanes.reward), chain=chain)


@kernel
def _whole(tau: float, horizon: int) -> int:
    return int(np.ceil(tau)) if tau <= horizon else horizon + 1


@generic_with_default
def rounds_late(delay: Any, lane: int, t: int, x: Vector, u: float, y: float, horizon: int) -> int:
    """Returns whole rounds until the reward of round ``t`` is delivered; > ``horizon``: never."""
    return _whole(delay_quantile_of(delay, x, u, y), horizon)


@rounds_late.case(Schedule)
def _scheduled(
    delay: Schedule, lane: int, t: int, x: Vector, u: float, y: float, horizon: int
) -> int:
    return delay.rounds[delay.which[lane], t]


@rounds_late.case(Seen)
def _seen(delay: Seen, lane: int, t: int, x: Vector, u: float, y: float, horizon: int) -> int:
    late = rounds_late(delay.delay, lane, t, x, u, y, horizon)
    return late if y > 0.0 and late <= delay.window else horizon + 1


@rounds_late.case(Batched)
def _batched(delay: Batched, lane: int, t: int, x: Vector, u: float, y: float, horizon: int) -> int:
    late = rounds_late(delay.delay, lane, t, x, u, y, horizon)
    # t counts from 0: the reward returns at the end of round t + 1 + late
    batch = np.floor((t + late) / delay.every) + 1.0  # the first with batch * every > t + late
    wait = np.ceil(batch * delay.every) - (t + 1)
    # the quotient may be rounded down: not before the reward; an infinite delay stays infinite
    return int(min(max(float(late), wait), horizon + 1.0))


@kernel
def fill_schedule(delay: Any, lateness: Vector, horizon: int, out: Integers) -> None:
    """Fills in the delays of all rounds, for a law that looks at neither reward nor action."""
    for t in range(lateness.shape[0]):
        out[t] = rounds_late(delay, 0, t, lateness[:0], lateness[t], np.nan, horizon)


@inlined_kernel
def _take_free_row(lane: Lanes, t: int, keeps_all: bool) -> int:
    if keeps_all:
        return t
    row = lane.cursors[FREE]
    lane.cursors[FREE] = lane.chain[row]
    lane.cursors[IN_USE] += 1
    return row


@inlined_kernel
def _deliver(estimator: Any, family: Any, lane: Lanes, t: int, keeps_all: bool) -> bool:
    """Hand over the rewards due at the end of round ``t`` (from 0), in the order of decisions."""
    row, previous = lane.due[t], NONE
    if row == NONE:
        return False
    while row != NONE:  # chains grow at the front: reverse this one
        following = lane.chain[row]
        lane.chain[row] = previous
        previous, row = row, following
    row = previous
    while row != NONE:
        take_reward(estimator, family, lane.state, lane.history, row, lane.reward[row])
        following = lane.chain[row]
        if not keeps_all:
            lane.chain[row] = lane.cursors[FREE]
            lane.cursors[FREE] = row
            lane.cursors[IN_USE] -= 1
        row = following
    catch_up(estimator, family, lane.state, lane.history)
    return True


@kernel
def _note(policy: Any, lane: Lanes, c: int) -> None:
    """Write the totals at a checkpoint."""
    out, state = lane.record[c], lane.state
    for i in range(lane.sums.shape[0]):
        out[i] = lane.sums[i]
    out[5] = state.counts[OBSERVED]
    out[6] = state.counts[DECIDED] - state.counts[OBSERVED]
    out[7] = state.counts[PASSES]
    out[8] = radius(policy, state)


@kernel
def _play_lane(
    policy: Any,
    estimator: Any,
    family: Any,
    delay: Any,
    game: Game,
    index: int,
    lane: Lanes,
    block: Block,
    start: int,
    keeps_all: bool,
    lucks: Vector,
    ideals: Vector,
    work: Coarse,
    rng: np.random.Generator | None,
    audit: Audit | None,
) -> None:
    state, history = lane.state, lane.history
    d = state.theta.shape[0]
    news, outside = True, False
    for b in range(block.luck.shape[0]):
        t = start + b
        options = DecisionSet(
            block.rows[b], block.coarse[b], block.longest[b], work, lane.earlier_squares
        )
        if news:
            outside = not covers(policy, state, game.theta_star)
        if outside:
            lane.sums[FAILURES] += 1.0
        k, _, _, width = pick(policy, state, history, options, rng)
        z = block.z[b, k]
        regret = ideals[b] - mean(family, z)
        lane.sums[REGRET] += regret
        lane.sums[CERTIFICATE] += min(game.largest_gap, 2.0 * game.slope * width)
        y = reward_of_luck(family, z, lucks[b])
        x = options.rows[k]
        late = rounds_late(delay, index, t, x, block.lateness[b], y, game.horizon)
        lane.sums[DELAY] += late
        if audit is not None:
            error = state.work[0]
            for i in range(d):
                error[i] = state.theta[i] - game.theta_star[i]
            audit_decision(
                audit,
                state,
                policy.lam,
                game.max_norm * game.max_norm,
                set_norm(policy, state, error),
                radius(policy, state),
                regret,
                min(game.largest_gap, 2.0 * game.slope * width),
                x,
                float(min(late, game.horizon - t - 1)),
                t + 1,
            )
            if lane.sums[FAILURES] == 0.0:
                audit_regret(audit, lane.sums[REGRET], lane.sums[CERTIFICATE], t + 1)
        row = NONE
        if t + late < game.horizon:
            row = _take_free_row(lane, t, keeps_all)
            lane.reward[row] = y
            lane.chain[row] = lane.due[t + late]
            lane.due[t + late] = row
        record(policy, state, history, row, options.rows, k)
        news = _deliver(estimator, family, lane, t, keeps_all) or game.set_moves
        lane.sums[MISSING] += state.counts[DECIDED] - state.counts[OBSERVED]
        c = lane.cursors[NEXT_CHECKPOINT]
        if c < game.checkpoints.shape[0] and t + 1 == game.checkpoints[c]:
            _note(policy, lane, c)
            lane.cursors[NEXT_CHECKPOINT] += 1


@allocating_kernel
def play_block(
    policy: Any,
    estimator: Any,
    family: Any,
    delay: Any,
    game: Game,
    lanes: Lanes,
    block: Block,
    start: int,
    keeps_all: bool,
    rng: np.random.Generator | None,
    audit: Audit | None,
) -> None:
    """Play the rounds of ``block``, the first of them round ``start`` (from 0), in all lanes."""
    work = np.empty((4, block.coarse.shape[2]), np.float32)
    lucks, ideals = np.empty(block.luck.shape[0]), np.empty(block.luck.shape[0])
    for b in range(lucks.shape[0]):
        lucks[b] = luck(family, block.luck[b])
        ideals[b] = mean(family, block.best[b])
    for index in range(lanes.due.shape[0]):
        lane = at(lanes, index)
        _play_lane(
            policy,
            estimator,
            family,
            delay,
            game,
            index,
            lane,
            block,
            start,
            keeps_all,
            lucks,
            ideals,
            work,
            rng,
            at(audit, index),
        )
