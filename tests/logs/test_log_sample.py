"""The sample of a long log: even, the same whatever the chunks, in the order of the log."""

import numpy as np

from belated.logs.chunks import Chunk
from belated.logs.log_sample import LogSample, mixed


def chunk_of(numbers):
    names = np.array([f"a{i % 3}" for i in numbers], object)
    nothing = np.full(numbers.size, np.nan)
    return Chunk(numbers, numbers, numbers + 1, nothing, nothing, names, None, None, context={})


def sampled(n, sizes, capacity=1000):
    sample, start = LogSample(capacity), 0
    while start < n:
        for size in sizes:
            sample.add(chunk_of(np.arange(start, min(start + size, n))))
            start = min(start + size, n)
    return sample.rows()


def test_all_rows_up_to_the_capacity():
    rows = sampled(1000, [300])
    assert rows.decided.tolist() == list(range(1000))
    assert rows.segment is None


def test_the_rows_with_the_smallest_hashes_whatever_the_chunks():
    smallest = np.sort(np.argsort(mixed(np.arange(20_000, dtype=np.uint64)))[:1000])
    for sizes in ([20_000], [7], [900, 13, 5000]):
        rows = sampled(20_000, sizes)
        assert rows.decided.tolist() == smallest.tolist()
        assert rows.action.tolist() == [f"a{i % 3}" for i in smallest]
        assert (rows.returned - rows.decided == 1).all()


def test_hashes_are_those_of_splitmix64_and_even():
    # the first outputs of SplitMix64 with seed 0
    assert [hex(h) for h in mixed(np.arange(2, dtype=np.uint64))] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
    ]
    counts = np.bincount((mixed(np.arange(64_000, dtype=np.uint64)) >> np.uint64(58)).astype(int))
    assert ((counts - 1000) ** 2 / 1000).sum() < 120  # chi-squared, 63 degrees: 1 in 100,000


def test_nothing():
    assert LogSample().rows().decided.size == 0
