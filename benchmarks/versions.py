"""What moves and repairs have cost: another version beside this one, in turns on one machine.

    git worktree add ../before COMMIT
    python benchmarks/versions.py ../before

Both play what their own benchmarks/engine.py and benchmarks/online.py play, in processes of their
own, and seconds of a processor are counted: the best of the turns.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from parts import parser_of

HERE = Path(__file__).parent.parent
PLAY = """
import json, time
import numpy as np
import engine, online

def spent(call, *arguments):
    start = time.process_time()
    call(*arguments)
    return time.process_time() - start

def use(bandit, sets):
    for actions in sets:
        bandit.learn(bandit.decide(actions).id, 1.0)

found, lanes = {}, engine.paper_lanes()
for d in engine.DIMS:
    engine.seconds(engine.world(lanes, d, 2_000))  # compiled, or loaded
    found[f"a round of the paper's 48 lanes, d = {d}"] = (
        spent(engine.seconds, engine.world(lanes, d, ROUNDS)) / ROUNDS
    )
rng = np.random.default_rng(1)
bandit = online.grown_bandit(10_000, rng, online.theta_star(rng))
sets = online.decision_sets(rng, 2_000)
found["a decision and its reward, logistic, K = 100, d = 20"] = spent(use, bandit, sets) / len(sets)
print(json.dumps(found))
"""


def played(tree: Path, rounds: int) -> dict[str, float]:
    """Returns seconds of a processor by what was played, with the package in that folder."""
    folders = [str(tree / name) for name in ("src", "benchmarks", "tests")]
    threads = {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"ROUNDS = {rounds}\n{PLAY}"],
        env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(folders)},
        cwd=tree,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    trees = {"there": asked.other.resolve(), "here": HERE}
    turns = {name: [] for name in trees}  # type: dict[str, list[dict[str, float]]]
    for turn in range(asked.turns):
        for name, tree in trees.items():
            print(f"turn {turn + 1} of {asked.turns}: {tree}", file=sys.stderr)
            turns[name].append(played(tree, asked.rounds))
    print("| microseconds of a processor | there | here | ratio |\n|---|---|---|---|")
    for what in turns["here"][0]:
        there, here = (min(turn[what] for turn in turns[name]) * 1e6 for name in trees)
        print(f"| {what} | {there:.1f} | {here:.1f} | {here / there:.2f} |")


if __name__ == "__main__":
    main()
