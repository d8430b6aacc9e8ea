"""Thompson sampling with a Beta posterior for each arm, on the rewards that returned."""

from typing import NamedTuple

import numpy as np

from belated.core.arguments import Positive, checked, parameters
from belated.core.types import Matrix
from belated.model.protocols import Family
from belated.policies.shared.arms import ArmPlayer, as_success, draw_best, outside_unit_interval


@parameters
class BetaThompson(NamedTuple):
    """Thompson sampling with a Beta posterior for each arm; arms are rows.

    Draws a mean for each arm from ``Beta(successes + s_i, failures + S_i - s_i)`` and plays the arm
    of the largest: s_i is the sum of the S_i rewards of arm i that have returned. A reward strictly
    between 0 and 1 counts as a success with that probability. It plays in simulations only.

    Parameters
    ----------
    successes, failures
        The prior of every arm: 1 and 1 is uniform.

    Assumptions
    -----------
    None: no guarantee is claimed. Without delay the regret is logarithmic (Agrawal and Goyal).

    Cost
    ----
    A decision O(K), a returned reward O(1).

    Deviations
    ----------
    None without delay. With delay, the posterior is that given the rewards that have returned.

    References
    ----------
    S. Agrawal, N. Goyal: Analysis of Thompson Sampling for the Multi-armed Bandit Problem, COLT
    2012.
    O. Chapelle, L. Li: An Empirical Evaluation of Thompson Sampling, NeurIPS 2011.
    """

    successes: Positive = 1.0
    failures: Positive = 1.0

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "BetaPlayer":
        """Returns a player that knows nothing yet."""
        return BetaPlayer(checked(self), rng)


class BetaPlayer(ArmPlayer):
    """One run of ``BetaThompson``."""

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm of the largest draw."""
        prior = self.policy
        return draw_best(
            self.rng, prior.successes + self.total, prior.failures + self.observed - self.total
        )

    def count(self, arm: int, y: float) -> None:
        """Counts a returned reward of ``arm``."""
        super().count(arm, as_success(self.rng, y))
