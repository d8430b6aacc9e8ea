"""How wide confidence sets are: the same late logistic rewards, one policy after the other.

Prints a page of documentation, docs/widths.md. Takes names of policies, those of ``NAMES`` by
default; a name that is not registered is left out.
"""

import math
from typing import Any

import numpy as np
from parts import asked_parts

from belated import Bandit, Bernoulli, registry
from belated.engine.reference import World, draw_world
from belated.learner.action_intervals import interval_width
from belated.model.protocols import claims_set, mean
from belated.model.steps import covers
from belated.worlds.delays import Exponential, arrival, quantile
from belated.worlds.environments import UnitBall

NAMES = ("delayed-ofu-glm", "ada-ofu-ecolog", "ofuglb-e", "ofuglb", "gloc")
DIM, ROUNDS, SEEDS, DELTA, LATE = 3, 1000, 3, 0.05, Exponential(20.0)
NEAR = 0.05  # two widths that differ by less count as equal
# Narrowest first, as a small study of the same question found (3 seeds, T = 1000): rms bonus.
REPORTED: dict[float, dict[str, float]] = {
    1.0: {"delayed-ofu-glm": 0.68, "ada-ofu-ecolog": 0.80, "ofuglb-e": 1.05, "gloc": 1.37},
    3.0: {"ada-ofu-ecolog": 2.09, "ofuglb-e": 2.11, "delayed-ofu-glm": 2.86, "gloc": 6.38},
}


def make(name: str, m1: float) -> Any:
    """The policy with its defaults, told the bound on the norm."""
    kind = registry.load(registry.POLICIES, name)
    if "m1" not in kind._fields or not claims_set(kind()):
        raise SystemExit(f"{name}: expected a policy with a bound m1 and a confidence set")
    values: dict[str, Any] = {"m1": m1}
    if "delta" in kind._fields:
        values["delta"] = DELTA
    if "horizon" in kind._fields:
        values["horizon"] = ROUNDS
    return kind(**values)


def fed(policy: Any, world: World) -> Bandit:
    """A bandit that played the first action of every round and got its rewards late."""
    bandit = Bandit(DIM, family=Bernoulli(), policy=policy)
    due: dict[float, list[tuple[int, float]]] = {}
    for t in range(ROUNDS):
        x = world.actions[t, :1]
        p = float(mean(Bernoulli(), float(x[0] @ world.theta_star)))
        when = arrival(t + 1, float(quantile(LATE, world.lateness[t])))
        due.setdefault(when, []).append((bandit.decide(x).id, float(world.luck[t] > 1.0 - p)))
        if t + 1 in due:
            bandit.learn(due.pop(t + 1))
    return bandit


def rms_bonus(name: str, m1: float) -> tuple[float, int]:
    """Root mean square of the half width over fresh actions, and how many sets held theta_star."""
    squares, held = [], 0
    for seed in range(SEEDS):
        world = draw_world(UnitBall(1), DIM, ROUNDS, seed)
        world = world._replace(theta_star=m1 * world.theta_star)
        bandit = fed(make(name, m1), world)
        held += bool(covers(bandit.policy, bandit._state, world.theta_star))
        for x in draw_world(UnitBall(200), DIM, 1, 99).actions[0]:
            squares.append(interval_width(bandit._learner, x) ** 2)
    return math.sqrt(float(np.mean(squares))), held


def agrees(found: dict[str, float], reported: dict[str, float]) -> bool:
    """Whether no two policies are clearly the other way round."""
    names = [name for name in reported if name in found]
    return all(
        found[a] <= found[b] * (1.0 + NEAR)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if reported[a] < reported[b] * (1.0 - NEAR)
    )


def main(names: tuple[str, ...]) -> None:
    known = [name for name in names if name in registry.POLICIES]
    print("# How wide the confidence sets are\n\nPrinted by `python benchmarks/widths.py`.\n")
    print(
        f"Every policy is fed the same {ROUNDS:,} rounds of logistic rewards, d = {DIM}, actions uniform "
        f"in the unit\nball, theta_star uniform in the ball of radius m1, delays exponential of mean "
        f"{LATE.mean:g}, delta = {DELTA:g}.\nThe bonus is half the confidence interval of x'theta; its "
        f"root mean square is over 200 fresh actions\nand {SEEDS} seeds. Held: sets that contain "
        "theta_star at the end."
    )
    for m1, reported in REPORTED.items():
        table = {name: rms_bonus(name, m1) for name in known}
        found = {name: bonus for name, (bonus, _) in table.items()}
        print(f"\n## m1 = {m1:g}\n\n| policy | rms bonus | reported | held |\n|---|---|---|---|")
        for name in sorted(found, key=lambda name: found[name]):
            number = f"{reported[name]:.2f}" if name in reported else ""
            print(f"| {name} | {found[name]:.2f} | {number} | {table[name][1]} of {SEEDS} |")
        order = "The order is as reported." if agrees(found, reported) else "The order differs."
        absent = [name for name in reported if name not in found]
        print(f"\n{order}" + (f" Not measured: {', '.join(absent)}." if absent else ""))
    print(f"\n{READING}")


READING = """\
"Reported" are numbers of an earlier study of the same question, with its own seeds and its own
implementations; the order is what to compare, and within 5 per cent two count as equal. Widths that
grow like 1 / kappa are the narrowest for m1 = 1, where kappa is 0.2, and lose for m1 = 3, where it is
0.05: sets of likelihood ratios pay a factor that grows like sqrt(m1) instead."""


if __name__ == "__main__":
    main(tuple(asked_parts(__doc__, NAMES)))
