"""Greedy: the baseline that never explores."""

from typing import NamedTuple

from belated.core.arguments import Positive, parameters
from belated.estimators import penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    needs_no_bound,
)
from belated.model.state import State
from belated.numerics.pruning import DecisionSet, most_optimistic


@needs_no_bound
@deterministic
@parameters
class Greedy(NamedTuple):
    """Play the action that looks best now.

    The estimate is that of Delayed OFU-GLM. Nothing is explored on purpose: fresh actions in every
    round may be exploration enough, fixed ones are not.

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
    A decision: O(K d). A returned reward: as in Delayed OFU-GLM with its defaults.

    Deviations
    ----------
    None.

    References
    ----------
    A baseline without an author.
    """

    m1: Positive = 1.0
    lam: Positive = 1.0

    def resolve(self, family: Family, dim: int, max_norm: float) -> "Greedy":
        """Returns the policy as it is: no parameter is left open."""
        return accepted(self, family)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball."""
        return penalised_mle(family, dim, max_norm, m1=self.m1, lam=self.lam)


@choose.case(Greedy)
def _choose(
    policy: Greedy, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    return most_optimistic(state.theta, state.W_inv, state.cap, 0.0, actions, state.work)
