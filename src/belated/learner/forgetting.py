"""Forgetting: a reward counts for less the older its *decision* is, whenever it returned.

A tick is a sixteenth of the half-life. The reward of a decision counts for

    2^(-a / 16),      a = ticks from that of its decision to the latest tick of any decision,

and for nothing from 32 half-lives on. So the weights change when a decision begins a new tick, and
only then; ``Learner.refresh`` makes the estimate anew with them. They depend on the decisions
alone: nobody looks at a clock in between, and whoever reads the same log has the same weights.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from belated.core.arguments import positive, shown, wrong
from belated.core.events import Decision
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Vector
from belated.model.protocols import claims_set, draw_parameter, remake
from belated.model.state import NO_WEIGHTS
from belated.model.steps import DECIDE

if TYPE_CHECKING:  # a learner imports this module
    from belated.learner.learner import Learner

Unit = Literal["decisions", "seconds"]

TICKS = 16  # in a half-life
GONE = 32 * TICKS  # ticks after which a reward counts for nothing: what is left is 2e-10 of all
SHORTEST, LONGEST = 1e-3, 1e12  # half-lives: a tick must be a number of microseconds in 64 bits


class HalfLife(NamedTuple):
    """The age at which the reward of a decision counts for half."""

    length: float
    unit: Unit

    def tick(self, row: Any, time: Any) -> Any:
        """Returns the tick of a decision, by its row in the history or its time, or of several.

        Times are in whole microseconds.
        """
        if self.unit == "decisions":
            return np.floor(row * float(TICKS) / self.length).astype(np.int64)
        return time // max(1, round(self.length * 1e6 / TICKS))


def half_life_of(length: Any, unit: Any) -> HalfLife | None:
    """Returns the half-life that two settings stand for; None if nothing is forgotten."""
    if unit not in ("decisions", "seconds"):
        raise wrong("half_life_unit", unit, "'decisions' or 'seconds'")
    if length is None:
        return None
    number = positive("half_life", length)
    if not SHORTEST <= number <= LONGEST:
        raise wrong("half_life", length, f"a number of {unit} from {SHORTEST:g} to {LONGEST:g}")
    return HalfLife(number, unit)


def refuse_forgetting(half_life: HalfLife, policy: Any, estimator: Any) -> None:
    """Raises where the policy cannot count a reward by the age of its decision."""
    weighs = type(estimator) in remake.cases
    if type(policy) in draw_parameter.cases:
        reason = "draws from the rewards themselves, each of which counts in full"
    elif hasattr(policy, "new_memory"):
        reason = "keeps a memory of its own, which is not made anew as rewards age"
    elif not weighs and not getattr(estimator, "looks_back", True):
        reason = "takes every reward in once and cannot weigh it again"
    elif claims_set(policy) and not getattr(policy, "set_holds_weighted", False):
        reason = "has a confidence set that is not proved for rewards that count for less"
    elif not weighs:
        reason = f"has an estimator that cannot weigh rewards: {type(estimator).__name__}"
    else:
        return
    raise ValueError(
        f"half_life = {shown(half_life.length)}: {type(policy).__name__} {reason}; expected None, "
        "or another policy, such as AdaptiveThompson()"
    )


def _powers() -> Vector:
    """Returns 2^(-a / 16) for a from 0 to ``GONE``, where it is 0.

    By square roots and halves alone, which every machine rounds alike.
    """
    root, first = 1.0, np.ones(TICKS)
    for bit in (8, 4, 2, 1):  # sixteenths
        root = math.sqrt(0.5 if bit == 8 else root)
        for a in range(TICKS):
            if a & bit:
                first[a] *= root
    powers = np.array([math.ldexp(first[a % TICKS], -(a // TICKS)) for a in range(GONE + 1)])
    powers[GONE] = 0.0
    return powers


POWERS = _powers()


def weights_at(ages: Integers) -> Vector:
    """Returns what rewards of these ages count for, in ticks."""
    return POWERS[np.minimum(ages, GONE)]


def ages_of(weights: Vector) -> Integers:
    """Returns the ages of rewards that count for so much: no rounding adds up as they grow."""
    with np.errstate(divide="ignore"):
        ages = np.rint(-TICKS * np.log2(weights))
    return np.minimum(ages, GONE).astype(np.int64)


def reach(learner: "Learner", tick: int) -> None:
    """Let a new tick begin: all weights shrink, and the estimate is made anew."""
    n, weight = learner.n_decided, learner.history.weight
    if n:
        weight[:n] = weights_at(ages_of(weight[:n]) + (tick - learner.tick))
    learner.tick = tick
    if n:
        learner.refresh()


def decide_at(
    time: int, learner: "Learner", actions: Any, rng: np.random.Generator, weighed: bool
) -> Decision:
    """Does the same as ``Learner.decide``, at a time in microseconds.

    Where that time begins a new tick, the learner chooses, then the tick begins, then the choice is
    recorded: the order in which a log is taken in.
    """
    if learner.half_life is None:
        return learner.decide(actions, rng, weighed)
    tick = int(learner.half_life.tick(learner.n_decided, time))
    if tick <= learner.tick:
        return learner.decide(actions, rng, weighed)
    rows = learner.options(actions) if learner.is_sparse else actions
    choice = learner.choose(rows, rng, weighed)
    reach(learner, tick)
    k, nothing = slice(choice.index, choice.index + 1), np.zeros(1, np.int64)
    chosen = SparseRows(rows.columns[k], rows.values[k]) if learner.is_sparse else rows[k]
    learner.fold(np.array([DECIDE]), chosen, nothing, np.zeros(1), nothing)
    numbers = choice.index, choice.score, choice.estimate, choice.width
    return Decision(learner.n_decided, *numbers, choice.propensity, choice.probabilities)


def forget_by(
    learner: "Learner", half_life: HalfLife | None, times: Callable[[], Integers]
) -> None:
    """Go on with another half-life, as if it had been that from the start.

    ``times`` returns when each decision was made, in microseconds.
    """
    n, capacity = learner.n_decided, len(learner.history.y)
    learner.half_life, weight, learner.tick = half_life, NO_WEIGHTS, -1
    if half_life is not None:
        weight = np.ones(capacity)
        if n:
            ticks = half_life.tick(np.arange(n), times())
            learner.tick = int(ticks.max())
            weight[:n] = weights_at(learner.tick - ticks)
    learner.history = learner.history._replace(weight=weight)
    if n:
        learner.refresh()
