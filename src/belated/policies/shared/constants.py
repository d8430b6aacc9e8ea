"""Constants left open, which policies derive from the family, the horizon and each other."""

import math
from typing import Any, NamedTuple

from belated.core.arguments import whole, wrong
from belated.core.jit import inlined_kernel
from belated.model.protocols import Family, mean
from belated.model.state import LOG_DET, State


class Constants(NamedTuple):
    """The constants in the width."""

    R: float
    kappa: float
    lam: float
    alpha: float


def has_identity_mean(family: Family) -> bool:
    """Returns whether the mean reward is x'theta itself: a slope of 1, and 0 at 0."""
    slopes = family.kappa(1.0), family.lipschitz(1.0)
    return slopes == (1.0, 1.0) and mean(family, 0.0) == 0.0


def linear_only(family: Family) -> str:
    """Returns why a policy with a linear model refuses this family; empty where it does not."""
    return "" if has_identity_mean(family) else "needs a mean reward of x'theta, such as Gaussian()"


def is_logistic(family: Family) -> bool:
    """Returns whether the mean is that of a number of successes: ``high sigma(z)``."""
    low, high, _ = family.support
    return (
        low == 0.0
        and high < math.inf
        and all(
            math.isclose(mean(family, z), high / (1.0 + math.exp(-z)), rel_tol=1e-9)
            for z in (-1.5, 0.0, 0.7)
        )
    )


def known_horizon(policy: Any) -> int:
    """Returns the number of rounds; raises where neither a simulation nor the user gave it."""
    if policy.horizon is None:
        raise wrong("horizon", None, f"the number of rounds, which {type(policy).__name__} needs")
    return whole("horizon", policy.horizon)


def known_window(policy: Any) -> int:
    """Returns the window in rounds; raises where neither a simulation nor the user gave it."""
    if policy.window is None or policy.window == math.inf:
        name = type(policy).__name__
        expected = f"a finite number of rounds, which {name} needs: pass {name}(window=...)"
        raise wrong("window", policy.window, f"{expected}, or feedback='conversions:window=30'")
    return whole("window", policy.window, least=0)


def noise_scale(policy: Any, family: Family) -> float:
    """Returns the R that was passed, or the family's."""
    R = policy.R if policy.R is not None else family.R
    if R is None:
        raise ValueError(
            f"R = None: {type(family).__name__} rewards are not sub-Gaussian, so "
            f"{type(policy).__name__} has no width for them. Pass R= yourself (no guarantee "
            "then; exp(max_norm m1 / 2) is the noise scale at the largest mean), use a "
            "sub-Gaussian family (Binomial for bounded counts), or a policy whose set needs no R "
            "(OFUGLBe)"
        )
    return float(R)


def least_slope_of(policy: Any, family: Family, max_norm: float) -> float:
    """Returns the kappa that was passed, or the family's over ``|z| <= max_norm m1``."""
    name, least = type(family).__name__, family.kappa(max_norm * policy.m1)
    if not least > 0.0:
        raise wrong("m1", policy.m1, f"a bound at which the slope of {name} is above 0")
    kappa = getattr(policy, "kappa", None)
    if kappa is None:
        return float(least)
    if kappa > least * (1.0 + 1e-12):
        raise wrong("kappa", kappa, f"at most {least!r}, the least slope of {name} at this m1")
    return float(kappa)


def derive(policy: Any, family: Family, max_norm: float) -> Constants:
    """Returns R, kappa, lam, alpha of a policy with fields m1, R, kappa, lam and maybe alpha."""
    alpha, R = getattr(policy, "alpha", None), noise_scale(policy, family)
    kappa = least_slope_of(policy, family, max_norm)
    lam = policy.lam
    if lam is None:
        lam = 1.0 if alpha is None else alpha * family.a_phi / kappa
    elif alpha is not None and not math.isclose(lam * kappa, alpha * family.a_phi, rel_tol=1e-9):
        raise ValueError(
            f"lam = {lam!r}, alpha = {alpha!r}: expected one of them, or both "
            f"with lam = alpha a(phi) / kappa = {alpha * family.a_phi / kappa!r}"
        )
    return Constants(R, kappa, lam, lam * kappa / family.a_phi)


@inlined_kernel
def paper_width(policy: Any, state: State) -> float:
    """``sqrt(lam) m1 + (R / kappa) sqrt(log det(W / lam) + 2 log(1 / delta))``."""
    return width_at(policy, state, policy.delta)


@inlined_kernel
def width_at(policy: Any, state: State, delta: float) -> float:
    """Returns the width of ``paper_width`` at another ``delta``."""
    d = state.theta.shape[0]
    log_det = max(0.0, state.scalars[LOG_DET] - d * math.log(policy.lam))
    spread = math.sqrt(log_det - 2.0 * math.log(delta))
    return math.sqrt(policy.lam) * policy.m1 + policy.R / policy.kappa * spread
