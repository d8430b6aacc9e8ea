"""The answer of ``belated delays`` for machines: numbers, in seconds and shares."""

import math
from typing import Any

from belated.logs.delays import DelayReport, Delays
from belated.monitoring.delay_curve import DelayCurve
from belated.monitoring.delay_fit import DelayFit

QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def facts(report: DelayReport) -> dict[str, Any]:
    """Returns the answer as JSON can hold it; None stands for what is infinite or not known."""
    return {
        "columns": report.columns,
        "columns_not_used": report.unused,
        "loop": report.loop,
        "window": report.window,
        "now": report.now,
        "rows": report.n_rows,
        "rows_in_sample": report.n_sampled,
        "rewards_after_window": report.n_late,
        **report.bad.facts(),
        "all": _delays(report.all),
        "groups": {name: _delays(group) for name, group in report.groups.items()},
        "groups_with_few_rewards": report.n_small_groups,
        "groups_beyond_the_largest": report.n_further_groups,
        "actions_told_apart": report.has_actions,
        "tests": {
            name: None
            if found is None
            else {**_finite(found._asdict()), "matters": bool(found.matters)}
            for name, found in report.tests.items()
        },
        "periods": [
            {**_finite(period._asdict()), "is_odd": bool(period.is_odd)}
            for period in report.periods
        ],
    }


def _delays(delays: Delays) -> dict[str, Any]:
    curve = delays.curve
    still = curve.waiting if isinstance(curve, DelayCurve) else curve.times[:0]
    return {
        **delays.counts._asdict(),
        "quantiles": {str(q): curve.quantile(q) for q in QUANTILES},
        "still_waiting": float(still[-1]) if still.size else None,
        "fits": [_fit(fit) for fit in delays.fits],
    }


def _fit(fit: DelayFit) -> dict[str, Any]:
    low, high = fit.mean_interval()
    least, most = fit.never_interval()
    return _finite(
        {
            "law": fit.law,
            "mu": fit.mu,
            "sigma": fit.sigma,
            "mean": fit.mean,
            "mean_error": fit.mean_error,
            "mean_low": low,
            "mean_high": high,
            "never": fit.never,
            "never_error": fit.never_error,
            "never_low": least,
            "never_high": most,
            "aic": fit.aic,
        }
    )


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
