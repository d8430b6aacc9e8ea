"""QPM-D of Joulani, Gyorgy and Szepesvari (2013): any bandit algorithm, fed from queues."""

from typing import NamedTuple

import numpy as np

from belated.core.arguments import checked, parameters
from belated.model.protocols import Family, refusal
from belated.policies.shared.arms import Base, base_policy
from belated.policies.shared.queues import QueuePlayer


@parameters
class QPMD(NamedTuple):
    """QPM-D: any bandit algorithm behind queues of returned rewards; arms are rows.

    Rewards that return wait in a queue for each arm. The base algorithm names an arm. While there
    is a reward of that arm in its queue, the base is told it and names the next; then the arm it
    waits for is played. So the base sees a bandit without delay. Without delay this is the base.
    It plays in simulations only.

    Parameters
    ----------
    base
        ``"ucb1"``, ``"kl-ucb"``, ``"beta-thompson"``, these with parameters (``"kl-ucb:c=3"``), or
        any policy in plain Python that learns from single rewards.

    Assumptions
    -----------
    Rewards of an arm are independent and identically distributed, and so are those that have
    returned: delays do not depend on the rewards. Then the regret exceeds that of the base by at
    most the sum over arms of the gap times the expected largest number of its rewards that are
    missing at once (Joulani et al., Theorem 6, equation (4)).

    Cost
    ----
    A decision and a returned reward: that of the base, plus O(1).

    Deviations
    ----------
    None: this is Algorithm 2. Its queues are first in, first out, too.

    References
    ----------
    P. Joulani, A. Gyorgy, C. Szepesvari: Online Learning under Delayed Feedback, ICML 2013.
    """

    base: Base = "ucb1"

    def refuses(self, family: Family) -> str:
        """Returns why the base refuses this family; empty where it does not."""
        return refusal(base_policy("base", self.base), family)

    def start(self, dim: int, rng: np.random.Generator) -> "QueuePlayer":
        """Returns a player that knows nothing yet."""
        return QueuePlayer(checked(self), dim, rng)
