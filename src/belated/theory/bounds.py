"""Theorem 1 as a number, as printed and as corrected, with all its constants.

Notation: T rounds, X the longest action, ``L = log(1 + T X^2 / (d lam))``,
``l = log(3 T / (2 delta))``, G the number of missing rewards, tau the delay.

As printed (with 2 d L where d L would do, E[tau] where E[ceil tau] is meant, and a minimum that
must be a maximum: see docs/erratum.md)::

    R_T <= 2 L_mu sqrt_beta (sqrt(2 d T L) + d L (1 + 2 E[tau] + D + psi)),
    sqrt_beta = sqrt(lam) m1 + (R / kappa) sqrt(2 d L + 2 log(1/delta)),
    psi = 4 l / 3 + 2 sqrt(2 E[tau] l),   D = min(sqrt(2 v^2 l), 2 b l).

Corrected, with probability 1 - 3 delta, for any law of the delay::

    R_T <= 2 L_mu sqrt_beta (sqrt(2 d T L) + d L (1 + G / lam + Q)),
    sqrt_beta = sqrt(lam) m1 + (R / kappa) sqrt(d L + 2 log(1/delta)),
    G = E + 2 log(T/delta) / 3 + sqrt(2 E log(T/delta)),   E = E[min(ceil tau, T)],
    Q = the 1 - delta/T quantile of ceil tau, at most T.

For X other than 1, lam / X^2 takes the place of lam beside G: only that share of a missing reward
counts.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from belated.core.arguments import positive, probability, whole, wrong
from belated.model.protocols import Delay, Family, mean
from belated.worlds.delays import (
    Constant,
    Exponential,
    Uniform,
    expected_missing,
    is_informative,
    quantile,
)


class SubExponential(NamedTuple):
    """Parameters of the paper's tail assumption: P(tau > E + e) <= exp(-min(e^2/v^2, e/b)/2)."""

    v: float
    b: float


def sub_exponential(delay: Delay) -> SubExponential | None:
    """Returns valid parameters where we know them; None for a tail that is too heavy or unknown.

    Uniform and constant delays are sub-Gaussian, so b is 0: the printed minimum is then 0, and
    only the maximum is a bound. See sections 2 and 10 of docs/erratum.md.
    """
    m = delay.mean
    known: dict[type, SubExponential] = {
        Exponential: SubExponential(2.0 * m, 2.0 * m),
        Uniform: SubExponential(m, 0.0),
        Constant: SubExponential(0.0, 0.0),
    }
    return known.get(type(delay))


@dataclass(frozen=True)
class DelayBounds:
    """Bounds on the number of missing rewards and the longest delay, within ``horizon`` rounds."""

    horizon: int
    delta: float
    expected_missing: float  # E[min(ceil tau, T)], the limit of E[G_t]
    missing: float  # no G_t is larger, with probability 1 - delta
    missing_anytime: float  # the same at round T of a bound that holds for all t at once
    latest: float  # no delay is larger, in whole rounds, with probability 1 - delta; at most T
    missing_printed: float  # E[tau] + psi_T, Lemma 4; infinite where E[tau] is
    latest_printed: float  # E[tau] + D_T, Lemma 5; E[tau] where b = 0, not a number without (v, b)
    latest_corrected: float  # E[tau] + the maximum, with the union over T rounds paid for


def delay_bounds(
    delay: Delay, horizon: int, delta: float = 0.05, mean_missing: float | None = None
) -> DelayBounds:
    """Returns bounds on missing rewards and on the largest delay.

    ``mean_missing`` takes the place of E[min(ceil tau, T)] where only the mean of tau is known:
    ``1 + E[tau]`` is never too small.

    Examples
    --------
    >>> from belated.worlds.delays import Exponential
    >>> bounds = delay_bounds(Exponential(100.0), 100_000, 0.05 / 3)
    >>> round(bounds.expected_missing, 5), bounds.latest
    (100.50083, 1561.0)
    """
    T, delta = whole("horizon", horizon), probability("delta", delta)
    if is_informative(delay):
        raise wrong("delay", delay, "one that does not depend on the reward")
    E, log_union, log_anytime = (
        expected_missing(delay, T)
        if mean_missing is None
        else positive("mean_missing", mean_missing),
        math.log(T / delta),
        math.log(1.5 * T / delta),
    )
    tail = sub_exponential(delay)
    printed = corrected = math.nan
    if tail is not None:
        v, b = tail
        printed = delay.mean + min(v * math.sqrt(2.0 * log_anytime), 2.0 * b * log_anytime)
        corrected = delay.mean + max(v * math.sqrt(2.0 * log_union), 2.0 * b * log_union)
    return DelayBounds(
        horizon=T,
        delta=delta,
        expected_missing=E,
        missing=E + 2.0 / 3.0 * log_union + math.sqrt(2.0 * E * log_union),
        missing_anytime=E + 4.0 / 3.0 * log_anytime + 2.0 * math.sqrt(2.0 * E * log_anytime),
        latest=float(min(math.ceil(min(quantile(delay, 1.0 - delta / T), T)), T)),
        missing_printed=delay.mean
        + 4.0 / 3.0 * log_anytime
        + 2.0 * math.sqrt(2.0 * delay.mean * log_anytime),
        latest_printed=printed,
        latest_corrected=corrected,
    )


@dataclass(frozen=True)
class RegretBounds:
    """Bounds on the regret of Delayed OFU-GLM after T rounds, and their parts."""

    printed: float  # Theorem 1 as printed; not a number where the paper has no (v, b)
    additive: float  # the same, corrected; probability 1 - 3 delta
    multiplicative: float  # sqrt(1 + G / lam) on everything; probability 1 - 2 delta
    expected: float  # of the mean regret, with delta = 1 / T
    trivial: float  # T times the largest gap between two means
    delay: DelayBounds
    L: float
    sqrt_beta: float
    sqrt_beta_printed: float
    R: float
    kappa: float
    L_mu: float
    gap: float

    @property
    def sentence(self) -> str:
        """Returns the bounds in words."""
        best = min(self.additive, self.multiplicative)
        if best >= self.trivial:
            return (
                f"The bounds say nothing here: the smaller is {best:.3g}, and no policy can lose "
                f"more than {self.trivial:.3g} in {self.delay.horizon:,} rounds."
            )
        name = "additive" if self.additive <= self.multiplicative else "multiplicative"
        return (
            f"With probability {1.0 - 3.0 * self.delay.delta:.3g} the regret is at most "
            f"{best:.3g} (the {name} bound), {best / self.trivial:.1%} of the largest possible."
        )


def regret_bound(
    family: Family,
    delay: Delay,
    *,
    dim: int,
    horizon: int,
    m1: float = 1.0,
    lam: float = 1.0,
    delta: float = 0.05,
    R: float | None = None,
    max_norm: float = 1.0,
    mean_missing: float | None = None,
) -> RegretBounds:
    """Returns Theorem 1 as a number, as printed and as corrected.

    Parameters
    ----------
    family, delay
        Law of the reward and of its delay.
    dim, horizon
        d and T.
    m1, lam, delta, R, max_norm
        As in ``DelayedOFUGLM``. The corrected bounds need ``lam >= max_norm^2 / 2``.
    mean_missing
        As in ``delay_bounds``.

    Examples
    --------
    >>> from belated import Gaussian
    >>> from belated.worlds.delays import Exponential
    >>> bound = regret_bound(
    ...     Gaussian(), Exponential(100.0), dim=5, horizon=100_000, delta=0.05 / 3
    ... )
    >>> f"{bound.printed:.3e} {bound.additive:.3e} {bound.trivial:.0e}"
    '1.722e+06 1.526e+06 2e+05'
    """
    d, T = whole("dim", dim), whole("horizon", horizon)
    m1, lam, X = positive("m1", m1), positive("lam", lam), positive("max_norm", max_norm)
    if lam < 0.5 * X * X:
        raise wrong("lam", lam, f"at least {0.5 * X * X:g}, half of max_norm squared")
    R = family.R if R is None else positive("R", R)
    if R is None:
        raise wrong("R", R, f"a noise scale: {type(family).__name__} rewards are not sub-Gaussian")
    kappa, L_mu = family.kappa(X * m1), family.lipschitz(X * m1)
    gap = float(mean(family, X * m1) - mean(family, -X * m1))
    L = math.log1p(T * X * X / (d * lam))

    def width(log_det: float, delta: float) -> float:
        return math.sqrt(lam) * m1 + R / kappa * math.sqrt(log_det - 2.0 * math.log(delta))

    late = delay_bounds(delay, T, delta, mean_missing)
    in_mean = delay_bounds(delay, T, 1.0 / T, mean_missing) if T > 1 else late
    potential, ridge = math.sqrt(2.0 * d * T * L), lam / (X * X)
    sqrt_beta, sqrt_beta_printed = width(d * L, delta), width(2.0 * d * L, delta)
    printed_sum = 1.0 + late.missing_printed + late.latest_printed
    corrected_sum = 1.0 + late.missing / ridge + late.latest
    mean_sum = 1.0 + in_mean.missing / ridge + late.expected_missing
    return RegretBounds(
        printed=2.0 * L_mu * sqrt_beta_printed * (potential + d * L * printed_sum),
        additive=2.0 * L_mu * sqrt_beta * (potential + d * L * corrected_sum),
        multiplicative=2.0 * L_mu * sqrt_beta * math.sqrt(1.0 + late.missing / ridge) * potential,
        expected=2.0 * L_mu * width(d * L, 1.0 / T) * (potential + d * L * mean_sum) + 2.0 * gap,
        trivial=T * gap,
        delay=late,
        L=L,
        sqrt_beta=sqrt_beta,
        sqrt_beta_printed=sqrt_beta_printed,
        R=R,
        kappa=kappa,
        L_mu=L_mu,
        gap=gap,
    )
