"""Any scikit-learn transformer as features."""

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from belated.core.arguments import flag, positive, whole, wrong, wrong_type
from belated.core.types import Matrix
from belated.features.raw_rows import merged


class Transformed:
    """A transformer in the manner of scikit-learn, as features.

    A policy that takes rows of any norm, such as the default, is given the output of
    ``transformer`` as it is. For others it is divided by the largest norm seen in ``fit`` and
    multiplied by ``max_norm``. A row that is longer than those seen in ``fit`` is shrunk to norm
    ``max_norm`` then; for such a row the map is not linear in the transformer's output.

    Parameters
    ----------
    transformer
        Any object with ``fit(rows)`` and ``transform(rows)`` whose output is a 2-d array, dense or
        sparse. It is given ``actions`` as they are or, when there is a ``context``, a list of
        dicts that holds both.
    max_norm
        Bound on the norm of every row, for policies that need one.
    groups
        Name and size of each group of consecutive columns of the output that share a prior
        variance, as in ``Bandit``; None: they are one group.
    intercept
        Whether to append a constant, a group of its own.

    Attributes
    ----------
    bounded
        False after ``unbounded``.

    Examples
    --------
    >>> from sklearn.feature_extraction import DictVectorizer
    >>> features = Transformed(DictVectorizer())
    >>> features.fit_transform([{"price": 3.0, "ad": "a"}, {"price": 0.75, "ad": "a"}]).round(2)
    array([[0.32, 0.95],
           [0.32, 0.24]])
    >>> features.names
    ['ad=a', 'price']
    """

    def __init__(
        self,
        transformer: Any,
        max_norm: float = 1.0,
        *,
        groups: Mapping[str, int] | None = None,
        intercept: bool = False,
    ) -> None:
        self.transformer = transformer
        self.max_norm = positive("max_norm", max_norm)
        self.intercept = flag("intercept", intercept)
        self.bounded = True
        if not isinstance(groups, Mapping | None):
            raise wrong_type("groups", groups, "a dict of each group's name and number of columns")
        self._given = None if groups is None else dict(groups)
        self._scale: float | None = None
        self._dim = 0

    def fit(self, actions: Any, context: Any = None) -> "Transformed":
        """Fit the transformer itself, not a copy, and remember how long its longest row is.

        The transformer learns from rows that hold both, so there is one context for each action.
        """
        rows = actions if context is None else merged(actions, context)
        self.transformer.fit(rows)
        matrix = self._output(rows)
        peak = np.abs(matrix).max() or 1.0  # divided out first: squares may over- or underflow
        scale = float(peak) * float(np.linalg.norm(matrix / peak, axis=1).max()) or 1.0
        self._scale, self._dim = positive("largest norm in fit", scale), matrix.shape[1]
        return self

    def transform(self, actions: Any, context: Any = None) -> Matrix:
        """One row of features for each action, of shape (K, dim)."""
        scale, dim = self._need_fit()
        matrix = self._output(actions if context is None else merged(actions, context))
        if matrix.shape[1] != dim:
            columns = matrix.shape[1] - self.intercept
            raise wrong("columns from transformer", columns, f"{dim - self.intercept}, as in fit")
        if not self.bounded:
            return matrix
        peak = np.abs(matrix).max(axis=1, keepdims=True)
        # A row with peak > scale is shrunk in any case; shrinking it twice avoids overflow.
        x: Matrix = matrix / np.maximum(peak, scale)
        x *= self.max_norm / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
        return x

    def fit_transform(self, actions: Any, context: Any = None) -> Matrix:
        """``fit``, then ``transform`` of the same rows."""
        return self.fit(actions, context).transform(actions, context)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self._need_fit()[1]

    def unbounded(self) -> "Transformed":
        """These features with rows as the transformer gives them: nothing is divided."""
        raw = copy(self)
        raw.bounded = False
        return raw

    @property
    def names(self) -> list[str]:
        """The transformer's own names of its features, or ``x0``, ``x1``, ... if it has none."""
        constant = ["intercept"] if self.intercept else []
        columns = self.dim - self.intercept
        try:
            return [*map(str, self.transformer.get_feature_names_out()), *constant]
        except AttributeError:
            return [*(f"x{i}" for i in range(columns)), *constant]

    @property
    def groups(self) -> dict[str, int]:
        """The groups that were given: a transformer does not say which features belong together."""
        columns = {"features": self.dim - self.intercept} if self._given is None else self._given
        return columns | ({"intercept": 1} if self.intercept else {})

    def to_dict(self) -> dict[str, Any]:
        """Returns all but the transformer, whose type is kept by name. See ``restore``."""
        scale, dim = self._need_fit()
        return {
            "kind": "transformed",
            "max_norm": self.max_norm,
            "scale": scale,
            "dim": dim,
            "transformer": type(self.transformer).__name__,
            # Options at their defaults are left out, as in files of before they existed.
            **({"intercept": True} if self.intercept else {}),
            **({"groups": self.groups} if self.intercept or self._given is not None else {}),
            **({} if self.bounded else {"bounded": False}),
        }

    @classmethod
    def restore(cls, d: Mapping[str, Any], transformer: Any) -> "Transformed":
        """Inverse of ``to_dict``, given the transformer as it was fitted.

        That it has as many columns as before is checked at the first ``transform``.
        """
        if d.get("kind") != "transformed":
            raise wrong("kind", d.get("kind"), "'transformed'")
        if type(transformer).__name__ != d["transformer"]:
            raise TypeError(f"transformer = {transformer!r}: expected a {d['transformer']}")
        groups, intercept = dict(d.get("groups", {})), d.get("intercept", False)
        if intercept:
            groups.pop("intercept", None)
        features = cls(transformer, d["max_norm"], groups=groups or None, intercept=intercept)
        features.bounded = flag("bounded", d.get("bounded", True))
        features._scale, features._dim = positive("scale", d["scale"]), whole("dim", d["dim"])
        return features

    def _need_fit(self) -> tuple[float, int]:
        if self._scale is None:
            raise ValueError("this Transformed has seen no rows yet: call fit first")
        return self._scale, self._dim

    def _output(self, rows: Any) -> Matrix:
        output = self.transformer.transform(rows)
        dense = output.toarray() if hasattr(output, "toarray") else output
        matrix = np.ascontiguousarray(dense, np.float64)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise wrong("shape from transformer", np.shape(dense), "(K, dim), both 1 or more")
        for k in np.flatnonzero(~np.isfinite(matrix).all(axis=1)):
            raise wrong(f"row {k} from transformer", matrix[k].tolist(), "finite numbers")
        return np.hstack([matrix, np.ones((len(matrix), 1))]) if self.intercept else matrix
