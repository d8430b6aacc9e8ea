"""How often the interval of ``belated lift`` shows an effect where there is none.

    python benchmarks/holdout.py [RUNS]         # the table of docs/how-to/holdout.md

Every run is a bandit with 20 per cent held out, 500 decisions a day for ten days, which is looked at
once a day. Each decision earns 1 with probability 0.3, whatever is played, so an interval without 0 at
any look is wrong. The baseline's rewards are late, and those of the bandit's actions come sooner.

``late``: where every decision gets a reward, it comes after 3 days on average in the holdout, and after
0.3 or 1 day for the bandit's two actions; conversions come within 4 days, most in the first half
with the bandit and in the second in the holdout.
``a new action``: all rewards are late alike, by 2 days on average or evenly within 4 days, and half of the
bandit's traffic is on an action that is new on the seventh day.
``two rewards``: conversions are worth 0.5 twice; the second is later, and more so in the holdout.

Beside it is what is read off without an account of lateness and of looking often: the difference of
what has come per decision, pending as 0, with 1.96 standard errors.
"""

import sys
from typing import Any

import numpy as np

from belated.evaluation.holdout_lift import Decisions, lift

DAY, DAYS, A_DAY, WINDOW = 86_400.0, 10, 500, 4.0
ROWS = (
    ("explicit", "late"),
    ("explicit", "a new action"),
    ("conversion", "late"),
    ("conversion", "a new action"),
    ("conversion", "two rewards"),
)
FASTER = np.array([2.0, 1.0, 0.5])  # powers of an even draw: the larger, the sooner


def truth(rng: Any, loop: str, kind: str) -> tuple[Decisions, Any]:
    """Returns all decisions with all their rewards, and which reward of its decision a row is.

    Actions are the bandit's two, 0 and 1, and the baseline, 2. Times are in days.
    """
    n = DAYS * A_DAY
    held_out, age = rng.random(n) < 0.2, DAYS * rng.random(n)
    action = np.where(held_out, 2, rng.integers(2, size=n))
    reward = (rng.random(n) < 0.3).astype(float)
    if kind == "a new action":
        action[(action == 1) & (age > 4.0)] = 0
        delay = rng.exponential(2.0, n) if loop == "explicit" else WINDOW * rng.random(n)
    elif loop == "explicit":
        delay = rng.exponential(np.array([0.3, 1.0, 3.0])[action])
    else:
        delay = WINDOW * rng.random(n) ** FASTER[action]
    if loop == "conversion":
        reward[reward == 0.0] = np.nan
    log = Decisions(held_out, action, np.arange(n), age, delay, reward)
    if kind != "two rewards":
        return log, np.zeros(n, int)
    half = log._replace(reward=0.5 * reward)
    later = delay + (WINDOW - delay) * rng.random(n) ** FASTER[action]
    both = zip(half, half._replace(waited=later), strict=True)
    return Decisions(*(np.concatenate(pair) for pair in both)), np.repeat([0, 1], n)


def seen(log: Decisions, place: Any, before: float) -> tuple[Decisions, Any]:
    """Returns the log as it was so many days before its end."""
    age = log.age - before
    came = ~np.isnan(log.reward) & (log.waited <= age)
    rows = (age >= 0.0) & (came | (place == 0))
    now = log._replace(
        age=DAY * age,
        waited=DAY * np.where(came, log.waited, age),
        reward=np.where(came, log.reward, np.nan),
    )
    return Decisions(*(column[rows] for column in now)), place[rows]


def naive_is_wrong(log: Decisions) -> bool:
    """Returns whether what has come so far seems to differ, with pending rewards as 0."""
    earned = np.bincount(log.subject, np.nan_to_num(log.reward))[np.unique(log.subject)]
    held_out = log.held_out[np.unique(log.subject, return_index=True)[1]]
    one, other = earned[~held_out], earned[held_out]
    error = np.sqrt(one.var() / len(one) + other.var() / len(other))
    return bool(abs(one.mean() - other.mean()) > 1.96 * error)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    print("| loop | rewards | runs | wrong at some look | pending as 0, 1.96 errors | half width |")
    print("|---|---|---|---|---|---|")
    for loop, kind in ROWS:
        wrong, naive, reach = 0, 0, 0.0
        for seed in range(runs):
            log, place = truth(np.random.default_rng([seed, 3]), loop, kind)
            shown = fooled = False
            for before in range(DAYS - 1, -1, -1):
                known, which = seen(log, place, float(before))
                found = lift(
                    known, conversions=loop == "conversion", range=1.0, place=which,
                    window=WINDOW * DAY if loop == "conversion" else None,
                )  # fmt: skip
                fooled |= naive_is_wrong(known)
                if found.low is not None and found.high is not None:
                    shown |= not found.low <= 0.0 <= found.high
            assert found.low is not None
            assert found.high is not None
            wrong, naive, reach = wrong + shown, naive + fooled, reach + found.high - found.low
        cells = f"{wrong / runs:.1%} | {naive / runs:.1%} | {0.5 * reach / runs:.3f}"
        print(f"| {loop} | {kind} | {runs:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
