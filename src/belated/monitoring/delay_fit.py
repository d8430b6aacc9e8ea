"""Laws fitted to delays by maximum likelihood, with standard errors.

Rewards that have not come are right-censored at their age. Each law may have a share of decisions
whose reward never comes (a mixture, known as a cure model): with p the share that returns, a
reward that took t has likelihood p f(t), and a decision that has waited for its age a

    1 - p F(a) = (1 - p) + p S(a).

Where only conversions report it is the same likelihood, and p is the conversion rate: it is known
from the number of the silent ones alone, which is why they take part.

Newton's method climbs in (mu, log sigma, logit p), in which likelihoods are nearly quadratic, with
derivatives by differences. Many delays are counted in cells of log(delay), of which each stands
at the mean of what is in it: an error of the second order in the width of a cell, 4e-6 of it.

The covariance of the estimates is the inverse of the observed information. An interval of the mean
is made on the scale of its logarithm and one of a share on the scale of its logit, by the delta
method, so that no interval leaves the range of what it is for. Near 0 a share has no such interval,
and gets that of the profile likelihood.

References
----------
J. Boag: Maximum likelihood estimates of the proportion of patients cured by cancer therapy. JRSS B
1949.
V. Farewell: The use of mixture models for the analysis of survival data with long-term survivors.
Biometrics 1982.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import probability
from belated.core.types import Integers, Matrix, Vector
from belated.monitoring.delay_curve import checked_delays
from belated.monitoring.delay_shapes import GAMMA, LOGLOGISTIC, LOGNORMAL, LOMAX, WEIBULL, Law

LAWS = {
    "exponential": WEIBULL,
    "weibull": WEIBULL,
    "lognormal": LOGNORMAL,
    "loglogistic": LOGLOGISTIC,
    "lomax": LOMAX,
    "gamma": GAMMA,
}
USUAL = ("exponential", "weibull", "lognormal")  # quick enough for a page that is made anew often
SHORTEST = 1e-6  # a delay of 0 has no logarithm: it is taken as a microsecond
LONGEST_LOG = 60.0  # of a delay in seconds: longer than anything
CELL, MOST_POINTS = 0.01, 1000  # more delays than these are counted in cells of this width
_STEP = 5e-4  # of the differences
_MOST_STEPS, _MOST_HALVINGS, _LONGEST_STEP = 100, 40, 2.0
_LEAST_GAIN = 1e-9  # in log likelihood: the step that gains less is the last
_MOST_LOGIT = 15.0  # a share of never below 3e-7 is none
_LEAST_LOG_SIGMA = -18.0  # Lomax with a smaller sigma is exponential


@dataclass(frozen=True)
class DelayFit:
    """A fitted law, for the share ``returning`` of all decisions; ``delay_shapes`` has the laws."""

    law: str
    mu: float
    sigma: float
    returning: float  # share of decisions whose reward comes at all
    log_likelihood: float
    n_parameters: int
    # of mu, log sigma and logit returning; 0 for what is not estimated, NaN for what is not known
    covariance: Matrix = field(repr=False, compare=False, default_factory=lambda: np.zeros((3, 3)))
    sample: "_Sample | None" = field(
        repr=False, compare=False, default=None
    )  # that it was fitted to

    @property
    def aic(self) -> float:
        """Akaike's criterion: the smaller, the better."""
        return 2.0 * (self.n_parameters - self.log_likelihood)

    @property
    def has_never(self) -> bool:
        """True where the law has a share that never returns, be it 0."""
        return self.n_parameters == (2 if self.law == "exponential" else 3)

    @property
    def scale(self) -> float:
        """The mean of an exponential or a gamma law, the median of a lognormal; else a scale."""
        return math.exp(self.mu)

    @property
    def mean(self) -> float:
        """Returns the mean delay of the rewards that come; it may be infinite."""
        return math.exp(LAWS[self.law].log_mean(self.mu, self.sigma))

    @property
    def mean_error(self) -> float:
        """Returns the standard error of ``mean``; NaN where it is infinite or not known."""
        return self.mean * self._log_mean_error() if math.isfinite(self.mean) else math.nan

    def mean_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the confidence interval of ``mean``; it ends at infinity where that may be it."""
        if not math.isfinite(self.mean):
            return math.nan, math.inf
        reach = _quantile(confidence) * self._log_mean_error()
        return self.mean * math.exp(-reach), self.mean * math.exp(min(reach, 700.0))

    def _log_mean_error(self) -> float:
        of = LAWS[self.law].log_mean
        up, down = (of(self.mu, self.sigma * math.exp(step)) for step in (_STEP, -_STEP))
        slopes = np.array([1.0, (up - down) / (2.0 * _STEP)])
        return math.sqrt(max(slopes @ self.covariance[:2, :2] @ slopes, 0.0))

    @property
    def never(self) -> float:
        """Returns the share of decisions whose reward never comes."""
        return 1.0 - self.returning

    @property
    def never_error(self) -> float:
        """Returns the standard error of ``never``."""
        return self.never * self.returning * math.sqrt(max(self.covariance[2, 2], 0.0))

    def never_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the confidence interval of ``never``; both ends are 0 in a law without it.

        Where 0 is nearly as likely as ``never`` there is no standard error to speak of. Then the
        interval holds all shares whose likelihood, maximised by the other parameters, is near
        enough to the largest (profile likelihood): from 0 up to an end.
        """
        if not self.has_never:
            return 0.0, 0.0
        if self.sample is not None:
            most = _most_never(self, self.sample, 0.5 * _quantile(confidence) ** 2)
            if most is not None:
                return 0.0, most
        middle = math.log(self.never / self.returning)
        reach = _quantile(confidence) * math.sqrt(max(self.covariance[2, 2], 0.0))
        low, high = (1.0 / (1.0 + math.exp(-(middle + end))) for end in (-reach, reach))
        return low, high

    def waiting_at(self, delays: Any) -> Vector:
        """Share of decisions that wait longer than each of ``delays``."""
        return self.never + self.returning * (1.0 - self.within_at(delays))

    def within_at(self, delays: Any) -> Vector:
        """Share of the rewards that come at all which come within each of ``delays``."""
        x = np.log(np.maximum(np.asarray(delays, np.float64), SHORTEST))
        return -np.expm1(LAWS[self.law].beyond(x, self.mu, self.sigma))

    def quantile(self, shares: Any) -> Vector:
        """Returns the delay within which each share of the rewards that come at all comes.

        >>> best_fit([1.0, 3.0], [True, True], ["exponential"]).quantile([1.0 - math.exp(-1.0)])
        array([2.])
        """
        wanted = np.asarray(shares, np.float64)
        low = np.full(wanted.shape, math.log(SHORTEST))
        high = np.full(wanted.shape, LONGEST_LOG)
        for _ in range(60):  # the interval is halved down to rounding
            middle = 0.5 * (low + high)
            enough = self.within_at(np.exp(middle)) >= wanted
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(wanted < 1.0, np.exp(high), math.inf)


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + 0.5 * probability("confidence", confidence))


def all_fits(
    delays: Any,
    returned: Any,
    laws: Sequence[str] = tuple(LAWS),
    never: Sequence[bool] = (False, True),
) -> list[DelayFit]:
    """Returns the fits of several laws, the one with the smallest AIC first.

    A law is left out where it cannot be told: no reward has come, or, for a law with a shape, all
    came after the same delay.

    Parameters
    ----------
    delays, returned
        As in ``delay_curve``.
    laws
        Names of ``LAWS``.
    never
        Whether some never return: both are tried.

    Examples
    --------
    >>> (fit,) = all_fits([1.0, 2.0, 3.0], [True, True, False], ["exponential"], [False])
    >>> round(fit.scale, 6), fit.n_parameters
    (3.0, 1)
    >>> round(fit.mean_error, 3)    # 3 / sqrt(2), from two rewards
    2.121
    """
    sample = _sample(delays, returned)
    fits = [_fitted(law, sample, some) for law in laws for some in never]
    return sorted((fit for fit in fits if fit is not None), key=lambda fit: fit.aic)


def best_fit(delays: Any, returned: Any, laws: Sequence[str] = USUAL) -> DelayFit | None:
    """The law with the smallest AIC, with and without a share that never returns.

    >>> best_fit([2.0, 2.0], [True, False]).law
    'exponential'
    """
    return next(iter(all_fits(delays, returned, laws)), None)


class _Points(NamedTuple):
    """Log delays, each with the number of decisions that have it."""

    x: Vector
    counts: Vector


class _Sample(NamedTuple):
    came: _Points  # delays of rewards
    waits: _Points  # ages of the rest
    unit: float  # in which delays are counted: Newton then starts near zero, whatever the clock
    n_distinct: int  # delays of rewards


def _sample(delays: Any, returned: Any) -> _Sample:
    times, came = checked_delays(delays, returned)
    times = np.maximum(times, SHORTEST)
    unit = float(times.max(initial=SHORTEST))
    x = np.log(times / unit)
    distinct = np.unique(times[came]).size
    return _Sample(_counted(x[came]), _counted(x[~came]), unit, distinct)


def _counted(x: Vector) -> _Points:
    if x.size <= MOST_POINTS:
        return _Points(x, np.ones(x.size))
    cells: Integers
    _, cells = np.unique(np.floor(x / CELL), return_inverse=True)
    counts = np.bincount(cells).astype(np.float64)
    return _Points(np.bincount(cells, x) / counts, counts)


def _fitted(law: str, sample: _Sample, some_never_return: bool) -> DelayFit | None:
    has_shape = law != "exponential"
    if sample.n_distinct < (2 if has_shape else 1):
        return None
    free = np.flatnonzero([True, has_shape, some_never_return])

    def likelihood(point: Vector) -> float:
        return _log_likelihood(LAWS[law], sample, point)

    with np.errstate(all="ignore"):  # a trial far out may have no likelihood: it is not taken
        point = _climbed(likelihood, _start(law, sample, some_never_return), free)
        inside = free[~_at_limit(point)[free]]
        _, hessian = _derivatives(likelihood, point, inside)
        value = likelihood(point)
    x, counts = sample.came
    return DelayFit(
        law=law,
        mu=float(point[0]) + math.log(sample.unit),
        sigma=math.exp(point[1]),
        returning=_share(point[2]),
        log_likelihood=value - float((x + math.log(sample.unit)) @ counts),
        n_parameters=free.size,
        covariance=_covariance(hessian, inside),
        sample=sample,
    )


def _most_never(fit: DelayFit, sample: _Sample, drop: float) -> float | None:
    """Returns the largest share of never whose log likelihood is within ``drop`` of the largest.

    None where that of 0 is further below.
    """
    law, free = LAWS[fit.law], np.flatnonzero([True, fit.law != "exponential"])
    start = np.array([fit.mu - math.log(sample.unit), math.log(fit.sigma), 0.0])

    def likelihood(point: Vector) -> float:
        return _log_likelihood(law, sample, point)

    def highest(logit: float) -> float:
        """Returns the largest log likelihood with this logit of the share that returns."""
        return likelihood(_climbed(likelihood, np.array([*start[:2], logit]), free))

    with np.errstate(all="ignore"):
        x, counts = sample.came
        largest = fit.log_likelihood + float((x + math.log(sample.unit)) @ counts)
        if not largest - highest(math.inf) <= drop:
            return None
        near = min(_MOST_LOGIT, math.log(fit.returning / max(fit.never, 1e-300)))
        far = -_MOST_LOGIT
        for _ in range(30):  # the interval is halved down to 1e-8
            middle = 0.5 * (near + far)
            inside = largest - highest(middle) <= drop
            near, far = (middle, far) if inside else (near, middle)
    return 1.0 - _share(far)


def _share(logit: float) -> float:
    return 1.0 if logit >= _MOST_LOGIT else 1.0 / (1.0 + math.exp(-logit))


def _start(law: str, sample: _Sample, some_never_return: bool) -> Vector:
    """(mu, log sigma, logit of the share that returns) from the rewards that came."""
    x, counts = sample.came
    n, n_waiting = counts.sum(), sample.waits.counts.sum()
    mean = float(x @ counts) / n
    if law in ("exponential", "gamma", "lomax"):  # placed by their mean; Lomax far from its limit
        mean, spread = math.log(float(np.exp(x) @ counts) / n), 0.5 if law == "lomax" else 1.0
    else:
        spread = math.sqrt(float((x - mean) ** 2 @ counts) / n)
    logit = math.log((n + 1.0) / (n_waiting + 1.0)) if some_never_return else math.inf
    return np.array([mean, math.log(spread or 1.0), logit])


def _log_likelihood(law: Law, sample: _Sample, point: Vector) -> float:
    """Log likelihood of the log delays at (mu, log sigma, logit)."""
    mu, sigma = float(point[0]), math.exp(min(point[1], 300.0))
    log_share, log_never = -np.logaddexp(0.0, -point[2]), -np.logaddexp(0.0, point[2])
    (came, n_came), (waits, n_waits) = sample.came, sample.waits
    waiting = np.logaddexp(log_never, log_share + law.beyond(waits, mu, sigma))
    return float((law.density(came, mu, sigma) + log_share) @ n_came + waiting @ n_waits)


Function = Callable[[Vector], float]


def _derivatives(f: Function, point: Vector, free: Integers) -> tuple[Vector, Matrix]:
    """Gradient and Hessian in the free coordinates, by central differences."""
    steps = _STEP * np.eye(point.size)[free]
    middle = f(point)
    up = np.array([f(point + step) for step in steps])
    down = np.array([f(point - step) for step in steps])
    hessian = np.diag(up - 2.0 * middle + down)
    for i in range(free.size):
        for j in range(i):
            both = f(point + steps[i] + steps[j]) + f(point - steps[i] - steps[j])
            alone = up[i] + down[i] + up[j] + down[j]
            hessian[i, j] = hessian[j, i] = 0.5 * (both - alone) + middle
    return (up - down) / (2.0 * _STEP), hessian / _STEP**2


def _climbed(f: Function, point: Vector, free: Integers) -> Vector:
    """Newton over the free coordinates; a step that does not climb is halved."""
    now = f(point)
    for _ in range(_MOST_STEPS):
        gradient, hessian = _derivatives(f, point, free)
        if not np.isfinite(hessian).all():
            return point
        values, vectors = np.linalg.eigh(hessian)
        # the size of the curvature without its sign: uphill also where the hill is not concave
        sizes = np.maximum(np.abs(values), 1e-9 * np.abs(values).max() + 1e-300)
        step = vectors @ ((vectors.T @ gradient) / sizes)
        step /= max(1.0, float(np.abs(step).max()) / _LONGEST_STEP)
        for _ in range(_MOST_HALVINGS):
            trial = point.copy()
            trial[free] += step
            new = f(trial)
            if new > now:
                break
            step /= 2.0
        else:
            return point
        gain = new - now
        point, now = trial, new
        if gain < _LEAST_GAIN or _at_limit(point)[free].any():
            break
    return point


def _at_limit(point: Vector) -> Any:
    """Returns which coordinates are as good as infinite: the likelihood is flat from there on."""
    return np.array([False, point[1] <= _LEAST_LOG_SIGMA, point[2] >= _MOST_LOGIT])


def _covariance(hessian: Matrix, free: Integers) -> Matrix:
    """Returns the inverse of the information, 0 for what is not free; NaN where there is none."""
    covariance = np.zeros((3, 3))
    information = -hessian
    certain = np.isfinite(hessian).all() and np.linalg.eigvalsh(information)[0] > 0.0
    covariance[np.ix_(free, free)] = np.linalg.inv(information) if certain else math.nan
    return covariance
