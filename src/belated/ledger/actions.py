"""The registered actions of a bandit, and the vectors of the actions in a request."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from belated.core.arguments import NORM_ROUNDING, array_of_numbers, shown, wrong
from belated.core.sparse import SparseRows
from belated.core.types import Matrix
from belated.features import FeatureMap, Features, UnmatchedCounts
from belated.features.prepared import Prepared
from belated.ledger.vectors import as_sparse

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.learner.learner import Learner


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
        self.listed: dict[str, Any] = {}  # features by name, as in JSON
        self._forget()

    def count_in(self, counts: UnmatchedCounts) -> None:
        """Let the features count in ``counts`` what they turn into zeros."""
        if isinstance(self.features, Features):
            self.features.unmatched = counts

    def exchange(self, features: Features) -> None:
        """Go on with other features, which count zeros where the old ones did."""
        if isinstance(self.features, Features):
            features.unmatched = self.features.unmatched
        self.dim, self.features = features.dim, features
        self._forget()

    def _forget(self) -> None:
        """Drop what was computed once from all registered actions."""
        self._matrix: Matrix | None = None
        self._sparse: SparseRows | None = None
        self._prepared: Prepared | None = None
        self._options: Any = None
        self._places: dict[str, int] | None = None

    def change(self, put: Mapping[str, Any], drop: Iterable[str]) -> None:
        """Register and withdraw, as a checked event says."""
        for name in drop:
            self.listed.pop(name, None)
        self.listed |= put
        self._forget()

    def restore(self, listed: dict[str, Any]) -> None:
        """Take over the actions that a snapshot holds."""
        self.listed = listed
        self._forget()

    def matrix(self, names: Sequence[str] | None, context: Any, sparse: bool = False) -> Any:
        """Returns the vectors of the registered actions of these names, or of all.

        They are a matrix, or sparse where that is asked for.
        """
        rows = self._all(context, sparse)
        if names is None:
            return rows
        if self._places is None:
            self._places = {name: place for place, name in enumerate(self.listed)}
        places = [self._places[name] for name in names]
        if isinstance(rows, SparseRows):
            return SparseRows(rows.columns[places], rows.values[places])
        return rows[places]

    def _all(self, context: Any, sparse: bool) -> Matrix | SparseRows:
        if isinstance(self.features, Features):
            if self._prepared is None:
                self._prepared = Prepared(self.features, list(self.listed.values()))
            if sparse:
                return self._prepared.sparse_rows(context)
            return self._prepared.transform(context)
        matrix = self._given(context)
        if not sparse:
            return matrix
        if matrix is not self._matrix:
            return as_sparse(matrix)
        if self._sparse is None:
            self._sparse = as_sparse(matrix)
        return self._sparse

    def _given(self, context: Any) -> Matrix:
        if self.features is not None or context is not None:
            return self.vectors(list(self.listed.values()), context)
        if self._matrix is None:
            self._matrix = self.vectors(list(self.listed.values()), None)
        return self._matrix

    def options(self, learner: "Learner") -> Any:
        """Returns all registered actions of a bandit without features, ready to be chosen from."""
        if self._options is None:
            self._options = learner.options(self.matrix(None, None))
        return self._options

    def vectors(self, rows: Sequence[Any], context: Any, sparse: bool = False) -> Any:
        """Returns the vectors of actions that come with their features; sparse if asked for."""
        if sparse and isinstance(self.features, Features):
            return self.features.sparse_rows(rows, context)
        if self.features is not None:
            matrix = array_of_numbers("features", self.features.transform(rows, context))
        elif context is not None:
            raise wrong("context", context, "None for a bandit without features")
        else:
            matrix = array_of_numbers("actions", list(rows))
        if matrix.shape != (len(rows), self.dim):
            raise ValueError(f"actions has shape {matrix.shape}: expected (K, {self.dim})")
        return as_sparse(matrix) if sparse else matrix

    def check(self, put: Mapping[str, Any], max_norm: float) -> None:
        """Raises if an action cannot be registered."""
        for name, features in put.items():
            if not name or len(name) > 200:
                raise wrong("action", name, "a name of 1 to 200 characters")
            if self.features is None:
                vector = self.vectors([features], None)[0]
                norm = math.hypot(*vector)  # hypot does not overflow
                if not norm <= max_norm * NORM_ROUNDING:
                    raise ValueError(
                        f"action {shown(name)} has norm {norm:.9g}: expected at most max_norm = "
                        f"{max_norm:g}"
                    )
            elif not isinstance(features, Mapping):
                raise wrong(f"features of action {shown(name)}", features, "an object")
            elif isinstance(self.features, Features):
                _check_columns(name, features, self.features)


def _check_columns(name: str, action: Mapping[str, Any], features: Features) -> None:
    """Raises if the features would refuse the action in every decision."""
    try:
        features.check_action(action)
    except ValueError as error:
        raise ValueError(f"action {shown(name)}: {error}") from None
