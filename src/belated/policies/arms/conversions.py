"""Delayed conversions of Vernade, Cappe and Perchet (2017): only successes return.

A pull of u rounds ago has shown a success, if it has one, with probability F(u): F is the
distribution function of the delay in rounds, and known. The sum of these weights over the pulls of
an arm is the number of pulls that its successes so far stand for.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from belated import registry
from belated.core.arguments import NotNegative, checked, not_negative, parameters, wrong, wrong_type
from belated.core.types import Integers, Matrix, Vector
from belated.policies.shared.arms import ArmPlayer, least_known, poisson_index
from belated.policies.shared.only_successes import learns_from_successes

FOR_EVER = 1e300  # rounds


def _window(name: str, value: Any) -> float:
    return math.inf if value == math.inf else not_negative(name, value)


def _law(name: str, delay: Any) -> Any:
    if isinstance(delay, str):
        delay = registry.parse(registry.DELAYS, delay)
    if not hasattr(delay, "survival"):
        raise wrong_type(name, delay, "a delay, such as Exponential(100.0)")
    if getattr(delay, "informative", False) or getattr(delay, "dim", 0):
        raise wrong(name, delay, "a delay that depends on neither reward nor action")
    return delay


def _ready(policy: Any) -> Any:
    if policy.delay is None:
        name = type(policy).__name__
        raise wrong("delay", None, f"the law of the delay, which {name} needs to know")
    return checked(policy)


@learns_from_successes
@parameters
class ConversionsUCB(NamedTuple):
    """UCB where only successes return, after a delay of known law; arms are rows.

    With F the distribution function of the delay in rounds, a pull counts as F(u) pulls u rounds
    later, F(m) from the window m on. Plays ``argmax S_i / n_i + sqrt(N_i / n_i) sqrt((1 + eps)
    log(t) / (2 n_i))``: N_i pulls of arm i, n_i the pulls so weighted, S_i successes that have
    returned. An arm with n_i = 0 goes first; of several, the one with the fewest pulls. Without
    delay and with eps = 3 this is UCB1. It plays in simulations only, with
    ``feedback="conversions"``.

    Parameters
    ----------
    delay
        The law of the delay, or its name (``"exponential:100"``). It must be given.
    window
        Rounds after which a success is not waited for any more: that of the feedback, which a
        simulation fills in.
    eps
        Exploration beyond what the proof needs; the proof takes it above 0.

    Assumptions
    -----------
    Rewards of 0 or 1, independent over rounds, with a mean of their own for each arm. The delay is
    independent of the arm, and its law is the one given.

    Cost
    ----
    A decision O(K + a), a the rounds until F grows no more, the window or t at most; a returned
    reward O(1).

    Deviations
    ----------
    The formulas are from memory of Vernade et al. (2017), of which the abstract alone could be
    read; the width follows from Hoeffding's inequality. What others print of it agrees: it knows
    the law of the delay, the same for all arms, and a threshold m (Gael et al. 2020, Section 8),
    and F(m) enters its width (Vernade et al. 2020, Remark 2). Gael et al. play a censored variant,
    which uses no pull before m rounds have passed; this one weighs pulls from the first round on.
    Here a pull of round s has shown its success in round t with probability F(t - 1 - s), not F(t -
    s): what returns in a round is used from the next one on.

    References
    ----------
    C. Vernade, O. Cappe, V. Perchet: Stochastic Bandit Models for Delayed Conversions, UAI 2017.
    """

    delay: Annotated[Any, _law] | None = None
    window: Annotated[float, _window] | None = None
    eps: NotNegative = 0.1

    def start(self, dim: int, rng: np.random.Generator) -> "ConversionsPlayer":
        """Returns a player that knows nothing yet."""
        return ConversionsPlayer(_ready(self), rng, _ucb)


@learns_from_successes
@parameters
class ConversionsKLUCB(NamedTuple):
    """KL-UCB where only successes return, after a delay of known law; arms are rows.

    Plays the arm with the largest ``max {q : n_i d(S_i / n_i, q) <= (1 + eps) log t}``, where
    ``d(p, q) = p log(p / q) + q - p`` is the divergence of Poisson laws, and S_i and n_i are those
    of ``ConversionsUCB``. An arm with n_i = 0 goes first; of several, the one with the fewest
    pulls. It plays in simulations only, with ``feedback="conversions"``.

    Parameters
    ----------
    delay, window, eps
        As in ``ConversionsUCB``.

    Assumptions
    -----------
    Those of ``ConversionsUCB``.

    Cost
    ----
    That of ``ConversionsUCB``, with a few steps of Newton's method for each arm.

    Deviations
    ----------
    Those of ``ConversionsUCB``.

    References
    ----------
    C. Vernade, O. Cappe, V. Perchet: Stochastic Bandit Models for Delayed Conversions, UAI 2017.
    """

    delay: Annotated[Any, _law] | None = None
    window: Annotated[float, _window] | None = None
    eps: NotNegative = 0.1

    def start(self, dim: int, rng: np.random.Generator) -> "ConversionsPlayer":
        """Returns a player that knows nothing yet."""
        return ConversionsPlayer(_ready(self), rng, _kl_ucb)


Index = Callable[[Vector, Vector, Integers, float], Vector]


def _ucb(successes: Vector, weighted: Vector, pulls: Integers, level: float) -> Vector:
    width = np.sqrt(pulls / weighted) * np.sqrt(level / (2.0 * weighted))
    return np.asarray(successes / weighted + width)


def _kl_ucb(successes: Vector, weighted: Vector, pulls: Integers, level: float) -> Vector:
    return poisson_index(successes / weighted, level / weighted)


class ConversionsPlayer(ArmPlayer):
    """One run of ``ConversionsUCB`` or ``ConversionsKLUCB``."""

    def __init__(self, policy: Any, rng: np.random.Generator, index: Index) -> None:
        super().__init__(policy, rng)
        self.index = index
        window = math.inf if policy.window is None else policy.window
        self.last = math.floor(window) if window < math.inf else FOR_EVER
        self.final = self._shown(self.last)
        self.shown = np.array([self._shown(0)])  # F(0), F(1), ... as far as it grows
        self.arms: Integers = np.zeros(1, np.int64)  # of all rounds
        self.oldest = self.rounds = 0  # F counts pulls before the oldest as much as it ever will

    def _shown(self, rounds: float) -> float:
        return 1.0 - float(self.policy.delay.survival(min(rounds, self.last)))

    def meet(self, K: int) -> None:
        """Prepares for ``K`` arms, the rows of the first decision set."""
        super().meet(K)
        self.settled = np.zeros(K)  # pulls whose weight will not change

    def weighted_pulls(self) -> Vector:
        """Returns n_i: the pulls of each arm, weighted by the chance that a success had shown."""
        recent = self.arms[self.oldest : self.rounds]
        weights = self.shown[: len(recent)][::-1]
        return np.asarray(self.final * self.settled + np.bincount(recent, weights, self.K))

    def pick(self, actions: Matrix, t: int) -> int:
        """Returns the arm with the largest index."""
        weighted = self.weighted_pulls()
        arm = least_known(weighted, self.pulls)
        if arm < 0:
            level = (1.0 + self.policy.eps) * math.log(t)
            arm = int(np.argmax(self.index(self.total, weighted, self.pulls, level)))
        self._age(arm)
        return arm

    def _age(self, arm: int) -> None:
        """Counts a pull of ``arm``: it weighs F(0) in the next round; older pulls age by one."""
        if self.rounds == len(self.arms):
            self.arms = np.resize(self.arms, 2 * self.rounds)
        self.arms[self.rounds] = arm
        self.rounds += 1
        age = self.rounds - self.oldest - 1  # of the oldest pull, in the next round
        if age == len(self.shown):
            more = [self._shown(u) for u in range(age, 2 * age)]
            self.shown = np.append(self.shown, more)
        if self.shown[age] == self.final:
            self.settled[self.arms[self.oldest]] += 1
            self.oldest += 1
