"""The paper's inequalities, checked in every round of a lane.

With x the action played in round t, V and W the design matrices before it (of all decisions, of
returned ones), Z = V - W, M = W^-1 - V^-1, G the number of missing rewards, a = ||x||^2_{V^-1}, X
the longest action, and sums running over the rounds up to t:

    R1  ||theta - theta_star||_W            <= radius
    R2  regret of the round                 <= min(gap, 2 L_mu radius ||x||_{W^-1}), where R1 holds
    R3  ||W^-1 x - V^-1 x - V^-1 Z W^-1 x|| <= 1e-8 cond(W) ||W^-1 x||      (equal but for rounding)
    R4  x'Zx <= G X^2 x'x,  Z <= G X^2 I  and  V <= (1 + G X^2 / lam) W
    R5  x'Mx                                <= ||x||^2_{W^-1} trace(V^-1 Z)
    R6  sum ||x||_M                         <= sum (1 + G_* X^2 / lam + ceil(tau)) a / 2
    R7  sum a                               <= 2 log det(V / lam)
    R8  sum ||x||_{W^-1}                    <= sqrt(t sum a) + right side of R6
    R9  regret                              <= sum of the right sides of R2

R6 to R8 need lam >= X^2 / 2. The worst ratio of left to right side of each is kept, with its round.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import kernel
from belated.core.nested import stacked
from belated.core.types import Integers, Matrix, Vector
from belated.model.state import DECIDED, OBSERVED, REFACTOR_EVERY, State
from belated.numerics.linalg import exceeds, grow
from belated.numerics.lowered.products import dot, matvec, quadratic

NAMES = tuple(f"R{i}" for i in range(1, 10))
LOG_DET, POTENTIAL, BY_M, BY_W, LATE, MOST_MISSING = 0, 1, 2, 3, 4, 5  # slots of Audit.sums
ROUNDING = 1e-9  # share by which rounding may turn an equality into a violation
CHECK_EIGENVALUES_EVERY = 8  # rounds: R4 for all directions costs d^3, for the one played d^2


class Audit(NamedTuple):
    """The arrays that the audit of lanes keeps; the leading axis is the lane."""

    V: Matrix  # (d, d) design matrix of all decisions
    V_inv: Matrix  # (d, d)
    sums: Vector  # (6,)
    worst: Vector  # (9,) largest ratio of left to right side
    where: Integers  # (9,) its round, counted from 1; 0 where nothing was checked
    work: Matrix  # (4 + 2 d, d)


def new_audit(dim: int, lam: float, count: int) -> Audit:
    """Returns the audit of ``count`` lanes before the first round."""
    eye, sums = np.eye(dim), np.zeros(6)
    sums[LOG_DET] = dim * math.log(lam)
    one = Audit(
        V=lam * eye,
        V_inv=eye / lam,
        sums=sums,
        worst=np.zeros(9),
        where=np.zeros(9, np.int64),
        work=np.zeros((4 + 2 * dim, dim)),
    )
    audits: Audit = stacked([one] * count)
    return audits


@kernel
def _note(audit: Audit, i: int, left: float, right: float, t: int) -> None:
    """Keep the ratio of inequality ``i`` (from 0) if it is the largest so far."""
    # below this both sides are rounding of zero
    ratio = left / right if right > 1e-300 else (math.inf if left > 1e-12 else 0.0)
    if ratio > audit.worst[i] or audit.where[i] == 0:
        audit.worst[i], audit.where[i] = ratio, t


@kernel
def _check_all_directions(
    audit: Audit, state: State, lam: float, bound: float, missing: int, t: int
) -> None:
    """Checks R4: ``G X^2 I - Z`` and ``(1 + G X^2 / lam) W - V`` are positive semidefinite."""
    d = state.theta.shape[0]
    A, U = audit.work[4 : 4 + d], audit.work[4 + d :]
    size = 0.0
    for i in range(d):
        size = max(size, audit.V[i, i])
    for i in range(d):
        for j in range(d):
            A[i, j] = state.W[i, j] - audit.V[i, j]
        A[i, i] += missing * bound
    holds = exceeds(A, -ROUNDING * size, U)
    factor = 1.0 + missing * bound / lam
    for i in range(d):
        for j in range(d):
            A[i, j] = factor * state.W[i, j] - audit.V[i, j]
    holds = holds and exceeds(A, -ROUNDING * factor * size, U)
    if not holds:
        _note(audit, 3, math.inf, 1.0, t)


@kernel
def audit_decision(
    audit: Audit,
    state: State,
    lam: float,
    bound: float,
    distance: float,
    radius: float,
    regret: float,
    allowed: float,
    x: Vector,
    late: float,
    t: int,
) -> None:
    """Check R1 to R8 for the action ``x`` of round ``t`` (from 1), before ``state`` knows of it.

    ``bound`` is X^2, ``distance`` the left side of R1, ``allowed`` the right side of R2, ``late``
    the whole rounds until the reward returns.
    """
    d, sums = state.theta.shape[0], audit.sums
    Wx, Vx, Zx, VZx = audit.work[0], audit.work[1], audit.work[2], audit.work[3]
    missing = state.counts[DECIDED] - state.counts[OBSERVED]
    _note(audit, 0, distance, radius, t)
    if distance <= radius:
        _note(audit, 1, regret, allowed, t)
    by_W = quadratic(state.W_inv, x, Wx)
    a = quadratic(audit.V_inv, x, Vx)
    off = size = 0.0
    matvec(audit.V, Wx, Zx)
    for i in range(d):
        Zx[i] -= x[i]  # V W^-1 x - W W^-1 x
    matvec(audit.V_inv, Zx, VZx)
    for i in range(d):
        off += (Wx[i] - Vx[i] - VZx[i]) ** 2
        size = max(size, state.W[i, i])
    _note(audit, 2, math.sqrt(off), 1e-8 * (1.0 + size / lam) * math.sqrt(dot(Wx, Wx)), t)
    xZx = quadratic(audit.V, x, Zx) - quadratic(state.W, x, VZx)
    if missing > 0:
        rounding = ROUNDING * dot(x, Zx)
        _note(audit, 3, xZx - rounding, missing * bound * dot(x, x), t)
    if t % CHECK_EIGENVALUES_EVERY == 0:
        _check_all_directions(audit, state, lam, bound, missing, t)
    trace = float(d)  # V^-1 Z = I - V^-1 W
    for i in range(d):
        trace -= dot(audit.V_inv[i], state.W[i])
    by_M = max(0.0, by_W - a)
    if missing > 0:
        _note(audit, 4, by_M - ROUNDING * by_W, by_W * max(0.0, trace), t)
    sums[MOST_MISSING] = max(sums[MOST_MISSING], float(missing))
    sums[POTENTIAL] += a
    sums[BY_M] += math.sqrt(by_M)
    sums[BY_W] += math.sqrt(by_W)
    sums[LATE] += late * a
    fresh = t % REFACTOR_EVERY == 0
    sums[LOG_DET] = grow(audit.V, audit.V_inv, sums[LOG_DET], 1.0, x, fresh, audit.work[0])
    spread = (1.0 + sums[MOST_MISSING] * bound / lam) * sums[POTENTIAL] + sums[LATE]
    if 2.0 * lam >= bound:
        # M is a difference: its root is off by the root of what rounding leaves
        rounding = 1e-7 * sums[BY_W]
        _note(audit, 5, sums[BY_M] - rounding, 0.5 * spread, t)
        _note(audit, 6, sums[POTENTIAL], 2.0 * (sums[LOG_DET] - d * math.log(lam)), t)
        _note(audit, 7, sums[BY_W], math.sqrt(t * sums[POTENTIAL]) + 0.5 * spread, t)


@kernel
def audit_regret(audit: Audit, regret: float, certificate: float, t: int) -> None:
    """Checks R9 after round ``t``."""
    _note(audit, 8, regret, certificate, t)


def results(audit: Audit, lane: int) -> dict[str, tuple[float, int]]:
    """Returns the worst ratio and its round for each inequality."""
    pairs = zip(audit.worst[lane].tolist(), audit.where[lane].tolist(), strict=True)
    found: dict[str, Any] = dict(zip(NAMES, pairs, strict=True))
    return found
