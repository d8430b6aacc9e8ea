"""The cost of lateness for a planned deployment, by simulation on common random numbers.

It is what ``belated plan`` says, without a log: the engine alone plays, in worlds that are named.

Time is counted in decisions, evenly spread over the day: at 2,400 decisions per day a delay of one
hour is 100 rounds. As everywhere here, delays are rounded up to whole rounds. Batches and replicas
are two more reasons why a reward is late, on top of its own delay:

    batches    a reward is learned from when the batch in which it returned ends
    replica    decisions are made by a copy that knows of a reward some seconds later
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from belated import registry
from belated.core.arguments import not_negative, positive, whole, wrong, wrong_type
from belated.core.extras import extra
from belated.core.types import Integers, Matrix, Vector
from belated.engine.lanes import RECORD, Batched
from belated.engine.worlds import LONGEST_HORIZON, Lane, WorldSettings, play_world
from belated.model.plain_policy import is_own
from belated.model.protocols import (
    Delay,
    Environment,
    Family,
    choose,
    delay_quantile,
    derivatives,
    mean,
)
from belated.numerics.student import student_quantile
from belated.worlds.delays import Constant, Scaled, read_law
from belated.worlds.environments import FixedArms, Sphere, UnitBall, sample

CHECKPOINTS = 200  # times are known to this fraction of the run
DASHES: list[Any] = ["-", "--", "-.", ":", (0, (7, 1, 1, 1, 1, 1))]
SETS = 1000  # decision sets over which the best action is averaged


@dataclass(frozen=True)
class Way:
    """One way for rewards to come back, and the regret that it leads to."""

    name: str
    regret: Matrix = field(repr=False)  # (runs, checkpoints), cumulative
    cost: float  # expected rewards lost against rewards at once, by the end
    error: float  # standard error of the cost, from paired runs
    interval: tuple[float, float]  # of the cost: Student's, with 95 per cent confidence
    decisions: float  # from this one on within x per cent of the best; infinite: not in this run
    days: float


@dataclass(frozen=True)
class DelayCost:
    """The result of ``delay_cost``. ``ways`` begins with rewards at once and with late ones."""

    ways: tuple[Way, ...]
    t: Integers = field(repr=False)  # decisions made at the checkpoints
    per_day: float
    within: float  # per cent
    best: float  # expected reward of the best action, per decision
    hours: float  # mean delay

    @property
    def cost(self) -> float:
        """Returns the expected rewards that lateness costs by the end, against rewards at once."""
        return self.ways[1].cost

    @property
    def error(self) -> float:
        """Returns the standard error of ``cost``."""
        return self.ways[1].error

    @property
    def interval(self) -> tuple[float, float]:
        """Returns the 95 per cent confidence interval of ``cost``, from paired runs."""
        return self.ways[1].interval

    @property
    def per_hour(self) -> float | None:
        """Returns what every hour of the mean delay costs.

        None where the cost cannot be told apart from nothing, or the delay has no mean.
        """
        low, high = self.interval
        is_told = (low > 0.0 or high < 0.0) and 0.0 < self.hours < math.inf
        return self.cost / self.hours if is_told else None

    @property
    def days(self) -> float:
        """Returns the length of the run in days."""
        return float(self.t[-1] / self.per_day)

    @property
    def sentence(self) -> str:
        """Returns the whole result in words."""
        at_once, late, *others = self.ways
        days = f"{_short(self.days)} day{'' if self.days == 1.0 else 's'}"
        on_average = f" {_short(self.hours)} hours late on average"
        share = late.cost / (self.best * float(self.t[-1]))
        hourly = "" if self.per_hour is None else f", {_short(self.per_hour)} for every hour"
        amount = _amount(late, " with 95% confidence") + hourly
        text = (
            f"In {days} of {_short(self.per_day)} decisions, rewards that return"
            f"{on_average if math.isfinite(self.hours) else ' late'} cost {amount}, {share:.1%} of "
            f"what the best actions earn, and the policy is within {self.within:g}% of the best "
            f"{self._when(late)} instead of {self._when(at_once)}"
        )
        for way in others:
            text += f"; {way.name}: {_amount(way)}, {self._when(way)}"
        return f"{text}."

    def _when(self, way: Way) -> str:
        return f"from day {_short(way.days)} on" if math.isfinite(way.days) else "not in that time"

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plots regret and paired cost of every way against days; returns the figure."""
        with extra("plots"):
            from matplotlib import colormaps
            from matplotlib.figure import Figure
        figure = Figure(figsize=(10, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        shades = colormaps["cividis"](np.linspace(0.0, 0.8, len(self.ways)))  # differ in grey too
        for i, way in enumerate(self.ways):
            style = {"color": shades[i], "linestyle": DASHES[i % len(DASHES)], "label": way.name}
            self._draw(left, way.regret, way.days, style)
            if i:
                self._draw(right, way.regret - self.ways[0].regret, way.days, style)
        left.set(
            title="Rewards lost against the best actions", ylabel="cumulative regret (rewards)"
        )
        left.set_ylim(bottom=0)
        right.set(title="Of these, lost to lateness", ylabel="cost of lateness (rewards)")
        right.axhline(0.0, color="#222222", linewidth=0.8)
        for axes in (left, right):
            axes.set(xlabel="days", xlim=(0, self.days))
            axes.grid(color="#dddddd", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        place: Any = "outside lower center"
        title = (
            f"mean of {len(self.ways[0].regret)} runs, band: one standard error, dot: within "
            f"{self.within:g}% of the best from here on"
        )
        lines = left.get_legend_handles_labels()
        figure.legend(*lines, loc=place, ncols=2, frameon=False, handlelength=4, title=title)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _draw(self, axes: Any, curves: Matrix, near: float, style: dict[str, Any]) -> None:
        """Draws mean and standard error of runs, with a dot on day ``near``."""
        days, curves = np.append(0, self.t) / self.per_day, np.pad(curves, ((0, 0), (1, 0)))
        middle, error = curves.mean(0), curves.std(0, ddof=1) / math.sqrt(len(curves))
        axes.plot(days, middle, linewidth=1.8, **style)
        band = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
        axes.fill_between(days, middle - error, middle + error, **band)
        if math.isfinite(near):
            axes.plot(near, np.interp(near, days, middle), "o", color=style["color"])


def _amount(way: Way, said: str = "") -> str:
    low, high = way.interval
    return f"{_short(way.cost)} rewards ({_short(low)} to {_short(high)}{said})"


def _short(value: float) -> str:
    """Returns a number with three digits, or all of a larger number's: never an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def delay_cost(
    delay: Any,
    *,
    dim: int,
    per_day: float,
    days: float = 30.0,
    n_actions: int = 10,
    family: Any = "bernoulli",
    policy: Any = "delayed-ofu-glm",
    norm: float = 1.0,
    gap: float | None = None,
    within: float = 5.0,
    batch_minutes: float | Sequence[float] = (),
    replica_seconds: float | Sequence[float] = (),
    runs: int = 20,
    seed: int = 0,
) -> DelayCost:
    """Simulates the cost of late rewards: the same worlds with rewards at once, late, in batches.

    This is the form of ``belated plan`` that needs the engine alone: no log, and a world by name.

    Parameters
    ----------
    delay
        Law of the delay in hours, or its name: ``Exponential(24.0)``, ``"exponential:24"``. The
        file of ``"empirical:law.json"`` may be in any unit.
    dim, n_actions
        d and K.
    per_day, days
        Decisions per day, evenly spread, and the number of days.
    family, policy
        Objects or names, as in ``belated.simulate``.
    norm, gap
        Difficulty. By default, K fresh actions per decision from the unit ball, and a theta_star of
        length ``norm``. With ``gap``, the same K actions all the time; the linear predictor of the
        best is ``norm``, and its expected reward is ``gap`` above that of every other.
    within
        Per cent: the result says from when on the expected reward is that close to the best.
    batch_minutes, replica_seconds
        What-ifs, each on its own on top of the delay: one number or several.
    runs, seed
        The number of paired runs, 2 or more, and the seed that makes them repeatable.

    Returns
    -------
    DelayCost
        ``cost`` with its ``error`` and ``interval``, ``per_hour``, ``ways`` with the numbers of
        each, ``sentence``, ``plot(path)``.

    Examples
    --------
    >>> found = delay_cost("exponential:12", dim=2, per_day=50, days=6, n_actions=4, runs=3)
    >>> [way.name for way in found.ways]
    ['rewards at once', 'late rewards']
    >>> found.cost > 0.0
    True
    """
    policy = _known("policy", registry.POLICIES, policy, choose.cases)
    family = _known("family", registry.FAMILIES, family, derivatives.cases)
    per_day, norm = positive("per_day", per_day), positive("norm", norm)
    if isinstance(delay, str) and delay.startswith("empirical:"):
        delay = read_law(delay.removeprefix("empirical:"), "hours", per_day)
    delay = _known("delay", registry.DELAYS, delay, delay_quantile.cases)
    if not 0.0 < positive("within", within) < 100.0:
        raise wrong("within", within, "per cent, below 100")
    if norm > getattr(policy, "m1", norm):
        raise wrong("norm", norm, f"at most {policy.m1:g}, the m1 of the policy")
    T = whole("days * per_day", round(positive("days", days) * per_day))
    if T > LONGEST_HORIZON:
        raise wrong("days * per_day", T, f"at most {LONGEST_HORIZON} decisions")
    whole("n_actions", n_actions, least=2)
    named = dict(_delays(delay, per_day, batch_minutes, replica_seconds))
    theta_star = norm * np.eye(whole("dim", dim))[0]
    world = WorldSettings(
        UnitBall(n_actions),
        dim,
        T,
        0,
        whole("seed", seed, least=0),
        np.unique(np.ceil(T * np.arange(1, CHECKPOINTS + 1) / CHECKPOINTS)).astype(np.int64),
        tuple(Lane(policy, family, late) for late in named.values()),
        theta_star=theta_star,
    )
    regret = np.empty((whole("runs", runs, least=2), len(named), len(world.checkpoints)))
    for run in range(runs):
        world = world._replace(run=run)
        if gap is not None:
            world = world._replace(environment=_arms(world, family, norm, gap))
        regret[run] = play_world(world)[:, :, RECORD.index("regret")]
    best = _best(world.environment, family, theta_star, seed)
    return DelayCost(
        tuple(
            _way(name, regret[:, i], regret[:, 0], world.checkpoints, per_day, within * best / 100)
            for i, name in enumerate(named)
        ),
        world.checkpoints,
        per_day,
        within,
        best,
        delay.mean,
    )


def _known(name: str, known: dict[str, str], thing: Any, cases: Any) -> Any:
    thing = registry.parsed(known, thing)
    if type(thing) not in cases and not (name == "policy" and is_own(thing)):
        raise wrong_type(name, thing, f"a {name} or its name, such as {next(iter(known))}")
    return thing


def _delays(
    delay: Delay, per_day: float, batch_minutes: Any, replica_seconds: Any
) -> Iterator[tuple[str, Delay | Batched]]:
    """Returns the delay of each way in rounds, by the name of the way."""
    late = Scaled(delay, factor=per_day / 24.0)
    yield "rewards at once", Constant(0.0)
    yield "late rewards", late
    for minutes in np.atleast_1d(batch_minutes).tolist():
        every = positive("batch_minutes", minutes) * per_day / 1440.0
        yield f"late, learned in batches every {minutes:g} min", Batched(late, every)
    for seconds in np.atleast_1d(replica_seconds).tolist():
        behind = not_negative("replica_seconds", seconds) * per_day / 86400.0
        yield f"late, decided by a replica {seconds:g} s behind", late._replace(shift=behind)


def _arms(world: WorldSettings, family: Family, norm: float, gap: float) -> FixedArms:
    """Returns unit vectors at one angle to the best, such that each is worth ``gap`` less."""
    low, high = -norm, norm
    top, most = mean(family, high), mean(family, high) - mean(family, low)
    if positive("gap", gap) > most:
        raise wrong("gap", gap, f"at most {most:.4g}, for this family and norm = {norm:g}")
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if mean(family, middle) < top - gap else (low, middle)
    rng = np.random.default_rng(
        np.random.SeedSequence(world.seed, spawn_key=(2, world.dim, world.run))
    )
    K, cosine = world.environment.n_actions, high / norm
    arms = np.zeros((K, world.dim))
    arms[0, 0], arms[1:, 0] = 1.0, cosine
    if world.dim > 1:
        arms[1:, 1:] = math.sqrt(1.0 - cosine**2) * sample(Sphere(K - 1), world.dim - 1, rng)
    return FixedArms(rng.permutation(arms))  # ties go to the first row: it must not be the best


def _best(environment: Environment, family: Family, theta_star: Vector, seed: int) -> float:
    """Returns the expected reward of the best action, averaged over decision sets."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    sets = (sample(environment, len(theta_star), rng) for _ in range(SETS))
    return float(np.mean([mean(family, float((rows @ theta_star).max())) for rows in sets]))


def _way(
    name: str, regret: Matrix, at_once: Matrix, t: Integers, per_day: float, allowed: float
) -> Way:
    lost = regret[:, -1] - at_once[:, -1]
    cost, error = float(lost.mean()), float(lost.std(ddof=1)) / math.sqrt(len(lost))
    reach = student_quantile(0.975, len(lost) - 1) * error
    decisions = _near_from(np.append(0, t), np.append(0.0, regret.mean(0)), allowed)
    return Way(
        name,
        regret,
        cost,
        error,
        (cost - reach, cost + reach),
        decisions,
        decisions / per_day,
    )


def _near_from(t: Integers, regret: Vector, allowed: float) -> float:
    """First checkpoint with at most ``allowed`` regret per decision over the next tenth of time.

    That is, from t to 1.1 t, and from every later checkpoint too. Single steps would not do: where
    regret is rare and large, most of them have none. Long steps would blur the beginning.
    """
    start = np.arange(len(t))
    end = start + np.maximum(1, start // 10)
    start, end = start[end < len(t)], end[end < len(t)]
    bad = np.flatnonzero(regret[end] - regret[start] > allowed * (t[end] - t[start]))
    first = bad[-1] + 1 if bad.size else 0
    return float(t[first]) if first < len(start) else math.inf
