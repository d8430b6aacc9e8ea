"""Delays that are seen only if they are early, by EM."""

import numpy as np


def truncated_npmle(delays, ages, start=None, iterations=5_000):
    """Distinct delays and the likeliest probabilities of them (Turnbull 1976).

    Behind each conversion that was seen stand others with the same age that came too late to be
    seen, (1 - F(age)) / F(age) of them on average, spread over later delays as f is.
    """
    times = np.unique(delays)
    f = np.full(len(times), 1.0 / len(times)) if start is None else start
    seen = np.array([(delays == x).sum() for x in times], float)
    late = times[np.newaxis, :] > ages[:, np.newaxis]
    for _ in range(iterations):
        F = ((~late) * f).sum(axis=1)
        expected = seen + f * (late / F[:, np.newaxis]).sum(axis=0)
        new = expected / expected.sum()
        if np.abs(new - f).max() < 1e-12:
            break
        f = new
    return times, f
