"""Bandit: decide now, learn when the reward returns."""

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from os import PathLike
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np

from belated.bandit import reading, several
from belated.bandit.backend import Asked, Backend
from belated.bandit.file import read_parts, write_parts
from belated.bandit.in_memory import InMemory
from belated.bandit.inputs import (
    AS_IN_LOG,
    LOGGED,
    USUAL,
    AsInLog,
    Clock,
    Returned,
    action_rows,
    checked_model,
    checked_names,
    counts_of,
    is_column,
    kept,
    made_names,
    now_by,
    paired,
    random_stream,
    returned,
)
from belated.core.arguments import array_of_numbers, refuse_wide, whole, wrong, wrong_type
from belated.core.events import Broken, Certificate, Decision
from belated.core.extremes import are_recorded, recorded
from belated.core.ranking import IntervalKind, Ranking
from belated.core.sparse import count_rows
from belated.core.types import Matrix, Vector
from belated.features import FeatureMap, Features, Unmatched, bound_on_rows, fitting
from belated.learner import action_intervals, files
from belated.learner.assumptions import AssumptionWarning
from belated.learner.forgetting import half_life_of
from belated.learner.learner import Learner
from belated.model.protocols import Estimator, Family, Policy, ResolvedPolicy, radius, sqrt_beta
from belated.model.state import History, State

if TYPE_CHECKING:  # a bandit in memory needs nothing of a ledger
    from numpy.typing import NDArray

    from belated.ledger import Ledger

_NO_REWARD = object()


class Bandit:
    """A generalised linear bandit whose rewards come back late, in any order, or never.

    Parameters
    ----------
    dim
        Number of features of an action. May be left out when ``features`` are given.
    family
        Law of the reward, such as ``Bernoulli()``, or its name: ``"bernoulli"``.
    policy
        The rule of choice, such as ``DelayedOFUGLM(m1=1.0, delta=0.05)``, or name and parameters:
        ``"thompson"``, ``"delayed-ofu-glm:m1=1,delta=0.05"``. `belated list policies` shows all
        names and which one is for what. None: ``AdaptiveThompson()``, or what the ledger holds.
    seed
        For policies that draw random numbers: an int or a ``numpy.random.SeedSequence``.
    max_norm
        Bound on the Euclidean norm of every action; a longer action is refused. Policies that claim
        nothing within a bound, such as the default, take longer actions.
    features
        Turns raw actions and contexts into vectors; see ``belated.features.Features``. The bandit
        keeps a copy: fitting it again elsewhere would change what the numbers mean. Rows have norm
        at most ``max_norm`` for policies that need a bound, and are not scaled for the others.
    groups
        For actions that are vectors: name and size of each group of consecutive features that share
        a prior variance, as in ``{"banner": 20, "country": 5, "intercept": 1}``; a group
        "intercept" is a constant. With ``features`` it is not needed: they know their groups.
    ledger
        The ledger in which every decision and reward is kept, such as ``"sqlite:///shop.db"``. If
        the process is killed, no decision or reward that ``decide`` or ``learn`` returned is lost,
        and another process that opens the same ledger goes on with the same bandit.
    name
        Name of the bandit in the ledger.
    window
        Seconds for which a decision waits for its reward; None: for ever. If it is not given, the
        log's value stays; a new bandit waits for ever.
    grace
        Seconds after the window in which a reward that happened within it may still be handed in;
        see ``at`` of ``learn``. If it is not given, the log's value stays; a new bandit has 0.
    default_reward
        The reward of a decision that got none within its window; ``open`` says what it counts for
        until then. As long as nothing is learnt, actions are drawn uniformly, and ``waiting`` says
        how long that takes. If it is not given, the log's value stays; a new
        bandit has None.
    late
        Whether a reward after the window is only kept in the log ("keep") or learnt ("revise"). If
        it is not given, the log's value stays; a new bandit has "keep".
    half_life, half_life_unit
        The age of a decision at which its reward counts for half, in "decisions" of this bandit
        (the default) or in "seconds"; None: nothing is forgotten. docs/how-to/forgetting.md says
        what is counted how. If they are not given, the log's values stay; in a ledger they may be
        changed at any time.
    open
        With a ``default_reward``: how decisions count while their window is open. "hold": every
        decision, with or without a reward, is held, so that early rewards do not count twice.
        "silence": a reward is learnt when it comes, and the more conversions should have come at
        the age of a silent decision, the more it counts like a failure. "silence" is for the
        default policy, Bernoulli or Poisson rewards and a ``default_reward`` of 0, and rests on
        assumptions (docs/how-to/conversions.md). ``OTFLinUCB`` and ``OTFLinTS`` need "silence":
        they learn a conversion when it comes, and nothing when a window closes. If it is not given,
        the log's value stays; a new bandit has "silence" where it can, unless ``combine`` is
        "last", "sum" or "max".
    combine
        How several rewards of a decision, each with an ``event_id``, become the one that is learnt:
        the "first" or the "last" by the time they happened, the "sum" or the "max". Only rewards
        that are on time count. None: a decision has one reward. If it is not given, the log's value
        stays; a new bandit has None.
    clock
        Tells the time in seconds since 1970. A simulation passes a function of its own, and days
        pass in an instant: windows, half-lives in seconds and the ``at`` of rewards go by it.

    Notes
    -----
    A bandit may be shared between threads: calls wait for each other.

    A bandit without a ledger that has a ``window`` or ``combine`` keeps a log in memory: its ids
    are texts, as with a ledger, and its memory grows by less than two kilobytes for a decision with
    its reward, besides contexts. It cannot be copied or saved.

    With a ledger, ``decide``, ``learn`` and everything that shows the state (``theta``,
    ``n_observed``, ``interval`` ...) first take in what other processes have written, with one
    query each, and raise ``StoreUnavailableError`` if the ledger cannot be read. Two such calls
    may therefore see different states. After ``close`` they show the last state that was read.

    Examples
    --------
    >>> from belated import Bandit, Bernoulli, DelayedOFUGLM, Features, Gaussian
    >>> banners = [{"banner": "boots"}, {"banner": "tent"}]
    >>> features = Features(categorical=["banner"]).fit(banners)
    >>> bandit = Bandit(family=Bernoulli(), features=features, seed=1)
    >>> decision = bandit.decide(banners)
    >>> bandit.learn(decision.id, 1.0)
    1

    Vectors, and a policy with a guarantee:

    >>> bandit = Bandit(dim=2, family=Gaussian(sd=0.1), policy=DelayedOFUGLM(), seed=1)
    >>> first = bandit.decide([[1.0, 0.0], [0.0, 0.5]])
    >>> second = bandit.decide([[1.0, 0.0], [0.0, 0.5]])
    >>> bandit.learn([(second.id, 0.8), (first.id, 0.9)])
    2
    >>> bandit.theta.round(3)
    array([0.567, 0.   ])
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        family: Family | str,
        policy: Policy | str | None = None,
        seed: int | np.random.SeedSequence | None = None,
        max_norm: float = 1.0,
        features: FeatureMap | None = None,
        groups: Mapping[str, int] | None = None,
        ledger: "str | Ledger | None" = None,
        name: str = "bandit",
        window: float | AsInLog | None = AS_IN_LOG,
        grace: float | AsInLog = AS_IN_LOG,
        default_reward: float | AsInLog | None = AS_IN_LOG,
        late: Literal["keep", "revise"] | AsInLog = AS_IN_LOG,
        half_life: float | AsInLog | None = AS_IN_LOG,
        half_life_unit: Literal["decisions", "seconds"] | AsInLog = AS_IN_LOG,
        open: Literal["hold", "silence"] | AsInLog = AS_IN_LOG,
        combine: Literal["first", "last", "sum", "max"] | AsInLog | None = AS_IN_LOG,
        clock: Clock = time.time,
    ) -> None:
        model = checked_model(dim, family, policy, max_norm, features, groups)
        self.max_norm = model.max_norm
        self._lock = RLock()
        self._warned: set[str] = set()  # names of broken assumptions
        own, rng = deepcopy(features), random_stream(seed)
        given = {
            "window": window,
            "grace": grace,
            "default_reward": default_reward,
            "late": late,
            "half_life": half_life,
            "half_life_unit": half_life_unit,
            "open": open,
            "combine": combine,
        }
        settings: dict[str, Any] = {k: v for k, v in given.items() if v is not AS_IN_LOG}
        usual: dict[str, Any] = {**USUAL, **settings}
        forgetting = half_life_of(usual["half_life"], usual["half_life_unit"])
        if forgetting is not None:
            settings["half_life"] = forgetting.length
        if not callable(clock):
            raise wrong_type("clock", clock, "a function that returns seconds, such as time.time")
        self.clock, now = clock, partial(now_by, clock)
        self._backend: Backend
        if ledger is not None or any(usual[key] != USUAL[key] for key in LOGGED):
            from belated.bandit.logged import Logged

            settings |= {} if policy is None else {"policy": policy}
            self._backend = Logged(ledger, name, *model, own, rng, settings, now)
        else:
            if not are_recorded():
                refuse_wide(model.dim)
            own = fitting(own, model.policy)
            norm = bound_on_rows(own, model.policy, model.max_norm)
            learner = Learner(*model._replace(max_norm=norm), half_life=forgetting)
            self._backend = InMemory(learner, own, rng, now)
        self.family = self._learner.family  # a log may hold noise that was left out here

    # ------------------------------------------------------------------- deciding and learning

    def decide(
        self,
        actions: Any,
        context: Any = None,
        *,
        names: Any = None,
        probabilities: bool | None = None,
    ) -> Decision:
        """Chooses one of ``actions``.

        Parameters
        ----------
        actions
            A (K, dim) array, one row per action; K may differ from call to call. With
            ``features``, a list of dicts or a data frame, one row per action.
        context
            With ``features``: what all these actions have in common, as a dict.
        names
            Names of the actions, one per row, by which a log (``window=`` or ``ledger=``) tells
            actions apart whatever their order; with ``open="silence"``, delays may differ by name.
            None: with ``Features``, the categorical and hashed values of each action, such as
            "boots, red"; if that does not tell all actions of the call apart, and without
            ``Features``, the log has row numbers, and one law of the delay for all actions.
        probabilities
            True: the decision has the probability with which each action was to be played. None:
            only that of the chosen action, its ``propensity``. False: without a log, not even the
            propensity if counting it takes thousands of decisions; it is NaN then. See
            ``Decision``.
        """
        with self._lock:
            self._backend.follow()  # the features may have grown
            actions = kept(actions)
            rows = action_rows(actions, context, self.features, self.dim, self._learner.is_sparse)
            asked = Asked(rows, context, actions, checked_names(names, count_rows(rows)))
            (decision,) = self._backend.decide([asked], probabilities=probabilities)
            return decision if probabilities else several.without_probabilities(decision)

    def decide_many(
        self,
        action_sets: Any,
        contexts: Any = None,
        *,
        names: Any = None,
        probabilities: bool | None = None,
    ) -> list[Decision]:
        """Chooses one action of each set, all at once: for a mail campaign, say.

        The decisions are those of ``decide``, called for one set after the other. With a ledger
        they are written in one transaction, all or none, and a policy that counts its decisions
        counts those before the call. If any input is refused, nothing is recorded.

        Parameters
        ----------
        action_sets
            A list of what ``decide`` takes as ``actions``. With ``contexts``, it may also be one
            set for all of them: a list of dicts or a data frame.
        contexts
            With ``features``: a list of contexts or a data frame, one row per decision.
        names
            A list of what ``decide`` takes as ``names``, or the names of one set for all.
        probabilities
            As in ``decide``.
        """
        with self._lock:
            return several.decide_many(self._backend, action_sets, contexts, names, probabilities)

    def decide_top(
        self,
        actions: Any,
        context: Any = None,
        *,
        top: int,
        names: Any = None,
        probabilities: bool | None = None,
    ) -> list[Decision]:
        """Chooses ``top`` different actions; returns their decisions, the first choice first.

        Each decision has an id and gets a reward of its own. The second is chosen among the actions
        that the first has left, and so on: its propensity is the probability given the choices
        before it. The actions chosen before have probability 0. With a ledger, all decisions are
        written in one transaction; the log has the second as a decision among the actions that were
        left.

        Parameters
        ----------
        actions, context, names, probabilities
            As in ``decide``.
        top
            How many actions to choose, from 1 to the number of actions.
        """
        top = whole("top", top)
        with self._lock:
            return several.decide_top(self._backend, actions, context, top, names, probabilities)

    @overload
    def learn(
        self, id: int | str, reward: float, /, *, at: Any = None, event_id: str | None = None
    ) -> int: ...

    @overload
    def learn(self, rewards: Iterable[tuple[Any, ...]], /) -> int: ...

    @overload
    def learn(
        self, ids: "Sequence[int | str] | NDArray[Any]", rewards: "Sequence[float] | Vector", /
    ) -> int: ...

    def learn(
        self,
        id_or_rewards: Any,
        reward: Any = _NO_REWARD,
        /,
        *,
        at: Any = None,
        event_id: str | None = None,
    ) -> int:
        """Takes in rewards: ``learn(id, reward)``, ``learn(pairs)`` or ``learn(ids, rewards)``.

        The same reward again for the same decision changes nothing; another one is an error. When
        any of several rewards is refused, none is taken in.

        From 100 rewards on, whenever their number has doubled, ``learn`` warns of assumptions that
        the rewards speak against, with an ``AssumptionWarning``, once for each kind; see
        ``broken_assumptions``. It also warns once when rewards come after their window and are not
        learnt; see ``late`` and ``n_late``.

        Parameters
        ----------
        id_or_rewards, reward
            A decision's id and its reward, or an iterable of such pairs, or two arrays or lists of
            one length, the ids and their rewards. With a log, a pair may have a third and a fourth
            entry, the ``at`` and the ``event_id`` of its reward.
        at
            With a log (``window=`` or ``ledger=``): when the reward happened, if that was not now:
            a ``datetime`` with its zone, a text such as ``"2026-03-31T12:00:00Z"``, or seconds
            since 1970. Windows and delays go by it. A time before the decision, or after now, is
            refused.
        event_id
            With a log: tells the rewards of one decision apart, where ``combine`` makes one of
            several; the same one again changes nothing.

        Returns
        -------
        int
            The number of rewards that were new.
        """
        one = reward is not _NO_REWARD and not is_column(id_or_rewards)
        if not one and (at is not None or event_id is not None):
            usage = "learn([(id, reward, at, event_id), ...])"
            raise wrong("at, event_id", (at, event_id), f"none with many rewards: {usage}")
        if one:
            rewards = [Returned(id_or_rewards, reward, at, event_id)]
        elif reward is _NO_REWARD:
            rewards = returned(id_or_rewards)
        else:
            rewards = paired(id_or_rewards, reward)
        with self._lock:
            new = self._backend.learn(rewards)
            broken = [b for b in self._backend.broken() if b.name not in self._warned]
            self._warned |= {b.name for b in broken}
        for b in broken:
            warnings.warn(str(b), AssumptionWarning, stacklevel=2)
        return new

    def note_outcome(
        self, id: str, name: str, value: float, *, at: Any = None, event_id: str | None = None
    ) -> bool:
        """Writes a guardrail outcome of a decision into the log; learns nothing from it.

        ``belated lift`` compares it between a bandit and its holdout, beside the reward. The same
        outcome again changes nothing; another value under the same name and ``event_id`` is an
        error.

        Parameters
        ----------
        id
            Id of the decision. The bandit must have a log (``window=`` or ``ledger=``).
        name
            Name of the outcome, such as ``"complaint"``.
        value
            Any number up to 1e12 in size. Outcomes of one name under several event ids are added
            up.
        at, event_id
            As in ``learn``.

        Returns
        -------
        bool
            Whether the outcome was new.

        Examples
        --------
        >>> from belated import Bandit, Bernoulli
        >>> bandit = Bandit(dim=2, family=Bernoulli(), ledger="memory://")
        >>> decision = bandit.decide([[1.0, 0.0], [0.0, 1.0]])
        >>> bandit.note_outcome(decision.id, "complaint", 1.0)
        True
        >>> bandit.note_outcome(decision.id, "complaint", 1.0)
        False
        """
        with self._lock:
            return self._backend.note_outcome(id, name, value, at, event_id)

    def grow(self, features: Features) -> None:
        """Goes on with features that have further categories; what was learnt stays.

        The history is taken in again with longer vectors, which are zero in the new features, and
        the estimate is brought up to date once: a pass over all decisions. The estimate is then, up
        to its certificate, that of a bandit which knew all categories from the start. For a policy
        that learns in one pass, it is as if the rewards had returned in the order of the decisions.
        Parameters of the policy that depend on the number of features are derived anew, unless the
        bandit was read from a file, which holds them as they were.

        With a ledger, growing is an event in the log: every process that reads it grows as well.

        Parameters
        ----------
        features
            The features of the bandit with more categories, such as
            ``bandit.features.with_categories({"banner": ["spring"]})``.

        Examples
        --------
        >>> from belated import Bandit, Bernoulli, DelayedOFUGLM, Features
        >>> features = Features(categorical=["ad"]).fit([{"ad": "a"}, {"ad": "b"}])
        >>> bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
        >>> bandit.learn(bandit.decide([{"ad": "a"}]).id, 1.0)
        1
        >>> bandit.theta.round(3)
        array([0.707, 0.   , 0.707])
        >>> bandit.grow(features.with_categories({"ad": ["c"]}))
        >>> bandit.theta.round(3)
        array([0.707, 0.   , 0.   , 0.707])
        """
        if not isinstance(features, Features):
            raise wrong_type("features", features, "Features(...)")
        with self._lock:
            self._backend.grow(features)

    def close(self) -> None:
        """Closes the ledger, if there is one."""
        self._backend.close()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return deepcopy({name: v for name, v in vars(self).items() if name != "_lock"})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def __copy__(self) -> Self:
        return deepcopy(self)  # a copy that shared the arrays would corrupt them

    def __repr__(self) -> str:
        known = self._learner  # a debugger that shows a bandit must not wait for its ledger
        waiting = self._backend.waiting()
        broken = [str(b) for b in self._backend.broken()]
        return (
            f"Bandit(dim={self.dim}, family={self.family!r}, policy={self.policy!r}, "
            f"n_observed={known.n_observed}, n_missing={known.n_decided - known.n_observed}"
            f"{f', waiting={waiting!r}' if waiting else ''}"
            f"{f', broken_assumptions={broken!r}' if broken else ''})"
        )

    # ------------------------------------------------------------------------ what is known

    @property
    def features(self) -> FeatureMap | None:
        """The features that turn raw actions into vectors: a copy of those given, grown since."""
        return self._backend.features

    @property
    def dim(self) -> int:
        """Number of features of an action."""
        return self._learner.dim

    @property
    def policy(self) -> ResolvedPolicy:
        """The policy that chooses actions, with every parameter filled in."""
        return self._learner.policy

    @property
    def estimator(self) -> Estimator:
        """The estimator that computes theta from the rewards."""
        return self._learner.estimator

    @property
    def _learner(self) -> Learner:
        return self._backend.learner

    @property
    def _state(self) -> State:
        return self._learner.state

    @property
    def _history(self) -> History:
        return self._learner.history

    @property
    def theta(self) -> Vector:
        """Estimate of the parameter from the rewards that have returned."""
        with self._lock:
            return self._backend.present().state.theta.copy()

    @property
    def W(self) -> Matrix:
        """``lam I + sum of x x'`` over the decisions whose reward has returned.

        With a half-life, each ``x x'`` counts by its weight.
        """
        with self._lock:
            return reading.returned_design(self._backend.present())

    @property
    def V(self) -> Matrix:
        """``lam I + sum of x x'`` over all decisions; computed from them, O(t d^2)."""
        with self._lock:
            learner = self._backend.present()
            return reading.design(learner, np.ones(learner.n_decided))

    @property
    def n_decided(self) -> int:
        """Number of decisions made: t."""
        with self._lock:
            return self._backend.present().n_decided

    @property
    def n_observed(self) -> int:
        """Number of rewards that have returned."""
        with self._lock:
            return self._backend.present().n_observed

    @property
    def n_missing(self) -> int:
        """Number of rewards that have not returned: G_t."""
        with self._lock:
            learner = self._backend.present()
            return learner.n_decided - learner.n_observed

    @property
    def n_late(self) -> int:
        """Number of rewards that came after their window, see ``late``; ``learn`` warns once."""
        with self._lock:
            self._backend.present()
            return self._backend.n_late

    @property
    def waiting(self) -> str:
        """Tells, in words, when a bandit with a ``default_reward`` will begin to learn.

        An example is "60 rewards held, 0 learnt; the first window closes in 47 hours". A bandit
        that learns from silence waits for its first reward. Until something is learnt, actions are
        drawn uniformly. Empty for other bandits, and once something is learnt.
        """
        with self._lock:
            self._backend.present()
            return self._backend.waiting()

    @property
    def broken_assumptions(self) -> list[Broken]:
        """The assumptions that the rewards speak against; ideally empty.

        They are assumptions of policy, family and delays. From 100 rewards on, they are checked
        when the number of rewards has doubled since the last check. Those on delays, with
        ``open="silence"``, are checked four times per window. Each has a name, a sentence on the
        finding and a sentence on what to change, or on what follows.

        Examples
        --------
        >>> import warnings
        >>> from belated import Bandit, Bernoulli, DelayedOFUGLM
        >>> bandit = Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM(m1=1.0))
        >>> ids = [bandit.decide([[1.0, 0.0], [0.0, 1.0]]).id for _ in range(400)]
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # learn warns, once for each
        ...     _ = bandit.learn([(id, float(id % 50 == 0)) for id in ids])
        >>> print(bandit.broken_assumptions[0].sentence)
        theta_star is taken to have norm at most m1 = 1, so mean rewards lie between 0.269 and
        0.731; the mean of 400 rewards is 0.02.
        """
        with self._lock:
            self._backend.present()
            return self._backend.broken()

    @property
    def unmatched(self) -> dict[Unmatched, int]:
        """The parts of actions and contexts that became zeros, each with its number of calls.

        A part is an unknown category, an unused key or a missing column. Only calls of this process
        count.

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
        with self._lock:
            return reading.width(self._backend.present(), sqrt_beta)

    @property
    def radius(self) -> float:
        """Width in use: ``sqrt_beta`` plus the certified slack of the estimate, scaled.

        It belongs to a confidence set, unless the policy's parameter ``guaranteed`` is False.
        """
        with self._lock:
            return reading.width(self._backend.present(), radius)

    @property
    def certificate(self) -> Certificate:
        """A proven bound on the distance of ``theta`` to the exact estimate, and its cost."""
        with self._lock:
            return reading.certificate(self._backend.present())

    def interval(self, x: Any, context: Any = None) -> tuple[float, float]:
        """Returns an interval of an action's mean reward, of the kind ``interval_kind``.

        "confidence", for a policy with a confidence set: with probability 1 - delta all intervals
        of all rounds hold at once, if the policy's guarantee is intact (a true R, ``width_scale``
        of 1 or more). With a half-life, only the intervals of one time hold at once, while
        theta_star stays.

        "posterior", for all other policies: the central 95 % of the mean reward given the rewards
        that have returned, ``mu(x'theta -+ 1.96 sqrt(x'S x))``. S is the posterior covariance of a
        normal prior with the ridge of the policy: exact for Gaussian rewards, Laplace's
        approximation for others. It holds for this action and this time, without a proof. With
        ``open="silence"`` the open decisions count in it, and S includes the error of the law by
        which they count (``learner/heard_law.py``).

        A confidence set rests on closed decisions alone: policies that claim one hold open
        decisions. Exceptions are ``OTFLinUCB`` and ``OTFLinTS``: an open decision counts as zero,
        so means and both ends are too low until windows close.

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
            learner = self._backend.present()
            if self.features is not None and (isinstance(x, Mapping) or context is not None):
                (vector,) = action_rows([x], context, self.features, self.dim)
            else:
                vector = array_of_numbers("x", x)
            if vector.shape != (self.dim,):
                raise ValueError(f"x has shape {vector.shape}: expected ({self.dim},)")
            learner.check_norms(vector[np.newaxis], "x")
            ((_, low, high),) = action_intervals.intervals(learner, vector[np.newaxis])
        return low, high

    @property
    def interval_kind(self) -> IntervalKind:
        """The kind of interval that ``interval`` and ``ranking`` give."""
        return action_intervals.interval_kind(self._learner)

    def ranking(self, actions: Any, context: Any = None, *, names: Any = None) -> Ranking:
        """Ranks ``actions`` and tells how sure the best is; makes no decision.

        Parameters
        ----------
        actions, context, names
            As in ``decide``.

        Returns
        -------
        Ranking
            The best first, each with its estimated mean reward, the interval of ``interval``, and
            the numbers of decisions and of rewards for this very vector. Counting these takes a
            look at all decisions so far.

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
        action  mean    low  high  decisions  rewards known
        1        1.5   0.52  2.48          3              3
        0          0  -1.96  1.96          0              0
        """
        with self._lock:
            learner, actions = self._backend.present(), kept(actions)
            matrix = action_rows(actions, context, self.features, self.dim)
            given = checked_names(names, len(matrix)) or made_names(actions, self.features)
            shown = given or [str(k) for k in range(len(matrix))]
            played = reading.played(learner, matrix)
            return action_intervals.ranking(learner, shown, matrix, played)

    def probabilities(self, actions: Any, context: Any = None) -> Vector:
        """Returns the probability with which each action would be played; makes no decision.

        Parameters
        ----------
        actions, context
            As in ``decide``.
        """
        with self._lock:
            self._backend.follow()
            actions = kept(actions)
            rows = action_rows(actions, context, self.features, self.dim, self._learner.is_sparse)
            return self._backend.chances(Asked(rows, context, actions))

    def fingerprint(self) -> str:
        """Returns a digest, equal for two bandits that will act and learn alike."""
        with self._lock:
            return reading.fingerprint(self._backend.present())

    # ------------------------------------------------------------------------ state on disk

    def save(self, path: str | PathLike[str]) -> None:
        """Writes everything the bandit knows to ``path``, all of it or nothing.

        A bandit in memory that waits for windows is refused: a ledger keeps it.
        """
        with self._lock:
            write_parts(path, self._backend.to_save(), self.features, self._backend.rng)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        seed: int | np.random.SeedSequence | None = None,
        same_stream: bool = False,
        features: Any = None,
        types: Iterable[type] = (),
        clock: Clock = time.time,
    ) -> Self:
        """Reads a bandit back; it goes on exactly where the saved one stopped.

        Parameters
        ----------
        path
            A file that ``save`` wrote.
        seed
            Seed of the random stream the policy draws from. A fresh one by default, so that twins
            loaded from one file do not explore alike.
        same_stream
            Go on with the saved random stream instead.
        features
            The parts of the saved bandit that plain data cannot hold: the fitted scikit-learn
            transformer inside ``Transformed``, or a feature map of your own.
        types
            Policy and family types of your own that the saved bandit uses.
        clock
            As in ``Bandit``.
        """
        if same_stream and seed is not None:
            raise wrong("seed", seed, "None with same_stream=True")
        stream = random_stream(seed)
        parts = read_parts(path, features, types)
        with files.reading(path), recorded():
            bandit = cls(
                parts.dim,
                family=parts.family,
                policy=parts.policy,
                max_norm=parts.max_norm,
                groups=getattr(parts.features, "groups", parts.groups),
                half_life=parts.half_life,
                half_life_unit=parts.half_life_unit,
                clock=clock,
            )
            learner = bandit._learner
            history = files.fill(learner.state, parts.arrays)
            if len(history.y):  # an empty one has no room, and no weights
                learner.history, learner.tick = history, parts.tick
            if bool(len(learner.history.weight)) is not (learner.half_life is not None):
                raise ValueError("weights without a half-life, or a half-life without weights")
            if same_stream:
                stream.bit_generator.state = parts.stream
            features = deepcopy(parts.features)
            bandit._backend = InMemory(learner, features, stream, partial(now_by, clock))
        return bandit
