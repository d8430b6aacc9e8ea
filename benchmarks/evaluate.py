"""How long ``belated evaluate`` takes on a million rows, printed as a table.

    python benchmarks/evaluate.py [ROWS]

The log is Parquet with ten actions, two columns of context, propensities, and 30 per cent of the
rewards pending; the target is a function. Reading, estimating delays by action, fitting the model of
rewards and all estimates are counted.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from belated.logs.evaluating import evaluate_log
from belated.logs.policy_values import Options

ACTIONS = [f"banner {k}" for k in range(10)]


def log(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    age = rng.uniform(0.0, 10 * 86_400.0, rows)
    played = rng.dirichlet(np.full(10, 5.0))
    action = rng.choice(10, rows, p=played)
    delay = rng.exponential(3 * 86_400.0, rows)
    reward = (rng.random(rows) < 0.02 + 0.01 * action).astype(float)
    now = pd.Timestamp("2026-03-31T00:00:00Z")
    decided = now - pd.to_timedelta(age, unit="s")
    came = delay <= age
    return pd.DataFrame(
        {
            "time": decided,
            "action": np.array(ACTIONS)[action],
            "propensity": played[action],
            "reward": np.where(came, reward, np.nan),
            "reward_time": (decided + pd.to_timedelta(delay, unit="s")).where(came),
            "device": np.array(["phone", "desktop"])[rng.integers(2, size=rows)],
            "visits": rng.poisson(3.0, rows).astype(float),
        }
    )


def target(context: dict[str, Any], actions: list[str]) -> Any:
    weight = np.ones((len(context["device"]), len(actions)))
    weight[context["device"] == "phone", -1] = 5.0
    return weight / weight.sum(axis=1, keepdims=True)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        log(rows).to_parquet(path)
        print("\n## What another policy would have earned\n")
        print(
            "Printed by `python benchmarks/evaluate.py`: a log in Parquet with ten actions, contexts and"
            "\npropensities. Reading, delays by action, the model of rewards and all estimates are counted.\n"
        )
        print("| rows | interval | seconds | of a processor | pending | peak GiB so far |")
        print("|---|---|---|---|---|---|")
        for interval in ("normal", "anytime", "bernstein"):
            begin, busy = time.perf_counter(), time.process_time()
            found = evaluate_log(
                path, [target], context=["device", "visits"], options=Options(interval=interval)
            )
            seconds, own = time.perf_counter() - begin, time.process_time() - busy
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            pending = found["pending"] / rows
            print(
                f"| {rows:,} | {interval} | {seconds:.1f} | {own:.1f} | {pending:.0%} | {memory:.2f} |"
            )


if __name__ == "__main__":
    main()
