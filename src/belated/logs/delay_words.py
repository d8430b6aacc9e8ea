"""The answer of ``belated delays`` in words and tables."""

import math
from collections.abc import Sequence
from typing import Any

from belated.core.times import SECOND, utc
from belated.core.wording import counted, duration, moment, percent
from belated.logs.delays import LEAST_REWARDS, DelayReport, Delays
from belated.monitoring.delay_curve import DelayCurve
from belated.monitoring.delay_fit import DelayFit
from belated.monitoring.delay_tests import LEAST, UNLIKELY, Difference

Row = dict[str, Any]
MOST_GROUPS = 12  # in lines for people
UNITS = (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
LAWS = {
    "exponential": "exponential",
    "weibull": "Weibull",
    "lognormal": "log-normal",
    "loglogistic": "log-logistic",
    "lomax": "Pareto (Lomax)",
    "gamma": "gamma",
}
MEANINGS = {
    "explicit": (
        "explicit: every decision gets a reward some day, or has lost it. One without a reward is "
        "at least as late as it is old, and is not left out (Kaplan-Meier). If only conversions "
        "are reported, say --loop conversion."
    ),
    "conversion": (
        "conversion: only conversions are reported, and nobody knows which silent decision will "
        "still convert. Delays are seen only if they are shorter than the age of their decision, "
        "and are corrected for that (right truncation). How many convert is known from the number "
        "of the silent ones, by the fitted law alone. If every decision gets a reward some day, "
        "say --loop explicit."
    ),
}
CONSEQUENCES = {
    "reward": (
        "Rewards that have come are then no fair sample of all: there is too much of the quick "
        "kind. Averages and models of what has come are off, and no confidence set holds. "
        "Learn from decisions that are old enough for nearly all rewards: with a window, "
        "open = 'hold'."
    ),
    "action": (
        "Of what has come, quick actions have too much. Compare actions by their own rewards, "
        "never by sums in which a missing reward is a 0; use a law for each action (--by action), "
        "as a conversion loop of belated does."
    ),
    "segment": (
        "Of what has come, quick segments have too much. Averages over segments are off unless "
        "each is weighed by its decisions; one law for all is that of the mixture (--by segment)."
    ),
    "time": (
        "One law for the whole log is then of neither part. Plan with the part that is like the "
        "future; a conversion loop has to hold open decisions until delays are steady for a window."
    ),
}

NO_ACTIONS = (
    " The log does not say which action was played, so actions were not told apart: a mix of quick "
    "and slow ones may be the reason."
)


def meaning(report: DelayReport) -> str:
    """Returns how a decision without a reward was understood."""
    words = MEANINGS[report.loop]
    if report.window is None:
        return words
    late = counted(report.n_late, "reward")
    return f"{words} Rewards are waited for {duration(report.window)}; {late} came later."


def lengths(values: Sequence[float]) -> tuple[list[str], str]:
    """Returns durations as numbers in one unit, that of the first, and the unit.

    >>> lengths([7200.0, 7000.0, float("inf")])
    (['2', '1.94', 'infinite'], 'hours')
    """
    first = next((abs(value) for value in values if math.isfinite(value)), 1.0)
    unit, size = next((pair for pair in UNITS if first >= pair[1]), UNITS[-1])
    return [_length(value / size) for value in values], unit


def _length(value: float) -> str:
    if math.isnan(value):
        return "not known"
    return f"{value:.3g}" if math.isfinite(value) else "infinite"


def curve_words(delays: Delays) -> str:
    """Returns what the curve says, in a sentence or two."""
    curve, (decisions, returned) = delays.curve, delays.counts
    begin = f"{counted(decisions, 'decision')}, {returned:,} with a reward."
    if not curve.times.size:
        return begin
    quantiles = [curve.quantile(share) for share in (0.5, 0.9)]
    if isinstance(curve, DelayCurve):
        low, high = float(curve.lower[-1]), float(curve.upper[-1])
        end = (
            f"After {duration(float(curve.times[-1]))}, the longest delay so far, "
            f"{percent(float(curve.waiting[-1]))} still wait ({percent(low)} to {percent(high)})."
        )
        of = "decisions have their reward"
    else:
        of = f"conversions that come within {duration(curve.longest_age)} have come"
        end = "Of later ones the curve says nothing."
    half, most = (None if q is None else f"within {duration(q)}" for q in quantiles)
    if half is None:
        return f"{begin} Fewer than half of the {of} so far. {end}"
    return f"{begin} Half of the {of} {half}, {f'90 % {most}' if most else 'but not 90 %'}. {end}"


def fit_rows(delays: Delays) -> list[Row]:
    """Returns a table of the fitted laws, the best first."""
    return [_fit_row(fit, fit.aic - delays.fits[0].aic) for fit in delays.fits]


def _fit_row(fit: DelayFit, behind: float) -> Row:
    return {
        "law": LAWS[fit.law],
        "mean delay": _mean(fit),
        "never returns": _never(fit),
        "AIC above best": f"{behind:.1f}",
    }


def _mean(fit: DelayFit) -> str:
    """Returns the mean with its standard error and its interval."""
    if not math.isfinite(fit.mean):
        return "infinite"
    (mean, error, low, high), unit = lengths([fit.mean, fit.mean_error, *fit.mean_interval()])
    return f"{mean} ± {error} {unit} ({low} to {high})"


def _never(fit: DelayFit) -> str:
    """Returns the share that never returns with its standard error and its interval."""
    if not fit.has_never:
        return "–"
    least, most = fit.never_interval()
    shares = (fit.never, fit.never_error, least, most)
    never, error, low, high = (f"{100.0 * share:.3g}" for share in shares)
    if least == 0.0:
        return f"none seen (at most {high} %)" if fit.never < 1e-6 else f"{never} % (0 to {high})"
    return f"{never} ± {error} % ({low} to {high})"


def answer_rows(report: DelayReport) -> list[Row]:
    """Returns a table of the tests, each with its answer and what follows."""
    return [_test_row(name, found, report) for name, found in report.tests.items()]


def _test_row(name: str, found: Difference | None, report: DelayReport) -> Row:
    question = f"Does delay depend on the {name}?" if name != "time" else "Did delays change?"
    if found is None:
        answer = (
            f"Cannot be told: fewer than {LEAST} rewards to compare on one side, or all are alike."
        )
        return {"question": question, "answer": answer, "consequence": ""}
    if not found.matters:
        answer = f"No sign of it ({_p(found)})."
        if found.p < UNLIKELY:
            answer = f"Hardly: hazards differ by a factor of {found.factor:.3g} ({_p(found)})."
        return {"question": question, "answer": answer, "consequence": ""}
    group = f"those of {name} {found.name}"
    if name == "time":
        group = f"those of decisions since {moment(float(found.name), report.now / SECOND)}"
    elif name == "reward":
        group = found.name
    later = "later" if found.z > 0.0 else "sooner"
    within = "of the same action, " if report.has_actions and name != "action" else ""
    answer = (
        f"Yes: {within}{group} come {later} than the others{_halves(found)} (hazards differ by a "
        f"factor of {found.factor:.3g}, {_p(found)})."
    )
    mixed = "" if report.has_actions else NO_ACTIONS
    return {"question": question, "answer": answer, "consequence": CONSEQUENCES[name] + mixed}


def _p(found: Difference) -> str:
    return "p < 0.000001" if found.p < 1e-6 else f"p = {found.p:.2g}"


def _halves(found: Difference) -> str:
    """Returns both medians, unless they say the contrary: they are of all actions together."""
    own, other = found.median, found.other
    if own is not None and other is not None and (own > other) != (found.z > 0.0):
        return ""
    return f", half within {_half(own)} against {_half(other)}"


def _half(seconds: float | None) -> str:
    return "a time not reached" if seconds is None else duration(seconds)


def period_rows(report: DelayReport) -> list[Row]:
    """Returns a table of missing rewards over time, beside those that the law expects."""
    return [
        {
            "decisions from": utc(round(period.begin * SECOND)),
            "decisions": period.decisions,
            "missing": percent(period.missing / period.decisions),
            "by the law": percent(period.expected / period.decisions),
            "odd": ("more" if period.z > 0.0 else "fewer") if period.is_odd else "",
        }
        for period in report.periods
    ]


def missing_words(report: DelayReport) -> str:
    """Returns whether rewards are missing that the law would have."""
    odd = [period for period in report.periods if period.is_odd]
    of_each = " of each action" if report.has_actions else ""
    if not odd:
        return f"In every period as many rewards are missing as the best law{of_each} says."
    more = sum(period.z > 0.0 for period in odd)
    mixed = "" if report.has_actions else NO_ACTIONS
    return (
        f"In {more} of {len(report.periods)} periods more rewards are missing than the best law"
        f"{of_each} says, in {len(odd) - more} fewer. Rewards were lost, or not handed in, or "
        f"delays were others then; or no law of these fits well.{mixed}"
    )


def sample_words(report: DelayReport) -> str:
    """Returns what curves, fits and tests rest on."""
    if report.n_sampled == report.n_rows:
        return "all rows"
    return f"{report.n_sampled:,} rows drawn evenly, the same in every run; counts are of all"


def summary(name: str, report: DelayReport) -> Row:
    """Returns the whole answer, to be shown as lines and tables."""
    careful = {"careful": report.bad.warning} if report.bad.warning else {}
    return {
        **careful,
        "log": name,
        "columns": f"--map {report.columns}",
        "columns_not_used": ", ".join(report.unused) or "none",
        "meaning": meaning(report),
        "now": utc(report.now),
        "curves,_fits_and_tests": f"of {sample_words(report)}",
        "rows_left_out": report.bad.words,
        "first_bad_rows": report.bad.facts()["first_bad_rows"],
        "decisions_not_used": report.bad.not_used,
        "delays": curve_words(report.all),
        "laws": fit_rows(report.all),
        **{
            f"{report.by} {name}": _group_words(group)
            for name, group in list(report.groups.items())[:MOST_GROUPS]
        },
        **({f"other_{report.by}s": groups_words(report, MOST_GROUPS)} if report.by else {}),
        "what_is_taken_for_granted": answer_rows(report),
        "missing_rewards": missing_words(report),
        "missing_rewards_over_time": period_rows(report),
    }


def groups_words(report: DelayReport, shown: int) -> str:
    """Returns how many groups are not among the first ``shown``, and why.

    >>> from types import SimpleNamespace
    >>> report = SimpleNamespace(groups=range(15), n_further_groups=0, n_small_groups=2)
    >>> groups_words(report, 12)
    '3 smaller ones are in --json, 2 have fewer than 20 rewards and no curve'
    """
    counts = (
        (len(report.groups) - shown, "smaller ones are in --json"),
        (report.n_further_groups, "still smaller ones have no curve"),
        (report.n_small_groups, f"have fewer than {LEAST_REWARDS} rewards and no curve"),
    )
    return ", ".join(f"{n:,} {what}" for n, what in counts if n > 0) or "none"


def _group_words(delays: Delays) -> str:
    if delays.best is None:
        return curve_words(delays)
    law = delays.best
    never = f"; never: {_never(law)}" if law.never else ""
    return f"{curve_words(delays)} Best law: {LAWS[law.law]}, mean {_mean(law)}{never}."
