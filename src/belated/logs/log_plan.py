"""Policies, windows and waiting rules, and what lateness costs them: played, not guessed.

The work behind ``belated plan``. A log becomes a world (``log_world.py``), and every candidate
plays copies of it, with the same visitors and the same luck. What counts is the expected reward of
what was played, so luck in rewards does not blur the comparison.
"""

import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from belated.core.arguments import whole
from belated.experiments.executors import open_executor
from belated.experiments.judging.lift import lifts, standings
from belated.experiments.league.players import DELIVERY, Ours
from belated.experiments.league.playing import CHECKPOINTS, play
from belated.experiments.run_intervals import mean_interval
from belated.learner.assumptions import AssumptionWarning
from belated.learner.learner import learns_early
from belated.logs.log_model import family_for
from belated.logs.log_world import LogFacts, LogWorld
from belated.model.protocols import with_horizon
from belated.numerics.student import student_quantile
from belated.registry import DEFAULT_POLICY, FAMILIES, POLICIES, parse
from belated.worlds.shops.shop import Shop

COMPARED = (DEFAULT_POLICY, "thompson", "linucb", "inverse-gap", "greedy")
AS_LOGGED, AT_ONCE, DAILY = "as in the log", "rewards at once", "rewards once a day"
MOST = 10_000  # decisions in a run, if nobody asks for more


class Candidate(NamedTuple):
    """Something to play: a policy with settings, in a variant of the world."""

    name: str
    policy: str
    world: str = AS_LOGGED
    open: str | None = None
    window: float | None = None  # seconds; None: that of the log
    fails_at_once: bool = False


def candidates(facts: LogFacts, policies: Sequence[str] = COMPARED) -> list[Candidate]:
    """Returns what is compared; the first is what the others are measured by.

    Every policy plays with delays as in the log. All others are the first policy: for conversions
    it also waits for windows to close (unless it does so anyway), counts a decision as a failure
    until it converts, and has half and a quarter of the window; and it gets its rewards at once,
    and once a day.
    """
    for policy in policies:
        parse(POLICIES, policy)
    first, *others = policies
    result = [Candidate(first, first), *(Candidate(name, name) for name in others)]
    if facts.window is not None:
        if _hears(facts, first):
            result.append(Candidate("hold", first, open="hold"))
        result += [
            Candidate("failure at once", first, open="hold", fails_at_once=True),
            Candidate("half of the window", first, window=facts.window / 2.0),
            Candidate("a quarter of the window", first, window=facts.window / 4.0),
        ]
    return [*result, *(Candidate(variant, first, variant) for variant in (AT_ONCE, DAILY))]


def _hears(facts: LogFacts, policy: str) -> bool:
    """Returns whether a policy can learn from silence here; else it holds anyway."""
    family = parse(FAMILIES, facts.family_name)
    return learns_early(len(facts.theta.mode), family, parse(POLICIES, policy), 1.0)


class Task(NamedTuple):
    """One candidate in one copy of the world."""

    facts: LogFacts
    candidate: Candidate
    seed: int
    decisions: int


def played(task: Task) -> pd.DataFrame:
    """Returns what a candidate earned in its copy, one row per checkpoint."""
    facts, candidate, seed, decisions = task
    world = LogWorld(seed, facts, at_once=candidate.world == AT_ONCE)
    return played_in(world, candidate, facts.seconds, decisions)


def played_in(world: Shop, candidate: Candidate, seconds: float, decisions: int) -> pd.DataFrame:
    """Returns what a candidate earned in a world with so many seconds between two decisions."""
    delivery = DELIVERY
    if candidate.world == DAILY:
        delivery = max(DELIVERY, round(86_400.0 / seconds))
    share = np.arange(1, CHECKPOINTS + 1) / CHECKPOINTS
    checkpoints = np.unique(np.ceil(share * decisions).astype(int))
    settings = _settings(world, candidate, seconds, delivery)
    policy = with_horizon(parse(POLICIES, candidate.policy), decisions)
    family = family_for(policy, world.family)
    player = Ours(policy, world, candidate.open, family=family, **settings)
    with warnings.catch_warnings():  # it is the world that breaks assumptions, not the user
        warnings.simplefilter("ignore", AssumptionWarning)
        table = play(world, player, checkpoints, delivery=delivery)
    names = {"world": candidate.world, "player": candidate.name, "seed": world.seed}
    return pd.DataFrame({**names, **table})


def _settings(world: Shop, candidate: Candidate, seconds: float, delivery: int) -> dict[str, Any]:
    """Returns the further settings of a bandit that plays in a world; times are in decisions."""
    if world.window is None:
        return {}
    if candidate.fails_at_once:  # its window closes at once, and a conversion takes its place
        return {"window": 0.5, "late": "revise"}
    window = world.window if candidate.window is None else candidate.window / seconds
    if candidate.world == AT_ONCE:
        window = 0.0  # nobody has to wait for what is known
    return {"window": window + delivery}


class Plan(NamedTuple):
    """The runs of all candidates, and how they stand."""

    facts: LogFacts
    frame: pd.DataFrame  # one row per world, candidate, seed and checkpoint
    table: pd.DataFrame  # see ``judged``; "earned" has rewards per decision
    reference: str  # the candidate that the others are measured by
    copies: int
    decisions: int


def make_plan(
    facts: LogFacts,
    policies: Sequence[str] = COMPARED,
    copies: int = 8,
    decisions: int | None = None,
    seed: int = 1,
    threads: int | None = None,
    told: Callable[[int], None] = lambda steps: None,
) -> Plan:
    """Plays all candidates.

    Parameters
    ----------
    facts
        What the log says.
    policies
        Names and parameters of policies.
    copies
        Copies of the world, each with another draw of what the log leaves open.
    decisions
        Decisions in a run; by default as many as the log has, 10,000 at most.
    seed
        The seed of the first copy.
    threads
        Processes that play; by default one per core.
    told
        Called with 1 after each run.
    """
    copies = whole("copies", copies, least=2)
    length = min(len(facts.visitors), MOST) if decisions is None else decisions
    length = whole("decisions", length, least=100)
    tasks = [
        Task(facts, candidate, number, length)
        for number in range(seed, seed + copies)
        for candidate in candidates(facts, policies)
    ]
    with open_executor("processes", whole("threads", threads or os.cpu_count())) as pool:
        frame = pd.concat(_counted(pool.map(played, tasks), told), ignore_index=True)
    return Plan(facts, frame, judged(frame, policies[0]), policies[0], copies, length)


def _counted(parts: Iterator[pd.DataFrame], told: Callable[[int], None]) -> Iterator[pd.DataFrame]:
    for part in parts:
        told(1)
        yield part


def judged(frame: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Returns the standings of all candidates beside the reference with delays as in the log.

    Variants of the world are compared with it copy by copy, too: luck and truth are the same.
    Intervals are as wide as those of ``before``, so that verdicts and places agree. ``first`` and
    ``last`` are the places that a candidate may have; variants of the world have none.
    """
    lift = lift_by_copy(frame)
    table = standings(frame.assign(world=AS_LOGGED), reference, _confidence(lift))
    order, n = before(lift), len(lift.columns)
    ahead, behind = (Counter(pair[k] for pair in order) for k in (1, 0))
    last = frame[frame["t"] == frame["t"].max()]
    earned = (last["earned"] / last["t"]).groupby(last["player"]).mean()
    return table.assign(
        earned=table["player"].map(earned),
        first=table["player"].map({name: 1 + ahead[name] for name in lift}),
        last=table["player"].map({name: n - behind[name] for name in lift}),
    )


def lift_by_copy(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the lift of the candidates that can be played: one row per copy, one column each."""
    return lifts(frame[frame["world"] == AS_LOGGED])["lift"].unstack("player")


def before(lift: pd.DataFrame) -> set[tuple[str, str]]:
    """Returns the pairs of candidates of which the first is ahead of the second beyond chance.

    Both played the same copies, and copies differ as much as the log leaves open. The intervals of
    all pairs hold together with 95 per cent confidence (Bonferroni), so with that confidence none
    of the pairs is the wrong way round on average over such worlds.
    """
    level = _confidence(lift)
    return {
        (one, other)
        for one, other in permutations(lift.columns, 2)
        if mean_interval(lift[one] - lift[other], level).low > 0.0
    }


def _confidence(lift: pd.DataFrame) -> float:
    """Returns the confidence of the interval of each pair, so that 95 per cent is that of all."""
    return 1.0 - 0.05 / max(math.comb(len(lift.columns), 2), 1)


def copies_to_tell(lift: pd.DataFrame, one: str, other: str) -> float:
    """Returns about how many copies would tell two candidates apart, if they stay as they are."""
    apart = lift[one] - lift[other]
    distance = abs(float(apart.mean()))
    if distance == 0.0:
        return math.inf
    level, per_wide = 0.5 + 0.5 * _confidence(lift), float(apart.std(ddof=1)) / distance
    rough = (NormalDist().inv_cdf(level) * per_wide) ** 2
    if rough > MOST:
        return rough
    return 1.0 + (student_quantile(level, max(round(rough), 2)) * per_wide) ** 2


def to_play(table: pd.DataFrame, reference: str) -> str:
    """Returns the candidate to play: the best of those that are ahead of the reference, or it."""
    real = table[~table["player"].isin((AT_ONCE, DAILY))]
    ahead = real.loc[real["verdict"] == "higher", "player"]
    return str(ahead.iloc[0]) if len(ahead) else reference
