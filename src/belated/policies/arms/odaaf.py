"""ODAAF of Pike-Burke et al. (2018): one sum per round, without the decisions behind it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, Whole, checked, parameters, wrong
from belated.core.types import Matrix, Vector
from belated.model.protocols import Family
from belated.policies.shared.arms import ArmPlayer, outside_unit_interval
from belated.policies.shared.constants import known_horizon


@parameters
class ODAAF(NamedTuple):
    """ODAAF: phases of play for delayed, aggregated, anonymous rewards; arms are rows.

    Sees one number per round, the sum of what returns in it. In phase m = 1, 2, ... with tolerance
    2^-m every arm left is played in one go until it has n_m rounds over all phases, and the sums of
    these rounds are put down to it. Then arms whose average is more than the tolerance below the
    best are dropped. A bridge of as many rounds, whose sums are ignored, lets late rewards pass.
    With l = log(T tol^2),

        n_m = ceil((sqrt(2 l) + sqrt(2 l + 8/3 tol l + 6 tol m E))^2 / tol^2),

    E the expected delay. Phases end when one arm is left or T tol^2 <= e; from then on the best
    arm is played. It plays in simulations only, with ``feedback="aggregated"``.

    Parameters
    ----------
    expected_delay
        E[ceil tau]: the expected delay in whole rounds. It must be given.
    horizon
        Number of rounds T; a simulation fills it in.
    max_delay
        Bound d on the delay, where there is one: then ``6 tol m E`` becomes ``4 tol E``, and n_m is
        at least m min(d, n_m / m), n_m as above.
    variance
        Variance V of the delay, where it is known: then ``6 tol m E`` becomes ``4 tol (E + 2 V)``.
        With ``max_delay`` it cannot be combined.

    Assumptions
    -----------
    Rewards in [0, 1], with a mean of their own for each arm. Delays are independent, identically
    distributed, and independent of the rewards; their expected value is known (Assumption 1 of the
    paper; a bound is its Assumption 2, the variance its Assumption 3).

    Cost
    ----
    A decision O(1), at the end of a phase O(K); a returned sum O(1).

    Deviations
    ----------
    This is Algorithm 1, with n_m of equations (14), (18) for ``max_delay`` and (25) for
    ``variance``, all in the supplement. Algorithm 1 prints ``while |T_j(m)| <= n_m``, one round
    more than the n_m of its text, which is what is played here. It leaves open which arm plays the
    bridge, here the one with the best average; with the expected delay alone it needs no bridge,
    says its Section 4.1, and its experiments play none then: here there always is one. The end of
    the phases at ``T tol^2 <= e``, below which the logarithm means nothing, is ours: a horizon of
    10 rounds or fewer has no phase, and the first arm is played.

    References
    ----------
    C. Pike-Burke, S. Agrawal, C. Szepesvari, S. Grunewalder: Bandits with Delayed, Aggregated
    Anonymous Feedback, ICML 2018.
    """

    expected_delay: NotNegative | None = None
    horizon: Whole | None = None
    max_delay: NotNegative | None = None
    variance: NotNegative | None = None

    @property
    def feedback(self) -> str:
        """The feedback: one sum per round."""
        return "aggregated"

    def checked(self) -> "ODAAF":
        """Raises where two parameters do not fit together."""
        if self.max_delay is not None and self.variance is not None:
            raise wrong("variance", self.variance, "None where max_delay is given")
        return self

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: rewards must be in [0, 1]."""
        return outside_unit_interval(family)

    def rounds_of(self, m: int) -> int:
        """Returns n_m: the rounds that each arm left has been played by the end of phase m."""
        T, E, tol = known_horizon(self), _known_delay(self), 2.0**-m
        log = math.log(T * tol * tol)
        if self.variance is not None:
            return _rounds(tol, log, 4.0 * tol * (E + 2.0 * self.variance))
        n = _rounds(tol, log, 6.0 * tol * m * E)
        if self.max_delay is None:
            return n
        wait = math.ceil(m * min(self.max_delay, n / m))
        return max(wait, _rounds(tol, log, 4.0 * tol * E))

    def start(self, dim: int, rng: np.random.Generator) -> "ODAAFPlayer":
        """Returns a player that knows nothing yet."""
        self = checked(self)
        known_horizon(self)
        _known_delay(self)
        return ODAAFPlayer(self, rng)


def _known_delay(policy: ODAAF) -> float:
    if policy.expected_delay is None:
        raise wrong("expected_delay", None, "the expected delay, which ODAAF needs")
    return policy.expected_delay


def _rounds(tol: float, log: float, delay: float) -> int:
    spread = math.sqrt(2.0 * log) + math.sqrt(2.0 * log + 8.0 / 3.0 * tol * log + delay)
    return math.ceil((spread / tol) ** 2)


class ODAAFPlayer(ArmPlayer):
    """One run of ``ODAAF``: ``total`` and ``observed`` are the sums put down to an arm."""

    def meet(self, K: int) -> None:
        """Prepares for ``K`` arms, the rows of the first decision set."""
        super().meet(K)
        self.active = list(range(K))
        self.plan = self._plan()

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm of the next round of the plan."""
        arm, self.learns = next(self.plan)
        return arm

    def observe_total(self, y: float, t: int) -> None:
        """Takes in the sum of the rewards that returned in round ``t``, the latest."""
        arm = self.played.pop(t)
        if self.learns:
            self.count(arm, y)

    def _plan(self) -> Iterator[tuple[int, bool]]:
        """Yields arms to play, each with whether the sum of its round is put down to it."""
        m, before = 1, 0
        while self._another_phase(m):
            n = self.policy.rounds_of(m)
            for arm in self.active:
                for _ in range(n - before):
                    yield arm, True
            means = self.means()
            best = means[self.active].max()
            self.active = [arm for arm in self.active if means[arm] + 2.0**-m >= best]
            for _ in range(n - before):  # after the last phase this is what follows anyway
                yield self._best(), False
            m, before = m + 1, n
        while True:
            yield self._best(), False

    def means(self) -> Vector:
        """Returns the mean of the sums put down to each arm; 0 where there are none."""
        return np.asarray(self.total / np.maximum(1, self.observed))

    def _another_phase(self, m: int) -> bool:
        return len(self.active) > 1 and self.policy.horizon * 4.0**-m > math.e

    def _best(self) -> int:
        return self.active[int(np.argmax(self.means()[self.active]))]
