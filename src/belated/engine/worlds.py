"""One world, drawn once and played by all its lanes.

A world is a dimension, a run and a seed: a stream of decision sets, and per round one uniform
behind the reward and one behind the delay. All lanes face the same stream (common random numbers),
so any two of them can be compared in pairs. The results of a lane depend on nothing but the world
and itself: not on the other lanes, the size of the blocks, the thread or the machine.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import wrong
from belated.core.jit import allocating_kernel
from belated.core.nested import aligned_empty
from belated.core.types import Integers, Vector
from belated.engine.audit import new_audit, results
from belated.engine.conversion_lane import as_served
from belated.engine.lanes import (
    RECORD,
    Batched,
    Block,
    Game,
    Schedule,
    fill_schedule,
    looks_back,
    new_lanes,
    play_block,
    seen,
    with_room,
)
from belated.engine.plain_lane import OwnLane
from belated.model.plain_policy import is_own
from belated.model.protocols import (
    Delay,
    Environment,
    Family,
    Policy,
    claims_set,
    draw_actions,
    is_randomised,
    mean,
    remember,
    with_horizon,
)
from belated.numerics.pruning import columns, fill_coarse
from belated.worlds.delays import check_dim, is_known_in_advance
from belated.worlds.environments import of_a_run, point_in_ball, stays
from belated.worlds.feedback import Feedback, Identified, check_feedback, with_window

BLOCK_BYTES = 2**19  # of decision sets, where they have many lanes
LONGEST_HORIZON = np.iinfo(np.int32).max - 1  # rounds are counted in 32 bits


class Lane(NamedTuple):
    """One bandit of a world: how it chooses, what its rewards look like, how late they are."""

    policy: Any  # a policy, or an object with choose(actions, t) and observe(x, y)
    family: Family
    delay: Delay | Batched


class WorldSettings(NamedTuple):
    """A world and its lanes: a small object that is all another machine needs to play it."""

    environment: Environment
    dim: int
    horizon: int
    run: int
    seed: int
    checkpoints: Integers  # rounds, counted from 1, increasing
    lanes: tuple[Lane, ...]
    max_norm: float = 1.0
    theta_star: Vector | None = None  # None: drawn, see ``bayesian``
    feedback: Feedback = Identified()
    audited: bool = False  # whether the paper's inequalities are checked: see ``audit_world``
    bayesian: bool = False  # whether theta_star is drawn for every run, not once per dimension


class Streams(NamedTuple):
    """The random parts of a world."""

    theta_star: Vector
    actions: np.random.Generator
    luck: Vector  # (T,)
    lateness: Vector  # (T,)
    policy: np.random.SeedSequence  # of the draws a policy makes itself


def seed_of_run(seed: int, dim: int, run: int) -> np.random.SeedSequence:
    """Returns the seed of all that is random in a run except theta_star, as for ``draw_world``."""
    return np.random.SeedSequence(seed, spawn_key=(1, dim, run))


def theta_star_of(world: WorldSettings) -> Vector:
    """Returns theta_star: given, or drawn from the unit ball, once for all runs or for each."""
    if world.theta_star is not None:
        return np.asarray(world.theta_star, float)
    run = (world.run,) if world.bayesian else ()
    seed = np.random.SeedSequence(world.seed, spawn_key=(0, world.dim, *run))
    return point_in_ball(world.dim, np.random.default_rng(seed))


def open_streams(world: WorldSettings) -> Streams:
    """Returns independent streams for all parts; the middle three are those of ``draw_world``."""
    _, actions, luck, lateness, policy = seed_of_run(world.seed, world.dim, world.run).spawn(5)
    return Streams(
        theta_star_of(world),
        np.random.default_rng(actions),
        np.maximum(np.random.default_rng(luck).random(world.horizon), 2.0**-54),
        np.random.default_rng(lateness).random(world.horizon),
        policy,
    )


@allocating_kernel
def draw_block(
    environment: Any, theta_star: Vector, block: Block, rng: np.random.Generator
) -> None:
    """Fill a block with decision sets, their norms and their linear predictors."""
    B, K, d = block.rows.shape
    for b in range(B):
        rows, z = block.rows[b], block.z[b]
        draw_actions(environment, rows, rng)
        block.longest[b] = fill_coarse(rows, block.coarse[b])
        for k in range(K):
            z[k] = 0.0
        for i in range(d):
            for k in range(K):
                z[k] += rows[k, i] * theta_star[i]
        best = z[0]
        for k in range(1, K):
            best = max(best, z[k])
        block.best[b] = best


class _Group:
    """Compiled lanes that share a policy and a family."""

    def __init__(
        self, world: WorldSettings, members: list[int], streams: Streams, schedule: Schedule
    ) -> None:
        self.members = members
        lane = world.lanes[members[0]]
        self.family = lane.family
        policy = with_window(with_horizon(lane.policy, world.horizon), world.feedback)
        self.policy = policy.resolve(lane.family, world.dim, world.max_norm)
        self.estimator = self.policy.estimator(lane.family, world.dim, world.max_norm)
        self.keeps_all = looks_back(self.estimator)
        self.delay: Any = lane.delay
        if is_known_in_advance(lane.delay):
            self.delay = schedule._replace(which=schedule.which[members])
        self.delay = seen(self.delay, world.feedback)
        self.rng = None
        if is_randomised(self.policy):
            self.rng = np.random.Generator(np.random.PCG64(streams.policy))
        slope = gap = np.nan
        if has_certificate(self.policy):
            bound = world.max_norm * float(self.policy.m1)
            slope = float(lane.family.lipschitz(bound))
            gap = float(mean(lane.family, bound) - mean(lane.family, -bound))
        moves = type(self.policy) in remember.cases
        self.game = Game(
            streams.theta_star,
            world.checkpoints,
            world.horizon,
            slope,
            gap,
            moves,
            float(world.max_norm),
        )
        self.audit = None
        if world.audited:
            if not has_certificate(self.policy):
                raise wrong("policy", self.policy, "one with a confidence set and a bound m1")
            self.audit = new_audit(world.dim, float(self.policy.lam), len(members))
        self.lanes = new_lanes(
            self.policy,
            self.estimator,
            world.dim,
            len(members),
            world.horizon,
            len(world.checkpoints),
            world.environment.n_actions if stays(world.environment) else 0,
        )

    def play(self, block: Block, start: int) -> None:
        if not self.keeps_all:
            self.lanes = with_room(self.lanes, len(block.luck))
        play_block(
            self.policy,
            self.estimator,
            self.family,
            self.delay,
            self.game,
            self.lanes,
            block,
            start,
            self.keeps_all,
            self.rng,
            self.audit,
        )

    @property
    def record(self) -> Any:
        record = self.lanes.record
        if not claims_set(self.policy):
            record[:, :, RECORD.index("failures")] = np.nan
        if not has_certificate(self.policy):
            record[:, :, RECORD.index("certificate")] = np.nan
        return record


def has_certificate(policy: Policy) -> bool:
    """Returns whether regret can be bounded at run time, which needs a bound on theta_star."""
    return claims_set(policy) and hasattr(policy, "m1")


def _grouped(lanes: tuple[Lane, ...]) -> list[list[int]]:
    """Returns the indices of the compiled lanes that can be played together."""
    groups: list[list[int]] = []
    for i, lane in enumerate(lanes):
        if is_own(lane.policy):
            continue
        for group in groups:
            other = lanes[group[0]]
            same = _same(lane.policy, other.policy) and _same(lane.family, other.family)
            known = is_known_in_advance(lane.delay) and is_known_in_advance(other.delay)
            if same and not is_randomised(lane.policy) and known:
                group.append(i)
                break
        else:
            groups.append([i])
    return groups


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _schedule(world: WorldSettings, lateness: Vector) -> Schedule:
    """Returns the delays of all rounds, drawn once for each law that is known in advance."""
    laws: list[Delay | Batched] = []
    which = np.zeros(len(world.lanes), np.int64)
    for i, lane in enumerate(world.lanes):
        if is_known_in_advance(lane.delay):
            known = [_same(lane.delay, law) for law in laws]
            if True not in known:
                laws.append(lane.delay)
                known.append(True)
            which[i] = known.index(True)
    rounds = np.empty((len(laws), world.horizon), np.int32)
    for law, out in zip(laws, rounds, strict=True):
        fill_schedule(law, lateness, world.horizon, out)
    return Schedule(rounds, which)


def rounds_of_a_block(lanes: int, K: int, d: int) -> int:
    """Returns how many rounds of decision sets stay in a core's cache while all lanes play them.

    Few lanes gain less from that than each block costs: their blocks are larger.
    """
    size = 8 * BLOCK_BYTES // min(max(lanes, 1), 8)
    return max(1, min(1024, size // (8 * K * d)))


def play_world(
    world: WorldSettings,
    *,
    block_rounds: int | None = None,
    after_block: Callable[[int], None] = lambda rounds: None,
) -> Any:
    """Play all lanes; returns an array (lanes, checkpoints, ``RECORD``).

    ``after_block`` is called with the number of rounds just played; if it raises, the run ends.
    """
    players = _play(world, block_rounds, after_block)
    record = np.empty((len(world.lanes), len(world.checkpoints), len(RECORD)))
    for player in players:
        record[player.members] = player.record
    return record


def audit_world(world: WorldSettings) -> list[dict[str, tuple[float, int]]]:
    """Play all lanes and check R1 to R9 in every round; returns the worst ratios per lane."""
    found: list[dict[str, tuple[float, int]]] = [{} for _ in world.lanes]
    if any(is_own(lane.policy) for lane in world.lanes):
        raise wrong("lanes", world.lanes, "policies with a confidence set")
    for group in _play(world._replace(audited=True), None, lambda rounds: None):
        if isinstance(group, _Group) and group.audit is not None:
            for place, member in enumerate(group.members):
                found[member] = results(group.audit, place)
    return found


def _play(
    world: WorldSettings, block_rounds: int | None, after_block: Callable[[int], None]
) -> "list[_Group | OwnLane]":
    """Play all lanes; returns the players, groups and plain lanes."""
    played = [
        lane._replace(
            policy=as_served(lane.policy, lane.family, world.dim, world.max_norm, world.feedback)
        )
        for lane in world.lanes
    ]
    world = world._replace(lanes=tuple(played))
    for lane in world.lanes:
        check_feedback(lane.policy, lane.family, world.feedback)
        check_dim(lane.delay, world.dim)
    streams = open_streams(world)
    schedule = _schedule(world, streams.lateness)
    players: list[_Group | OwnLane] = [
        _Group(world, members, streams, schedule) for members in _grouped(world.lanes)
    ]
    players += [
        OwnLane(world, i, streams) for i, lane in enumerate(world.lanes) if is_own(lane.policy)
    ]
    K, d, T = world.environment.n_actions, world.dim, world.horizon
    B = block_rounds or min(T, rounds_of_a_block(len(world.lanes), K, d))
    rows = aligned_empty((B, K, d), float)
    coarse = aligned_empty((B, d + 1, columns(K)), np.float32)
    longest, z, best = np.empty(B), np.empty((B, K)), np.empty(B)
    environment = of_a_run(world.environment, d, streams.actions)
    for start in range(0, T, B):
        n = min(B, T - start)
        rounds = slice(start, start + n)
        block = Block(
            rows[:n],
            coarse[:n],
            longest[:n],
            z[:n],
            best[:n],
            streams.luck[rounds],
            streams.lateness[rounds],
        )
        if start == 0 or not stays(environment):  # else the block is as it was
            draw_block(environment, streams.theta_star, block, streams.actions)
        for player in players:
            player.play(block, start)
        after_block(n)
    return players
