"""Estimators: they compute theta from the rewards that have returned."""

import math

from belated.core.arguments import wrong
from belated.estimators.newton import LazyNewton
from belated.estimators.ridge import Ridge
from belated.model.protocols import Estimator, Family, self_concordance

__all__ = ["LazyNewton", "Ridge", "penalised_mle", "ridge_regression"]

LARGEST_CUBIC_DIM = 30  # above it the d^3 / 2 numbers of the third derivative cost too much


def penalised_mle(
    family: Family,
    dim: int,
    max_norm: float,
    *,
    m1: float,
    lam: float,
    kappa: float | None = None,
    constrained: bool = True,
    tol: float = 1e-2,
    order: int | None = None,
    drift: float = math.inf,
) -> Estimator:
    """The paper's estimate: ridge regression where that is exact, certified lazy Newton elsewhere.

    The penalty is ``lam kappa / 2 ||theta||^2``; ``kappa`` and ``order`` are derived where None.
    """
    bound = max_norm * m1
    if kappa is None:
        kappa = family.kappa(bound)
    # Below this the matrices are singular to double precision before long, and nothing is left of a
    # guarantee anyway: widths grow like 1 / kappa.
    least, least_penalty = 1e-9 * max_norm**2, 1e-13 * max_norm**2
    if not (least <= lam < 1e100 and least_penalty <= lam * kappa < 1e100):
        raise ValueError(
            f"m1 = {m1!r}, lam = {lam!r}, kappa = {kappa!r}: expected lam from {least:g} and "
            f"lam kappa from {least_penalty:g} to 1e100; a smaller m1 gives "
            f"{type(family).__name__} a larger kappa"
        )
    if self_concordance(family, bound) == 0.0 and kappa == 1.0:
        return Ridge()
    radius = m1 if constrained else math.inf
    order = order or (3 if dim <= LARGEST_CUBIC_DIM else 2)
    return LazyNewton(lam, kappa, radius, tol, order, drift)


def ridge_regression(max_norm: float, lam: float) -> Estimator:
    """Rewards regressed on actions, whatever the mean function of their family."""
    least = 1e-9 * max_norm**2  # as above
    if not least <= lam < 1e100:
        raise wrong("lam", lam, f"a number from {least:g} to 1e100")
    return Ridge()
