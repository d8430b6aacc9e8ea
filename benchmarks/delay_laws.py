"""How often the intervals of the best law hold, and how often another law than the true one is best.

    python benchmarks/delay_laws.py [LAW ...] [--logs 100]      # default: all six laws

prints a table of docs/how-to/delays.md. For each law and loop so many logs of a week are drawn with 2,000 and
with 5,000 decisions: a fifth of the rewards never come, or three decisions in ten convert. Every law
of `belated delays` is fitted, and the one with the smallest AIC is asked for its 95 per cent intervals.
"""

import numpy as np
from parts import checked, parser_of
from scipy import stats

from belated.monitoring.delay_fit import DelayFit, all_fits

HOUR, WEEK = 3600.0, 7 * 86_400.0
LAWS = {
    "lognormal": stats.lognorm(1.0, scale=3 * HOUR),
    "exponential": stats.expon(scale=5 * HOUR),
    "weibull": stats.weibull_min(0.7, scale=4 * HOUR),
    "loglogistic": stats.fisk(3.0, scale=3 * HOUR),
    "lomax": stats.lomax(4.0, scale=12 * HOUR),
    "gamma": stats.gamma(2.0, scale=2 * HOUR),
}
RETURNING = {"explicit": 0.8, "conversion": 0.3}


def best_law(law: str, loop: str, n: int, seed: int) -> DelayFit:
    rng = np.random.default_rng([seed, n])
    age = rng.uniform(0.0, WEEK, n)
    delay = LAWS[law].rvs(n, random_state=rng)
    came = (rng.random(n) < RETURNING[loop]) & (delay <= age)
    never = (False, True) if loop == "explicit" else (True,)
    return all_fits(np.where(came, delay, age), came, never=never)[0]


def row(law: str, loop: str, n: int, logs: int) -> str:
    truth, never = LAWS[law].mean(), 1.0 - RETURNING[loop]
    others, means, shares, of_others = 0, 0, 0, 0
    for seed in range(logs):
        best = best_law(law, loop, n, seed)
        low, high = best.mean_interval()
        least, most = best.never_interval()
        holds = low <= truth <= high
        others += best.law != law
        of_others += best.law != law and holds
        means += holds
        shares += least <= never <= most
    held = f"{of_others} of {others}" if others else ""
    return f"| {law} | {loop} | {n:,} | {means} | {shares} | {others} | {held} |"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("laws", nargs="*", help=f"of {', '.join(LAWS)}; default: all")
    parser.add_argument("--logs", type=int, default=100, help="of each law, loop and size")
    asked = parser.parse_args()
    laws = checked(parser, asked.laws, LAWS) or list(LAWS)
    print(
        f"| law | loop | decisions | intervals of the mean that hold, of {asked.logs} | of the share "
        "that never comes | another law is best | its interval of the mean holds |\n|---|---|---|---|---|---|---|"
    )
    for law in laws:
        for loop in RETURNING:
            for n in (2_000, 5_000):
                print(row(law, loop, n, asked.logs), flush=True)


if __name__ == "__main__":
    main()
