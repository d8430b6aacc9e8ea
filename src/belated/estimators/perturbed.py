"""The estimate for a perturbed gradient: argmin of F(theta) + w'theta, no data needed.

For ridge regression the answer is ``theta - W^-1 w``. For other families it is that of the Taylor
model of F which certified lazy Newton keeps (``newton/fit.py``): with H and T3 the second and
third derivative at the reference point ref, and base = theta - ref, the shift e solves

    w + H e + (T3[base + e, base + e] - T3[base, base]) / 2 = 0

by the fixed point e <- e - H^-1 (left-hand side), from e = -H^-1 w on. The left-hand side in the
norm of H^-1 is the length of the next step in the norm of H. While that falls, and begins below
half the length of the shift, the step is taken; else the Taylor series says nothing so far away,
and the last e that was better stays. Without T3 (order 2) the first e is the answer. w = 0 gives
e = 0.

The error that is left, in the norm of H, is bounded by ``newton/certificate.py`` with gradient + w
for the gradient and base + e for the step: ``shift_error``. It is of the order of
||e||_H ||base + e||^2 (order 2: ||e||_H ||base + e||) and shrinks as rewards return and H grows;
no pass over the data is made for it.
"""

from typing import Any

import numpy as np

from belated.core.generic import generic
from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.estimators.newton.certificate import certify
from belated.estimators.newton.fit import MULTIPLIER, SHIFT, WAITING, LazyNewton, NewtonFit
from belated.estimators.ridge import RidgeFit
from belated.model.state import State
from belated.numerics.linalg import copy
from belated.numerics.lowered.products import dot, matvec
from belated.numerics.lowered.third_derivative import add_waiting

MOST_STEPS = 6  # of the fixed point
ENOUGH = 1e-8  # relative length of a step, squared, that needs no further one
# rows of the scratch State.work
MOVED, BENT, RIGHT, CHANGE, BEST, START = 3, 4, 5, 6, 7, 8


@generic
def shift_estimate(fit: Any, state: State, w: Vector, out: Vector) -> None:
    """Sets ``out`` to the argmin of F(theta) + w'theta, where ``state.theta`` is the argmin of F.

    ``w`` and ``out`` may be rows 1 and 2 of ``state.work``.
    """


@shift_estimate.case(RidgeFit)
def _shift_ridge(fit: RidgeFit, state: State, w: Vector, out: Vector) -> None:
    matvec(state.W_inv, w, out)
    for i in range(w.shape[0]):
        out[i] = state.theta[i] - out[i]


@shift_estimate.case(NewtonFit)
def _shift_newton(fit: NewtonFit, state: State, w: Vector, out: Vector) -> None:
    d = w.shape[0]
    matvec(fit.H_inv, w, out)
    for i in range(d):
        out[i] = -out[i]
    if fit.T3.shape[0] > 0:
        _bend_shift(fit, state.theta, w, out, state.work)
    for i in range(d):
        out[i] += state.theta[i]


@kernel
def _bend_shift(fit: NewtonFit, theta: Vector, w: Vector, e: Vector, work: Matrix) -> None:
    """Iterates towards the fixed point; ``e`` comes in as ``-H^-1 w``."""
    d, moved, bent, right = w.shape[0], work[MOVED], work[BENT], work[RIGHT]
    change, best, start = work[CHANGE], work[BEST], work[START]
    for i in range(d):
        moved[i] = theta[i] - fit.ref[i]
    third_gradient(fit, moved, start)
    length = -dot(w, e)  # w'H^-1 w
    least = 0.25 * length
    copy(e, best)
    for _ in range(MOST_STEPS):
        for i in range(d):
            moved[i] = theta[i] - fit.ref[i] + e[i]
        third_gradient(fit, moved, bent)
        matvec(fit.H, e, right)
        for i in range(d):
            right[i] += w[i] + bent[i] - start[i]
        matvec(fit.H_inv, right, change)
        size = dot(right, change)
        if not size < least:
            break
        least = size
        copy(e, best)
        if size <= ENOUGH * length:
            break
        for i in range(d):
            e[i] -= change[i]
    copy(best, e)


@kernel
def third_gradient(fit: NewtonFit, step: Vector, out: Vector) -> None:
    """``out = T3[step, step] / 2``, as ``third_form`` but without scratch inside ``T3``.

    It is the gradient of ``T3[step, step, step] / 6``, where a triple j < i < k counts six times,
    one with two equal indices three times, one with all equal once.
    """
    T3, d = fit.T3, step.shape[0]
    for i in range(d):
        out[i] = 0.0
    add_waiting(fit.waiting, fit.bends, int(fit.scalars[WAITING]), step, out)
    for k in range(d):
        p, sk = 0, step[k]
        for i in range(k + 1):
            row, si, share = T3[k, p : p + i], step[i], 1.0 if i < k else 0.5
            inner, c = share * dot(row, step), share * si * sk
            for j in range(row.shape[0]):
                out[j] += c * row[j]
            same = T3[k, p + i]
            out[k] += si * inner + 0.5 * same * si * si
            out[i] += sk * inner + (same * si * sk if i < k else 0.0)
            p += i + 1


def shift_error(estimator: Any, family: Any, state: State, w: Vector, theta_w: Vector) -> float:
    """Returns a certified bound on the distance of ``theta_w`` from argmin F + w'theta, norm of H.

    Infinite where nothing is proved; 0 for ridge regression.
    """
    if not isinstance(estimator, LazyNewton):
        return 0.0
    fit = state.fit
    step, bent, scalars = theta_w - fit.ref, np.zeros(len(w)), fit.scalars.copy()
    if estimator.order == 3:
        third_gradient(fit, step, bent)
    scalars[MULTIPLIER] = scalars[SHIFT] = 0.0
    perturbed = fit._replace(
        gradient=fit.gradient + w, anchor=step, bent=bent, H_anchor=fit.H @ step, scalars=scalars
    )
    return float(certify(estimator, family, perturbed, step, np.zeros_like(state.work)))
