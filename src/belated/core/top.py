"""Rankings without repetition: from places among the actions that were left to places among all."""

import numpy as np

from belated.core.types import Vector


class Places:
    """Follows a ranking of ``n`` actions, from which each choice takes one away.

    >>> places = Places(3)
    >>> places.take(1, np.array([0.2, 0.5, 0.3]))
    (1, array([0.2, 0.5, 0.3]))
    >>> places.take(1, np.array([0.4, 0.6]))
    (2, array([0.4, 0. , 0.6]))
    """

    def __init__(self, n: int) -> None:
        self._n, self._left = n, list(range(n))

    def take(self, index: int, chances: Vector | None) -> tuple[int, Vector | None]:
        """Returns the place among all actions of the one at ``index`` among those left.

        ``chances`` are the probabilities of those left; they are returned with zeros for the
        actions that were taken before.
        """
        of_all = None
        if chances is not None:
            of_all = np.zeros(self._n)
            of_all[self._left] = chances
        return self._left.pop(index), of_all
