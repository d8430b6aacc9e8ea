"""The random numbers behind a decision: a function of its id, so that the log tells them, too.

Whoever folds the log up to a decision can draw it again and gets the same action, score and
propensity. A stream is made from the last ``DRAWN`` bits of the id, which say nothing of the time:
a bandit with a seed makes the same choices whenever it runs.
"""

from hashlib import sha256

import numpy as np

from belated.ledger.ids import DRAWN


class Draws:
    """The streams of decisions, one at a time: a new generator would cost 20 times as much."""

    def __init__(self) -> None:
        self._bits = np.random.PCG64(0)
        self._stream, self._state = np.random.Generator(self._bits), self._bits.state

    def of(self, id: bytes) -> np.random.Generator:
        """Returns the stream of a decision. It is the object that was returned the last time."""
        self._state["state"]["state"] = int.from_bytes(
            sha256(id[-DRAWN // 8 :]).digest()[:16], "big"
        )
        self._bits.state = self._state
        return self._stream
