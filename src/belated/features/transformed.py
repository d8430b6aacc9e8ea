"""Any scikit-learn transformer as features of bounded norm."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.core.arguments import positive, whole, wrong
from belated.core.types import Matrix
from belated.features.raw_rows import merged


class Transformed:
    """A transformer in the manner of scikit-learn, as features of bounded norm.

    The output of ``transformer`` is divided by the largest norm seen in ``fit`` and multiplied by
    ``max_norm``. A row that is longer than those seen in ``fit`` is shrunk to norm ``max_norm``;
    for such a row the map is not linear in the transformer's output.

    Parameters
    ----------
    transformer
        Any object with ``fit(rows)`` and ``transform(rows)`` whose output is a 2-d array, dense or
        sparse. It is given ``actions`` as they are or, when there is a ``context``, a list of
        dicts that holds both.
    max_norm
        Bound on the norm of every row.

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

    def __init__(self, transformer: Any, max_norm: float = 1.0) -> None:
        self.transformer = transformer
        self.max_norm = positive("max_norm", max_norm)
        self._scale: float | None = None
        self._dim = 0

    def fit(self, actions: Any, context: Any = None) -> "Transformed":
        """Fit the transformer itself, not a copy, and remember how long its longest row is."""
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
            raise wrong("columns from transformer", matrix.shape[1], f"{dim}, as in fit")
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

    @property
    def names(self) -> list[str]:
        """The transformer's own names of its features, or ``x0``, ``x1``, ... if it has none."""
        dim = self.dim
        try:
            return [str(name) for name in self.transformer.get_feature_names_out()]
        except AttributeError:
            return [f"x{i}" for i in range(dim)]

    @property
    def groups(self) -> dict[str, int]:
        """One group of all features: a transformer does not say which belong together."""
        return {"features": self.dim}

    def to_dict(self) -> dict[str, Any]:
        """Returns all but the transformer, whose type is kept by name. See ``restore``."""
        scale, dim = self._need_fit()
        return {
            "kind": "transformed",
            "max_norm": self.max_norm,
            "scale": scale,
            "dim": dim,
            "transformer": type(self.transformer).__name__,
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
        features = cls(transformer, d["max_norm"])
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
        return matrix
