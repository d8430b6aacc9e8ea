"""A real log: what would the Thompson sampling of a fashion shop have earned, from random plays?

The Open Bandit Dataset has 10,000 plays of a uniformly random policy and 10,000 of Thompson
sampling (BTS) for each campaign, from the same week. The first log is asked what the second policy
would have earned, and the answer is printed beside what it did earn. Rewards are clicks, and all
are there.

    python examples/open_bandit_dataset.py           # the small dataset inside the package obp
    python examples/open_bandit_dataset.py FOLDER    # the same files elsewhere
"""

import csv
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from belated.logs.evaluating import evaluate_log

CAMPAIGNS = ("all", "men", "women")


def folder() -> Path | None:
    """Returns where the dataset is; None if it is nowhere."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    found = find_spec("obp")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "dataset" / "obd"


def shares_of_plays(path: Path) -> Any:
    """Returns the policy of a log: how often each item was played in each position."""
    with path.open() as file:
        plays = Counter((row["position"], row["item_id"]) for row in csv.DictReader(file))

    def thompson_sampling(context: dict[str, Any], items: list[str]) -> Any:
        positions = context["position"].astype(int).astype(str)
        known = {p: np.array([plays[p, item] for item in items], float) for p in set(positions)}
        return np.array([known[p] / known[p].sum() for p in positions])

    return thompson_sampling


def main() -> None:
    """Prints a table: estimates from random plays, and the truth."""
    data = folder()
    if data is None:
        print("obp is not installed: pip install obp, or name the folder of its dataset")
        return
    print("| campaign | clicks of random plays | of BTS, from random plays | of BTS, really |")
    print("|---|---|---|---|")
    for campaign in CAMPAIGNS:
        random, bts = (data / p / campaign / f"{campaign}.csv" for p in ("random", "bts"))
        if not (random.exists() and bts.exists()):
            continue
        target = shares_of_plays(bts)
        found = evaluate_log(random, [target], context=["position"])
        truth = evaluate_log(bts, [], context=["position"])
        (played,), estimates = (p["estimates"] for p in found["policies"])
        (really,) = truth["policies"][0]["estimates"]
        (ours,) = (line for line in estimates if line["estimator"] == "SNIPS")
        print("| " + " | ".join([campaign, *map(shown, (played, ours, really))]) + " |")


def shown(line: dict[str, Any]) -> str:
    """Returns a value with its interval, in per cent."""
    return f"{line['value']:.2%} ({line['low']:.2%} to {line['high']:.2%})"


if __name__ == "__main__":
    main()
