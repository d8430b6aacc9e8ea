"""How fast the online API is, beside a plain NumPy bandit that does the same work.

Prints a whole page of documentation: ``make docs`` writes it to docs/performance.md. Everything
in one table is measured in one run, the contenders taking turns, because machines are noisy;
the ratios are what to look at.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# at these sizes a second thread makes NumPy's products slower, and their times erratic
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.core.types import Matrix
from naive.plain_bandit import PlainBandit  # type: ignore[import-not-found]

K, D = 100, 20
DELTA = 0.05 / 3


def decision_sets(rng: np.random.Generator, rounds: int, d: int = D) -> Matrix:
    """Fresh actions uniform in the unit ball, (rounds, K, d)."""
    g = rng.standard_normal((rounds, K, d))
    radius = np.sqrt((g**2).sum(2) + 2 * rng.exponential(size=(rounds, K)))
    return np.asarray(g / radius[:, :, None])


def theta_star(rng: np.random.Generator, d: int = D) -> Matrix:
    g = rng.standard_normal(d)
    return np.asarray(0.9 * g / np.linalg.norm(g))


def reward(rng: np.random.Generator, z: float) -> float:
    return float(rng.random() < 1 / (1 + np.exp(-z)))


def new_bandit(d: int = D, order: int | None = None, constrained: bool = True) -> Bandit:
    policy = DelayedOFUGLM(delta=DELTA, order=order, constrained=constrained)
    return Bandit(d, family=Bernoulli(), policy=policy, seed=1)


def grown_bandit(n: int, rng: np.random.Generator, star: Matrix) -> Bandit:
    """A bandit that has made ``n`` decisions and seen their rewards."""
    bandit = new_bandit()
    for start in range(0, n, 1000):
        for actions in decision_sets(rng, min(1000, n - start)):
            decision = bandit.decide(actions)
            bandit.learn(decision.id, reward(rng, actions[decision.index] @ star))
    return bandit


def plain_twin(bandit: Bandit) -> Any:
    """The NumPy bandit in the same state."""
    p: Any = bandit.policy
    twin = PlainBandit("bernoulli", D, lam=p.lam, m1=p.m1, R=p.R, kappa=p.kappa, delta=p.delta)
    n = bandit.n_observed
    twin.X, twin.Y = bandit._history.x[:n].copy(), bandit._history.y[:n].copy()
    twin.n = twin.decided = n
    twin.W, twin.theta = bandit.W, bandit.theta
    twin.W_inv = np.linalg.inv(twin.W)
    return twin


def timed(times: list[float], call: Callable[..., Any], *args: Any) -> Any:
    start = time.perf_counter_ns()
    result = call(*args)
    times.append((time.perf_counter_ns() - start) / 1000)
    return result


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    header = list(header)
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
    print()


def against_numpy() -> None:
    rng = np.random.default_rng(1)
    star = theta_star(rng)
    ours = grown_bandit(10_000, rng, star)
    plain = plain_twin(ours)
    names = ("ours decide", "ours learn", "plain decide", "plain learn")
    times: dict[str, list[float]] = {name: [] for name in names}
    same = 0
    for _ in range(20):  # in turns, but long ones: neither should pay for the other's use of caches
        sets = decision_sets(rng, 50)
        chosen = []
        for actions in sets:
            decision = timed(times["ours decide"], ours.decide, actions)
            y = reward(rng, actions[decision.index] @ star)
            timed(times["ours learn"], ours.learn, decision.id, y)
            chosen.append((decision.index, y))
        for actions, (index, y) in zip(sets, chosen, strict=True):
            id, own_index = timed(times["plain decide"], plain.decide, actions)
            same += own_index == index
            plain.pending[id] = actions[index].copy()  # both learn from the same decision
            timed(times["plain learn"], plain.learn, id, y)
    median = {name: float(np.median(values)) for name, values in times.items()}
    print(f"## One decision, one reward: logistic, K = {K}, d = {D}, n = 10,000 rewards seen\n")
    print(
        "Median microseconds of 1,000 calls. The plain bandit keeps W^-1 by rank-one updates, scores\n"
        "with matrix products and refits by Newton's method (over all of R^d) from its last estimate\n"
        f"to the same tolerance; its products use one thread. Both chose the same action in {same} of 1,000\n"
        "rounds (their estimates differ within that tolerance). A NumPy decision is one matrix product, so\n"
        "`decide` alone gains least; what grows with n in plain NumPy is `learn`.\n"
    )
    rows = []
    for step in ("decide", "learn"):
        mine, theirs = median[f"ours {step}"], median[f"plain {step}"]
        rows.append((step, f"{mine:.1f}", f"{theirs:.1f}", f"{theirs / mine:.1f}"))
    both = [median[f"{who} decide"] + median[f"{who} learn"] for who in ("ours", "plain")]
    rows.append(("both", f"{both[0]:.1f}", f"{both[1]:.1f}", f"{both[1] / both[0]:.1f}"))
    table(("step", "belated", "plain NumPy", "ratio"), rows)
    print(
        "Version 0.1 had 22.9, 1722.0 and a ratio of 75.3 in the last row, in a run of its own.\n"
    )


def against_n() -> None:
    rng = np.random.default_rng(2)
    star = theta_star(rng)
    sizes = (1_000, 10_000, 100_000)
    bandits = [grown_bandit(n, rng, star) for n in sizes]
    times: list[list[float]] = [[] for _ in sizes]
    for actions in decision_sets(rng, 1500):
        for bandit, own in zip(bandits, times, strict=True):
            decision = bandit.decide(actions)
            y = reward(rng, actions[decision.index] @ star)
            timed(own, bandit.learn, decision.id, y)
    print(f"## Cost of a reward against the number already seen: logistic, d = {D}\n")
    print(
        "Microseconds of `learn`, three bandits taking turns, 1,500 rewards each. Passes over all\n"
        "data are in the mean, if one fell into the window. Early on the cubic model and the ball\n"
        "are needed more often, so the cost falls.\n"
    )
    base = float(np.median(times[0]))
    rows = [
        (f"{n:,}", f"{np.median(own):.1f}", f"{np.median(own) / base:.3f}", f"{np.mean(own):.1f}")
        for n, own in zip(sizes, times, strict=True)
    ]
    table(("rewards seen", "median", "ratio to the first", "mean"), rows)
    certificate = bandits[-1].certificate
    print(
        f"The last bandit passed {certificate.passes} times over its data on the way to "
        f"{bandits[-1].n_observed:,} rewards\nand looked at "
        f"{certificate.rows / bandits[-1].n_observed:.1f} rows a reward in those passes.\n"
    )


def passes() -> None:
    rows = []
    for d in (5, 10, 20):
        row: list[Any] = [d]
        for order, constrained in ((2, False), (3, False), (3, True)):
            rng = np.random.default_rng(3)
            star = theta_star(rng, d)
            bandit = new_bandit(d, order, constrained)
            due: dict[int, list[tuple[int, float]]] = {}
            for start in range(0, 100_000, 1000):
                late = np.ceil(rng.exponential(100.0, 1000)).astype(int)
                for k, actions in enumerate(decision_sets(rng, 1000, d)):
                    decision = bandit.decide(actions)
                    y = reward(rng, actions[decision.index] @ star)
                    due.setdefault(start + k + late[k], []).append((decision.id, y))
                    bandit.learn(due.pop(start + k, []))
            c = bandit.certificate
            row.append(f"{c.passes} ({c.rows / 100_000:.1f})")
        rows.append(row)
    print("## Passes over the data in 100,000 rounds: logistic, exponential delays of mean 100\n")
    print(
        "K = 100, `tol = 0.01`, one seed. In brackets: rows looked at, as a multiple of the rounds.\n"
    )
    table(("d", "order 2, paper's estimate", "order 3, paper's", "order 3, in the ball"), rows)


FIRST_USE = """
import time, numpy as np
clock = [time.perf_counter()]
import belated
clock.append(time.perf_counter())
from belated import Bandit, Bernoulli, DelayedOFUGLM
clock.append(time.perf_counter())
bandit = Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM())
clock.append(time.perf_counter())
bandit.learn(bandit.decide(np.eye(3)).id, 1.0)
clock.append(time.perf_counter())
print(*np.diff(clock))
"""


def start_up() -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], check=True, capture_output=True, text=True
        )
        return done.stdout

    def seconds(*command: str) -> float:
        start = time.perf_counter()
        run(*command)
        return time.perf_counter() - start

    run("-m", "belated", "cache", "warm")
    numpy = min(seconds("-c", "import numpy") for _ in range(5))
    helped = min(seconds("-m", "belated", "--help") for _ in range(5))
    steps = np.array([run("-c", FIRST_USE).split() for _ in range(5)], float).min(axis=0)
    print("## Start-up after `belated cache warm`\n")
    print("Seconds, best of five processes.\n")
    table(
        ("what", "seconds"),
        [
            ("a process that imports numpy", f"{numpy:.3f}"),
            ("`import belated`, numpy being there", f"{steps[0]:.4f}"),
            ("`from belated import Bandit, ...` (loads Numba)", f"{steps[1]:.3f}"),
            ("first `Bandit(...)` (loads compiled code)", f"{steps[2]:.3f}"),
            ("first `decide` and `learn`", f"{steps[3]:.3f}"),
            ("the last two together", f"{steps[2] + steps[3]:.3f}"),
            ("`belated --help`, the whole process", f"{helped:.3f}"),
        ],
    )


def main() -> None:
    print("# Performance\n")
    print(
        "Printed by `make docs` (benchmarks/online.py). What is called an earlier run, or of version 0.1, was printed then"
    )
    print("and is repeated by the scripts; everything else is measured when they print it.")
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{versions}, {platform.machine()}. The machine is shared: trust the ratios.\n")
    against_numpy()
    against_n()
    passes()
    start_up()


if __name__ == "__main__":
    main()
