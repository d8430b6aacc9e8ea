"""The law that silence is judged by: by hand, in its limits, and against the truth."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from belated.monitoring import delay_law as module
from belated.monitoring.delay_law import delay_law
from belated.monitoring.truncated_delays import truncated_curve


def seen_early(rng, n, now, mean=1.0, window=4.0):
    delays, ages = rng.exponential(mean, n), rng.uniform(0.0, now, n)
    early = delays <= np.minimum(ages, window)
    return delays[early], ages[early]


def truth(ages, mean=1.0, window=4.0):
    return -np.expm1(-np.asarray(ages) / mean) / -math.expm1(-window / mean)


def test_by_hand():
    """Two cells, up to 1 and to 4: of 5 at risk at 4 one came after 1."""
    law = delay_law([0.5, 3.0, 1.0, 0.2, 0.1, 0.3], [5.0, 4.0, 2.5, 4.0, 6.0, 9.0], 4.0, cells=2)
    # F(1) / F(4) = (1 - a) / (1 - a^4) = 1 / s; at risk at 4 are 5, with one further conversion of
    # which a quarter comes by 1: it is likeliest that 4.25 of 6 come by 1
    s = 4.25 / 6.0
    F = (5 - 1 + s) / (5 + 1)
    assert law.within == pytest.approx(np.array([[0.0, F, 1.0]]))
    ages = [0.0, 0.5, 1.0, 2.5, 4.0, 9.0]
    assert law.within_at(ages) == pytest.approx([0.0, F / 2, F, (1 + F) / 2, 1.0, 1.0])
    assert law.n == 6
    assert law.variance == pytest.approx(np.array([[0.0, (1 - F) / (F * (5 + 1 + 1))]]))


def test_the_variance_is_that_of_the_logarithm_of_a_beta():
    """Of each group: the delta method is near the draws where some are at risk."""
    rng = np.random.default_rng(4)
    delays, ages = seen_early(rng, 3000, now=7.0)
    law = delay_law(delays, ages, 4.0, np.arange(len(delays)) % 2, 2, cells=4)
    q = law.within[:, :-1] / law.within[:, 1:]
    n = (1.0 - q) / (np.where(q > 0.0, q, np.inf) * np.where(q > 0.0, law.variance, 1.0)) - 1.0
    assert (law.variance[:, 0] == 0.0).all()
    for g, k in [(0, 1), (1, 3), (2, 2)]:
        assert n[g, k] == pytest.approx(round(n[g, k]), abs=1e-6)  # at risk, and 5 or 1
        drawn = np.log(rng.beta(q[g, k] * n[g, k], (1.0 - q[g, k]) * n[g, k], 100_000)).var()
        assert law.variance[g, k] == pytest.approx(drawn, rel=0.03)


def test_without_the_simpler_law_it_is_the_product_limit_of_rounded_delays(monkeypatch):
    monkeypatch.setattr(module, "TO_SIMPLE", 0.0)
    delays, ages = seen_early(np.random.default_rng(0), 2000, now=7.0)
    law, ends = delay_law(delays, ages, 4.0, cells=8), 4.0 * (np.arange(9) / 8.0) ** 2
    up = ends[np.searchsorted(ends, delays, side="left")]
    down = ends[np.searchsorted(ends, ages, side="right") - 1]
    curve = truncated_curve(up[up <= down], down[up <= down])
    assert law.within[0] == pytest.approx(curve.within_at(ends))


def test_the_tail_is_the_likeliest_exponential_law():
    """Nobody is at risk beyond the largest age; a twin maximises the likelihood numerically."""
    m, delays, ages = 8, np.array([1, 1, 2, 1, 3, 1]), np.array([4, 3, 3, 1, 4, 4])
    even = np.diff((np.arange(m + 1) / m) ** 2)  # of the further conversion

    def loss(rate):
        F = -np.expm1(-rate * np.arange(m + 1) ** 2)
        cells = np.diff(F)
        further = (even * np.log(cells / F[-1])).sum()
        return -np.log(cells[delays - 1] / F[ages]).sum() - further

    found = minimize_scalar(loss, bounds=(1e-6, 0.3), method="bounded", options={"xatol": 1e-12})
    assert 0.01 < found.x < 0.29
    law = delay_law((delays - 0.5) ** 2, (ages + 0.5) ** 2, window=float(m * m), cells=m)
    share = -np.expm1(-found.x * np.arange(m + 1) ** 2)
    assert law.within[0, 4:] == pytest.approx(share[4:] / share[-1], abs=1e-6)


@pytest.mark.parametrize("now", [1.0, 2.0, 6.0])
def test_follows_the_truth(now):
    delays, ages = seen_early(np.random.default_rng(1), 30_000, now)
    law = delay_law(delays, ages, 4.0)
    x = np.arange(65) / 16.0
    assert np.abs(law.within_at(x) - truth(x)).max() < 0.03


def test_a_law_that_is_not_exponential_is_found_where_it_was_seen():
    rng = np.random.default_rng(2)
    delays, ages = 1.0 + rng.random(4000), rng.uniform(0.0, 8.0, 4000)
    early = delays <= ages
    law = delay_law(delays[early], ages[early], 4.0)
    assert law.within_at([0.9, 1.5, 2.0]) == pytest.approx([0.0, 0.5, 1.0], abs=0.03)


def test_groups_differ_where_conversions_say_so_and_else_are_as_all():
    rng = np.random.default_rng(3)
    slow, fast = seen_early(rng, 4000, 6.0, mean=2.0), seen_early(rng, 4000, 6.0, mean=0.3)
    delays, ages = np.concatenate([slow, fast], axis=1)
    group = (np.arange(delays.size) >= slow[0].size).astype(int)
    law = delay_law(delays, ages, 4.0, group, n_groups=3)
    x = [0.25, 1.0, 2.0]
    assert law.within_at(x, 0) == pytest.approx(truth(x, 2.0), abs=0.04)
    assert law.within_at(x, 1) == pytest.approx(truth(x, 0.3), abs=0.04)
    assert law.within[2] == pytest.approx(law.within[-1])  # the third has none
    few = delay_law(delays[-3:], ages[-3:], 4.0, group[-3:], n_groups=3)
    assert np.abs(few.within[1] - few.within[-1]).max() < 0.15


def test_every_law_grows_from_0_to_1():
    rng = np.random.default_rng(4)
    for n in (1, 2, 5, 20):
        delays, ages = seen_early(rng, n, 3.0)
        law = delay_law(delays, ages, 4.0, np.zeros(delays.size, int), 1)
        assert (np.diff(law.within, axis=1) >= 0.0).all()
        assert (law.within[:, 0] == 0.0).all()
        assert (law.within[:, -1] == 1.0).all()
        assert (law.within[:, :-1] < 1.0).all()


def test_the_order_of_conversions_does_not_matter():
    delays, ages = seen_early(np.random.default_rng(5), 500, 5.0)
    order = np.random.default_rng(6).permutation(delays.size)
    one, other = delay_law(delays, ages, 4.0), delay_law(delays[order], ages[order], 4.0)
    assert one.within.tobytes() == other.within.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 0.0}, "window = 0.0: expected a finite number above 0"),
        ({"cells": 1}, "cells = 1: expected a whole number, 2 or more"),
        ({"window": 1.0}, "delays = 2.0: expected at most the window, 1"),
        ({"groups": [0]}, r"groups = \[0\]: expected a whole number for each delay"),
        ({"groups": [0, 3], "n_groups": 3}, "groups = 3: expected numbers from 0 to 2"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        delay_law(**{"delays": [1.0, 2.0], "ages": [3.0, 3.0], "window": 4.0, **change})
