"""How long ``belated evaluate`` takes on a million rows, and how often its intervals hold.

    python benchmarks/evaluate.py [ROWS]
    python benchmarks/evaluate.py coverage      # the table of docs/how-to/evaluate.md

The log is Parquet with ten actions, two columns of context, propensities, and 30 per cent of the
rewards pending; the target is a function. Reading, estimating delays by action, fitting the model of
rewards and all estimates are counted.

Coverage is that of 95 per cent intervals on the simulated logs of the tests, of which the truth is
known: three actions, a context of two kinds, and the later rewards come, the better is the action.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from belated.logs.evaluating import evaluate_log
from belated.logs.policy_values import Options, policy_values
from belated.logs.seen_rewards import seen_rewards
from support import logged  # type: ignore[import-not-found]

RUNS = {"normal": 400, "bootstrap": 60, "bernstein": 200, "anytime": 200}
ESTIMATORS = ("IPS", "SNIPS", "direct method", "doubly robust")
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


def coverage() -> None:
    columns = [f"{name}, gain" for name in ESTIMATORS]
    print(f"| loop | pending | interval | logs | {' | '.join(columns)} |")
    print("|---|---|---|---|" + "---|" * len(columns))
    for loop, make, n, window in (
        ("explicit", logged.explicit_log, 3_000, None),
        ("conversion", logged.conversion_log, 10_000, logged.WINDOW),
    ):
        for pending in (0.0, 0.3, 0.7):
            for interval, runs in RUNS.items():
                held: dict[str, list[tuple[bool, bool]]] = {name: [] for name in ESTIMATORS}
                for seed in range(runs):
                    log = make(np.random.default_rng([seed, 7]), n, pending)
                    seen = seen_rewards(log, loop, window)
                    options = Options(interval=interval, seed=seed)
                    answer = policy_values(log, seen, [logged.target], "action", options)[1]
                    for line in answer.estimates:
                        if line.estimator in held and line.low is not None:
                            gain = line.gain_low is not None and (
                                line.gain_low <= logged.GAIN <= line.gain_high
                            )
                            value = line.low <= logged.TRUTH <= line.high
                            held[line.estimator].append((value, gain))
                cells = " | ".join(map(_shares, held.values()))
                print(f"| {loop} | {pending:.0%} | {interval} | {runs} | {cells} |", flush=True)


def _shares(held: list[tuple[bool, bool]]) -> str:
    """Returns the shares of intervals of the value and of the gain that hold, in per cent."""
    if not held:
        return ""
    value, gain = 100.0 * np.mean(held, axis=0)
    return f"{value:.1f}, {gain:.1f}" if gain else f"{value:.1f}"


def main() -> None:
    if sys.argv[1:] == ["coverage"]:
        coverage()
        return
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
