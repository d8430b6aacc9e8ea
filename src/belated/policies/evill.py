"""EVILL: exploration via linear loss perturbations, Janz, Liu, Ayoub and Szepesvari (2024)."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, Positive, derives, parameters, resolved
from belated.core.jit import kernel
from belated.core.types import Vector
from belated.estimators.perturbed import shift_estimate
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    factor_precision,
    needs_no_bound,
)
from belated.model.state import WORK, State
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.sampling import (
    DRAW,
    SAMPLE,
    fill_normal,
    play_best,
    times_transposed,
    unconfined_mle,
)


@needs_no_bound
@derives("a_phi")
@parameters
class EVILL(NamedTuple):
    """Play what is best for the estimate of a loss with a random linear term.

    With F the penalised negative log-likelihood of the returned rewards, times a(phi), and H its
    Hessian at the estimate, plays ``argmax x'theta_w``,

        theta_w = argmin F(theta) + w'theta,      w drawn from N(0, scale^2 a(phi) H).

    w is what the paper sums up from one normal number per reward and d for the penalty; a Cholesky
    factor of H gives the same law without a pass over the data. For Gaussian rewards theta_w has
    the law N(theta, scale^2 sd^2 W^-1), that of ``LinTS`` with ``inflated=False``. For other
    families it is solved with the Taylor model of third order that the estimate keeps, again
    without a pass: see Deviations. No confidence set.

    Parameters
    ----------
    scale
        Size a of the perturbation; 0 is greedy.
    lam
        Ridge: the penalty is ``lam / 2 ||theta||^2``.
    drift
        The Hessian in use is within the factors ``e^-drift`` and ``e^drift`` of H.

    Assumptions
    -----------
    None: no guarantee is claimed. That of the paper needs a scale and a ridge that grow with d and
    log T, and a warm-up on a fixed set of actions.

    Cost
    ----
    A decision O(d^3 + K d). A returned reward as in Delayed OFU-GLM, and a pass over the data
    whenever the estimate has drifted away from where the Hessian is kept.

    Deviations
    ----------
    Algorithm 1 with an unbounded feasible set, no warm-up (Appendix B) and a constant scale and
    ridge, where Theorem 3 has both grow with d and log T. The perturbation of line 4 is drawn in
    one piece: its law given the data is N(0, scale^2 a(phi) H). theta_w minimises a Taylor model:
    its error in the norm of H is at most ``-log(1 - k eps) / k`` with ``k = M X / sqrt(lmin)``,
    ``eps = e^u (r + (e^u - 1 - u - u^2/2) / u ||step||_H)``, ``u = M X ||step||``: step leads from
    the reference point to theta_w, r is what the model's gradient is off by there, M the
    self-concordance constant, X the longest action, lmin the least eigenvalue of H. That is of
    third order in the step, hence small beside the draw itself once the least eigenvalue of H is
    large against scale^2 d; before, nothing is proved, and where the series is seen to diverge the
    step of second order is taken, which makes theta_w a draw of Laplace's posterior.
    ``belated.estimators.perturbed:shift_error`` is the bound as a number. Above 30 dimensions the
    model is of second order throughout.

    References
    ----------
    D. Janz, S. Liu, A. Ayoub, Cs. Szepesvari: Exploration via linearly perturbed loss minimisation.
    AISTATS 2024.
    """

    scale: NotNegative = 1.0
    lam: Positive = 1.0
    drift: Positive = 0.1

    def resolve(self, family: Family, dim: int, max_norm: float) -> "EVILL":
        """Derive the dispersion from the family."""
        return resolved(accepted(self, family), a_phi=family.a_phi)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate, nowhere near a ball."""
        return unconfined_mle(family, dim, max_norm, self.lam, self.drift)


@kernel
def perturb(policy: Any, state: State, w: Vector, rng: np.random.Generator) -> None:
    """Draws w; ``work[SAMPLE]`` is scratch."""
    z, U = state.work[SAMPLE], state.work[WORK:]
    fill_normal(z, rng)
    factor_precision(state.fit, state, U)
    times_transposed(U, policy.scale * math.sqrt(policy.a_phi), z, w)


@choose.case(EVILL)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    w, sample = state.work[DRAW], state.work[SAMPLE]
    perturb(policy, state, w, rng)
    shift_estimate(state.fit, state, w, sample)
    row, score, estimate = play_best(sample, state, actions)
    return row, score, estimate, 0.0
