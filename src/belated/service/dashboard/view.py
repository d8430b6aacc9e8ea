"""Turns statistics into the data of the page."""

import math

import numpy as np

from belated.core.types import Vector
from belated.core.wording import duration, percent
from belated.monitoring.delay_curve import delay_curve, thinned
from belated.monitoring.delay_fit import DelayFit, best_fit
from belated.monitoring.finding_alarms import find_alarms, pending_by_age
from belated.monitoring.statistics import DECIDED, RETURNED, Statistics
from belated.service.dashboard import data

HALF_HOUR, MINUTE = 180, 6  # in slices of ten seconds
HALF_MINUTE_US = 30_000_000
MOST_STEPS = 200
MOST_ACTIONS = 12
AGES = (
    (10.0, "under 10 seconds"),
    (60.0, "10 to 60 seconds"),
    (600.0, "1 to 10 minutes"),
    (3600.0, "10 to 60 minutes"),
    (6 * 3600.0, "1 to 6 hours"),
    (86400.0, "6 to 24 hours"),
    (8 * 86400.0, "1 to 8 days"),
    (math.inf, "over 8 days"),
)


def bandit_view(statistics: Statistics, now_us: int, about: data.BanditFacts) -> data.BanditView:
    """Returns the page's data of one bandit, in some ten milliseconds: keep it for a second."""
    last = statistics.last_reward_us
    return data.BanditView(
        name=about.name,
        policy=about.policy,
        loop="explicit" if about.facts.learns_on_arrival else "conversion",
        decisions=statistics.n_decided,
        rewards=statistics.n_returned,
        missing=statistics.n_pending,
        expired=statistics.n_expired,
        late=statistics.n_late,
        decisions_a_second=_last_minute(statistics, now_us, DECIDED),
        rewards_a_second=_last_minute(statistics, now_us, RETURNED),
        last_reward=last / 1e6 if last else None,
        model_version=about.model_version,
        behind_seconds=about.facts.behind_seconds,
        behind_decisions=about.facts.behind_decisions,
        alarms=[data.AlarmView(*alarm) for alarm in find_alarms(statistics, now_us, about.facts)],
        rates=_rates(statistics, now_us),
        pending=_pending(statistics, now_us),
        delay=_delay(statistics, now_us),
        actions=_actions(statistics, about.default_reward),
        reward=_reward(statistics, now_us, about),
        width=_width(statistics, now_us),
        best=about.best,
        holdout=about.holdout,
    )


def _rates(statistics: Statistics, now_us: int) -> data.Rates:
    """Half-minute means, without the half minute of now, which is not full yet."""
    fine = statistics.fine
    starts = fine.starts(now_us)
    full = starts < now_us // HALF_MINUTE_US * HALF_MINUTE_US

    def means(kind: int) -> list[float]:
        counts = fine.until(now_us, kind)[full][-HALF_HOUR:]
        return _numbers(counts.reshape(-1, 3).sum(axis=1) / 30.0)

    return data.Rates(_times(starts[full][-HALF_HOUR::3] / 1e6), means(DECIDED), means(RETURNED))


def _last_minute(statistics: Statistics, now_us: int, kind: int) -> float:
    """Events a second."""
    return round(float(statistics.fine.until(now_us, kind)[-MINUTE - 1 : -1].sum()) / 60.0, 3)


def _pending(statistics: Statistics, now_us: int) -> list[data.PendingBar]:
    ages, counts = pending_by_age(statistics, now_us)
    place = np.searchsorted([limit for limit, _ in AGES], ages, side="right")
    totals = np.bincount(np.minimum(place, len(AGES) - 1), counts, len(AGES))
    return [data.PendingBar(age, int(n)) for (_, age), n in zip(AGES, totals, strict=True)]


def _delay(statistics: Statistics, now_us: int) -> data.DelayView:
    observed = statistics.followed.observations(now_us)
    curve = delay_curve(observed.delay, observed.returned)
    fit = best_fit(observed.delay, observed.returned)
    few = thinned(curve, MOST_STEPS)
    # the last percent of the rewards may take as long as all others together
    seen = 1.0 - few.waiting
    shown = slice(0, int(np.searchsorted(seen, 0.99 * seen[-1])) + 1) if seen.size else slice(0)
    return data.DelayView(
        times=_numbers(few.times[shown]),
        returned=_numbers(seen[shown]),
        lower=_numbers(1.0 - few.upper[shown]),
        upper=_numbers(1.0 - few.lower[shown]),
        fit=_numbers(1.0 - fit.waiting_at(few.times[shown])) if fit else None,
        law=_law(fit) if fit else None,
        median=curve.median,
        within_90=curve.quantile(0.9),
        n_returned=curve.n_returned,
        n_waiting=len(statistics.followed.waiting),
        n_closed=curve.n_censored - len(statistics.followed.waiting),
    )


def _law(fit: DelayFit) -> str:
    words = {
        "exponential": f"exponential, mean {duration(fit.scale)}",
        "weibull": f"Weibull, shape {1.0 / fit.sigma:.2g}, scale {duration(fit.scale)}",
        "lognormal": f"lognormal, median {duration(fit.scale)}, sigma {fit.sigma:.2g}",
    }[fit.law]
    never = 1.0 - fit.returning
    return f"{words}; {percent(never)} never return" if never >= 0.001 else words


def _actions(statistics: Statistics, default: float | None) -> list[data.ActionBar]:
    everything = max(statistics.n_decided, 1)
    bars = []
    for name, totals in statistics.actions.by_name.items():
        count, total, _ = totals.known(default)
        mean = float(f"{total / count:.7g}") if count else None
        bars.append(data.ActionBar(name, totals.decided, totals.decided / everything, count, mean))
    bars.sort(key=lambda bar: (-bar.decisions, bar.name))
    rest = bars[MOST_ACTIONS:]
    if not rest:
        return bars
    rewards = sum(bar.rewards for bar in rest)
    total = math.fsum(bar.rewards * bar.mean for bar in rest if bar.mean is not None)
    played = sum(bar.decisions for bar in rest)
    return [
        *bars[:MOST_ACTIONS],
        data.ActionBar(
            f"{len(rest):,} others",
            played,
            played / everything,
            rewards,
            total / rewards if rewards else None,
        ),
    ]


def _reward(statistics: Statistics, now_us: int, about: data.BanditFacts) -> data.RewardView:
    times, counts, totals = statistics.rewards.until(now_us)
    changed_at, _, changes = statistics.revisions.until(now_us)
    totals = totals + _at(times, changed_at, changes)
    if about.default_reward is not None:
        expired_at, expired, _ = statistics.expiries.until(now_us)
        counts = counts + _at(times, expired_at, expired)
        totals = totals + about.default_reward * _at(times, expired_at, expired)
    view = data.RewardView(_times(times), _numbers(totals), None, None, None, "")
    if about.baseline is None:
        view.note = "No baseline: the bandit has no baseline action."
        return view
    count, total, squares = statistics.actions.of(about.baseline).known(about.default_reward)
    if count < 2:
        view.note = "No baseline yet: its action has fewer than two rewards."
        return view
    mean = total / count
    error = 1.96 * math.sqrt(max(squares / count - mean * mean, 0.0) / (count - 1))
    view.baseline = _numbers(counts * mean)
    view.lower = _numbers(counts * (mean - error))
    view.upper = _numbers(counts * (mean + error))
    view.note = (
        "Baseline: mean reward of its own decisions times all decisions with a reward. A fair "
        "comparison where the baseline is played at random, too."
    )
    return view


def _at(times: Vector, moments: Vector, values: Vector) -> Vector:
    """The running values at other times."""
    return np.interp(times, moments, values)


def _width(statistics: Statistics, now_us: int) -> data.WidthView:
    times, counts, totals = statistics.widths.until(now_us)
    made = np.diff(counts) > 0
    means = np.diff(totals)[made] / np.diff(counts)[made]
    return data.WidthView(_times(times[:-1][made]), _numbers(means))


def _times(times: Vector) -> list[float]:
    return [round(float(time), 3) for time in times]


def _numbers(values: Vector) -> list[float]:
    """Returns the values rounded to six digits, to keep the answer small."""
    return [float(f"{value:.6g}") for value in values]
