"""Bandit: decide now, learn when the reward returns."""

from collections.abc import Iterable
from copy import deepcopy
from os import PathLike
from threading import RLock
from typing import Any, Literal, Self, overload

import numpy as np

from belated import registry
from belated.bandit.durable import AS_IN_LOG, USUAL, AsInLog, Durable
from belated.bandit.file import read_parts, write_parts
from belated.bandit.inputs import action_matrix, new_rewards, reward_pairs
from belated.bandit.reading import Knowledge
from belated.core.arguments import NORM_ROUNDING, whole, wrong, wrong_type
from belated.core.events import Decision
from belated.core.extremes import recorded, refuse_extremes
from belated.features import FeatureMap, Features
from belated.features.growing import grown, places_in
from belated.learner import files
from belated.learner.learner import Learner
from belated.ledger import Ledger
from belated.model.protocols import Family, Policy
from belated.model.steps import decide_step, learn_step

_NO_REWARD = object()


def _random_stream(seed: Any) -> np.random.Generator:
    """Always PCG64, whose state a snapshot can hold."""
    if seed is not None and not isinstance(seed, np.random.SeedSequence):
        seed = whole("seed", seed, least=0)
    return np.random.Generator(np.random.PCG64(seed))


class Bandit(Knowledge):
    """A generalised linear bandit whose rewards come back late, in any order, or never.

    Parameters
    ----------
    dim
        Number of features of an action. May be left out when ``features`` are given.
    family
        Law of the reward, such as ``Bernoulli()``, or its name: ``"bernoulli"``.
    policy
        How to choose, such as ``DelayedOFUGLM(m1=1.0, delta=0.05)``, or its name and parameters:
        ``"thompson"``, ``"delayed-ofu-glm:m1=1,delta=0.05"``. `belated list` shows all names.
    seed
        For policies that draw random numbers: an int or a ``numpy.random.SeedSequence``.
    max_norm
        Bound on the Euclidean norm of every action; a longer one is refused.
    features
        Turns raw actions and contexts into vectors of norm at most ``max_norm``; see
        ``belated.features.Features``. The bandit keeps a copy: fitting it again elsewhere would
        change what the numbers mean.
    ledger
        Where to keep every decision and reward, such as ``"sqlite:///shop.db"``: nothing that was
        returned from ``decide`` or ``learn`` is lost when the process is killed, and another
        process that opens the same ledger goes on with the same bandit.
    name
        Of the bandit in the ledger.
    window
        With a ledger: seconds for which a reward is waited for; None: for ever. Where it is not
        named, it stays as the log has it; a new bandit waits for ever.
    default_reward
        With a ledger: what no reward within the window means. Every decision is then held until
        its window closes, whichever way it went, so that early rewards do not count twice. Nothing
        is learnt before the first window closes: until then actions are drawn uniformly, and
        ``waiting`` says how long that takes. Where it is not named, as the log has it; a new bandit
        has None.
    late
        With a ledger: what a reward after the window does: "keep" it in the log, or "revise". Where
        it is not named, as the log has it; a new bandit keeps it.

    Notes
    -----
    A bandit may be shared between threads: calls wait for each other.

    With a ledger, ``decide``, ``learn`` and all that tells what the bandit knows (``theta``,
    ``n_observed``, ``interval`` ...) first take in what other processes have written, one query
    each, and raise ``StoreUnavailableError`` where the ledger cannot be read. Two of them may
    therefore rest on different states. After ``close`` they tell what was known last.

    Examples
    --------
    >>> from belated import Bandit, Gaussian, DelayedOFUGLM
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
        policy: Policy | str,
        seed: int | np.random.SeedSequence | None = None,
        max_norm: float = 1.0,
        features: FeatureMap | None = None,
        ledger: str | Ledger | None = None,
        name: str = "bandit",
        window: float | AsInLog | None = AS_IN_LOG,
        default_reward: float | AsInLog | None = AS_IN_LOG,
        late: Literal["keep", "revise"] | AsInLog = AS_IN_LOG,
    ) -> None:
        if features is not None and not hasattr(features, "transform"):
            raise wrong_type("features", features, "a feature map, such as Features(...)")
        if dim is None:
            if features is None:
                raise TypeError("dim = None: expected the number of features, or features=")
            dim = features.dim
        dim = whole("dim", dim)
        if features is not None and features.dim != dim:
            raise wrong("dim", dim, f"{features.dim}, the number of features that features= gives")
        law = registry.parsed(registry.FAMILIES, family, "family")
        chosen = registry.parsed(registry.POLICIES, policy, "policy")
        refuse_extremes(law, chosen)
        super().__init__(Learner(dim, law, chosen, max_norm), deepcopy(features))
        if getattr(features, "max_norm", 0.0) > self.max_norm:
            raise wrong("max_norm", max_norm, "at least the max_norm of the features")
        self._rng = _random_stream(seed)
        settings = {"window": window, "default_reward": default_reward, "late": late}
        if ledger is not None:
            named = {key: value for key, value in settings.items() if value is not AS_IN_LOG}
            self._journal = Durable(ledger, name, self._learner, self.features, chosen, named)
            self._journal.use(self._rng)
        elif any(value not in (AS_IN_LOG, USUAL[key]) for key, value in settings.items()):
            raise TypeError("window, default_reward and late: expected with ledger= only")

    # ------------------------------------------------------------------------------- the loop

    def decide(self, actions: Any, context: Any = None) -> Decision:
        """Choose one of ``actions``.

        Parameters
        ----------
        actions
            A (K, dim) array, one row an action; K may differ from call to call. With
            ``features``, a list of dicts or a data frame, one row an action.
        context
            With ``features``: what all these actions have in common, as a dict.
        """
        with self._lock:
            if self._journal is not None:
                self._journal.follow()  # the features may have grown
            matrix = action_matrix(actions, context, self.features, self.dim)
            if self._journal is not None:
                return self._journal.decide(matrix, context)
            learner, limit = self._learner, self.max_norm * NORM_ROUNDING
            learner.make_room(1)
            rng = learner.stream(self._rng)
            row, index, score, estimate, width = decide_step(
                learner.policy, learner.state, learner.history, matrix, limit, rng
            )
        if row < 0:
            raise learner.too_long(matrix, [f"actions[{k}]" for k in range(len(matrix))])
        # plain numbers, whatever the kernel was: they go into JSON and logs
        return Decision(int(row) + 1, int(index), float(score), float(estimate), float(width))

    @overload
    def learn(self, id: int | str, reward: float, /) -> int: ...

    @overload
    def learn(self, rewards: Iterable[tuple[Any, float]], /) -> int: ...

    def learn(self, id_or_rewards: Any, reward: Any = _NO_REWARD, /) -> int:
        """Take in rewards that have returned: ``learn(id, reward)`` or ``learn(pairs)``.

        The same reward again for the same decision changes nothing; another one is an error. When
        any of several rewards is refused, none is taken in.

        Returns
        -------
        int
            How many rewards were new.
        """
        pairs = reward_pairs(id_or_rewards) if reward is _NO_REWARD else [(id_or_rewards, reward)]
        with self._lock:
            return self._learn(pairs)

    def _learn(self, pairs: list[tuple[Any, Any]]) -> int:
        if self._journal is not None:
            return self._journal.learn(pairs)
        learner = self._learner
        new = new_rewards(pairs, learner)
        if new:
            learn_step(
                self.estimator,
                self.family,
                learner.state,
                learner.history,
                np.array(list(new), np.int64),
                np.array(list(new.values()), np.float64),
            )
        return len(new)

    def grow(self, features: Features) -> None:
        """Go on with features that have further categories; what was learnt stays.

        The history is taken in again with longer vectors, which are zero in the new features, and
        the estimate is brought up to date once: a pass over all decisions. The estimate is then
        that of a bandit which knew all categories from the start, to its certificate; of a policy
        that learns in one pass, as if the rewards had returned in the order of the decisions.
        Parameters of the policy that depend on the number of features are derived anew, unless the
        bandit was read from a file, which holds them as they were.

        With a ledger, growing is an event in the log: every process that reads it grows as well.

        Parameters
        ----------
        features
            Those of the bandit with more categories, such as
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
            if self._journal is not None:
                self._journal.grow(features)
                return
            old = self._features
            if not isinstance(old, Features):
                raise wrong_type("features", old, "Features(...) from the start, for grow")
            new = grown(old, features)
            learner = Learner(new.dim, self.family, self._learner.given, self.max_norm)
            learner.take_over(self._learner, places_in(old, new))
            new.unmatched = old.unmatched
            self._learner, self._features = learner, new

    def close(self) -> None:
        """Let go of the ledger, if there is one."""
        if self._journal is not None:
            self._journal.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._journal is not None:
            raise TypeError("a bandit with a ledger cannot be copied: open the ledger again")
        with self._lock:
            return deepcopy({name: v for name, v in vars(self).items() if name != "_lock"})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def __copy__(self) -> Self:
        return deepcopy(self)  # a copy that shared the arrays would corrupt them

    def __repr__(self) -> str:
        known = self._known  # a debugger that shows a bandit must not wait for its ledger
        waiting = "" if self._journal is None else self._journal.waiting()
        return (
            f"Bandit(dim={self.dim}, family={self.family!r}, policy={self.policy!r}, "
            f"n_observed={known.n_observed}, n_missing={known.n_decided - known.n_observed}"
            f"{f', waiting={waiting!r}' if waiting else ''})"
        )

    # ------------------------------------------------------------------------ state on disk

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything the bandit knows to ``path``, all of it or nothing."""
        with self._lock:
            write_parts(path, self._present(), self.features, self._rng)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        seed: int | np.random.SeedSequence | None = None,
        same_stream: bool = False,
        features: Any = None,
        types: Iterable[type] = (),
    ) -> Self:
        """Read a bandit back; it goes on exactly where the saved one stopped.

        Parameters
        ----------
        path
            A file that ``save`` wrote.
        seed
            Of the random stream the policy draws from. A fresh one by default, so that twins
            loaded from one file do not explore alike.
        same_stream
            Go on with the saved random stream instead.
        features
            What cannot be stored as plain data, where the saved bandit had it: the fitted
            scikit-learn transformer inside ``Transformed``, or a feature map of your own.
        types
            Policy and family types of your own that the saved bandit uses.
        """
        if same_stream and seed is not None:
            raise wrong("seed", seed, "None with same_stream=True")
        stream = _random_stream(seed)
        parts = read_parts(path, features, types)
        with files.reading(path), recorded():
            bandit = cls(
                parts.dim,
                family=parts.family,
                policy=parts.policy,
                max_norm=parts.max_norm,
                features=parts.features,
            )
            bandit._learner.history = files.fill(bandit._learner.state, parts.arrays)
            if same_stream:
                stream.bit_generator.state = parts.stream
            bandit._rng = stream
        return bandit
