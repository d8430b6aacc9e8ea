"""The certificate: how far a step of the model may be from the exact estimate.

With X the longest returned x, ``|mu''| <= M mu'`` and ``|mu'''| <= N mu'`` as far as it matters,
u = M X ||step||:

    ||grad F(ref + step) - (gradient + bent + H step)||_{H^-1} <= c ||step||_H + gap,
        c = (e^u - 1 - u) / u,               gap = 0                          for order 2,
        c = (N / M^2) (e^u - 1 - u - u^2/2) / u,
        gap = M X ||step - anchor|| ||step + anchor||_H / 2                   for order 3,
    eps = e^u (||r||_{H^-1} + c ||step||_H + gap),   k = M X / sqrt(lmin),
    ||ref + step - theta_hat||_H <= -log(1 - k eps) / k      if k eps < 1.

For order 3, mu(z + h) is its Taylor polynomial plus h^3 times the integral of (1 - v)^2 / 2
mu'''(z + v h) over [0, 1], and ``|mu'''(z + v h)| <= N mu'(z + v h) <= N e^{M v |h|} mu'(z)``.
The gap is T3[step, step] - T3[anchor, anchor] = T3[step - anchor, step + anchor], bounded by |mu''|
<= M mu' and Cauchy-Schwarz. r is what the model's optimality condition is off by, rounding of the
solve included: its gradient plus, on the ball, the multiplier times theta (add the variational
inequalities of the two minimisers). lmin is a lower bound on the eigenvalues of H: the larger of
rho and the inverse of an upper bound on those of H^-1. It may be a little stale, because H only
grows between passes. The one error not covered is rounding in the sums behind gradient and Hessian.
"""

import math
from typing import Any

from belated.core.jit import inlined_kernel
from belated.core.types import Matrix, Vector
from belated.estimators.newton.fit import (
    EIGENVALUE,
    LONGEST,
    M_THERE,
    MULTIPLIER,
    N_THERE,
    OFF,
    PRODUCT,
    REACH,
    SHIFT,
    LazyNewton,
    NewtonFit,
)
from belated.model.protocols import concordance
from belated.numerics.lowered.inner_products import inner_products
from belated.numerics.lowered.products import quadratic

MARGIN = 0.5  # how far beyond ref + step a growing self-concordance constant is taken to hold


@inlined_kernel
def _remainder(u: float, order: int) -> float:
    """At least, and hardly more than, (e^u - 1 - u) / u for order 2.

    For order 3 (e^u - 1 - u - u^2/2) / u^3, which is c of the certificate without ``N / M^2 u^2``.
    """
    if order == 2:
        return 0.5 * u + u * u / 5.9 if u < 1e-4 else (math.expm1(u) - u) / u
    if u < 1.0:  # what is left of the series is 1 / 120 + u / 720 + ..., at u = 1 below 1 / 100
        return 1.0 / 6.0 + u / 24.0 + u * u / 100.0
    return (math.expm1(u) - u - 0.5 * u * u) / (u * u * u)


@inlined_kernel
def _exponential(u: float) -> float:
    """At least, and hardly more than, e^u."""
    if u < 0.5:  # what follows u^3 / 6 has coefficients below those of a geometric series
        return 1.0 + u + u * u * (0.5 + u / (6.0 - 1.5 * u))
    return math.exp(u)


@inlined_kernel
def _stretch(t: float) -> float:
    """At least, and hardly more than, -log(1 - t) / t."""
    if t < 0.05:  # 1 + t / 2 + t^2 / 3 + t^3 / 4 + ...
        return 1.0 + 0.5 * t + t * t / (3.0 - 3.0 * t)
    return -math.log1p(-t) / t


@inlined_kernel
def certify(
    estimator: LazyNewton, family: Any, fit: NewtonFit, step: Vector, work: Matrix
) -> float:
    """Bound on ``||ref + step - theta_hat||_H``.

    Where M grows with |z| it must hold at ref, ref + step and theta_hat. On the ball all three lie
    within ``radius``. Elsewhere M is taken up to ``MARGIN`` beyond ref + step, and the bound counts
    only if it puts theta_hat nearer than that: were theta_hat farther, the point of the segment at
    distance MARGIN would satisfy the same bound, a contradiction. Infinite where nothing is proved.
    What the optimality condition is off by is left in ``work[OFF]``.
    """
    X, nu = fit.scalars[LONGEST], fit.scalars[MULTIPLIER]
    off, lmin = work[OFF], fit.scalars[EIGENVALUE]
    square = quadratic(fit.H, step, off)
    gradient_2, H_step_2, off_2, step_2, ref_2, far_2, step_anchor, anchor_2 = inner_products(
        fit.gradient, fit.bent, fit.ref, fit.anchor, fit.H_anchor, step, off, nu
    )
    rounding, length = 2e-16 * math.sqrt(gradient_2 + H_step_2), math.sqrt(step_2)
    if not square >= -rounding * length:
        return math.inf  # H is lost to rounding
    square = max(0.0, square)
    # at least what it is in the norm of H^-1; enough if tiny
    residual = (math.sqrt(off_2) + rounding) / math.sqrt(lmin)
    if residual > 0.1 * estimator.tol:
        # H + shift I <= (1 + shift / lmin) H
        share = quadratic(fit.H_inv, off, work[PRODUCT])
        if share >= 0.0:
            sharper = math.sqrt((1.0 + fit.scalars[SHIFT] / lmin) * share)
            residual = min(residual, sharper + rounding / math.sqrt(lmin))
    reach = math.sqrt(ref_2) + length + MARGIN
    bound = X * min(reach, estimator.radius)
    if bound != fit.scalars[REACH]:
        fit.scalars[M_THERE], fit.scalars[N_THERE] = concordance(family, bound)
        fit.scalars[REACH] = bound
    M, N = fit.scalars[M_THERE], fit.scalars[N_THERE]
    if M * X == 0.0:
        return residual
    u, k = M * X * length, M * X / math.sqrt(lmin)
    if u > 50.0:  # e^u would drown everything; larger ones overflow
        return math.inf
    beyond = _remainder(u, estimator.order) * math.sqrt(square)
    if estimator.order == 3:
        beyond *= N * (X * length) ** 2
        both = square + 2.0 * step_anchor + anchor_2  # ||step + anchor||_H^2
        beyond += 0.5 * M * X * math.sqrt(far_2 * max(0.0, both))
    eps = _exponential(u) * (residual + beyond)
    if not k * eps < 1.0:
        return math.inf
    error = eps * _stretch(k * eps)
    holds_everywhere = reach >= estimator.radius or concordance(family, math.inf) == (M, N)
    if not holds_everywhere and error >= MARGIN * math.sqrt(lmin):
        return math.inf
    return error
