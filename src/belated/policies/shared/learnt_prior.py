"""Code for policies that rest on Laplace's posterior, whose prior is learnt."""

from typing import Any

from belated.estimators.laplace import Laplace
from belated.model.protocols import Family

INTERCEPT_SD = 10.0  # of the constant, in the unit of the prior: it says nothing on the base rate


def noise_of(family: Family) -> dict[str, Any]:
    """Returns what such a policy derives: the dispersion, and whether that is learnt."""
    learns = bool(getattr(family, "learns_sd", False))
    return {"learns_dispersion": learns, "dispersion": family.a_phi}


def laplace(policy: Any) -> Laplace:
    """Returns the estimator of a policy with ``prior_sd``, ``strength`` and ``tol``."""
    return Laplace(
        policy.prior_sd,
        policy.strength,
        INTERCEPT_SD,
        policy.dispersion,
        policy.learns_dispersion,
        policy.tol,
    )
