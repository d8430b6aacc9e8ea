"""The policies that a log is asked about.

A target that does not learn is asked for the probability of every action in every row, in blocks of
rows. A policy that learns is played instead, see ``learning_targets.py``.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple, Protocol

import numpy as np

from belated.core.arguments import wrong
from belated.core.types import Matrix
from belated.registry import POLICIES

EXPECTED = (
    "uniform, fixed:ACTION, MODULE:FUNCTION or FILE.py:FUNCTION, the file of a saved bandit, or a "
    "policy that `belated list policies` shows"
)


class Target(Protocol):
    """A policy that does not learn."""

    @property
    def words(self) -> str:
        """Returns a description of the policy."""

    def chances(self, n: int, context: dict[str, Any]) -> Matrix:
        """Returns the probability of each action, one row for each of n contexts."""


class Uniform(NamedTuple):
    """Plays every action of the log equally often."""

    n_actions: int

    @property
    def words(self) -> str:
        """Returns a description."""
        return f"each of the {self.n_actions} actions of the log, equally often"

    def chances(self, n: int, context: dict[str, Any]) -> Matrix:
        """Returns the same probability for all."""
        return np.full((n, self.n_actions), 1.0 / self.n_actions)


class Fixed(NamedTuple):
    """Plays one action."""

    action: str
    actions: list[str]

    @property
    def words(self) -> str:
        """Returns a description."""
        return f"always {self.action!r}"

    def chances(self, n: int, context: dict[str, Any]) -> Matrix:
        """Returns 1 for the action."""
        result = np.zeros((n, len(self.actions)))
        result[:, self.actions.index(self.action)] = 1.0
        return result


class Rule(NamedTuple):
    """Plays as a function of the user says."""

    function: Callable[[dict[str, Any], list[str]], Any]
    name: str
    actions: list[str]
    scores: bool

    @property
    def words(self) -> str:
        """Returns a description."""
        played = "the action with the highest score" if self.scores else "with the probabilities"
        return f"{played} of {self.name}"

    def chances(self, n: int, context: dict[str, Any]) -> Matrix:
        """Returns what the function says, or 1 for the first action with the highest score."""
        try:
            said = np.asarray(self.function(context, self.actions), np.float64)
        except Exception as error:  # whatever the user's code raises
            *_, last = extract_tb(error.__traceback__)
            raise ValueError(
                f"--policy {self.name}: it raised {type(error).__name__}: {error} "
                f"({last.filename}, line {last.lineno})"
            ) from error
        shape = (n, len(self.actions))
        if said.shape == shape[1:]:  # one row for all contexts
            said = np.broadcast_to(said, shape)
        if said.shape != shape:
            expected = f"{shape}, contexts by actions, or {shape[1:]} for all contexts"
            raise wrong(f"{self.name}: shape", said.shape, expected)
        if self.scores:
            result = np.zeros(shape)
            result[np.arange(n), said.argmax(axis=1)] = 1.0
            return result
        bad = np.flatnonzero(~((said >= 0.0).all(axis=1) & (abs(said.sum(axis=1) - 1.0) < 1e-6)))
        if bad.size:
            expected = "probabilities that add up to 1; --scores plays the highest score instead"
            raise wrong(f"{self.name}: row {bad[0]}", said[bad[0]].tolist(), expected)
        return said


class Saved:
    """Plays as a saved bandit would, which learns nothing more.

    Parameters
    ----------
    path
        The file that ``Bandit.save`` wrote.
    actions
        The names of actions.
    column
        The column of the bandit's features that holds the name of the action.
    """

    def __init__(self, path: str, actions: list[str], column: str) -> None:
        from belated.bandit import Bandit
        from belated.features import Features

        self.path, self.bandit = path, Bandit.load(path, seed=0)
        features = self.bandit.features
        if not isinstance(features, Features) or column not in features.columns:
            raise wrong(
                *("--policy", path, f"a bandit whose Features have the action's column {column!r}")
            )
        self.columns = [str(name) for name in features.columns if name != column]
        self.rows = [{column: name} for name in actions]
        self._known: dict[tuple[Any, ...], Any] = {}

    @property
    def words(self) -> str:
        """Returns a description."""
        return f"as the bandit in {self.path}, which learns nothing more"

    def chances(self, n: int, context: dict[str, Any]) -> Matrix:
        """Returns the bandit's probabilities, computed once for equal contexts."""
        for name in self.columns:
            if name not in context:
                raise wrong("--context", list(context), f"the bandit's column {name!r}, too")
        cells = zip(*(context[name].tolist() for name in self.columns), strict=True)
        keys = list(cells) if self.columns else [()] * n
        for key in dict.fromkeys(keys):
            if key not in self._known:
                shared = dict(zip(self.columns, key, strict=True))
                self._known[key] = self.bandit.probabilities(self.rows, shared)
        return np.array([self._known[key] for key in keys])


def policy_name(policy: Any) -> str:
    """Returns what a policy is called: the user's words, or the name of a function."""
    return getattr(policy, "__name__", str(policy))


def learns(policy: Any) -> bool:
    """Returns whether a registered policy is named, other than uniform play."""
    return policy != "uniform" and str(policy).partition(":")[0] in POLICIES


def target_of(policy: Any, actions: list[str], column: str, scores: bool) -> Target:
    """Returns the target that ``--policy`` names.

    Parameters
    ----------
    policy
        The user's words, or a function.
    actions
        The actions of the log.
    column
        The column of the log that holds the action.
    scores
        Whether a function returns scores, of which the highest is played.
    """
    if callable(policy):
        return Rule(policy, policy_name(policy), actions, scores)
    text = str(policy)
    if text == "uniform":
        return Uniform(len(actions))
    if text.startswith("fixed:"):
        action = text.removeprefix("fixed:")
        if action not in actions:
            played = ", ".join(actions[:20])
            raise wrong("--policy", text, f"an action that the log has played, of {played}")
        return Fixed(action, actions)
    if Path(text).is_file():
        return Saved(text, actions, column)
    home, _, function = text.rpartition(":")
    if not home or not function.isidentifier():
        raise wrong("--policy", text, EXPECTED)
    return Rule(_function(text, home, function), text, actions, scores)


def _function(text: str, home: str, name: str) -> Callable[..., Any]:
    """Returns the function of a module, or of a file."""
    try:
        module = _from_file(Path(home)) if home.endswith(".py") else import_module(home)
        function = getattr(module, name)
    except (ImportError, AttributeError, OSError) as error:
        raise wrong("--policy", text, f"a function that can be imported ({error})") from None
    if not callable(function):
        raise wrong("--policy", text, f"a function, not {type(function).__name__}")
    return function


def _from_file(path: Path) -> Any:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
