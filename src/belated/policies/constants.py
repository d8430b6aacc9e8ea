"""What policies derive from the family, the horizon and each other where it is left open."""

import math
from typing import Any, NamedTuple

from belated.core.arguments import whole, wrong
from belated.core.jit import kernel
from belated.core.protocols import Family
from belated.core.protocols import check_family as check_family
from belated.core.state import LOG_DET, State


class Constants(NamedTuple):
    """What the width is made of."""

    R: float
    kappa: float
    lam: float
    alpha: float


def known_horizon(policy: Any) -> int:
    """The number of rounds, which a simulation fills in and anyone else must pass."""
    if policy.horizon is None:
        raise wrong("horizon", None, f"the number of rounds, which {type(policy).__name__} needs")
    return whole("horizon", policy.horizon)


def known_window(policy: Any) -> int:
    """Rounds a conversion is waited for, which a simulation fills in and anyone else must pass."""
    if policy.window is None or policy.window == math.inf:
        expected = f"a finite number of rounds, which {type(policy).__name__} needs: pass window="
        raise wrong("window", policy.window, f"{expected}, or feedback='conversions:window=30'")
    return whole("window", policy.window, least=0)


def derive(policy: Any, family: Family, max_norm: float) -> Constants:
    """R, kappa, lam and alpha of a policy with fields m1, R, kappa, lam and, maybe, alpha."""
    name, alpha = type(family).__name__, getattr(policy, "alpha", None)
    R = policy.R if policy.R is not None else family.R
    if R is None:
        raise ValueError(
            f"R = None: {name} rewards are not sub-Gaussian, so {type(policy).__name__} has no "
            "width for them. Pass R= yourself (no guarantee then; exp(max_norm m1 / 2) is the "
            "noise scale at the largest mean), use a sub-Gaussian family (Binomial for bounded "
            "counts), or a policy whose set needs no R (OFUGLBe)"
        )
    least = family.kappa(max_norm * policy.m1)
    if not least > 0.0:
        raise wrong("m1", policy.m1, f"a bound at which the slope of {name} is above 0")
    kappa = policy.kappa if policy.kappa is not None else least
    if kappa > least * (1.0 + 1e-12):
        raise wrong("kappa", kappa, f"at most {least!r}, the least slope of {name} at this m1")
    lam = policy.lam
    if lam is None:
        lam = 1.0 if alpha is None else alpha * family.a_phi / kappa
    elif alpha is not None and not math.isclose(lam * kappa, alpha * family.a_phi, rel_tol=1e-9):
        raise ValueError(
            f"lam = {lam!r}, alpha = {alpha!r}: expected one of them, or both "
            f"with lam = alpha a(phi) / kappa = {alpha * family.a_phi / kappa!r}"
        )
    return Constants(R, kappa, lam, lam * kappa / family.a_phi)


@kernel
def paper_width(policy: Any, state: State) -> float:
    """``sqrt(lam) m1 + (R / kappa) sqrt(log det(W / lam) + 2 log(1 / delta))``."""
    return width_at(policy, state, policy.delta)


@kernel
def width_at(policy: Any, state: State, delta: float) -> float:
    """The same at another ``delta``."""
    d = state.theta.shape[0]
    log_det = max(0.0, state.scalars[LOG_DET] - d * math.log(policy.lam))
    spread = math.sqrt(log_det - 2.0 * math.log(delta))
    return math.sqrt(policy.lam) * policy.m1 + policy.R / policy.kappa * spread
