"""A learner of coba as a lane, and a bandit of ours as a learner of coba."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from inspect import signature
from typing import Any

import numpy as np

from belated.core.arguments import wrong_type
from belated.core.types import Matrix
from belated.peers.adapter import PLAIN, Adapter, library


class Coba(Adapter):
    """A learner of ``coba.learners``: features for each action, one model for all.

    An action of coba is a row of the decision set, as a tuple of numbers; there is no context. A
    late reward is learnt with the probability that its decision had when it was made, and with
    whatever else the learner said of it then. coba's ``SafeLearner`` stands in between, as it does
    in coba's own experiments.

    A learner without features (``BanditEpsilonLearner``) tells actions apart by their numbers. This
    makes sense where the same actions come back every round.

    Parameters
    ----------
    learner : type
        The class of the learner. Every run makes one, with a ``seed`` of the run's where it takes
        one.
    name : str, optional
        Its label in results.
    shared : sequence of int, optional
        The columns in which all actions of a round are equal, such as features of a visitor: they
        are the context then, and actions have the other columns.
    **options
        Further arguments of the class.

    Examples
    --------
    >>> from coba.learners import LinUCBLearner
    >>> Coba(LinUCBLearner, alpha=0.5, features=["a"]).name
    'coba.LinUCBLearner'
    """

    def __init__(
        self,
        learner: Any,
        *,
        name: str | None = None,
        shared: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        expected = "the class of a learner of coba, such as LinUCBLearner"
        needed = library("coba.primitives").Learner
        if not (isinstance(learner, type) and issubclass(learner, needed)):
            raise wrong_type("learner", learner, expected)
        super().__init__(learner, name or f"coba.{learner.__name__}", shared)
        self.options = options
        self.begin(seed=1)  # raises where the options do not fit

    def begin(self, seed: int) -> None:
        """Makes a new learner, seeded where it takes a seed."""
        seeded = {"seed": seed} if "seed" in signature(self.policy).parameters else {}
        learner = self.policy(**{**deepcopy(self.options), **seeded})
        self.live = library("coba.safety").SafeLearner(learner, seed)

    def pick(self, actions: Matrix, t: int) -> tuple[int, Any]:
        """Asks for an action, and keeps what is to be learnt with its reward."""
        context, own = None, actions
        if self.shared is not None:
            context, own = tuple(self.context_of(actions)), np.delete(actions, self.shared, axis=1)
        rows = list(map(tuple, own.tolist()))
        action, probability, more = self.live.predict(context, rows)
        return rows.index(action), (context, action, probability, more)

    def learn(self, row: int, kept: Any, y: float) -> None:
        """Learns the reward of a decision."""
        context, action, probability, more = kept
        self.live.learn(context, action, y, probability, **more)

    def _asdict(self) -> dict[str, Any]:
        shown = {k: v if isinstance(v, PLAIN) else str(v) for k, v in self.options.items()}
        shared = {} if self.shared is None else {"shared": list(self.shared)}
        return {"learner": self.policy.__name__, **shown, **shared}


class CobaLearner:
    """A ``Bandit`` as a learner of coba, for its experiments.

    With features, an action that is a value is the dict ``{"action": value}``, and a sequence is
    ``{"a0": first, "a1": second, ...}``; contexts are ``{"context": value}`` and ``{"x0": ...}``.
    Dicts stay what they are. Without features, actions are vectors, and there is no context.

    coba copies a learner that plays in several environments, and a bandit with a ledger cannot be
    copied.

    Parameters
    ----------
    bandit : Bandit
        A bandit that has decided nothing yet.

    Examples
    --------
    >>> from belated import Bandit, Bernoulli, Features
    >>> features = Features(categorical=["action"]).fit([{"action": "a"}, {"action": "b"}])
    >>> learner = CobaLearner(Bandit(family=Bernoulli(), features=features, seed=1))
    >>> action, probability, more = learner.predict(None, ["a", "b"])
    >>> learner.learn(None, action, 1.0, probability, **more)
    """

    def __init__(self, bandit: Any) -> None:
        if not all(hasattr(bandit, name) for name in ("decide", "learn", "probabilities")):
            raise wrong_type("bandit", bandit, "a Bandit")
        self.bandit = bandit

    @property
    def params(self) -> dict[str, Any]:
        """Columns of coba's table of learners."""
        return {"family": "belated", "policy": type(self.bandit.policy).__name__}

    def score(self, context: Any, actions: Any, action: Any) -> float:
        """Returns the probability with which an action would be chosen."""
        chances = self.bandit.probabilities(*self._asked(context, actions))
        return float(chances[list(actions).index(action)])

    def predict(self, context: Any, actions: Any) -> tuple[Any, float, dict[str, Any]]:
        """Decides; returns the action, its probability, and the id of the decision."""
        decision = self.bandit.decide(*self._asked(context, actions), probabilities=True)
        return actions[decision.index], decision.propensity, {"id": decision.id}

    def learn(self, context: Any, action: Any, reward: float, probability: Any, *, id: Any) -> None:
        """Learns the reward of the decision ``id``."""
        self.bandit.learn(id, reward)

    def _asked(self, context: Any, actions: Any) -> tuple[Any, Any]:
        """Returns actions and context as the bandit takes them."""
        if self.bandit.features is None:
            return [list(action) for action in actions], context
        about = None if context is None else _named(context, "context", "x")
        return [_named(action, "action", "a") for action in actions], about


def _named(given: Any, value: str, letter: str) -> Mapping[str, Any]:
    """Returns features by name."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str) or not hasattr(given, "__len__"):
        return {value: given}
    return {f"{letter}{k}": part for k, part in enumerate(given)}
