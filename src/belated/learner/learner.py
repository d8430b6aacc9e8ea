"""A policy at work: its state, its history, and the steps that change both."""

import logging
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from belated.core.arguments import NORM_ROUNDING, positive, shown, whole, wrong, wrong_type
from belated.core.events import Decision
from belated.core.jit import has_compiled
from belated.core.ranking import IntervalKind, RankedAction, Ranking, verdict
from belated.core.types import Integers, Matrix, Vector
from belated.model.intervals import POSTERIOR_LEVEL, posterior_widths, set_widths
from belated.model.plain_policy import is_own
from belated.model.protocols import (
    Estimator,
    Family,
    Policy,
    ResolvedPolicy,
    choose,
    claims_set,
    derivatives,
    mean,
    revise,
)
from belated.model.state import DECIDED, OBSERVED, History, State, grown, new_history
from belated.model.steps import (
    DECIDE,
    LEARN,
    choose_from_step,
    choose_step,
    decide_step,
    first_state,
    fold_step,
    is_within,
    learn_step,
)
from belated.numerics.pruning import DecisionSet, decision_set

log = logging.getLogger(__name__)

MANY = 100_000  # decisions: taking them in again may take a second or more
BLOCK = 65_536  # decisions that are taken over at a time
EXACT = 1e-12  # distance to which ``exact_theta`` is brought, in the norm of the certificate


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of a policy that is not recorded yet; see ``Decision``."""

    index: int
    score: float
    estimate: float
    width: float


def resolved(
    dim: int, family: Family, policy: Policy, max_norm: float
) -> tuple[ResolvedPolicy, Estimator]:
    """Return ``policy`` with every parameter filled in, and its estimator.

    Raises if the parts of a learner are not what they should be or do not fit together.
    """
    if not 1e-50 <= max_norm <= 1e50:
        raise wrong("max_norm", max_norm, "a number from 1e-50 to 1e50")
    if type(family) not in derivatives.cases:
        raise wrong_type("family", family, "a family, such as Bernoulli()")
    if is_own(policy) and not isinstance(policy, type):
        raise TypeError(
            f"policy = {shown(policy)}: {type(policy).__name__} is in plain Python and plays "
            "in simulations (belated.simulate) only; expected a compiled policy, such as "
            "DelayedOFUGLM()"
        )
    if type(policy) not in choose.cases:
        raise wrong_type("policy", policy, "a policy, such as DelayedOFUGLM()")
    played = policy.resolve(family, dim, max_norm)
    return played, played.estimator(family, dim, max_norm)


class Learner:
    """Family, policy and estimator with their state and history.

    Parameters
    ----------
    dim, family, policy, max_norm
        As in ``Bandit``.
    """

    def __init__(self, dim: int, family: Family, policy: Policy, max_norm: float) -> None:
        self.dim, self.max_norm = whole("dim", dim), positive("max_norm", max_norm)
        self.family, self.given = family, policy
        self.policy, self.estimator = resolved(self.dim, family, policy, self.max_norm)
        self.state = first_state(self.policy, self.estimator, self.dim)
        self.history = new_history(64, self.dim)

    @property
    def n_decided(self) -> int:
        """Number of decisions made: t."""
        return int(self.state.counts[DECIDED])

    @property
    def n_observed(self) -> int:
        """Number of rewards that have returned."""
        return int(self.state.counts[OBSERVED])

    @property
    def can_revise(self) -> bool:
        """Return whether the estimator can exchange one reward for another."""
        return type(self.estimator) in revise.cases

    @property
    def has_set(self) -> bool:
        """Return whether the policy has a confidence set."""
        return claims_set(self.policy)

    def stream(self, rng: np.random.Generator) -> np.random.Generator | None:
        """Returns ``rng`` for a policy that draws from it, and None for others, which is faster."""
        return rng if getattr(self.policy, "randomised", True) else None

    def make_room(self, more: int) -> None:
        """Let the history hold ``more`` decisions than it has."""
        while self.n_decided + more > self.history.y.shape[0]:
            self.history = grown(self.history)

    def decide(self, actions: Matrix, rng: np.random.Generator) -> Decision:
        """Choose a row of ``actions`` and record it; the id is the round, counted from 1."""
        self.make_room(1)
        limit, stream = self.max_norm * NORM_ROUNDING, self.stream(rng)
        row, index, score, estimate, width = decide_step(
            self.policy, self.state, self.history, actions, limit, stream
        )
        if row < 0:
            raise self.too_long(actions)
        # These are plain numbers, whatever the kernel returned: they go into JSON and logs.
        return Decision(int(row) + 1, int(index), float(score), float(estimate), float(width))

    def learn(self, rewards: Mapping[int, float]) -> None:
        """Take in rewards, by row of the history, and bring the estimate up to date once."""
        rows, values = np.array(list(rewards), np.int64), np.array(list(rewards.values()))
        learn_step(self.estimator, self.family, self.state, self.history, rows, values)

    def choose(self, actions: Matrix, rng: np.random.Generator) -> Choice:
        """Returns the choice that the policy would make now; nothing is recorded."""
        limit, stream = self.max_norm * NORM_ROUNDING, self.stream(rng)
        index, *numbers = choose_step(self.policy, self.state, self.history, actions, limit, stream)
        if index < 0:
            raise self.too_long(actions)
        return Choice(int(index), *map(float, numbers))

    def options(self, actions: Matrix) -> DecisionSet:
        """Returns actions that can be chosen from again and again, checked once."""
        self.check_norms(actions)
        return decision_set(actions)

    def check_norms(self, actions: Matrix, name: str = "actions[{}]") -> None:
        """Raise where an action is not finite or longer than ``max_norm``."""
        for k, x in enumerate(actions):
            if not is_within(x, self.max_norm * NORM_ROUNDING):
                raise self.too_long(actions[k : k + 1], name.format(k))

    def choose_from(self, options: DecisionSet, rng: np.random.Generator) -> Choice:
        """Does the same as ``choose``, for actions that were prepared by ``options``."""
        index, *numbers = choose_from_step(
            self.policy, self.state, self.history, options, self.stream(rng)
        )
        return Choice(int(index), *map(float, numbers))

    def fold(
        self, moves: Integers, X: Matrix, rows: Integers, rewards: Vector, last: Integers
    ) -> None:
        """Take in a run of events; see ``fold_step``."""
        self.make_room(len(X))
        fold_step(*self._to_fold(), moves, X, rows, rewards, last)

    def _to_fold(self) -> tuple[ResolvedPolicy, Estimator, Family, State, History]:
        """Returns the first arguments of ``fold_step``."""
        return self.policy, self.estimator, self.family, self.state, self.history

    def take_over(self, other: "Learner", places: Integers) -> None:
        """Take in the history of a learner with fewer features, in the order of its decisions.

        Feature k of ``other`` is feature ``places[k]`` of this one; the vectors that are taken over
        are zero in the further features. Costs a pass over the history, and one refit.
        """
        n, y = other.n_decided, other.history.y
        if n == 0:
            return  # nothing to take over, and the kernel for it may not be compiled yet
        if n >= MANY:
            log.warning(
                "features grow from %d to %d: %d decisions are taken in again",
                *(other.dim, self.dim, n),
            )
        for start in range(0, n, BLOCK):
            x = other.history.x[start : min(start + BLOCK, n)]
            grown_x = np.zeros((len(x), self.dim))
            grown_x[:, places] = x
            nothing = np.zeros(len(x), np.int64)
            decided = np.full(len(x), DECIDE, np.int64)
            self.fold(decided, grown_x, nothing, np.zeros(len(x)), nothing)
        rows = np.flatnonzero(~np.isnan(y[:n]))
        last = np.zeros(len(rows), np.int64)
        last[-1:] = 1
        learnt = np.full(len(rows), LEARN, np.int64)
        self.fold(learnt, np.zeros((0, self.dim)), rows, y[rows], last)

    @property
    def is_compiled(self) -> bool:
        """Return whether the kernels for choosing and learning are in memory or on disk."""
        return has_compiled(choose_step, *self._to_choose()) and has_compiled(
            fold_step, *self._to_learn()
        )

    def warm_up(self) -> None:
        """Let the compiler do its work now; call it on a learner that is not needed afterwards."""
        self.warm_up_choosing()
        self.warm_up_learning()

    def warm_up_choosing(self) -> None:
        """Compile the kernels that decide, and those that show a bandit."""
        choose_step(*self._to_choose())
        x = np.zeros((1, self.dim))
        self.choose_from(self.options(x), np.random.default_rng(0))
        self.intervals(x)

    def warm_up_learning(self) -> None:
        """Compile the kernels that take in decisions and rewards."""
        self.make_room(1)
        fold_step(*self._to_learn())

    def _to_choose(self) -> tuple[Any, ...]:
        """Returns the arguments of a first decision."""
        stream = self.stream(np.random.default_rng(0))
        return self.policy, self.state, self.history, np.zeros((1, self.dim)), 1.0, stream

    def _to_learn(self) -> tuple[Any, ...]:
        """Returns the arguments of a first decision and its reward, taken in together."""
        zero, one = np.zeros(2, np.int64), np.array([DECIDE, LEARN])
        return *self._to_fold(), one, np.zeros((1, self.dim)), zero, np.zeros(2), one

    def exact_theta(self) -> Vector:
        """Returns the estimate that ``theta`` is certified to be near, to rounding.

        It depends on the rewards that have returned, not on the order or the batches they came
        in. Costs a few passes over the data where the estimate has no closed form.
        """
        if not hasattr(self.estimator, "tol"):
            return self.state.theta.copy()
        state, estimator = deepcopy(self.state), cast(Any, self.estimator)
        nothing = np.zeros(0, np.int64), np.zeros(0)
        learn_step(estimator._replace(tol=EXACT), self.family, state, self.history, *nothing)
        return state.theta

    def interval_width(self, x: Vector) -> float:
        """Returns half the confidence interval of ``x'theta_star``; NaN if there is no set."""
        return float(self._half_widths(x[np.newaxis])[0]) if self.has_set else math.nan

    def _half_widths(self, X: Matrix) -> Vector:
        """Returns half the interval of ``x'theta_star``, of either kind, for each row of ``X``."""
        if not self.has_set:
            return posterior_widths(self.policy, self.family, self.state, X)
        widths = np.empty(len(X))
        set_widths(self.policy, self.state, X, widths)
        return widths

    def mean(self, z: float) -> float:
        """Returns the expected reward at ``z = x'theta``, as the policy models it.

        A linear model of rewards between 0 and 1 may return a number outside that range.
        """
        return float(z if getattr(self.policy, "linear_mean", False) else mean(self.family, z))

    # ------------------------------------------------------------------------------ ranking

    @property
    def interval_kind(self) -> IntervalKind:
        """The kind of the intervals: by the policy's confidence set if it has one, or posterior."""
        return "confidence" if self.has_set else "posterior"

    @property
    def interval_level(self) -> float | None:
        """Probability with which the intervals hold; None where the policy does not say."""
        if not self.has_set:
            return POSTERIOR_LEVEL
        delta: float | None = getattr(self.policy, "delta", None)
        return None if delta is None else 1.0 - delta

    def intervals(self, X: Matrix) -> list[tuple[float, float, float]]:
        """Returns the estimated mean reward and both ends of its interval, for each row of X."""
        z, widths = X @ self.state.theta, self._half_widths(X)
        ends = zip(z, z - widths, z + widths, strict=True)
        return [(self.mean(middle), self.mean(low), self.mean(high)) for middle, low, high in ends]

    def ranking(
        self,
        names: Sequence[str],
        X: Matrix,
        played: Sequence[tuple[int | None, int | None]],
    ) -> Ranking:
        """Returns the actions with these vectors, the best first.

        ``played`` has the decisions and the rewards of each action, None if they are not known.
        """
        self.check_norms(X)
        rows = [
            RankedAction(name, index, middle, _finite(low), _finite(high), *counts)
            for index, (name, (middle, low, high), counts) in enumerate(
                zip(names, self.intervals(X), played, strict=True)
            )
        ]
        rows.sort(key=lambda row: -row.mean)
        sentence = verdict(rows, self.n_observed)
        return Ranking(sentence, self.interval_kind, self.interval_level, rows)

    def too_long(self, matrix: Matrix, *names: str) -> ValueError:
        """Return the error that names the row which is not finite, or the longest."""
        names = names or tuple(f"actions[{k}]" for k in range(len(matrix)))
        for name, x in zip(names, matrix, strict=True):
            if not np.isfinite(x).all():
                return wrong(name, x.tolist(), "finite numbers")
        norms = [math.hypot(*x) for x in matrix]
        k = int(np.argmax(norms))
        return ValueError(
            f"{names[k]} has norm {norms[k]:.9g}: expected at most max_norm = {self.max_norm:g}; "
            "scale the actions, raise max_norm, or pass features="
        )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
