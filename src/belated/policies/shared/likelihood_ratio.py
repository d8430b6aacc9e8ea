"""Code for policies whose confidence set follows from likelihood ratios.

Why the set holds is shown in ``policies/ofuglb_e.py``.
"""

import math
from typing import Any

from belated.core.arguments import wrong
from belated.core.jit import kernel
from belated.estimators.likelihood import drift_of
from belated.model.protocols import Family, self_concordance
from belated.model.state import ERROR, State

LARGEST_BOUND = 700.0  # of |x'theta|: beyond, e^z overflows


def derive_constants(policy: Any, family: Family, max_norm: float) -> dict[str, float]:
    """Returns ``lam``, ``a_phi``, ``max_norm`` and the self-concordance constant ``M`` by name."""
    bound = policy.m1 * max_norm
    if bound > LARGEST_BOUND:
        raise wrong("m1", policy.m1, f"{LARGEST_BOUND:g} / max_norm at most")
    a_phi = float(family.a_phi)
    lam = 2.0 * a_phi / policy.m1**2 if policy.lam is None else policy.lam
    least = 1e-9 * max_norm**2
    if not least <= lam < 1e100:
        raise wrong("lam", lam, f"a number from {least:g} to 1e100")
    M = float(self_concordance(family, bound))
    return {"lam": lam, "a_phi": a_phi, "max_norm": max_norm, "M": M}


@kernel
def log_ratio_bound(policy: Any, state: State) -> float:
    """Returns beta^2, a bound on log-likelihood ratios to theta_star."""
    d = state.theta.shape[0]
    spread = 2.0 * policy.m1 * policy.max_norm * state.fit.reach[0] / policy.a_phi
    cost = d * (1.0 + math.log(spread / d)) if spread >= d else spread
    return cost - math.log(policy.delta)


@kernel
def ellipsoid_radius(policy: Any, state: State, excess: float) -> float:
    """Radius, in the norm of ``fit.H``, of an ellipsoid around the set F <= ``F(theta) + excess``.

    The set is within the ball. C = 2 (1 + M Z): see ``policies/ofuglb_e.py``.
    """
    C = 2.0 * (1.0 + policy.M * policy.max_norm * policy.m1)
    widened = math.exp(0.5 * drift_of(policy.M, state)) * math.sqrt(C * excess)
    return widened + C * state.scalars[ERROR]
