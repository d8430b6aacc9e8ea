"""Vectors of decisions that were drawn up when a bandit had fewer features."""

from collections.abc import Iterable, Sequence

import numpy as np

from belated.core.sparse import SparseRows
from belated.core.types import Integers
from belated.features import Features
from belated.features.growing import places_in
from belated.ledger.vectors import dim_of, entries_of, is_sparse, packed


class Earlier:
    """The places of a bandit's earlier features among its present ones.

    A decision may be drawn up by a process that has not read of a growth yet: its vector is then
    shorter. Every growth makes vectors longer, so the length of a vector tells its features.

    Parameters
    ----------
    places
        For each earlier number of features, the places of those features among the present ones.
    dim
        The present number of features.
    """

    def __init__(self, dim: int, places: Iterable[Sequence[int]] = ()) -> None:
        self.dim = dim
        self._places: dict[int, Integers] = {len(p): np.array(p, np.int64) for p in places}

    @property
    def lengths(self) -> list[int]:
        """The earlier numbers of features."""
        return list(self._places)

    def grow(self, old: Features, new: Features) -> Integers:
        """Take in that the features have grown; returns the places of the old among the new."""
        further = places_in(old, new)
        self._places = {n: further[places] for n, places in self._places.items()}
        self._places[self.dim] = further
        self.dim = new.dim
        return further

    def knows(self, dim: int) -> bool:
        """Returns whether vectors of this length are those of present or earlier features."""
        return dim == self.dim or dim in self._places

    def present(self, x: bytes) -> bytes:
        """Returns a vector of the present length; features that ``x`` lacks are zero."""
        dim = dim_of(x)
        if dim == self.dim:
            return x
        if is_sparse(x):
            _, columns, values = entries_of(x)
            places = self._places[dim][columns].astype(np.int32)
            return packed(SparseRows(places[np.newaxis], values[np.newaxis]), 0, self.dim)
        vector = np.zeros(self.dim)
        vector[self._places[dim]] = np.frombuffer(x)
        return vector.tobytes()

    def listed(self) -> list[list[int]]:
        """Returns the places as a snapshot keeps them."""
        return [places.tolist() for places in self._places.values()]
