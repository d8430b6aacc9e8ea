"""The delayed feedback model of Chapelle (2014): who converts, and how late, from a log.

A decision with features x converts with probability ``p = sigma(x'w_c)``. A conversion comes after
an exponential time of hazard ``h = exp(x'w_d)``. The log says of a decision that it has converted,
after a delay D, or that it has not yet, a time E after it was made. The log-likelihood of these is

    converted     log p + log h - h D
    not yet       log(1 - p + p exp(-h E)).

To take "not yet" for "no" would underestimate p: the younger the log, the more. The likelihood is
maximised by EM. The expected share of a decision that converts, given the log, is 1 where it has
and ``sigma(x'w_c - h E)`` where it has not; with it, w_c is a logistic and w_d an exponential
regression. No step makes the penalised likelihood smaller; it may have several maxima.

>>> import numpy as np
>>> x = np.column_stack([np.ones(4000), np.tile([0.0, 1.0], 2000)])
>>> log = draw_dfm_log(x, [-1.0, 1.0], [0.0, -1.0], elapsed=4.0, seed=1)
>>> model = fit_dfm(*log)
>>> model.predict([[1.0, 0.0], [1.0, 1.0]]).round(2)    # the truth: 0.27 and 0.5
array([0.27, 0.47])
>>> round(float(log.converted[1::2].mean()), 2)         # seen so far of the second kind
0.38

The environment of this model is ``Bernoulli()`` rewards with ``belated.delays.Hazard`` delays and
``belated.worlds.feedback.Conversions``. No bandit here learns with it, and none could claim a
guarantee.

References
----------
O. Chapelle: Modeling Delayed Feedback in Display Advertising. KDD 2014.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import array_of_numbers, not_negative, positive, whole, wrong
from belated.core.types import Matrix, Vector

NEWTON_STEPS, HALVINGS = 100, 60
Terms = Callable[[Vector], tuple[float, Vector, Vector]]  # value, slopes, curvatures


class DfmLog(NamedTuple):
    """A log of decisions: features, conversions, delays and ages."""

    x: Matrix  # (n, d)
    converted: Any  # (n,) whether a conversion was seen
    time: Vector  # (n,) its delay; of the others the time since the decision


@dataclass(frozen=True, slots=True, eq=False)
class DelayedFeedbackModel:
    """A fitted model."""

    conversion_weights: Vector  # (d,) w_c
    delay_weights: Vector  # (d,) w_d
    log_likelihood: float  # without the penalty
    iterations: int  # of EM
    converged: bool
    objective: Vector  # (iterations + 1,) penalised log-likelihood, before and after each iteration
    covariance: Matrix  # (2 d, 2 d) of (w_c, w_d): inverse of the observed information

    def predict(self, x: Any) -> Vector:
        """Probability that a decision ever converts, for the rows of ``x``."""
        return _sigma(_rows(x, len(self.conversion_weights)) @ self.conversion_weights)

    def predict_within(self, x: Any, time: Any) -> Vector:
        """Probability of a conversion within ``time``, a number or one per row."""
        rows = _rows(x, len(self.conversion_weights))
        waited = _times("time", time, len(rows))
        return self.predict(rows) * -np.expm1(-_product(_exp(rows @ self.delay_weights), waited))

    def mean_delay(self, x: Any) -> Vector:
        """Expected delay of a conversion, ``exp(-x'w_d)``."""
        return _exp(-(_rows(x, len(self.delay_weights)) @ self.delay_weights))


def fit_dfm(
    x: Any,
    converted: Any,
    time: Any,
    *,
    conversion_penalty: float = 1.0,
    delay_penalty: float = 1.0,
    tol: float = 1e-8,
    max_iterations: int = 10_000,
) -> DelayedFeedbackModel:
    """Maximise the likelihood less ``penalty / 2 ||weights||^2`` of either kind, by EM.

    Parameters
    ----------
    x
        Features, (n, d). There is no intercept but a column of ones.
    converted
        Whether each decision has converted, (n,).
    time
        The delay where it has; elsewhere the time since the decision, infinite where it is certain
        that no conversion will come. The penalty draws hazards towards 1: choose a unit in which
        delays are about 1.
    conversion_penalty, delay_penalty
        Ridges, above 0.
    tol
        EM ends when no entry of the gradient exceeds ``tol`` times the number of decisions.
    max_iterations
        EM ends then in any case; ``converged`` says which.
    """
    log = _checked_log(x, converted, time)
    penalties = (
        positive("conversion_penalty", conversion_penalty),
        positive("delay_penalty", delay_penalty),
    )
    enough = positive("tol", tol) * len(log.time)
    most = whole("max_iterations", max_iterations)
    w_c, w_d = np.zeros(log.x.shape[1]), np.zeros(log.x.shape[1])
    objective: list[float] = []
    while True:
        loss, for_conversion, for_delay = _loss(log, w_c, w_d, penalties)
        objective.append(-loss)
        done = np.abs([for_conversion, for_delay]).max() <= enough
        if done or len(objective) > most:
            break
        share = _share(log, w_c, w_d)
        w_c = _newton(log.x, penalties[0], w_c, _logistic(share))
        w_d = _newton(log.x, penalties[1], w_d, _exponential(log, share))
    return DelayedFeedbackModel(
        w_c,
        w_d,
        -_loss(log, w_c, w_d, (0.0, 0.0))[0],
        len(objective) - 1,
        bool(done),
        np.array(objective),
        np.asarray(np.linalg.inv(_information(log, w_c, w_d, penalties)), np.float64),
    )


def dfm_loss(
    x: Any,
    converted: Any,
    time: Any,
    conversion_weights: Any,
    delay_weights: Any,
    *,
    conversion_penalty: float = 0.0,
    delay_penalty: float = 0.0,
) -> tuple[float, Vector, Vector]:
    """Penalised negative log-likelihood, its gradient in w_c and its gradient in w_d."""
    log = _checked_log(x, converted, time)
    dim = log.x.shape[1]
    return _loss(
        log,
        _weights("conversion_weights", conversion_weights, dim),
        _weights("delay_weights", delay_weights, dim),
        (
            not_negative("conversion_penalty", conversion_penalty),
            not_negative("delay_penalty", delay_penalty),
        ),
    )


def draw_dfm_log(
    x: Any, conversion_weights: Any, delay_weights: Any, elapsed: Any, *, seed: int
) -> DfmLog:
    """Draw what would be known of the decisions ``x`` a time ``elapsed``, or one each, after them.

    >>> log = draw_dfm_log([[1.0], [1.0]], [50.0], [0.0], elapsed=[0.0, 1e9], seed=1)
    >>> log.converted.tolist()
    [False, True]
    """
    rows = _rows(x)
    n, dim = rows.shape
    p = _sigma(rows @ _weights("conversion_weights", conversion_weights, dim))
    mean = _exp(-(rows @ _weights("delay_weights", delay_weights, dim)))
    waited = _times("elapsed", elapsed, n)
    rng = np.random.default_rng(whole("seed", seed, least=0))
    converts = rng.random(n) < p
    delay = _product(np.asarray(rng.standard_exponential(n)), mean)
    seen = converts & (delay <= waited) & np.isfinite(delay)
    return DfmLog(rows, seen, np.where(seen, delay, waited))


# ------------------------------------------------------------------------------- the likelihood


def _sigma(z: Vector) -> Vector:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _exp(z: Vector) -> Vector:
    with np.errstate(over="ignore"):  # infinite where it is too large: the callers know
        return np.exp(z)


def _product(a: Vector, b: Vector) -> Vector:
    """``a b``, where nothing times infinity is nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where((a == 0.0) | (b == 0.0), 0.0, a * b)


def _share(log: DfmLog, w_c: Vector, w_d: Vector) -> Vector:
    """Chance that each decision converts, given the log: the E step."""
    waited = _product(_exp(log.x @ w_d), log.time)
    return np.where(log.converted, 1.0, _sigma(log.x @ w_c - waited))


def _loss(
    log: DfmLog, w_c: Vector, w_d: Vector, penalties: tuple[float, float]
) -> tuple[float, Vector, Vector]:
    """Value and gradients; slopes are those of EM's two regressions at the current share."""
    z, u = log.x @ w_c, log.x @ w_d
    waited, share = _product(_exp(u), log.time), _share(log, w_c, w_d)
    not_yet = np.logaddexp(0.0, z) - np.logaddexp(0.0, z - waited)  # -log(1 - p + p e^(-h E))
    value = np.where(log.converted, np.logaddexp(0.0, -z) - u + waited, not_yet).sum()
    value += 0.5 * penalties[0] * w_c @ w_c + 0.5 * penalties[1] * w_d @ w_d
    for_conversion = log.x.T @ (_sigma(z) - share) + penalties[0] * w_c
    for_delay = log.x.T @ (_product(share, waited) - log.converted) + penalties[1] * w_d
    return float(value), for_conversion, for_delay


def _information(log: DfmLog, w_c: Vector, w_d: Vector, penalties: tuple[float, float]) -> Matrix:
    """Second derivative of the penalised negative log-likelihood in (w_c, w_d)."""
    x, d = log.x, log.x.shape[1]
    waited, share = _product(_exp(x @ w_d), log.time), _share(log, w_c, w_d)
    p = _sigma(x @ w_c)
    unsure = share * (1.0 - share)  # 0 where it has converted
    cross = _product(unsure, waited)
    blocks = [
        [p * (1.0 - p) - unsure, cross],
        [cross, _product(share, waited) - _product(cross, waited)],
    ]
    out = np.block([[(x * weight[:, np.newaxis]).T @ x for weight in row] for row in blocks])
    return out + np.diag(np.repeat(penalties, d))


# -------------------------------------------------------------------------------- the regressions


def _logistic(share: Vector) -> Terms:
    def terms(z: Vector) -> tuple[float, Vector, Vector]:
        p = _sigma(z)
        return float((np.logaddexp(0.0, z) - share * z).sum()), p - share, p * (1.0 - p)

    return terms


def _exponential(log: DfmLog, share: Vector) -> Terms:
    exposure = _product(share, log.time)

    def terms(u: Vector) -> tuple[float, Vector, Vector]:
        expected = _product(_exp(u), exposure)
        return float((expected - log.converted * u).sum()), expected - log.converted, expected

    return terms


def _newton(x: Matrix, penalty: float, weights: Vector, terms: Terms) -> Vector:
    """Minimise a convex sum over rows plus the penalty; never ends above where it began."""
    ridge = penalty * np.eye(x.shape[1])
    value, slopes, curvatures = terms(x @ weights)
    value += 0.5 * penalty * float(weights @ weights)
    for _ in range(NEWTON_STEPS):
        gradient = x.T @ slopes + penalty * weights
        step = np.linalg.solve((x * curvatures[:, np.newaxis]).T @ x + ridge, gradient)
        decrement = gradient @ step
        if decrement <= 1e-15 * (1.0 + abs(value)):
            break
        for _ in range(HALVINGS):
            new = weights - step
            lower, slopes, curvatures = terms(x @ new)
            lower += 0.5 * penalty * float(new @ new)
            if lower <= value - 0.25 * decrement:
                break
            step, decrement = 0.5 * step, 0.5 * decrement
        else:  # rounding
            break
        weights, value = new, lower
    return weights


# ------------------------------------------------------------------------------- what is let in


def _rows(x: Any, dim: int | None = None) -> Matrix:
    rows = array_of_numbers("x", x)
    if rows.ndim != 2 or 0 in rows.shape or rows.shape[1] != (dim or rows.shape[1]):
        raise ValueError(f"x has shape {rows.shape}: expected (n, {dim or 'd'}), n at least 1")
    if not np.isfinite(rows).all():
        raise wrong("x", rows[~np.isfinite(rows)][0], "finite numbers")
    return rows


def _weights(name: str, values: Any, dim: int) -> Vector:
    weights = array_of_numbers(name, values)
    if weights.shape != (dim,) or not np.isfinite(weights).all():
        raise wrong(name, values, f"{dim} finite numbers, one for each column of x")
    return weights


def _times(name: str, values: Any, n: int) -> Vector:
    times = array_of_numbers(name, values)
    if times.shape not in ((), (n,)):
        raise ValueError(f"{name} has shape {times.shape}: expected ({n},), one for each row of x")
    if not (times >= 0.0).all():
        raise wrong(name, times[~(times >= 0.0)].ravel()[0], "numbers, 0 or more")
    return np.array(np.broadcast_to(times, (n,)))


def _checked_log(x: Any, converted: Any, time: Any) -> DfmLog:
    rows = _rows(x)
    known, times = array_of_numbers("converted", converted), _times("time", time, len(rows))
    if known.shape != (len(rows),):
        raise ValueError(f"converted has shape {known.shape}: expected ({len(rows)},), as x")
    if not np.isin(known, (0.0, 1.0)).all():
        raise wrong("converted", known[~np.isin(known, (0.0, 1.0))][0], "True or False (1 or 0)")
    if not np.isfinite(times[known == 1.0]).all():
        raise wrong("time", np.inf, "a finite delay where converted")
    return DfmLog(rows, known == 1.0, times)
