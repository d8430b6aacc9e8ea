"""What a bandit knows, to be read: the estimate, how sure it is, how many rewards are out."""

import math
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from threading import RLock
from typing import Any

import numpy as np

from belated.bandit.durable import Durable
from belated.bandit.inputs import action_matrix, counts_of
from belated.core.arguments import NORM_ROUNDING, array_of_numbers
from belated.core.events import Certificate
from belated.core.generic import Generic
from belated.core.ranking import IntervalKind, Ranking
from belated.core.types import Matrix, Vector
from belated.features import FeatureMap, Unmatched
from belated.learner import files
from belated.learner.learner import Learner
from belated.model.protocols import Estimator, ResolvedPolicy, radius, sqrt_beta
from belated.model.state import ERROR, PASSES, ROWS, SLACK, History, State


class Knowledge:
    """The part of ``Bandit`` that changes nothing.

    Parameters
    ----------
    learner
        Holds what is known, where there is no journal.
    features
        Turns raw actions into vectors.
    """

    def __init__(self, learner: Learner, features: FeatureMap | None) -> None:
        self.max_norm, self.family = learner.max_norm, learner.family
        self._features = features
        self._learner = learner
        self._journal: Durable | None = None
        self._lock = RLock()

    @property
    def features(self) -> FeatureMap | None:
        """What turns raw actions into vectors: a copy of what was given, or what it grew into."""
        return self._features if self._journal is None else self._journal.features

    @property
    def dim(self) -> int:
        """Number of features of an action."""
        return self._known.dim

    @property
    def policy(self) -> ResolvedPolicy:
        """How actions are chosen, with every parameter filled in."""
        return self._known.policy

    @property
    def estimator(self) -> Estimator:
        """How theta follows from the rewards."""
        return self._known.estimator

    @property
    def _known(self) -> Learner:
        """As far as the log has been taken in."""
        return self._learner if self._journal is None else self._journal.learner

    def _present(self) -> Learner:
        """What is known, with what others wrote into the log; the caller holds the lock."""
        return self._learner if self._journal is None else self._journal.present()

    @property
    def _state(self) -> State:
        return self._known.state

    @property
    def _history(self) -> History:
        return self._known.history

    @property
    def theta(self) -> Vector:
        """Estimate of the parameter from the rewards that have returned."""
        with self._lock:
            return self._present().state.theta.copy()

    @property
    def W(self) -> Matrix:
        """``lam I + sum of x x'`` over the decisions whose reward has returned."""
        with self._lock:
            return self._present().state.W.copy()

    @property
    def V(self) -> Matrix:
        """``lam I + sum of x x'`` over all decisions; computed from them, O(t d^2)."""
        with self._lock:
            learner = self._present()
            x = learner.history.x[: learner.n_decided]
            return np.asarray(self.policy.lam * np.eye(self.dim) + x.T @ x)

    @property
    def n_decided(self) -> int:
        """Decisions made: t."""
        with self._lock:
            return self._present().n_decided

    @property
    def n_observed(self) -> int:
        """Rewards that have returned."""
        with self._lock:
            return self._present().n_observed

    @property
    def n_missing(self) -> int:
        """Rewards that have not: G_t."""
        with self._lock:
            learner = self._present()
            return learner.n_decided - learner.n_observed

    @property
    def waiting(self) -> str:
        """What a bandit with a ``default_reward`` that has learnt nothing yet waits for, in words.

        Such as "60 rewards held, 0 learnt; the first window closes in 47 hours". Until then actions
        are drawn uniformly. Empty for other bandits, and once something is learnt.
        """
        with self._lock:
            self._present()
            return "" if self._journal is None else self._journal.waiting()

    @property
    def unmatched(self) -> dict[Unmatched, int]:
        """What of actions and contexts became zeros, and in how many calls of this process.

        A category that the features do not know, a key that no column uses, a missing column.

        Examples
        --------
        >>> from belated import Bandit, Bernoulli, DelayedOFUGLM, Features
        >>> features = Features(categorical=["ad"]).fit([{"ad": "a"}, {"ad": "b"}])
        >>> bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # decide warns, once for each
        ...     decisions = [bandit.decide([{"ad": "a"}, {"ad": "c"}]) for _ in range(3)]
        >>> {str(what): count for what, count in bandit.unmatched.items()}
        {"ad = 'c' is not a known category": 3}
        """
        return dict(counts_of(self.features).counts)

    @property
    def sqrt_beta(self) -> float:
        """Width of the confidence set, as the paper defines it."""
        return self._width(sqrt_beta)

    @property
    def radius(self) -> float:
        """Width in use: ``sqrt_beta`` plus the certified slack of the estimate, scaled.

        That of a confidence set, unless the policy has a parameter ``guaranteed`` that is False.
        """
        return self._width(radius)

    def _width(self, which: Generic[float]) -> float:
        self._check_set(which)
        with self._lock:
            return float(which(self.policy, self._present().state))

    def _check_set(self, which: Generic[float]) -> None:
        if type(self.policy) not in which.cases:
            raise TypeError(
                f"policy = {self.policy!r} has no confidence set: expected one that has, such as "
                "DelayedOFUGLM(), for sqrt_beta and radius"
            )

    @property
    def certificate(self) -> Certificate:
        """How close ``theta`` is, provably, to the exact estimate, and what that took."""
        with self._lock:
            state = self._present().state
            scalars, counts = state.scalars.copy(), state.counts.copy()
        return Certificate(
            float(scalars[ERROR]), float(scalars[SLACK]), int(counts[PASSES]), int(counts[ROWS])
        )

    def interval(self, x: Any, context: Any = None) -> tuple[float, float]:
        """Interval of the mean reward of an action, of the kind that ``interval_kind`` names.

        "confidence", for a policy with a confidence set: with probability 1 - delta all intervals
        of all rounds hold at once, if its guarantee is intact (a true R, ``width_scale`` of 1 or
        more). "posterior", for all others: the central 95 % of the mean reward given the rewards
        that have returned, ``mu(x'theta -+ 1.96 sqrt(x'S x))``. S is the posterior covariance of a
        normal prior with the ridge of the policy: exact for Gaussian rewards, Laplace's
        approximation for others. It holds for this action and this time; nothing is proved of it.

        Parameters
        ----------
        x
            A vector of ``dim`` numbers; or, for a bandit with features, an action as a dict.
        context
            For a bandit with features: the context of that action.

        Examples
        --------
        >>> from belated import Bandit, Bernoulli, DelayedOFUGLM
        >>> bandit = Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM())
        >>> low, high = bandit.interval([0.1, 0.1])
        >>> 0.0 < low < 0.5 < high < 1.0
        True
        """
        with self._lock:
            learner = self._present()
            if self.features is not None and (isinstance(x, Mapping) or context is not None):
                (vector,) = action_matrix([x], context, self.features, self.dim)
            else:
                vector = array_of_numbers("x", x)
            if vector.shape != (self.dim,):
                raise ValueError(f"x has shape {vector.shape}: expected ({self.dim},)")
            if not math.hypot(*vector) <= self.max_norm * NORM_ROUNDING:
                raise self._learner.too_long(vector[np.newaxis], ["x"])
            ((_, low, high),) = learner.intervals(vector[np.newaxis])
        return low, high

    @property
    def interval_kind(self) -> IntervalKind:
        """The kind of interval that ``interval`` and ``ranking`` give."""
        return self._learner.interval_kind

    def ranking(self, actions: Any, context: Any = None) -> Ranking:
        """Which of ``actions`` is best, and how sure that is; nothing is decided.

        Parameters
        ----------
        actions, context
            As of ``decide``.

        Returns
        -------
        Ranking
            The best first, each with its estimated mean reward, the interval of ``interval``, and
            how many decisions for this very vector there were and have a reward. Counting those
            takes a look at all decisions so far.

        Examples
        --------
        >>> from belated import Bandit, Gaussian
        >>> from belated.policies import Thompson
        >>> bandit = Bandit(dim=2, family=Gaussian(), policy=Thompson(), seed=1)
        >>> for reward in (1.0, 2.0, 3.0):
        ...     _ = bandit.learn(bandit.decide([[1.0, 0.0]]).id, reward)
        >>> ranking = bandit.ranking([[0.0, 1.0], [1.0, 0.0]])
        >>> ranking.best.index
        1
        >>> ranking
        action 1 leads, but its interval overlaps with that of action 0.
        95 % posterior intervals of the mean reward
        action  mean    low  high  decisions  rewards
        1        1.5   0.52  2.48          3        3
        0          0  -1.96  1.96          0        0
        """
        with self._lock:
            learner = self._present()
            matrix = action_matrix(actions, context, self.features, self.dim)
            names = [str(k) for k in range(len(matrix))]
            return learner.ranking(names, matrix, _played(learner, matrix))

    def fingerprint(self) -> str:
        """Digest of everything the bandit knows: equal for two that will act and learn alike."""
        digest = sha256()
        with self._lock:
            learner = self._present()
            for name, array in files.flatten(learner.state, learner.history).items():
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _played(learner: Learner, matrix: Matrix) -> list[tuple[int, int]]:
    """How many decisions were for each of the vectors, and how many of them have a reward."""
    n = learner.n_decided
    rows = _as_keys(learner.history.x[:n])
    returned = ~np.isnan(learner.history.y[:n])
    decisions = Counter(rows)
    rewards = Counter(row for row, came in zip(rows, returned, strict=True) if came)
    return [(decisions[key], rewards[key]) for key in _as_keys(matrix)]


def _as_keys(matrix: Matrix) -> list[bytes]:
    """The bytes of each row; adding zero gives 0.0 and -0.0 the same."""
    width = matrix.shape[1] * matrix.itemsize
    return [row.tobytes() for row in (matrix + 0.0).view(f"V{width}").ravel()]
