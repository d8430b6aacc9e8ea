"""What a round costs each policy, beside Delayed OFU-GLM in the same process.

Prints a section of documentation: ``make docs`` appends it to docs/performance.md.
"""

from belated.experiments.comparison import TIMED_ROUNDS, new_comparison, time_lanes
from belated.experiments.options import Options
from belated.model.plain_policy import is_own

D, K = 10, 100
EXEMPT = {
    "ofuglb": "an exact level set, O(n d^2) an action that is not pruned",
    "ofulog-r": "the same",
    "polya-gamma": "Gibbs sweeps, O(n d^2) each",
}


def print_group(group: str, title: str) -> None:
    options = Options(
        group, [], "exponential:100", dims=[D], horizon=5000, runs=1, seed=1, n_actions=K
    )
    experiment, left_out = new_comparison(options)
    times = {policy: spent for (policy, _), spent in time_lanes(experiment).items()}
    reference = times["delayed-ofu-glm"]
    print(f"\n## {title}\n\n| policy | microseconds | ratio | remark |\n|---|---|---|---|")
    for name, spent in sorted(times.items(), key=lambda pair: pair[1]):
        plain = "in plain Python" if is_own(experiment.policies[name]) else ""
        remark = plain or (EXEMPT.get(name, "") if spent > 3.0 * reference else "")
        print(f"| {name} | {spent:.2f} | {spent / reference:.2f} | {remark} |")
    print(f"\nNot for these rewards: {', '.join(left_out)}.")


def main() -> None:
    print(
        "\n\n# The policies\n\nPrinted by `make docs` (benchmarks/policies.py). CPU time of a lane's "
        f"round beyond drawing the world,\nd = {D}, K = {K}, the first {TIMED_ROUNDS:,} rounds, "
        "exponential delays of mean 100, one thread; the\nratio is to Delayed OFU-GLM in the same "
        "run. Early rounds are dearer than late ones for policies\nthat pass over their data."
    )
    print_group("all-linear", "Linear rewards")
    print_group("all-logistic", "Logistic rewards")


if __name__ == "__main__":
    main()
