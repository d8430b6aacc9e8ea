"""Thompson sampling on returned rewards in the paper's grid, beside Delayed OFU-GLM.

Prints a page of documentation, docs/thompson.md, and draws docs/thompson.png. The paper's 100,000
rounds, 30 runs, d = 5, 10, 20, K = 100, linear and logistic rewards, exponential delays; theta_star
anew in every run. Some minutes on two cores.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd

from belated.experiments.auditing import plan_audit
from belated.experiments.judging.audit_claims import judge_thompson
from belated.experiments.reporting.audit_figures import draw_penalty
from belated.experiments.simulation import play_experiment
from belated.worlds.environments import UnitBall

PICTURE = Path(__file__).parent.parent / "docs" / "thompson.png"


def main() -> None:
    frames = []
    for experiment in plan_audit(full=True).bayesian:
        with tempfile.TemporaryDirectory() as folder:
            wide = replace(experiment, environment=UnitBall(100))
            frames.append(play_experiment(wide, folder).frame())
    regret = pd.concat(frames)
    title, said, rule, summary, _, verdict, reason = judge_thompson(regret)
    draw_penalty(regret).savefig(PICTURE, dpi=110)
    print(f"# {title}?\n\nPrinted by `python benchmarks/thompson.py`. {said}\n\n{rule}\n")
    print(f"![Penalty of delay against rounds and expected delay]({PICTURE.name})\n")
    print("| " + " | ".join(summary[0]) + " |\n|" + "---|" * len(summary[0]))
    for row in summary:
        values = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values())
        print("| " + " | ".join(values) + " |")
    print(f"\nVerdict: {verdict}. {reason}")


if __name__ == "__main__":
    main()
