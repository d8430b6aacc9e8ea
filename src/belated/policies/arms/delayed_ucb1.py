"""Delayed-UCB1 of Joulani, Gyorgy and Szepesvari (2013): UCB1 on the rewards that returned."""

import math
from typing import NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, checked, parameters
from belated.core.types import Matrix
from belated.model.protocols import Family
from belated.policies.shared.arms import ArmPlayer, least_known, outside_unit_interval


@parameters
class DelayedUCB1(NamedTuple):
    """UCB1 on the rewards that have returned; arms are rows.

    Plays ``argmax m_i + sqrt(c log(t) / S_i)``: m_i is the mean of the S_i rewards of arm i that
    have returned. An arm without any goes first; of several, the one with the fewest pulls.
    Without delay this is UCB1. It plays in simulations only.

    Parameters
    ----------
    c
        Factor under the root; 2 is that of UCB1.

    Assumptions
    -----------
    Rewards in [0, 1], independent over rounds, with a mean of their own for each arm, c = 2. Delays
    do not depend on the rewards. Then the regret exceeds that of UCB1 by at most the sum over arms
    of the gap times the expected largest number of its rewards that are missing at once (Joulani
    et al., Theorem 7: ``8 log(n) / gap + 3.5 gap`` for each arm besides).

    Cost
    ----
    A decision O(K), a returned reward O(1).

    Deviations
    ----------
    The rule is equation (6) with the bound of UCB1, c = 2. Which of several arms without a reward
    to play is our choice.

    References
    ----------
    P. Joulani, A. Gyorgy, C. Szepesvari: Online Learning under Delayed Feedback, ICML 2013.
    P. Auer, N. Cesa-Bianchi, P. Fischer: Finite-time Analysis of the Multiarmed Bandit Problem,
    Machine Learning 47, 2002.
    """

    c: NotNegative = 2.0

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "UCB1Player":
        """Returns a player that knows nothing yet."""
        return UCB1Player(checked(self), rng)


class UCB1Player(ArmPlayer):
    """One run of ``DelayedUCB1``."""

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm with the largest index."""
        arm = least_known(self.observed, self.pulls)
        if arm >= 0:
            return arm
        bonus = np.sqrt(self.policy.c * math.log(t) / self.observed)
        return int(np.argmax(self.total / self.observed + bonus))
