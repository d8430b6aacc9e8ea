"""64-bit hashes of numbers and of texts, computed for whole columns and the same in every run.

Reference: G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom number generators. OOPSLA 2014.
"""

from typing import Any

import numpy as np

from belated.core.types import Integers
from belated.ledger.tools.parquet import arrow


def mixed(numbers: Integers) -> Integers:
    """Returns a hash of each number, by the finaliser of SplitMix64."""
    z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hashed(texts: Any) -> Integers:
    """Returns a hash of each text of an Arrow column, from its bytes, eight at a time.

    >>> import pyarrow as pa
    >>> a, b, again = hashed(pa.array(["one", "another one", "one"]))
    >>> bool(a == again), bool(a == b)
    (True, False)
    """
    pa, _ = arrow()
    texts = texts.cast(pa.large_string())
    _, places, data = texts.buffers()
    ends = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    start, length = ends[:-1], np.diff(ends)
    padded = np.append(np.frombuffer(data or b"", np.uint8), np.zeros(8, np.uint8))
    # the eight bytes from every place on
    eight = np.ndarray(len(padded) - 7, "<u8", padded.data, strides=(1,))
    result = mixed(length.astype(np.uint64))
    for done in range(0, int(length.max(initial=0)), 8):
        rows = np.flatnonzero(length > done)
        unused = 8 * np.maximum(done + 8 - length[rows], 0).astype(np.uint64)  # bits of other texts
        word = (eight[start[rows] + done] << unused) >> unused
        result[rows] = mixed(result[rows] ^ word)
    return result
