"""Delayed KL-UCB: KL-UCB on the rewards that have returned."""

import math
from typing import NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, checked, parameters
from belated.core.types import Matrix, Vector
from belated.model.protocols import Family
from belated.policies.shared.arms import (
    ArmPlayer,
    bernoulli_index,
    least_known,
    outside_unit_interval,
)


@parameters
class DelayedKLUCB(NamedTuple):
    """KL-UCB on the rewards that have returned; arms are rows.

    Plays the arm with the largest ``max {q : S_i kl(m_i, q) <= log t + c log log t}``: m_i is the
    mean of the S_i rewards of arm i that have returned, kl the divergence of Bernoulli laws. An arm
    without any goes first; of several, the one with the fewest pulls. Without delay this is
    KL-UCB. It plays in simulations only.

    Parameters
    ----------
    c
        Factor of ``log log t``. The proof takes 3; 0 is what its authors advise to use.

    Assumptions
    -----------
    Rewards in [0, 1], independent over rounds, with a mean of their own for each arm, c = 3. Delays
    do not depend on the rewards. Then the regret exceeds that of KL-UCB by at most the sum over
    arms of the gap times the expected largest number of its rewards that are missing at once.

    Cost
    ----
    A decision O(K) times a few steps of Newton's method; a returned reward O(1).

    Deviations
    ----------
    The rule is equation (6) of Joulani et al. with the bound of KL-UCB. Their bound on its regret
    is in an extended version of the paper, which we could not read; the bound of KL-UCB is from
    memory of Garivier and Cappe (2011), which we could not read either. Which of several arms
    without a reward to play is our choice. ``log log t`` counts as 0 while it is negative.

    References
    ----------
    P. Joulani, A. Gyorgy, C. Szepesvari: Online Learning under Delayed Feedback, ICML 2013.
    A. Garivier, O. Cappe: The KL-UCB Algorithm for Bounded Stochastic Bandits and Beyond, COLT
    2011.
    """

    c: NotNegative = 0.0

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def start(self, dim: int, rng: np.random.Generator) -> "KLUCBPlayer":
        """Returns a player that knows nothing yet."""
        return KLUCBPlayer(checked(self), rng)


class KLUCBPlayer(ArmPlayer):
    """One run of ``DelayedKLUCB``."""

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm with the largest index."""
        arm = least_known(self.observed, self.pulls)
        if arm >= 0:
            return arm
        return int(np.argmax(self.indices(t)))

    def indices(self, t: int) -> Vector:
        """Returns ``max {q : S_i kl(m_i, q) <= log t + c log log t}`` for all arms."""
        log_t = math.log(t)
        level = (log_t + self.policy.c * math.log(max(1.0, log_t))) / self.observed
        return bernoulli_index(self.total / self.observed, level)
