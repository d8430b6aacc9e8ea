"""The refit: a step to the mode, how far it is from it, and what is done where that is too far.

Let H be the Hessian at center, D a bound on |x'(ref - center)| and |x'(theta - center)| for all
returned rows x, and ``|mu''| <= M mu'`` as far as ``BEYOND`` past the largest of |x'center|,
|x'ref| and |x'theta|. Every slope between ref and theta = ref + step is within the factors e^{-MD}
and e^{MD} of the one at center. H step is minus the gradient at ref, so the gradient at theta is
the sum over rows of (slope between - slope at center) x x'step, and

    ||grad F(theta)||_{H^-1} <= (e^{MD} - 1) ||step||_H,          ||step||_H^2 = -gradient'step.

In the norm of the Hessian at theta it is at most e^{MD/2} times that; call it e. With X^2 the
largest x'S x of returned rows and k = M X e^{MD/2}, self-concordance bounds the distance to the
mode by

    ||theta - mode|| <= -log(1 - k e) / k     if k e < 1, in the norm of the Hessian at theta

(F. Bach: Self-concordant analysis for logistic regression. EJS 2010). Where M grows with |z| it
must hold at the mode, too: the bound counts only if it puts x'mode nearer to x'theta than
``BEYOND`` for all rows. Were one farther off, the point of the segment at that distance would
satisfy the same bound, a contradiction. The prior is in H and in F alike, so it adds nothing.
Rounding is not covered. With silent rows all of this holds while x'theta stays below ``RARE`` for
each of them, from center to the mode; elsewhere no distance is certified (``silence.py``).
"""

import math
from typing import Any

from belated.core.jit import kernel
from belated.core.types import Vector
from belated.estimators.laplace.fit import (
    HIGHEST,
    NARROW,
    ORIGIN,
    PASSED,
    PEAKS,
    RENEWED,
    SILENT,
    VARIANCE,
    Laplace,
    LaplaceFit,
    far,
)
from belated.estimators.laplace.renewing import LONGEST_STEP, amount_learnt, move_ref, renew
from belated.model.protocols import RARE, refit, remake, self_concordance
from belated.model.state import ERROR, SLACK, State

RENEWAL_GROWTH = 1.5  # the factor by which what is known has grown when the center moves
EARLY_GROWTH = 1.02  # the same where the center is so far off that steps would be cut short
UNCERTAIN_GROWTH = 1.1  # the same where it is so far off that nothing is certified
# A new center costs as much as taking in one reward per feature or per reward known, whichever is
# less. Where it is dear and nothing is certified, there must be new rewards for half of that.
DEAR_SHARE = 2
MOST_PASSES = 3  # in one refit
BEYOND = 1.0  # how far past theta a growing self-concordance constant is taken to hold, in x'theta
# A pass reads all rewards and the whole covariance: it is worth while when one reward in so many is
# new, and when there are as many new rewards as it has features, divided by the same number.
PASSES_AFTER = 256


@kernel
def _land(family: Any, state: State) -> tuple[float, bool]:
    """Sets theta to ref + step, cut short where it leads too far.

    Returns a bound on the error, and whether the step was cut short.
    """
    fit, theta, peaks, origin = state.fit, state.theta, state.work[PEAKS], state.work[ORIGIN]
    group, longest = fit.group, fit.longest
    for i in range(origin.shape[0]):
        origin[i] = 0.0
    M = self_concordance(family, far(group, longest, theta, origin, peaks) + BEYOND)
    length = M * far(group, longest, fit.step, origin, peaks)
    share = min(1.0, LONGEST_STEP / length) if length > 0.0 else 1.0
    square = 0.0
    for i in range(theta.shape[0]):
        theta[i] = fit.ref[i] + share * fit.step[i]
        square -= fit.gradient[i] * fit.step[i]
    if share < 1.0:
        return math.inf, True
    reach = far(group, longest, theta, origin, peaks)
    for other in (fit.center, fit.ref):
        reach = max(reach, far(group, longest, other, origin, peaks))
    M = self_concordance(family, reach + BEYOND)
    D = M * _from_center(fit, theta, peaks)
    if D > 20.0:
        return math.inf, False
    wide = math.exp(0.5 * D)
    e = wide * math.expm1(D) * math.sqrt(max(0.0, square))
    X = math.sqrt(max(0.0, fit.scalars[VARIANCE]))
    k = M * X * wide
    if not k * e < 1.0:
        return math.inf, False
    error = e if k * e < 1e-9 else -math.log1p(-k * e) / k
    holds = X * wide * error < BEYOND or self_concordance(family, math.inf) == M
    return error if holds else math.inf, False


@kernel
def _from_center(fit: LaplaceFit, theta: Vector, peaks: Vector) -> float:
    """Returns a bound on |x'(theta - center)| and |x'(ref - center)| for rows x that count."""
    group, longest, center = fit.group, fit.longest, fit.center
    theta_is = far(group, longest, theta, center, peaks)
    return max(theta_is, far(group, longest, fit.ref, center, peaks))


@remake.case(Laplace)
def _remake(estimator: Laplace, family: Any, state: State, history: Any) -> None:
    renew(estimator, family, state, history)


@refit.case(Laplace)
def _refit(estimator: Laplace, family: Any, state: State, history: Any) -> None:
    fit, n = state.fit, amount_learnt(state)
    error, cut = _land(family, state)
    if _has_grown(n, fit.scalars[RENEWED], EARLY_GROWTH if cut else RENEWAL_GROWTH):
        error = _land_anew(estimator, family, state, history)
    new = n - fit.scalars[PASSED]
    if error > estimator.tol and new >= max(n, state.theta.shape[0]) // PASSES_AFTER:
        for _ in range(MOST_PASSES):  # each shrinks the error by the factor e^{MD} - 1
            before = error
            move_ref(family, state, history)
            error, _ = _land(family, state)
            if error <= estimator.tol or 0.5 * before <= error < math.inf:
                break
    dear = (min(n, state.theta.shape[0]) - NARROW) // DEAR_SHARE
    pays = n - fit.scalars[RENEWED] >= dear
    if error == math.inf and pays and _has_grown(n, fit.scalars[RENEWED], UNCERTAIN_GROWTH):
        error = _land_anew(estimator, family, state, history)
    state.scalars[ERROR] = error if _is_rare(state, error) else math.inf
    state.scalars[SLACK] = math.nan  # no matrix W is kept


@kernel
def _land_anew(estimator: Laplace, family: Any, state: State, history: Any) -> float:
    """Moves the center, learns the prior, and returns a bound on the error then."""
    renew(estimator, family, state, history)
    return _land(family, state)[0]


@kernel
def _is_rare(state: State, error: float) -> bool:
    """Returns whether x'theta is below ``RARE`` for silent rows, on the way to the mode, too."""
    fit = state.fit
    if fit.scalars[SILENT] == 0.0 or error == math.inf:
        return True
    off = _from_center(fit, state.theta, state.work[PEAKS])
    # the error is in the norm of the Hessian at theta, which is at least e^-off of that at center
    rest = math.sqrt(fit.scalars[VARIANCE] * math.exp(min(off, 700.0))) * error
    return fit.scalars[HIGHEST] + off + rest <= RARE


@kernel
def _has_grown(n: float, renewed: float, factor: float) -> bool:
    """Returns whether what is known has grown by this factor since the center moved."""
    return n > renewed and n >= math.ceil(factor * renewed)
