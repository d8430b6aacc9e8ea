"""A world like the one that a log is of: its actions, visitors, rates, delays and traffic.

Visitors are drawn from the rows of the log. How well actions do is drawn from the posterior given
the log (``log_model.py``), so copies of the world differ as much as the log leaves open. Delays are
drawn from those of the log, by action where it has 50 rewards or more, as far as they tell
(``shares_seen.py``). Where conversions are worth
amounts, a visitor converts or not, and then an amount is drawn, from those of the log like delays.
Time is counted in decisions, evenly spread over the time of the log.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.types import Vector
from belated.evaluation.shares_seen import converted_shares, strata_of
from belated.families import Bernoulli
from belated.logs.log_model import ROWS, Posterior, coded, family_of, groups_of, posterior
from belated.logs.seen_rewards import conversion_window, refuse_alike
from belated.logs.whole_log import WholeLog
from belated.model.protocols import Family, mean, reward_quantile
from belated.monitoring.delay_curve import delay_curve
from belated.worlds.shops.shop import Columns, Outcome, Shop, Visit


class Delays(NamedTuple):
    """Shares of rewards that have come by each of some delays, in seconds, ascending."""

    times: Vector
    within: Vector

    def quantile(self, u: float) -> float:
        """Returns the delay that the share ``u`` is within; infinite where that many never come.

        >>> law = Delays(np.array([1.0, 5.0]), np.array([0.5, 0.8]))
        >>> law.quantile(0.5), law.quantile(0.6), law.quantile(0.9)
        (1.0, 5.0, inf)
        """
        place = int(np.searchsorted(self.within, u))
        return float(self.times[place]) if place < len(self.times) else math.inf

    def share_at(self, ages: Vector) -> Vector:
        """Returns the share that has come by each age."""
        return np.append(0.0, self.within)[np.searchsorted(self.times, ages, side="right")]


class LogFacts(NamedTuple):
    """All that a world takes from a log."""

    names: list[str]  # of actions
    columns: Columns  # of the context, with their numbers of categories
    visitors: NDArray[np.int64]  # the categories of each of the latest rows
    family: Family  # of rewards; where conversions are worth amounts, of converting
    family_name: str  # as ``Bandit`` takes it, see ``family_for``
    theta: Posterior
    delays: list[Delays]  # by action
    seconds: float  # from one decision to the next
    window: float | None  # of a conversion loop, in seconds
    amounts: list[Vector] | None = None  # of conversions, by action; None where each is worth 1

    @property
    def per_day(self) -> float:
        """Decisions in a day."""
        return 86_400.0 / self.seconds


def facts_of(log: WholeLog, loop: str, window: float | None) -> LogFacts:
    """Returns what a world takes from a log; ``loop`` and ``window`` as in ``seen_rewards``."""
    window = conversion_window(log, loop, window)
    n, span = len(log.action), float(np.ptp(log.decided)) / 1e6
    if n < 2 or span <= 0.0:
        raise ValueError("log: expected decisions at different times, and it has one time only")
    codes = {name: coded(column) for name, column in log.context.items()}
    columns = {name: int(code.max()) + 1 for name, code in codes.items()}
    visitors = np.column_stack([np.zeros((n, 0), np.int64), *codes.values()]).astype(np.int64)
    came = ~np.isnan(log.reward) & (True if window is None else log.waited <= window)
    if not came.any():
        raise ValueError("log: expected rewards, and none has come")
    if window is None:
        refuse_alike(log.reward[came])
    delays = _delays_by_action(log, came, window)
    reward, silence, amounts = np.where(came, log.reward, np.nan), None, None
    if window is not None:
        reward = np.where(~came & (log.age >= window), 0.0, reward)
        by_action = np.stack([law.share_at(log.age) for law in delays])
        silence = by_action[log.action, np.arange(n)]
    family, name = family_of(reward[~np.isnan(reward)])
    if window is not None and name != "bernoulli":
        amounts = _amounts_by_action(log, came & (log.reward != 0.0))
        family, reward = Bernoulli(), np.where(np.isnan(reward), np.nan, reward != 0.0)
    theta = posterior(log, columns, visitors, family, reward, silence)
    return LogFacts(
        *(log.names, columns, visitors[-ROWS:], family, name, theta, delays, span / (n - 1)),
        *(window, amounts),
    )


def _by_action(log: WholeLog, came: Any, of: Callable[[Any], Any]) -> list[Any]:
    """Returns what is said by the rewards of each action, or by all where its own are few."""
    strata, together = strata_of(log.action, came), of(True)
    result = []
    for k in range(len(log.names)):
        own = log.action == k
        lonely = not own.any() or strata[own][0] < 0
        result.append(together if lonely else of(own))
    return result


def _amounts_by_action(log: WholeLog, converted: Any) -> list[Vector]:
    """Returns the amounts of each action, ascending."""
    return _by_action(log, converted, lambda use: np.sort(log.reward[converted & use]))


def _delays_by_action(log: WholeLog, came: Any, window: float | None) -> list[Delays]:
    """Returns the law of the delay of each action."""
    if window is None:
        return _by_action(log, came, lambda use: _delays(log, came, use))
    strata, times = strata_of(log.action, came), np.unique(log.waited[came])
    age, ones = np.minimum(log.age, window), np.ones(len(came))
    result = []
    for k in range(len(log.names)):
        own = np.full(len(times), strata[log.action == k].max(initial=-1))
        law = converted_shares(log.waited, came, age, strata, times, own)
        result.append(Delays(times, law.shares(ones)))
    return result


def _delays(log: WholeLog, came: Any, use: Any) -> Delays:
    rows = np.flatnonzero(np.ones(len(came), bool) & use)
    curve = delay_curve(log.waited[rows], came[rows])
    return Delays(curve.times, 1.0 - curve.waiting)


class LogWorld(Shop):
    """A copy of the world of a log.

    Parameters
    ----------
    seed
        The seed of truth, visitors and luck.
    facts
        What the log says.
    at_once
        Whether rewards come at once, to see what lateness costs.
    """

    item = "action"

    def __init__(self, seed: int, facts: LogFacts, at_once: bool = False) -> None:
        self.facts, self.at_once = facts, at_once
        self.items = len(facts.names)
        self.of_visitor, self.groups = facts.columns, groups_of(facts.columns)  # type: ignore[misc]
        self.family = facts.family_name
        self.window = None if facts.window is None else facts.window / facts.seconds
        super().__init__(seed)
        self.amounts = self._draw_amounts(facts.amounts)
        self.worth = 1.0 if self.amounts is None else np.array([a.mean() for a in self.amounts])

    def _draw_amounts(self, logged: list[Vector] | None) -> list[Vector] | None:
        """Returns as many amounts for each action as the log has, drawn from them: a bootstrap."""
        if logged is None:
            return None
        rng = self.stream(3)
        return [np.sort(rng.choice(amounts, len(amounts))) for amounts in logged]

    def draw_theta(self, rng: np.random.Generator) -> Vector:
        """Returns a draw of theta, given the log."""
        theta = self.facts.theta
        return theta.mode + theta.root @ rng.standard_normal(len(theta.mode))

    def draw_visitors(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Returns visitors of the log, drawn with replacement."""
        return self.facts.visitors[rng.integers(len(self.facts.visitors), size=n)]

    def expected(self, scores: Vector) -> Vector:
        """Returns the expected rewards of actions with these linear scores."""
        return self.worth * np.array([mean(self.facts.family, float(z)) for z in scores])

    def outcome(self, visit: Visit, index: int) -> Outcome:
        """Returns what becomes of playing an action of a visit."""
        u, v = visit.luck
        z = float(self.theta[visit.places[index]].sum())
        reward = float(reward_quantile(self.facts.family, z, u))
        if self.window is not None and reward == 0.0:
            return Outcome(0.0, math.inf)  # nobody tells
        if self.amounts is not None:
            rate, amounts = float(mean(self.facts.family, z)), self.amounts[index]
            share = (u - (1.0 - rate)) / rate  # of the luck of those who convert: even in (0, 1)
            reward = float(amounts[min(max(int(share * len(amounts)), 0), len(amounts) - 1)])
        late = 0.0 if self.at_once else self.facts.delays[index].quantile(v)
        return Outcome(reward, late / self.facts.seconds)
