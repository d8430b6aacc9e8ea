"""Laws fitted to delays: exponential, Weibull and lognormal, by maximum likelihood.

Rewards that have not come are right-censored at their age. Each law may have a share of decisions
whose reward never comes (a mixture, known as a cure model).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import wrong
from belated.core.types import Matrix, Vector
from belated.monitoring.delay_curve import checked_delays
from belated.monitoring.delay_shapes import LOGNORMAL, WEIBULL, Law

LAWS = {"exponential": WEIBULL, "weibull": WEIBULL, "lognormal": LOGNORMAL}
SHORTEST = 1e-6  # a delay of 0 has no logarithm: it is taken as a microsecond
_MOST_STEPS, _MOST_HALVINGS, _LONGEST_STEP = 100, 40, 2.0
_LEAST_GAIN = 1e-9  # in log likelihood: the step that gains less is the last
_MOST_LOGIT = 15.0  # a share of never below 3e-7 is none


@dataclass(frozen=True)
class DelayFit:
    """A fitted law: log(delay) = mu + sigma z, for the share ``returning`` of all decisions.

    For the exponential and the Weibull law exp(mu) is the scale and 1 / sigma the shape.
    """

    law: str
    mu: float
    sigma: float
    returning: float  # share of decisions whose reward comes at all
    log_likelihood: float
    n_parameters: int

    @property
    def aic(self) -> float:
        """Akaike's criterion: the smaller, the better."""
        return 2.0 * (self.n_parameters - self.log_likelihood)

    @property
    def scale(self) -> float:
        """The mean of an exponential, the scale of a Weibull, the median of a lognormal."""
        return math.exp(self.mu)

    def waiting_at(self, delays: Any) -> Vector:
        """Share of decisions that wait longer than each of ``delays``."""
        times = np.maximum(np.asarray(delays, np.float64), SHORTEST)
        z = (np.log(times) - self.mu) / self.sigma
        return 1.0 - self.returning + self.returning * np.exp(LAWS[self.law].beyond(z)[0])


def fit_delay(
    law: str, delays: Any, returned: Any, some_never_return: bool = False
) -> DelayFit | None:
    """The law of this name that makes the delays likeliest.

    None where it cannot be told: no reward has come, or, for a law with a shape, all came after
    the same delay.

    Examples
    --------
    >>> fit = fit_delay("exponential", [1.0, 2.0, 3.0], [True, True, False])
    >>> round(fit.scale, 9), fit.n_parameters
    (3.0, 1)
    """
    if law not in LAWS:
        raise wrong("law", law, f"one of {', '.join(LAWS)}")
    times, came = checked_delays(delays, returned)
    times = np.maximum(times, SHORTEST)
    has_shape = law != "exponential"
    if np.unique(times[came]).size < (2 if has_shape else 1):
        return None
    scale = float(times.max())  # in this unit Newton starts near zero, whatever the clock
    sample = _Sample(LAWS[law], np.log(times[came] / scale), np.log(times[~came] / scale))
    free = np.array([True, has_shape, some_never_return])
    point = _start(sample, law, some_never_return)
    if law == "exponential" and not some_never_return:
        point[0] = math.log(times.sum() / scale / came.sum())  # the answer
    else:
        point = _climbed(sample, point, free)
    return DelayFit(
        law=law,
        mu=float(point[0]) + math.log(scale),
        sigma=math.exp(point[1]),
        returning=_share(point[2]),
        log_likelihood=_likelihood(sample, point)[0] - float(np.log(times[came]).sum()),
        n_parameters=int(free.sum()),
    )


def best_fit(delays: Any, returned: Any) -> DelayFit | None:
    """The law with the smallest AIC, with and without a share that never returns.

    >>> best_fit([2.0, 2.0], [True, False]).law
    'exponential'
    """
    fits = [fit_delay(law, delays, returned, never) for law in LAWS for never in (False, True)]
    return min((fit for fit in fits if fit is not None), key=lambda fit: fit.aic, default=None)


class _Sample(NamedTuple):
    law: Law
    came: Vector  # log delays of rewards
    waits: Vector  # log ages of the rest


def _share(logit: float) -> float:
    return 1.0 if logit >= _MOST_LOGIT else 1.0 / (1.0 + math.exp(-logit))


def _start(sample: _Sample, law: str, some_never_return: bool) -> Vector:
    """(mu, log sigma, logit of the share that returns) from the rewards that came."""
    spread = float(sample.came.std()) or 1.0
    n, n_waiting = sample.came.size, sample.waits.size
    return np.array(
        [
            float(sample.came.mean()),
            0.0 if law == "exponential" else math.log(spread),
            math.log((n + 1.0) / (n_waiting + 1.0)) if some_never_return else math.inf,
        ]
    )


def _likelihood(sample: _Sample, point: Vector) -> tuple[float, Vector, Matrix]:
    """Log likelihood of the log delays, its gradient and Hessian in (mu, log sigma, logit)."""
    sigma, share = math.exp(point[1]), _share(point[2])
    z, w = (sample.came - point[0]) / sigma, (sample.waits - point[0]) / sigma
    log_f, f1, f2 = sample.law.density(z)
    log_s, h, h1 = sample.law.beyond(w)
    still = share * np.exp(log_s)
    # of those without a reward, the share that will still get one, given that they wait
    coming = np.ones_like(w) if share == 1.0 else still / (1.0 - share + still)
    log_waiting = log_s if share == 1.0 else np.log(1.0 - share + still)
    value = log_f.sum() + z.size * (math.log(share) - point[1]) + log_waiting.sum()

    first = np.concatenate((f1, -coming * h))  # of each log likelihood, by its z
    second = np.concatenate((f2, coming * (1.0 - coming) * h * h - coming * h1))
    mixed = -coming * (1.0 - coming) * h  # by z and by the logit
    at = np.concatenate((z, w))
    gradient = np.array(
        [
            -first.sum() / sigma,
            -(first @ at) - z.size,
            z.size * (1.0 - share) + (coming - share).sum(),
        ]
    )
    mu_sigma = (second @ at + first.sum()) / sigma
    mu_logit, sigma_logit = -mixed.sum() / sigma, -(mixed @ w)
    logit_logit = (coming * (1.0 - coming)).sum() - at.size * share * (1.0 - share)
    hessian = np.array(
        [
            [second.sum() / sigma**2, mu_sigma, mu_logit],
            [mu_sigma, second @ (at * at) + first @ at, sigma_logit],
            [mu_logit, sigma_logit, logit_logit],
        ]
    )
    return float(value), gradient, hessian


def _climbed(sample: _Sample, point: Vector, free: Any) -> Vector:
    """Newton over the free coordinates; a step that does not climb is halved."""
    now = _likelihood(sample, point)
    for _ in range(_MOST_STEPS):
        _, gradient, hessian = now
        values, vectors = np.linalg.eigh(hessian[np.ix_(free, free)])
        # the size of the curvature without its sign: uphill also where the hill is not concave
        sizes = np.maximum(np.abs(values), 1e-9 * np.abs(values).max() + 1e-300)
        step = vectors @ ((vectors.T @ gradient[free]) / sizes)
        step /= max(1.0, float(np.abs(step).max()) / _LONGEST_STEP)
        for _ in range(_MOST_HALVINGS):
            trial = point.copy()
            trial[free] += step
            new = _likelihood(sample, trial)
            if new[0] > now[0]:
                break
            step /= 2.0
        else:
            return point
        gain = new[0] - now[0]
        point, now = trial, new
        if gain < _LEAST_GAIN:
            break
    return point
