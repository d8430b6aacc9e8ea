"""How long ``belated evaluate`` takes on a million rows, and how often its intervals hold.

    python benchmarks/evaluate.py [ROWS]
    python benchmarks/evaluate.py coverage [LOGS]      # the table of docs/how-to/evaluate.md
    python benchmarks/evaluate.py learners [LOGS]      # its table of policies that learn

The log is Parquet with ten actions, two columns of context, propensities, and 30 per cent of the
rewards pending; the target is a function. Reading, estimating delays by action, fitting the model of
rewards and all estimates are counted.

Coverage is that of 95 per cent intervals on the simulated logs of the tests, of which the truth is
known: three actions, a context of two kinds, and the later rewards come, the better is the action.
The naive estimate is IPS with pending rewards as 0. LOGS limits the logs of every row.

Policies that learn are replayed on logs of 700 decisions, of which two actions earn 0.3 and 0.5, and
a fifth is pending. The truth is what a policy earns on average over all logs and replays. The interval
of a path is that of the rows that a single replay keeps, as if its luck were no luck.
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
from belated.evaluation import off_policy
from belated.evaluation.confidence import slopes, standard_error
from belated.logs.evaluating import evaluate_log
from belated.logs.learning_targets import Player
from belated.logs.policy_values import Options, policy_values
from belated.logs.seen_rewards import seen_rewards
from support import logged  # type: ignore[import-not-found]

RUNS = {"normal": 400, "bootstrap": 200, "bernstein": 200, "anytime": 200}
ESTIMATORS = ("IPS", "clipped IPS", "SNIPS", "direct method", "doubly robust")
NAIVE = "naive IPS"
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


def coverage(most: int) -> None:
    names = (*ESTIMATORS, NAIVE)
    print(f"| loop | pending | interval | logs | {' | '.join(f'{name}, gain' for name in names)} |")
    print("|---|---|---|---|" + "---|" * len(names))
    for loop, make, n, window in (
        ("explicit", logged.explicit_log, 3_000, None),
        ("conversion", logged.conversion_log, 10_000, logged.WINDOW),
    ):
        for pending in (0.0, 0.3, 0.7):
            for interval, runs in RUNS.items():
                held: dict[str, list[list[bool]]] = {name: [] for name in names}
                runs = min(runs, most)
                for seed in range(runs):
                    log = make(np.random.default_rng([seed, 7]), n, pending)
                    options = Options(interval=interval, seed=seed)
                    lines = _lines(log, loop, window, options)
                    if interval == "normal":
                        lines |= {NAIVE: _lines(_naive(log), "explicit", None, options)["IPS"]}
                    for name in held.keys() & lines.keys():
                        if lines[name].low is not None:
                            held[name].append(_holds(lines[name]))
                cells = " | ".join(map(_shares, held.values()))
                print(f"| {loop} | {pending:.0%} | {interval} | {runs} | {cells} |", flush=True)


def learners(logs: int) -> None:
    print(
        "| policy | earns on average | standard deviation over paths | logs | level | half width | level of a path | half width |"
    )
    print(f"|{'---|' * 8}")
    for policy in ("greedy", "adaptive-thompson"):
        played, found, alone = [], [], []
        for seed in range(logs):
            log = logged.two_actions_log(np.random.default_rng([seed, 9]))
            seen, options = seen_rewards(log, "explicit"), Options(seed=seed)
            found += policy_values(log, seen, [policy], "action", options)[1].estimates
            player = Player(log, policy, None, seed)
            paths = [player.kept_rows(replay) for replay in range(2)]
            played += [logged.TWO[log.action[path]].mean() for path in paths]
            matches = np.isin(seen.used, paths[0]).astype(np.float64)
            estimate = off_policy.estimate(off_policy.self_normalised(matches), seen.rewards)
            error = standard_error(slopes(estimate, seen.law, seen.used))
            alone.append((estimate.value, 1.96 * error))
        truth = float(np.mean(played))
        low, high = np.array([(line.low, line.high) for line in found]).T
        value, reach = np.array(alone).T
        level, of_path = (
            np.mean((low <= truth) & (truth <= high)),
            np.mean(abs(value - truth) <= reach),
        )
        print(
            f"| {policy} | {truth:.3f} | {np.std(played):.3f} | {logs} | {100 * level:.1f} | {np.mean(high - low) / 2:.3f} "
            f"| {100 * of_path:.1f} | {reach.mean():.3f} |",
            flush=True,
        )


def _lines(log: Any, loop: str, window: float | None, options: Options) -> dict[str, Any]:
    """Returns the estimates of the target by name."""
    seen = seen_rewards(log, loop, window)
    answer = policy_values(log, seen, [logged.target], "action", options)[1]
    return {line.estimator: line for line in answer.estimates}


def _naive(log: Any) -> Any:
    """Returns a log whose pending rewards are 0."""
    returned = np.where(np.isnan(log.reward), log.decided, log.returned)
    return log._replace(returned=returned, reward=np.nan_to_num(log.reward))


def _holds(line: Any) -> list[bool]:
    """Returns whether the interval of the value holds, and that of the gain if there is one."""
    held = [line.low <= logged.TRUTH <= line.high]
    if line.gain_low is not None:
        held.append(line.gain_low <= logged.GAIN <= line.gain_high)
    return held


def _shares(held: list[list[bool]]) -> str:
    """Returns the shares of intervals that hold, in per cent."""
    return ", ".join(f"{100.0 * share:.1f}" for share in np.mean(held, axis=0)) if held else ""


def main() -> None:
    if sys.argv[1:2] == ["coverage"]:
        coverage(int(sys.argv[2]) if len(sys.argv) > 2 else max(RUNS.values()))
        return
    if sys.argv[1:2] == ["learners"]:
        learners(int(sys.argv[2]) if len(sys.argv) > 2 else 200)
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
        for interval in ("normal", "anytime", "bernstein", "bootstrap"):
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
