"""A policy at work: its state, its history, and the steps that change both."""

import logging
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from belated.core.arguments import (
    NORM_ROUNDING,
    positive,
    refuse_wide,
    shown,
    whole,
    wrong,
    wrong_type,
)
from belated.core.events import Broken, Decision
from belated.core.jit import has_compiled
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.learner.action_intervals import intervals
from belated.learner.assumptions import FIRST_LOOK, broken_assumptions, outgrown_window
from belated.learner.forgetting import HalfLife, refuse_forgetting
from belated.learner.heard_law import HeardLaw
from belated.learner.rows import (
    checked_entries,
    checked_groups,
    longest_row,
    placed,
    refuse_many,
    rows_between,
    too_long,
)
from belated.learner.weighing import Weights, certain, to_weigh, weigh
from belated.model.plain_policy import is_own
from belated.model.protocols import (
    Estimator,
    Family,
    Policy,
    ResolvedPolicy,
    can_hear_silence,
    can_revise,
    choose,
    claims_set,
    derivatives,
    feedback_of,
    in_groups,
    is_randomised,
    is_sparse,
    mean,
    probabilities,
    refit_exactly,
)
from belated.model.state import (
    DECIDED,
    OBSERVED,
    State,
    grown,
    new_history,
    new_sparse_history,
    with_room,
)
from belated.model.steps import (
    DECIDE,
    LEARN,
    are_within,
    choose_from_step,
    choose_step,
    decide_step,
    first_state,
    fold_step,
    hear_step,
    is_within,
    learn_step,
    play_exact_step,
    play_sparse_step,
    remake_step,
)
from belated.numerics.entries import sparse
from belated.numerics.gaussian_scores import POINTS, highest_draw, normal_points
from belated.numerics.pruning import decision_set
from belated.numerics.row_draws import drawn_row

log = logging.getLogger(__name__)

Rows: TypeAlias = Matrix | SparseRows  # actions, one row each

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
    propensity: float = math.nan
    probabilities: Vector | None = field(default=None, compare=False)


class Law(NamedTuple):
    """The law by which one of some actions is chosen; it holds until something is learnt.

    Scores are drawn and the highest is played; where the weights are exact, one of these is drawn.
    """

    mean: Vector  # of the scores
    root: Matrix
    columns: int  # of ``root`` that count
    weights: Weights

    def draw(self, rng: np.random.Generator) -> Choice:
        """Returns the policy's choice: with the same ``rng``, the one without a stored law."""
        if self.weights.is_exact:
            row = drawn_row(self.weights.shares, rng.random())
            return Choice(*self.chosen(row, self.mean[row]))
        z = rng.standard_normal(len(self.mean))
        return Choice(*self.chosen(*highest_draw(self.mean, self.root, self.columns, z)))

    def chosen(self, index: int, score: float) -> tuple[Any, ...]:
        """Returns the fields of the ``Choice`` of this action."""
        # These are plain numbers, whatever the kernel returned: they go into JSON and logs.
        row = int(index)
        return row, float(score), float(self.mean[row]), 0.0, *self.weights.given(row)


def resolved(
    dim: int, family: Family, policy: Policy, max_norm: float
) -> tuple[ResolvedPolicy, Estimator]:
    """Returns ``policy`` with every parameter filled in, and its estimator.

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


def refuse_groups(
    groups: Mapping[str, int], dim: int, family: Family, policy: Policy, max_norm: float
) -> None:
    """Raises where a policy would ignore the groups that a user named."""
    _, estimator = resolved(dim, family, policy, max_norm)
    if not hasattr(estimator, "grouped"):
        raise wrong("groups", groups, f"None: {type(policy).__name__} has no prior by groups")


def learns_early(dim: int, family: Family, policy: Policy, max_norm: float) -> bool:
    """Returns whether this policy can learn before windows close: ``open="silence"``.

    It learns from silence, or is made for conversions and counts them as they come.
    """
    if feedback_of(policy) == "conversions":
        return True
    return can_hear_silence(resolved(dim, family, policy, max_norm)[1], family)


class Learner:
    """Family, policy and estimator with their state and history.

    Parameters
    ----------
    dim, family, policy, max_norm, groups
        As in ``Bandit``.
    half_life
        See ``learner/forgetting.py``; None: nothing is forgotten.
    hears
        Whether open decisions say something by their silence: see ``hear``.
    """

    def __init__(
        self,
        dim: int,
        family: Family,
        policy: Policy,
        max_norm: float,
        groups: Mapping[str, int] | None = None,
        *,
        half_life: HalfLife | None = None,
        hears: bool = False,
    ) -> None:
        self.dim, self.max_norm = whole("dim", dim), positive("max_norm", max_norm)
        self.family, self.given = family, policy
        self.policy, self.estimator = resolved(self.dim, family, policy, self.max_norm)
        self.longest = longest_row(self.policy, self.max_norm)
        self.groups = checked_groups(groups, self.dim)
        self.is_sparse = is_sparse(self.policy)
        self.history: Any
        if self.is_sparse:
            refuse_wide(self.dim)
            self.history = new_sparse_history(64)
        else:  # of any width: a file or a log of version 0.1 may hold one
            self.history = new_history(64, self.dim)
        state = first_state(self.policy, self.estimator, self.dim)
        self.state = state._replace(fit=in_groups(self.estimator, state.fit, self.groups))
        self.half_life, self.tick = half_life, -1  # the latest tick of a decision
        if half_life is not None:
            refuse_forgetting(half_life, self.policy, self.estimator)
            self.history = self.history._replace(weight=np.ones(len(self.history.y)))
        self.hears, self.law = hears, HeardLaw()
        if hears:
            if not can_hear_silence(self.estimator, family):
                kind = f"{type(self.policy).__name__} of {type(family).__name__} rewards"
                amount = "" if family.support.integer else ": an amount of 0 has probability zero"
                raise wrong(
                    "open", "silence", f"'hold': {kind} learns nothing from silence{amount}"
                )
            self.history = self.history._replace(silence=np.zeros(len(self.history.y)))
        # Decisions made after the oldest one that is still waited for, as far as a log says.
        self.since_oldest_open = 0
        self.n_counted_zero = 0  # decisions that count as zero though they are open, likewise
        self._next_look = FIRST_LOOK
        self._broken: list[Broken] = []

    @property
    def broken_assumptions(self) -> list[Broken]:
        """The assumptions that the rewards speak against, as of when their number last doubled."""
        if self.n_observed >= self._next_look:
            self._broken, self._next_look = broken_assumptions(self), 2 * self.n_observed
        return self._broken + outgrown_window(self.policy, self.since_oldest_open)

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
        """Returns whether the estimator can exchange one reward for another."""
        return can_revise(self.estimator)

    @property
    def has_set(self) -> bool:
        """Returns whether the policy has a confidence set."""
        return claims_set(self.policy)

    def stream(self, rng: np.random.Generator) -> np.random.Generator | None:
        """Returns ``rng`` for a policy that draws from it, and None for others, which is faster."""
        return rng if self.draws else None

    @property
    def draws(self) -> bool:
        """Returns whether the policy draws random numbers."""
        return is_randomised(self.policy)

    @property
    def _is_exact(self) -> bool:
        """Returns whether the policy knows exactly how often it plays each action."""
        return type(self.policy) in probabilities.cases

    def make_room(self, more: int, entries: int = 0) -> None:
        """Let the history hold ``more`` decisions than it has, with ``entries`` together."""
        if self.is_sparse:
            self.history = with_room(self.history, self.n_decided, more, entries)
            return
        while self.n_decided + more > self.history.y.shape[0]:
            self.history = grown(self.history)

    def decide(self, actions: Rows, rng: np.random.Generator, weighed: bool = False) -> Decision:
        """Choose a row of ``actions`` and record it; the id is the round, counted from 1.

        ``weighed`` says whether the decision has the probability of every action. A learner that
        forgets is asked by ``forgetting.decide_at``.
        """
        if self.is_sparse:
            options = self.options(actions)
            self.make_room(1, options.columns.shape[1])
            _, chosen = self._play_sparse(options, rng, records=True)
            return Decision(self.n_decided, *chosen)
        actions = cast(Matrix, actions)
        weights = self._weights_of(actions) if weighed else None
        self.make_room(1)
        limit, stream = self.longest * NORM_ROUNDING, self.stream(rng)
        row, index, score, estimate, width = decide_step(
            self.policy, self.state, self.history, actions, limit, stream
        )
        if row < 0:
            raise too_long(actions, self.longest, self.max_norm)
        # These are plain numbers, whatever the kernel returned: they go into JSON and logs.
        numbers = int(index), float(score), float(estimate), float(width)
        return Decision(int(row) + 1, *numbers, *_given(weights, int(index)))

    def _play_sparse(
        self, options: SparseRows, rng: np.random.Generator, records: bool
    ) -> tuple[Law, tuple[Any, ...]]:
        """Returns the law of the scores, and the fields of a ``Choice``, with probabilities."""
        K = len(options.columns)
        mean, shares = np.empty(K), np.empty(K)
        if self._is_exact:
            arguments = *self._now(), options, rng.random(), mean, shares, records
            index = play_exact_step(*arguments)
            law = Law(mean, np.empty((K, 0)), 0, Weights(shares, math.inf))
            return law, law.chosen(index, mean[index])
        most = min(K, self.dim)  # independent numbers behind the scores
        root = np.empty((K, most))
        r, index, score = play_sparse_step(
            *self._now(),
            options,
            rng.standard_normal(K),
            normal_points(most),
            *(mean, root, shares),
            records,
        )
        law = Law(mean, root, r, Weights(shares, POINTS))
        return law, law.chosen(index, score)

    def learn(self, rewards: Mapping[int, float]) -> None:
        """Take in rewards, by row of the history, and bring the estimate up to date once."""
        rows, values = np.array(list(rewards), np.int64), np.array(list(rewards.values()))
        learn_step(self.estimator, self.family, self.state, self.history, rows, values)

    def hear(self, rows: Integers, silence: Vector) -> None:
        """Sets the silence of these open rows, clears that of all others, and refits.

        ``silence`` holds the share of rewards that should have come at the age of each.
        """
        if not len(self.history.silence):
            self.history = self.history._replace(silence=np.zeros(len(self.history.y)))
        wanted = np.zeros(self.n_decided)
        wanted[rows] = silence
        hear_step(*self._to_fold()[1:], wanted)

    def unlearn(self, rows: Integers) -> None:
        """Marks the rewards of these rows as not returned and recomputes the estimate."""
        self.history.y[rows] = np.nan
        self.state.counts[OBSERVED] -= len(rows)
        if len(rows):
            self.refresh()

    def choose(self, actions: Rows, rng: np.random.Generator, weighed: bool = False) -> Choice:
        """Returns the choice that the policy would make now; nothing is recorded.

        ``weighed`` says whether the choice has the probability of every action.
        """
        if self.is_sparse:
            return self.choose_from(self.options(actions), rng)
        actions = cast(Matrix, actions)
        weights = self._weights_of(actions) if weighed else None
        limit, stream = self.longest * NORM_ROUNDING, self.stream(rng)
        index, score, estimate, width = choose_step(
            self.policy, self.state, self.history, actions, limit, stream
        )
        if index < 0:
            raise too_long(actions, self.longest, self.max_norm)
        numbers = int(index), float(score), float(estimate), float(width)
        return Choice(*numbers, *_given(weights, int(index)))

    def options(self, actions: Rows) -> Any:
        """Returns actions that can be chosen from again and again, checked once."""
        if self.is_sparse:
            rows = actions if isinstance(actions, SparseRows) else sparse(actions)
            refuse_many(len(rows.columns), self.dim)
            return checked_entries(rows)
        actions = cast(Matrix, actions)
        self.check_norms(actions)
        return decision_set(actions)

    def check_norms(self, actions: Matrix, name: str = "actions[{}]") -> None:
        """Raises where an action is not finite or too long."""
        if self.is_sparse:
            self.options(actions)
            return
        limit = self.longest * NORM_ROUNDING
        if are_within(actions, limit):
            return
        for k, x in enumerate(actions):
            if not is_within(x, limit):
                raise too_long(actions[k : k + 1], self.longest, self.max_norm, name.format(k))

    def law_of(self, options: Any) -> Law:
        """Returns how the scores of sparse actions are drawn, which ``options`` prepared."""
        return self._play_sparse(options, np.random.default_rng(0), records=False)[0]

    def choose_from(self, options: Any, rng: np.random.Generator, weighed: bool = False) -> Choice:
        """Does the same as ``choose``, for actions that were prepared by ``options``."""
        if self.is_sparse:
            return Choice(*self._play_sparse(options, rng, records=False)[1])
        weights = weigh(*self._now(), options) if weighed else None
        index, score, estimate, width = choose_from_step(
            self.policy, self.state, self.history, options, self.stream(rng)
        )
        numbers = int(index), float(score), float(estimate), float(width)
        return Choice(*numbers, *_given(weights, int(index)))

    def _weights_of(self, actions: Matrix) -> Weights:
        """Returns how often the policy would play each of the actions now, or raises."""
        if not self.draws:
            return certain(len(actions))
        if not are_within(actions, self.longest * NORM_ROUNDING):
            raise too_long(actions, self.longest, self.max_norm)
        return weigh(*self._now(), decision_set(actions))

    def _now(self) -> tuple[ResolvedPolicy, State, Any]:
        """Returns the policy with its present state and history, first arguments of kernels."""
        return self.policy, self.state, self.history

    def fold(
        self,
        moves: Integers,
        X: Rows,
        rows: Integers,
        rewards: Vector,
        last: Integers,
        weights: Vector | None = None,
    ) -> None:
        """Take in a run of events; see ``fold_step``. ``weights`` are those of X, 1 by default."""
        if self.is_sparse:
            X = X if isinstance(X, SparseRows) else sparse(X)
            self.make_room(len(X.columns), X.columns.size)
        else:
            self.make_room(len(X))
        if weights is not None:
            self.history.weight[self.n_decided : self.n_decided + len(weights)] = weights
        fold_step(*self._to_fold(), moves, X, rows, rewards, last)

    def refresh(self) -> None:
        """Make the estimate anew from the history as it is, whose rewards or weights have changed.

        Costs about one pass over the rewards that weigh anything.
        """
        remake_step(*self._to_refresh())

    def _to_refresh(self) -> tuple[Any, ...]:
        """Returns the arguments of ``remake_step``."""
        lam = 1.0 if self.is_sparse else float(self.policy.lam)
        return *self._to_fold()[1:], lam

    def _to_fold(self) -> tuple[ResolvedPolicy, Estimator, Family, State, Any]:
        """Returns the first arguments of ``fold_step``."""
        return self.policy, self.estimator, self.family, self.state, self.history

    def take_over(self, other: "Learner", places: Integers, rewards: Vector | None = None) -> None:
        """Take in the history of a learner with fewer features, in the order of its decisions.

        Feature k of ``other`` is feature ``places[k]`` of this one; the vectors that are taken over
        are zero in the further features. Costs a pass over the history, and one refit. With
        ``rewards``, NaN where they are unknown, only as many decisions and these rewards.
        """
        y = other.history.y[: other.n_decided] if rewards is None else rewards
        n, self.tick = len(y), other.tick
        if n == 0:
            return  # nothing to take over, and the kernel for it may not be compiled yet
        if n >= MANY and self.dim > other.dim:
            log.warning(
                "features grow from %d to %d: %d decisions are taken in again",
                *(other.dim, self.dim, n),
            )
        for start in range(0, n, BLOCK):
            end = min(start + BLOCK, n)
            rows = placed(rows_between(other.history, start, end), places, self.dim)
            nothing, decided = (
                np.zeros(end - start, np.int64),
                np.full(end - start, DECIDE, np.int64),
            )
            weights = other.history.weight[start:end] if len(self.history.weight) else None
            self.fold(decided, rows, nothing, np.zeros(end - start), nothing, weights)
        returned = np.flatnonzero(~np.isnan(y[:n]))
        last = np.zeros(len(returned), np.int64)
        last[-1:] = 1
        learnt = np.full(len(returned), LEARN, np.int64)
        self.fold(learnt, np.zeros((0, self.dim)), returned, y[returned], last)

    @property
    def is_compiled(self) -> bool:
        """Returns whether the kernels for choosing and learning are in memory or on disk."""
        if self.draws and not self.is_sparse:
            options = decision_set(np.zeros((1, self.dim)))
            step, arguments = to_weigh(*self._now(), options, np.zeros(1))
            if not has_compiled(step, *arguments):
                return False
        refreshes = self.half_life is not None or self.hears
        if refreshes and not has_compiled(remake_step, *self._to_refresh()):
            return False
        if self.hears and not has_compiled(hear_step, *self._to_fold()[1:], np.zeros(0)):
            return False
        steps = [*self._to_choose(), (fold_step, self._to_learn())]
        return all(has_compiled(step, *arguments) for step, arguments in steps)

    def warm_up(self) -> None:
        """Let the compiler do its work now; call it on a learner that is not needed afterwards."""
        self.warm_up_choosing()
        self.warm_up_learning()

    def warm_up_choosing(self) -> None:
        """Compile the kernels that decide, and those that show a bandit."""
        x = np.zeros((1, self.dim))
        for step, arguments in self._to_choose():
            step(*arguments)
        options, rng = self.options(x), np.random.default_rng(0)
        self.choose_from(options, rng, weighed=True)
        intervals(self, x)

    def warm_up_learning(self) -> None:
        """Compile the kernels that take in decisions and rewards."""
        self.make_room(1, 1)
        fold_step(*self._to_learn())
        derivatives(self.family, 0.0)  # for a look at the assumptions
        if self.half_life is not None or self.hears:
            self.refresh()
        if self.hears:
            self.hear(np.zeros(0, np.int64), np.zeros(0))

    def _to_choose(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """Returns the kernels of a first decision, each with its arguments."""
        x, one = np.zeros((1, self.dim)), np.zeros(1)
        if not self.is_sparse:
            return [(choose_step, (*self._now(), x, 1.0, self.stream(np.random.default_rng(0))))]
        if self._is_exact:
            step = play_exact_step, (*self._now(), sparse(x), 0.5, one, one, False)
            return [step, (drawn_row, (one, 0.5))]
        root = np.zeros((1, 1))
        play = *self._now(), sparse(x), one, normal_points(1), one, root, one, False
        return [(play_sparse_step, play), (highest_draw, (one, root, 1, one))]

    def _to_learn(self) -> tuple[Any, ...]:
        """Returns the arguments of a first decision and its reward, taken in together."""
        zero, one = np.zeros(2, np.int64), np.array([DECIDE, LEARN])
        x = np.zeros((1, self.dim))
        return *self._to_fold(), one, sparse(x) if self.is_sparse else x, zero, np.zeros(2), one

    def exact_theta(self) -> Vector:
        """Returns the estimate that ``theta`` is certified to be near, to rounding.

        It depends on the rewards that have returned, not on the order or the batches they came
        in. Costs a few passes over the data where the estimate has no closed form.
        """
        state = deepcopy(self.state)
        refit_exactly(self.estimator, self.family, state, self.history, EXACT)
        return state.theta

    def mean(self, z: float) -> float:
        """Returns the expected reward at ``z = x'theta``, as the policy models it.

        A linear model of rewards between 0 and 1 may return a number outside that range.
        """
        return float(z if getattr(self.policy, "linear_mean", False) else mean(self.family, z))


def _given(weights: Weights | None, index: int) -> tuple[()] | tuple[float, Vector]:
    """Returns the propensity of the chosen action and all probabilities, where they are known."""
    return () if weights is None else weights.given(index)
