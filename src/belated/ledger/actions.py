"""The actions that a bandit knows by name, and vectors of those in a request."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from belated.core.arguments import array_of_numbers, shown, wrong
from belated.core.types import Matrix
from belated.features import FeatureMap


class Actions:
    """Registered actions in the order of their names' first registration.

    Parameters
    ----------
    dim
        Number of features of an action.
    features
        Turns what was registered, with the context of a request, into vectors. Without it an
        action is a list of ``dim`` numbers.
    """

    def __init__(self, dim: int, features: FeatureMap | None) -> None:
        self.dim, self.features = dim, features
        self.listed: dict[str, Any] = {}  # features by name, as JSON has them
        self._matrix: Matrix | None = None

    def change(self, put: Mapping[str, Any], drop: Iterable[str]) -> None:
        """Register and withdraw, as a checked event says."""
        for name in drop:
            self.listed.pop(name, None)
        self.listed |= put
        self._matrix = None

    def restore(self, listed: dict[str, Any]) -> None:
        """Take over what a snapshot holds."""
        self.listed, self._matrix = listed, None

    def matrix(self, names: Sequence[str] | None, context: Any) -> Matrix:
        """Vectors of the registered actions of these names, or of all."""
        if self.features is not None:
            rows = [*self.listed.values()] if names is None else [self.listed[n] for n in names]
            return self.vectors(rows, context)
        if self._matrix is None:
            self._matrix = self.vectors([*self.listed.values()], None)
        if context is not None:
            raise wrong("context", context, "None for a bandit without features")
        if names is None:
            return self._matrix
        places = {name: place for place, name in enumerate(self.listed)}
        return self._matrix[[places[name] for name in names]]

    def vectors(self, rows: Sequence[Any], context: Any) -> Matrix:
        """Vectors of actions that come with their features."""
        if self.features is not None:
            matrix = array_of_numbers("features", self.features.transform(rows, context))
        elif context is not None:
            raise wrong("context", context, "None for a bandit without features")
        else:
            matrix = array_of_numbers("actions", list(rows))
        if matrix.shape != (len(rows), self.dim):
            raise ValueError(f"actions has shape {matrix.shape}: expected (K, {self.dim})")
        return matrix

    def check(self, put: Mapping[str, Any], max_norm: float) -> None:
        """Raise where something cannot be registered."""
        for name, features in put.items():
            if not name or len(name) > 200:
                raise wrong("action", name, "a name of 1 to 200 characters")
            if self.features is None:
                vector = self.vectors([features], None)[0]
                norm = math.hypot(*vector)  # which does not overflow
                if not norm <= max_norm:
                    raise ValueError(
                        f"action {shown(name)} has norm {norm:.9g}: expected at most max_norm = "
                        f"{max_norm:g}"
                    )
            elif not isinstance(features, Mapping):
                raise wrong(f"features of action {shown(name)}", features, "an object")
