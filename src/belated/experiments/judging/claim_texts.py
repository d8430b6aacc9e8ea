"""The text of each claim, its measurement, and the rule of its verdict."""

GROWTH_LIMIT = 0.25  # half way between no growth and the square root of T
SETTLED = 20  # half the horizon must be this many expected delays, or the penalty still builds up
MARGIN = 0.02  # relative; a number shown to be this near to its limit counts as equal to it


def rule(theta_per_run: bool) -> str:
    """Returns what the verdicts mean, and for which theta_star they are meant."""
    scope = (
        "theta_star was drawn in every run: verdicts are on the mean over theta_star."
        if theta_per_run
        else "All this is given the theta_star of each dimension: --theta-per-run draws one for "
        "every run."
    )
    return (
        "Supported everywhere: every setting shows it. Supported overall: the pool shows it, some "
        "settings are open and none shows the contrary. Mixed: some show it, some the contrary. "
        "Contradicted: settings or the pool show the contrary, none shows it. Otherwise it is not "
        "contradicted, and the runs are too few to confirm it. Whether a setting is lower, higher "
        "or equal is tested at 2.5% each, with Holm's correction over all settings. " + scope
    )


# Each entry has a title, what the paper says, how it is measured and what is tested.
TEXTS: list[tuple[str, str, str]] = [
    (
        "Delayed OFU-GLM has lower regret than DUCB",
        "The approach out-performs existing algorithms, which inflate the exploration bonus by the "
        "number of missing rewards; results are similar for all delays considered.",
        "Relative difference in regret after the last round, Delayed OFU-GLM minus DUCB, run by "
        "run. Pool: its mean over the settings of a world, over all worlds, dimensions counted "
        "alike; lower if Student's 95% interval lies below 0. Settings: each with delays, tested "
        f"alike; equal if two one-sided tests show a difference within {MARGIN:.0%} of 0.",
    ),
    (
        "The penalty of the delay is additive for Delayed OFU-GLM and grows for DUCB",
        "The delayed feedback causes an additive penalty for Delayed OFU-GLM and a larger, "
        "multiplicative one, of order square root of T, for DUCB.",
        "Penalty: regret minus that of the same policy without delay, run by run, after about "
        "T/16, T/8, T/4, T/2 and T rounds. Growth: what the last step adds. Exponent: slope of "
        "log mean penalty against log rounds over the last three of these, with the jackknife's "
        "95% interval over runs; 0 is no growth, 1/2 the square root. Claimed: below "
        f"{GROWTH_LIMIT} for Delayed OFU-GLM (or, where a penalty is not positive, no growth in "
        "the last step), above it for DUCB. Pool: the mean penalty over all settings of a family, "
        "in which DUCB's exponent must also lie above that of Delayed OFU-GLM. Left out: Pareto "
        "delays (short within the horizon) and settings with T/2 up to "
        f"{SETTLED} expected delays (the penalty still builds up). Logarithmic growth counts as "
        "none.",
    ),
    (
        "Final regret grows at most linearly with the expected delay",
        "Regret after the last round as a function of the expected delay is consistent with the "
        "bound, whose penalty is linear in it.",
        "For each family, dimension and sub-exponential law: exponent p in (regret - regret "
        "without delay) ~ E^p, slope on logarithmic scales over the expected delays E, with the "
        "jackknife's 95% interval over runs; and the bend: what the quadratic term of a parabola "
        "fitted to regret against E, no delay included, adds at the largest E, with Student's "
        f"interval. Claimed: p below 1, or equal to it within {MARGIN:.0%}; where p is undefined "
        "because a mean penalty is not positive, a bend below 0. Pool: p of the mean over all "
        "settings, each in units of its regret without delay.",
    ),
    (
        "Pareto delays cost less, as most of them are short",
        "The penalty for Pareto delays is lesser than for the other distributions, perhaps because "
        "this parameterisation produces many small delays.",
        "Relative difference in final regret of Delayed OFU-GLM, Pareto minus each other law of "
        "the same expected delay, run by run; pool and settings as in claim 1. Why: a run of T "
        "rounds feels E[min(tau, T)] of a delay tau, not its mean. Measured beside it: the mean of "
        "ceil(tau) cut at T + 1, which rounding up makes about half a round longer, and the mean "
        "number of missing rewards. Delays this short say little on robustness to heavy tails.",
    ),
    (
        "theta_star stays in the confidence set",
        "The confidence sets stay valid under delays: theta_star is in all of them with "
        "probability at least 1 - delta.",
        "Share of runs in which theta_star was outside the set in some round, with the exact "
        "(Clopper-Pearson) 95% interval. Claimed: at most delta in each setting. Pool: worlds in "
        "which it was outside in any setting; where their share is below delta, that of every "
        "setting is. Other policies with a set are shown, not judged. In the pooled rows of the "
        "table runs of one world count once for each of its lanes, which share their random "
        "numbers: those intervals are too narrow, so the number of worlds is given too.",
    ),
]
