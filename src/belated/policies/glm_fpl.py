"""GLM-FPL: follow the perturbed leader, Kveton, Zaheer, Szepesvari, Li, Ghavamzadeh, Boutilier."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, Positive, parameters, resolved
from belated.core.jit import kernel
from belated.core.types import Vector
from belated.estimators.perturbed import shift_estimate
from belated.model.protocols import Estimator, Family, accepted, choose, needs_no_bound
from belated.model.state import WORK, State
from belated.numerics.linalg import cholesky
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.constants import noise_scale
from belated.policies.shared.exploration import explored
from belated.policies.shared.sampling import (
    DRAW,
    SAMPLE,
    fill_normal,
    play_best,
    times_transposed,
    unconfined_mle,
)


@needs_no_bound
@parameters
class GLMFPL(NamedTuple):
    """Play what is best for the estimate from rewards with fresh Gaussian noise added to each.

    Plays at random until the returned rounds span the space, ``lambda_min(sum of x x') >=
    explore_until``. Then plays ``argmax x'theta_z``, where theta_z is the penalised maximum
    likelihood estimate of the rewards y_i + z_i, the z_i drawn anew in every round from N(0, (scale
    R)^2). Only ``sum of z_i x_i`` matters, and its law is N(0, (scale R)^2 sum of x x') exactly:
    one Cholesky factor instead of a pass over the data. For Gaussian rewards theta_z is exact; for
    other families it is solved as in ``EVILL``. No confidence set. This is (6) of the paper in its
    Algorithm 1, with a = scale R: for rewards of 0 and 1 the default is a = 1/2, the paper's
    informal design of Section 5.1.

    Parameters
    ----------
    scale
        Size of the noise that is added, in units of R; 0 is greedy. That of the paper's Theorem 5
        is ``(L / kappa) sqrt(d log(T / d) + 2 log T)``, L and kappa the largest and the least slope
        of the mean; its experiments set kappa = L.
    lam
        Ridge: the penalty is ``lam / 2 ||theta||^2``.
    R
        Scale of the noise of a reward; that of the family by default.
    explore_until
        Least eigenvalue of the returned design that ends the exploration. Theorem 5 asks for the
        largest of 1, ``4 (R / kappa)^2 (d log(T / d) + 2 log T)`` and ``8 (scale R / kappa)^2 log
        T``; the paper's experiments play d independent actions.
    drift
        As in ``EVILL``.

    Assumptions
    -----------
    None: no guarantee is claimed.

    Cost
    ----
    A decision O(d^3 + K d). A returned reward as in ``EVILL``.

    Deviations
    ----------
    A ridge, where the paper has none. Scale and length of exploration are by default not those of
    Theorem 5, which the paper itself calls too conservative (Section 4.5); the theorem is for
    actions with one entry that is not zero, without delay. Actions are explored at random, not by a
    basis, and exploration counts returned rewards. theta_z minimises a Taylor model with the error
    that ``EVILL`` states.

    References
    ----------
    B. Kveton, M. Zaheer, Cs. Szepesvari, L. Li, M. Ghavamzadeh, C. Boutilier: Randomized
    Exploration in Generalized Linear Bandits. AISTATS 2020.
    """

    scale: NotNegative = 1.0
    lam: Positive = 1.0
    R: Positive | None = None
    explore_until: Positive = 1.0
    drift: Positive = 0.1

    def resolve(self, family: Family, dim: int, max_norm: float) -> "GLMFPL":
        """Fill in the scale of the noise."""
        self = accepted(self, family)
        return resolved(self, R=noise_scale(self, family))

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate, nowhere near a ball."""
        return unconfined_mle(family, dim, max_norm, self.lam, self.drift)


@kernel
def add_noise(policy: Any, state: State, w: Vector, rng: np.random.Generator) -> None:
    """Draws w = -sum of z_i x_i, which the noise adds to the gradient; uses ``work[SAMPLE]``."""
    z, U = state.work[SAMPLE], state.work[WORK:]
    fill_normal(z, rng)
    cholesky(state.W, -policy.lam, U)
    times_transposed(U, -policy.scale * policy.R, z, w)


@choose.case(GLMFPL)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    if not explored(policy, state):
        row = int(rng.random() * actions.rows.shape[0])
        estimate = dot(actions.rows[row], state.theta)
        return row, estimate, estimate, 0.0
    w, sample = state.work[DRAW], state.work[SAMPLE]
    add_noise(policy, state, w, rng)
    shift_estimate(state.fit, state, w, sample)
    row, score, estimate = play_best(sample, state, actions)
    return row, score, estimate, 0.0
