"""Laplace's posterior of wide, sparse features: the mode, and the inverse Hessian itself.

The prior is theta_j ~ N(0, 1 / precision of its group). With phi the dispersion, the mode minimises

    F(theta) = sum over returned rounds of w [b(x'theta) - y x'theta] / phi
               + sum over features of precision_j theta_j^2 / 2,

w the weight of a round, 1 where nothing is forgotten. Open rounds, too, have terms if their silence
says something (``silence.py``).
Two points are kept. ``center`` is where the Hessian is taken, over *all* returned rewards: S is
its inverse. ``ref`` is where the gradient is known, over all returned rewards, too. The mode is
taken to be ref + step with step = -S gradient, Newton's step from ref with the Hessian at center. A
reward of x, with slope w at center and residual r = (mu(x'ref) - y) / phi, changes both at the
price of v = S x:

    S -> S - w v v' / (1 + w x'v),        step -> step - v (r + w x'step) / (1 + w x'v),

the second of them because step = -S gradient holds before and after. The terms of S wait until
there are enough of them for ``subtract_squares``.

How far ref + step is from the mode is certified (``certificate.py``). Where that is too far, ref
moves to ref + step: a pass over the data, which costs its nonzero entries. Now and then
(``renewing.py``) center moves, too, and the prior is learnt: that costs an inverse.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import kernel
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.estimators.laplace.silence import silent_pull, silent_weight
from belated.model.protocols import derivatives, posterior_variances, revise_row, take_in_row
from belated.model.state import State, end_silence, silence_of, weight_of
from belated.numerics.entries import entry, inner, n_entries
from belated.numerics.symmetric import subtract_squares

# slots of LaplaceFit.scalars
WAITING, DISPERSION, VARIANCE, RENEWED, PASSED, UNIT, SILENT, HIGHEST, HEARD = range(9)
BLOCK = 64  # terms that wait, where the matrix is too large for the cache
NARROW = 256  # features up to which each term is taken in at once
# rows of State.work; an array made in a kernel would cost reference counts of all that it is given
PEAKS, ORIGIN, SIZES, TRACES, SQUARES, DETERMINED = 1, 2, 3, 4, 5, 6


class Laplace(NamedTuple):
    """Laplace's posterior.

    Parameters
    ----------
    prior_sd
        Standard deviation of a coefficient before any reward; for Gaussian rewards as a multiple of
        the noise where that is known, else of the standard deviation of rewards.
    strength
        The number of coefficients that ``prior_sd`` counts for when variances are learnt; infinite
        where they are not learnt.
    intercept_sd
        The same as ``prior_sd`` for the constant, whose variance is never learnt.
    dispersion
        phi, to begin with.
    learns_dispersion
        Whether phi is learnt.
    tol
        Largest certified distance to the mode, in the norm of the Hessian, where passes can reach
        it.
    """

    prior_sd: float
    strength: float
    intercept_sd: float
    dispersion: float
    learns_dispersion: bool
    tol: float

    @property
    def order_matters(self) -> bool:
        """True: a prior that is learnt depends on what had returned when it was learnt last."""
        return True

    @property
    def unit(self) -> float:
        """The unit of the prior's standard deviations before any reward: the known noise."""
        return math.sqrt(self.dispersion)

    def new_fit(self, dim: int) -> "LaplaceFit":
        """Returns the fit without any reward, all features in one group."""
        precision = (self.prior_sd * self.unit) ** -2.0
        waiting = 1 if dim <= NARROW else BLOCK
        return LaplaceFit(
            center=np.zeros(dim),
            ref=np.zeros(dim),
            gradient=np.zeros(dim),
            step=np.zeros(dim),
            S=np.eye(dim) / precision,
            terms=np.zeros((waiting, dim)),
            scales=np.zeros(waiting),
            group=np.zeros(dim, np.int32),
            precision=np.full(1, precision),
            learnt=np.ones(1),
            longest=np.zeros(1),
            scalars=np.array([0.0, self.dispersion, 0.0, 0.0, 0.0, self.unit, 0.0, 0.0, 0.0]),
            place=np.zeros(dim, np.int32),
        )

    def grouped(self, fit: "LaplaceFit", groups: Mapping[str, int]) -> "LaplaceFit":
        """Returns an empty fit with one prior per group; that of "intercept" is never learnt."""
        sizes = list(groups.values())
        learnt = np.array([name != "intercept" for name in groups], np.float64)
        sds = self.unit * np.where(learnt == 1.0, self.prior_sd, self.intercept_sd)
        precision = sds**-2.0
        group = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        fit.S[np.diag_indices(len(group))] = 1.0 / precision[group]
        longest = np.zeros(len(sizes))
        return fit._replace(group=group, precision=precision, learnt=learnt, longest=longest)


class LaplaceFit(NamedTuple):
    """The posterior of the returned rewards; its mode is ``State.theta``."""

    center: Vector  # (d,) where the Hessian is taken
    ref: Vector  # (d,) where the gradient is taken
    gradient: Vector  # (d,) of F at ref
    step: Vector  # (d,) -S gradient
    S: Matrix  # (d, d) upper half of the inverse Hessian, before the terms that wait
    terms: Matrix  # (B, d) vectors v whose squares, times their scale, are still to be subtracted
    scales: Vector  # (B,)
    group: Integers  # (d,) the group of each feature
    precision: Vector  # (G,) of the prior, one for each group
    learnt: Vector  # (G,) 1 where it is learnt, 0 for the constant
    longest: Vector  # (G,) largest sum of |x_j| over the features of a group, of rows that count
    # (9,) terms that wait, dispersion, bound on x'S x of rows that count, what was known when
    # center and when ref last moved, the unit of the prior's standard deviations, rows whose
    # silence counts, bound on x'center of those, the sum of all changes of silence
    scalars: Vector
    place: Integers  # (d,) scratch: zeros


@kernel
def covariance_times(fit: LaplaceFit, rows: Any, row: int, out: Vector) -> None:
    """``out`` becomes S x, the terms that wait included, for a row x.

    Only the upper half of S is there. What is above the diagonal is read row by row, for all
    entries of x at once: down one column after the other, every number would be in another page of
    memory.
    """
    S = fit.S
    for i in range(out.shape[0]):
        total = 0.0
        for k in range(n_entries(rows, row)):
            j, value = entry(rows, row, k)
            if j > i:
                total += value * S[i, j]
        out[i] = total
    for k in range(n_entries(rows, row)):
        j, value = entry(rows, row, k)
        if value != 0.0:
            half, rest = S[j, j:], out[j:]
            for i in range(half.shape[0]):
                rest[i] += value * half[i]
    for t in range(int(fit.scalars[WAITING])):
        term = fit.terms[t]
        weight = -fit.scales[t] * inner(rows, row, term)
        for i in range(out.shape[0]):
            out[i] += weight * term[i]


@kernel
def variance_of(fit: LaplaceFit, rows: Any, row: int) -> float:
    """Returns x'S x, the terms that wait included, for a row x."""
    total = 0.0
    for k in range(n_entries(rows, row)):
        j, value = entry(rows, row, k)
        for other in range(n_entries(rows, row)):
            i, number = entry(rows, row, other)
            total += value * number * (fit.S[j, i] if i >= j else fit.S[i, j])
    for t in range(int(fit.scalars[WAITING])):
        total -= fit.scales[t] * inner(rows, row, fit.terms[t]) ** 2
    return max(0.0, total)


@posterior_variances.case(LaplaceFit)
def _posterior_variances(fit: LaplaceFit, rows: SparseRows, out: Vector) -> None:
    for row in range(out.shape[0]):
        out[row] = variance_of(fit, rows, row)


@kernel
def take_terms(fit: LaplaceFit) -> None:
    """Subtracts the terms that wait."""
    subtract_squares(fit.S, fit.terms, fit.scales, int(fit.scalars[WAITING]))
    fit.scalars[WAITING] = 0.0


@kernel
def add_square(fit: LaplaceFit, rows: Any, row: int, weight: float) -> tuple[int, float]:
    """S becomes the inverse of S^-1 + weight x x'.

    Returns the place of v = S x among the terms, from before, and x'v.
    """
    if fit.scalars[WAITING] == fit.scales.shape[0]:
        take_terms(fit)
    t = int(fit.scalars[WAITING])
    v = fit.terms[t]
    covariance_times(fit, rows, row, v)
    variance = max(0.0, inner(rows, row, v))
    fit.scales[t] = weight / (1.0 + weight * variance)
    fit.scalars[WAITING] = t + 1.0
    return t, variance


@kernel
def note_length(fit: LaplaceFit, rows: Any, row: int) -> None:
    """Notes how long the parts of a row that counts are, group by group."""
    longest, group = fit.longest, fit.group
    for k in range(n_entries(rows, row)):
        j, value = entry(rows, row, k)
        if value != 0.0:
            total = 0.0
            for other in range(n_entries(rows, row)):
                i, number = entry(rows, row, other)
                if group[i] == group[j]:
                    total += abs(number)
            longest[group[j]] = max(longest[group[j]], total)


@take_in_row.case(Laplace)
def _take_in_row(
    estimator: Laplace, family: Any, state: State, history: Any, row: int, y: float
) -> None:
    fit = state.fit
    phi = fit.scalars[DISPERSION]
    note_length(fit, history, row)
    own = weight_of(history, row)
    weight = own * (derivatives(family, inner(history, row, fit.center))[1] / phi)
    residual = own * ((derivatives(family, inner(history, row, fit.ref))[0] - y) / phi)
    due = silence_of(history, row)
    if due > 0.0:  # the row counted before: its reward takes the place of its silence
        weight -= own * (silent_weight(family, inner(history, row, fit.center), due) / phi)
        residual -= own * (silent_pull(family, inner(history, row, fit.ref), due) / phi)
        end_silence(history, row)
        fit.scalars[SILENT] -= 1.0
    for k in range(n_entries(history, row)):
        j, value = entry(history, row, k)
        fit.gradient[j] += residual * value
    t, variance = add_square(fit, history, row, weight)
    fit.scalars[VARIANCE] = max(fit.scalars[VARIANCE], variance)
    v, step = fit.terms[t], fit.step
    factor = (residual + weight * inner(history, row, step)) / (1.0 + weight * variance)
    for i in range(step.shape[0]):
        step[i] -= factor * v[i]


@revise_row.case(Laplace)
def _revise_row(
    estimator: Laplace, family: Any, state: State, history: Any, row: int, old: float, new: float
) -> None:
    fit = state.fit
    change = weight_of(history, row) * ((new - old) / fit.scalars[DISPERSION])
    for k in range(n_entries(history, row)):
        j, value = entry(history, row, k)
        fit.gradient[j] -= change * value
    v = state.work[0]
    covariance_times(fit, history, row, v)
    for i in range(v.shape[0]):
        fit.step[i] += change * v[i]


@kernel
def far(group: Integers, longest: Vector, a: Vector, b: Vector, peaks: Vector) -> float:
    """Returns a bound on |x'(a - b)| for all rows x that count, from the peak in each group.

    ``group`` and ``longest`` are those of the fit; ``peaks`` is scratch.
    """
    total = 0.0
    for g in range(longest.shape[0]):
        peaks[g] = 0.0
    for j in range(a.shape[0]):
        g = group[j]
        peaks[g] = max(peaks[g], abs(a[j] - b[j]))
    for g in range(longest.shape[0]):
        total += longest[g] * peaks[g]
    return total
