"""Uniform: the baseline that never learns."""

from typing import NamedTuple

import numpy as np

from belated.core.arguments import Positive, parameters
from belated.core.types import Vector
from belated.estimators import penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    needs_no_bound,
    probabilities,
)
from belated.model.state import State
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.exploration import fill_equal


@needs_no_bound
@parameters
class UniformPlay(NamedTuple):
    """Play every action with the same probability.

    It estimates all the same, as Delayed OFU-GLM does, so that one can see what it could know.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``: the estimate is sought in that ball.
    lam
        Ridge, as in Delayed OFU-GLM.

    Assumptions
    -----------
    None: no guarantee is claimed.

    Cost
    ----
    A decision: O(d). A returned reward: as in Delayed OFU-GLM with its defaults.

    Deviations
    ----------
    None.

    References
    ----------
    A baseline without an author.
    """

    m1: Positive = 1.0
    lam: Positive = 1.0

    @property
    def feedback(self) -> str:
        """Any feedback: the policy does not learn."""
        return "any"

    def resolve(self, family: Family, dim: int, max_norm: float) -> "UniformPlay":
        """Returns the policy as it is: no parameter is left open."""
        return accepted(self, family)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball."""
        return penalised_mle(family, dim, max_norm, m1=self.m1, lam=self.lam)


@choose.case(UniformPlay)
def _choose(
    policy: UniformPlay, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    row = int(rng.random() * actions.rows.shape[0])
    estimate = dot(actions.rows[row], state.theta)
    return row, estimate, estimate, 0.0


@probabilities.case(UniformPlay)
def _probabilities(policy: UniformPlay, state: State, actions: DecisionSet, out: Vector) -> None:
    fill_equal(out)
