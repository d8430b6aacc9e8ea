"""Checks that every family must pass."""

import math
from collections.abc import Callable

import numpy as np

from belated.core.types import Vector
from belated.model.protocols import (
    RARE,
    Family,
    concordance,
    cumulant,
    derivatives,
    least_slope,
    luck,
    mean,
    reward_of_luck,
    reward_quantile,
    self_concordance,
    silence_derivatives,
)

GRID = np.linspace(-2.0, 2.0, 81)
BOUND = 2.0


def check_family(family: Family) -> None:
    """Run every check of a family; raise ``AssertionError`` at the first violation."""
    for check in FAMILY_CHECKS:
        check(family)


def check_derivatives_are_derivatives(family: Family) -> None:
    """The slopes of the cumulant, of mu and of mu' are mu, mu' and mu''."""
    h = 1e-5
    for z in GRID:
        here, up, down = (derivatives(family, at) for at in (z, z + h, z - h))
        b_slope = (cumulant(family, z + h) - cumulant(family, z - h)) / (2 * h)
        slopes = (b_slope, (up[0] - down[0]) / (2 * h), (up[1] - down[1]) / (2 * h))
        for value, slope, name, of in zip(
            here, slopes, ("mu", "mu'", "mu''"), ("cumulant", "mu", "mu'"), strict=True
        ):
            assert math.isclose(value, slope, rel_tol=1e-7, abs_tol=1e-8), (
                f"derivatives({z:g}) says {name} = {value}, but the slope of {of} there is "
                f"{slope}: return (mu, mu', mu'') from derivatives, with mu the derivative of "
                "cumulant"
            )


def check_bounds_are_the_extremes(family: Family) -> None:
    """kappa, L_mu and M_mu are attained on ``|z| <= bound``, not merely safe."""
    fine = np.linspace(-BOUND, BOUND, 4001)
    values = np.array([derivatives(family, z) for z in fine])
    extremes = {
        "kappa": (family.kappa(BOUND), values[:, 1].min(), "least mu'"),
        "least_slope": (least_slope(family, BOUND), values[:, 1].min(), "least mu'"),
        "lipschitz": (family.lipschitz(BOUND), values[:, 1].max(), "greatest mu'"),
        "curvature": (family.curvature(BOUND), np.abs(values[:, 2]).max(), "greatest |mu''|"),
    }
    for name, (claimed, found, what) in extremes.items():
        assert math.isclose(claimed, found, rel_tol=1e-6, abs_tol=1e-9), (
            f"{name}({BOUND}) is {claimed}, but the {what} over |z| <= {BOUND} is {found}: return "
            "that extreme itself, not a bound on it"
        )
    assert (np.diff(values[:, 0]) > 0).all(), (
        "the mean does not increase in z: a family needs mu' > 0 everywhere"
    )


def check_self_concordance(family: Family) -> None:
    """``|mu''| <= M mu'`` and ``|mu'''| <= M^2 mu'``: the certificate rests on these."""
    M, h = self_concordance(family, BOUND), 1e-5
    for z in GRID:
        _, slope, bend = derivatives(family, z)
        third = (derivatives(family, z + h)[2] - derivatives(family, z - h)[2]) / (2 * h)
        claims = {"self_concordance": (M, M * M), "concordance": concordance(family, abs(z))}
        for name, (first, second) in claims.items():
            assert abs(bend) <= first * slope * (1 + 1e-9), (
                f"at z = {z:g} |mu''| is {abs(bend) / slope:g} times mu', but {name} says at most "
                f"{first:g}: return a larger M, or the estimate's certificate is wrong"
            )
            assert abs(third) <= second * slope * (1 + 1e-6) + 1e-9, (
                f"at z = {z:g} |mu'''| is {abs(third) / slope:g} times mu', but {name} says at "
                f"most {second:g}: return a larger M, or the estimate's certificate is wrong"
            )


def reward_law(family: Family, z: float) -> Vector:
    """Returns the law of the reward at ``z`` as its quantiles at 4000 evenly spaced levels."""
    levels = (np.arange(4000) + 0.5) / 4000
    return np.array([reward_quantile(family, z, u) for u in levels])


def check_rewards_have_their_mean(family: Family) -> None:
    """Rewards lie in the support, grow with the uniform behind them, and average to mu(z)."""
    for z in (-1.5, 0.0, 0.7):
        rewards = reward_law(family, z)
        outside = [y for y in rewards if not family.support.contains(y)]
        assert not outside, (
            f"reward_quantile at z = {z} returns {outside[0]}, which is not "
            f"{family.support}: widen support, or return rewards inside it"
        )
        assert (np.diff(rewards) >= 0.0).all(), (
            f"reward_quantile at z = {z} falls where its level u grows: return the inverse of "
            "P(reward <= y) at u, not at 1 - u"
        )
        expected = mean(family, z)
        assert math.isclose(rewards.mean(), expected, abs_tol=2e-3 * (1 + rewards.std())), (
            f"rewards at z = {z} average to {rewards.mean():g}, but mu there is {expected:g}: make "
            "reward_quantile and derivatives describe the same law"
        )


def check_luck_is_the_same_law(family: Family) -> None:
    """A reward made of its luck is the one that ``reward_quantile`` makes of the same number."""
    for z in (-1.5, 0.0, 0.7):
        for u in (0.003, 0.2, 0.5, 0.81, 0.997):
            made, wanted = reward_of_luck(family, z, luck(family, u)), reward_quantile(family, z, u)
            assert math.isclose(made, wanted, rel_tol=1e-12, abs_tol=1e-12), (
                f"at z = {z}, u = {u} reward_of_luck makes {made} of luck, but reward_quantile "
                f"returns {wanted}: let luck be the part of reward_quantile that does not depend "
                "on z, and reward_of_luck the rest"
            )


def check_silence_follows_from_the_law(family: Family) -> None:
    """``silence_derivatives`` are those of -log P(silence), P(silence) = 1 - F P(reward is not 0).

    Where z is at most ``RARE`` the second derivative bounds the third. Families without a case are
    exempt.
    """
    if type(family) not in silence_derivatives.cases:
        return
    h = 1e-5
    for F in (0.1, 0.6, 0.999):
        for z in GRID - 2.0:
            first, second = silence_derivatives(family, z, F)
            losses = [-math.log1p(-F * _share_not_zero(family, at)) for at in (z - h, z + h)]
            up, down = silence_derivatives(family, z + h, F), silence_derivatives(family, z - h, F)
            slopes = (losses[1] - losses[0]) / (2 * h), (up[0] - down[0]) / (2 * h)
            third = (up[1] - down[1]) / (2 * h)
            for value, slope, name in zip(
                (first, second), slopes, ("first", "second"), strict=True
            ):
                assert math.isclose(value, slope, rel_tol=1e-4, abs_tol=1e-6), (
                    f"at z = {z:g}, F = {F} the {name} of silence_derivatives is {value}, but that "
                    f"of -log(1 - F P(reward is not 0)) is {slope}: return its first two "
                    "derivatives in z"
                )
            assert z > RARE or abs(third) <= second * (1 + 1e-4) + 1e-9, (
                f"at z = {z:g}, F = {F} the third derivative of silence is {third:g}, more than "
                f"the second, {second:g}: the estimate's certificate needs it bounded up to {RARE}"
            )


def _share_not_zero(family: Family, z: float) -> float:
    """Returns P(reward is not 0), for rewards that are 0 or more."""
    low, high = 0.0, 1.0  # the level at which quantiles begin to exceed 0 lies in between
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if reward_quantile(family, z, middle) > 0.0 else (middle, high)
    return 1.0 - high


def check_noise_is_subgaussian(family: Family) -> None:
    """E exp(s (Y - mu)) <= exp(s^2 R^2 / 2), wherever the family claims an R."""
    if family.R is None:
        return
    for z in (-1.5, 0.0, 0.7):
        noise = reward_law(family, z) - mean(family, z)
        for s in (-2.0, -0.5, 0.5, 2.0):
            needed = math.log(np.exp(s * noise).mean())
            assert needed <= s * s * family.R**2 / 2.0 * (1 + 1e-3) + 1e-3, (
                f"noise at z = {z} needs an R of {math.sqrt(2.0 * needed) / abs(s):.3g} or more to "
                f"be sub-Gaussian, but R is {family.R:g}: return a larger R, or None where none is "
                "large enough"
            )


FAMILY_CHECKS: list[Callable[[Family], None]] = [
    check_derivatives_are_derivatives,
    check_bounds_are_the_extremes,
    check_self_concordance,
    check_rewards_have_their_mean,
    check_luck_is_the_same_law,
    check_silence_follows_from_the_law,
    check_noise_is_subgaussian,
]
