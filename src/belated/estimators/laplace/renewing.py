"""A new center: the Hessian where the mode is now, and variances of the prior that fit the data.

Variances are learnt by MacKay's fixed point on Laplace's approximation. With m the mode, S the
posterior covariance and precision_g = 1 / sd_g^2 of the group g,

    determined_g = |g| - precision_g tr(S_gg),
    precision_g -> (determined_g + strength) / (||m_g||^2 + strength prior_sd^2),

that is the maximum of the evidence where determined_g and m are held fixed, under a gamma prior on
precision_g that counts for ``strength`` coefficients of standard deviation ``prior_sd``. The
dispersion of Gaussian rewards becomes the sum of squared residuals over the number of rewards less
all determined_g, with one further residual as large as rewards differ, and at most the variance of
the rewards. (D. MacKay: Bayesian Interpolation. Neural Computation 1992. M. Tipping: Sparse
Bayesian Learning and the Relevance Vector Machine. JMLR 2001.)

This is done when what is known has grown by half: a few dozen times in a million rewards.
"""

import math
from typing import Any

from belated.core.jit import inlined_kernel, kernel
from belated.estimators.laplace.fit import (
    DETERMINED,
    DISPERSION,
    HEARD,
    HIGHEST,
    ORIGIN,
    PASSED,
    PEAKS,
    RENEWED,
    SILENT,
    SIZES,
    SQUARES,
    TRACES,
    UNIT,
    VARIANCE,
    WAITING,
    Laplace,
    LaplaceFit,
    add_square,
    far,
    note_length,
    take_terms,
    variance_of,
)
from belated.estimators.laplace.silence import silent_pull, silent_weight
from belated.model.protocols import derivatives, refit_exactly, self_concordance
from belated.model.state import (
    DECIDED,
    OBSERVED,
    PASSES,
    ROWS,
    State,
    counts_for,
    silence_of,
    weight_of,
)
from belated.numerics.entries import entry, inner, n_entries
from belated.numerics.linalg import copy
from belated.numerics.lowered.products import dot
from belated.numerics.symmetric import invert, multiply

LONGEST_STEP = 1.0  # in M x'step: a longer one would leave where the Hessian says something
CLOSE = 0.25  # the center has come close enough to the mode when a step is no longer than this
MOST_CENTERS = 30  # in one renewal
LEAST_DISPERSION = 1e-8  # as a share of the variance of the rewards
LEAST_PRECISION, MOST_PRECISION = 1e-6, 1e12  # of a prior, in its unit


@inlined_kernel
def amount_learnt(state: State) -> float:
    """Returns how much has been taken in: rewards, and changes of silence."""
    return state.counts[OBSERVED] + state.fit.scalars[HEARD]


@kernel
def gradient_at_ref(family: Any, state: State, history: Any) -> None:
    """Computes the gradient at ``ref`` from all rows that count: a pass over the data."""
    fit = state.fit
    phi, gradient, ref = fit.scalars[DISPERSION], fit.gradient, fit.ref
    for j in range(ref.shape[0]):
        gradient[j] = fit.precision[fit.group[j]] * ref[j]
    for row in range(state.counts[DECIDED]):
        due, pull = silence_of(history, row), 0.0
        if counts_for(history, row):
            pull = derivatives(family, inner(history, row, ref))[0] - history.y[row]
        elif due > 0.0:
            pull = silent_pull(family, inner(history, row, ref), due)
        else:
            continue
        residual = weight_of(history, row) * (pull / phi)
        for k in range(n_entries(history, row)):
            j, value = entry(history, row, k)
            gradient[j] += residual * value
    state.counts[PASSES] += 1
    state.counts[ROWS] += state.counts[OBSERVED]
    fit.scalars[PASSED] = amount_learnt(state)


@kernel
def step_from_ref(fit: LaplaceFit) -> None:
    """``step = -S gradient``, the terms that wait included."""
    gradient, step = fit.gradient, fit.step
    multiply(fit.S, gradient, step)
    for i in range(step.shape[0]):
        step[i] = -step[i]
    for t in range(int(fit.scalars[WAITING])):
        term = fit.terms[t]
        weight = fit.scales[t] * dot(term, gradient)
        for i in range(step.shape[0]):
            step[i] += weight * term[i]


@kernel
def move_ref(family: Any, state: State, history: Any) -> None:
    """Moves ``ref`` to the present estimate, and takes Newton's step from there."""
    copy(state.theta, state.fit.ref)
    gradient_at_ref(family, state, history)
    step_from_ref(state.fit)


@kernel
def _invert_hessian(family: Any, state: State, history: Any) -> None:
    """Computes S at ``center`` from all rows that count."""
    fit = state.fit
    S, center, phi = fit.S, fit.center, fit.scalars[DISPERSION]
    d, n = center.shape[0], state.counts[OBSERVED] + fit.scalars[SILENT]
    few = 2 * n < d  # then taking in one row after the other is cheaper than an inverse
    fit.scalars[WAITING] = 0.0
    for i in range(d):
        precision, row = fit.precision[fit.group[i]], S[i, i:]
        for j in range(row.shape[0]):
            row[j] = 0.0
        row[0] = 1.0 / precision if few else precision
    for row in range(state.counts[DECIDED]):
        due, slope = silence_of(history, row), 0.0
        if counts_for(history, row):
            slope = derivatives(family, inner(history, row, center))[1]
        elif due > 0.0:
            slope = silent_weight(family, inner(history, row, center), due)
        else:
            continue
        weight = weight_of(history, row) * (slope / phi)
        if few:
            add_square(fit, history, row, weight)
        else:
            add_to_hessian(S, history, row, weight)
    if few:
        take_terms(fit)
    else:
        invert(S)


@kernel
def add_to_hessian(H: Any, history: Any, row: int, weight: float) -> None:
    """``H += weight x x'`` for a row x; upper half."""
    for k in range(n_entries(history, row)):
        j, value = entry(history, row, k)
        if value != 0.0:
            for other in range(n_entries(history, row)):
                i, number = entry(history, row, other)
                if i >= j:
                    H[j, i] += weight * value * number


@kernel
def _note_extremes(fit: LaplaceFit, history: Any, n: int) -> None:
    """Notes the largest x'S x of rows that count, and the largest x'center of silent ones."""
    variance, highest = 0.0, -math.inf
    for row in range(n):
        silent = silence_of(history, row) > 0.0
        if silent:
            highest = max(highest, inner(history, row, fit.center))
        if silent or counts_for(history, row):
            variance = max(variance, variance_of(fit, history, row))
    fit.scalars[VARIANCE], fit.scalars[HIGHEST] = variance, highest


@kernel
def _note_silent(fit: LaplaceFit, history: Any, n: int) -> None:
    """Counts silent rows, and notes how long their parts are, group by group."""
    fit.scalars[SILENT] = 0.0
    for row in range(n):
        if silence_of(history, row) > 0.0:
            fit.scalars[SILENT] += 1.0
            note_length(fit, history, row)


@kernel
def _learn_prior(estimator: Laplace, family: Any, state: State, history: Any) -> None:
    """Learns the variances of the prior and the dispersion, one step of the fixed point."""
    fit = state.fit
    groups, d = fit.precision.shape[0], state.theta.shape[0]
    sizes, traces, squares = state.work[SIZES], state.work[TRACES], state.work[SQUARES]
    for g in range(groups):
        sizes[g] = traces[g] = squares[g] = 0.0
    for j in range(d):
        g = fit.group[j]
        sizes[g] += 1.0
        traces[g] += fit.S[j, j]
        squares[g] += state.theta[j] ** 2
    determined, everything = state.work[DETERMINED], 0.0
    for g in range(groups):
        determined[g] = min(max(sizes[g] - fit.precision[g] * traces[g], 0.0), sizes[g])
        everything += determined[g]
    if estimator.learns_dispersion:
        _learn_dispersion(estimator, family, state, history, everything)
    unit = fit.scalars[UNIT]
    expected = (estimator.prior_sd * unit) ** 2
    for g in range(groups):
        if fit.learnt[g] == 0.0:
            fit.precision[g] = 1.0 / (estimator.intercept_sd * unit) ** 2
        elif estimator.strength < math.inf:
            strength = estimator.strength
            learnt = (determined[g] + strength) / (squares[g] + strength * expected)
            scaled = min(max(learnt * unit * unit, LEAST_PRECISION), MOST_PRECISION)
            fit.precision[g] = scaled / (unit * unit)
        else:
            fit.precision[g] = 1.0 / expected


@kernel
def _learn_dispersion(
    estimator: Laplace, family: Any, state: State, history: Any, determined: float
) -> None:
    """Learns phi from the residuals, and the unit of the prior from the spread of the rewards."""
    fit, n, total, square, residuals = state.fit, 0.0, 0.0, 0.0, 0.0  # n: the sum of weights
    for row in range(state.counts[DECIDED]):
        if counts_for(history, row):
            y, weight = history.y[row], weight_of(history, row)
            n += weight
            change = y - total
            total += weight * (change / n)  # Welford's mean
            square += weight * (change * (y - total))
            error = y - derivatives(family, inner(history, row, state.theta))[0]
            residuals += weight * error**2
    if n < 2.0 or square <= 0.0:
        return
    spread = square / (n - 1.0)
    fit.scalars[UNIT] = math.sqrt(spread)
    # one further residual, as large as rewards differ, keeps it positive
    learnt = (residuals + spread) / (max(n - determined, 0.0) + 1.0)
    fit.scalars[DISPERSION] = min(max(learnt, LEAST_DISPERSION * spread), spread)


@kernel
def renew(estimator: Laplace, family: Any, state: State, history: Any) -> None:
    """Learns the prior, then moves center and ref to the mode."""
    take_terms(state.fit)
    if estimator.strength < math.inf or estimator.learns_dispersion:
        _learn_prior(estimator, family, state, history)
    settle(family, state, history, CLOSE)


@kernel
def settle(family: Any, state: State, history: Any, close: float) -> None:
    """Moves center and ref to the mode by damped steps of Newton's, until one is short enough.

    The length of a step is a bound on M x'step over rows x that count.
    """
    fit = state.fit
    _note_silent(fit, history, state.counts[DECIDED])
    group, longest = fit.group, fit.longest
    peaks, origin, before = state.work[PEAKS], state.work[ORIGIN], math.inf
    for i in range(origin.shape[0]):
        origin[i] = 0.0
    for _ in range(MOST_CENTERS):
        copy(state.theta, fit.center)
        _invert_hessian(family, state, history)
        copy(state.theta, fit.ref)
        gradient_at_ref(family, state, history)
        step_from_ref(fit)
        M = self_concordance(family, far(group, longest, state.theta, origin, peaks) + 1.0)
        length = M * far(group, longest, fit.step, origin, peaks)
        share = min(1.0, LONGEST_STEP / length) if length > 0.0 else 1.0
        for i in range(state.theta.shape[0]):
            state.theta[i] = fit.ref[i] + share * fit.step[i]
        if length <= close or (length < 1e-6 and length >= before):  # else rounding decides
            break
        before = length
    _note_extremes(fit, history, state.counts[DECIDED])
    fit.scalars[RENEWED] = amount_learnt(state)


@refit_exactly.case(Laplace)
def _refit_exactly(estimator: Laplace, family: Any, state: State, history: Any, tol: float) -> None:
    settle(family, state, history, tol)
