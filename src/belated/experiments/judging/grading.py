"""Graded verdicts on one claim, from many settings and from all of them together.

A claim is put as "this number is below its limit", in every setting. Each setting is tested three
times, at 2.5%: whether the number is lower, whether it is higher, and whether it is equal to the
limit up to a margin. Holm's correction keeps the chance of one false finding among all settings at
2.5% for each of the three. The pool of all settings is tested by itself: it is one number, so
nothing has to be corrected, and it sees what no single setting can.
"""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from belated.experiments.run_intervals import Estimate
from belated.numerics.student import beta_cdf, student_quantile, student_tail

LEVEL = 0.025  # of each one-sided test
LOWER, EQUAL, HIGHER, OPEN = "lower", "equal", "higher", "open"
EVERYWHERE = "supported everywhere"
OVERALL = "supported overall"
MIXED = "mixed"
CONTRADICTED = "contradicted"
UNCONFIRMED = "not contradicted, too few runs to confirm"
NOT_JUDGED = "cannot be judged"


class Evidence(NamedTuple):
    """P-values of the findings on one number and its limit; NaN where nothing is known."""

    p_lower: float  # the chance of data this low or lower were the number at its limit
    p_higher: float
    p_equal: float = 1.0  # the chance of data this near to the limit, were the number at the margin

    @property
    def alone(self) -> str:
        """Returns the finding if this is the only test."""
        return findings([self])[0]


def student_test(estimate: Estimate, runs: int, limit: float, margin: float = 0.0) -> Evidence:
    """Test an estimate that has Student's interval over ``runs`` runs.

    ``p_equal`` is the larger p-value of two one-sided tests: above ``limit - margin``, and below
    ``limit + margin``.
    """
    if not math.isfinite(estimate.low):
        return Evidence(math.nan, math.nan)
    error = (estimate.high - estimate.value) / student_quantile(1.0 - LEVEL, runs - 1)
    gap = estimate.value - limit
    if error == 0.0:
        p_higher = 0.0 if gap > 0.0 else 0.5 if gap == 0.0 else 1.0
        return Evidence(1.0 - p_higher, p_higher, 0.0 if abs(gap) <= margin else 1.0)
    p_higher = student_tail(gap / error, runs - 1)
    p_equal = student_tail((margin - abs(gap)) / error, runs - 1)
    return Evidence(1.0 - p_higher, p_higher, p_equal)


def binomial_test(hits: int, trials: int, limit: float) -> Evidence:
    """Exact test of a share."""
    p_lower = 1.0 - beta_cdf(limit, hits + 1, trials - hits) if hits < trials else 1.0
    p_higher = beta_cdf(limit, hits, trials - hits + 1) if hits > 0 else 1.0
    return Evidence(p_lower, p_higher)


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Returns, for each hypothesis, whether Holm's procedure rejects it; NaN is never rejected.

    >>> holm([0.001, 0.02, 0.013])
    [True, False, False]
    """
    known = np.nan_to_num(np.asarray(p_values, float), nan=1.0)
    rejected, left = [False] * len(known), len(known)
    for i in np.argsort(known):
        if known[i] > level / left:
            break
        rejected[i], left = True, left - 1
    return rejected


def findings(tests: Sequence[Evidence]) -> list[str]:
    """Returns what each setting shows, corrected for testing all of them."""
    lower, higher, equal = (holm([test[i] for test in tests]) for i in range(3))
    return [
        LOWER if low else HIGHER if high else EQUAL if same else OPEN
        for low, high, same in zip(lower, higher, equal, strict=True)
    ]


def graded(found: Sequence[str], pooled: str, supports: Collection[str] = (LOWER,)) -> str:
    """Returns the verdict on a claim.

    Parameters
    ----------
    found
        The finding of each setting.
    pooled
        The finding of all settings together.
    supports
        The findings that support the claim. ``OPEN`` speaks neither for nor against it; every
        other finding speaks against it.

    Examples
    --------
    >>> graded(["lower"] * 3, "lower"), graded(["lower", "open"], "lower")
    ('supported everywhere', 'supported overall, 1 of 2 settings open')
    >>> graded(["lower", "higher"], "lower"), graded(["higher", "open"], "higher")
    ('mixed', 'contradicted')
    >>> graded(["open", "lower"], "open")
    'not contradicted, too few runs to confirm'
    """
    for_it = [finding in supports for finding in found]
    against = [finding != OPEN and not good for finding, good in zip(found, for_it, strict=True)]
    if not found:
        return NOT_JUDGED
    if not any(against):
        if pooled in supports:
            left = for_it.count(False)
            return EVERYWHERE if not left else f"{OVERALL}, {left} of {len(found)} settings open"
        return UNCONFIRMED if pooled == OPEN else CONTRADICTED
    if any(for_it) or pooled in supports:
        return MIXED
    return CONTRADICTED
