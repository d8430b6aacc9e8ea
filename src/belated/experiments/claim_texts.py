"""What each claim says, how it is measured, and the rule of its verdict."""

GROWTH_LIMIT = 0.25  # half way between no growth and the square root of T
SETTLED = 20  # half the horizon must be this many expected delays, or the penalty still builds up
EQUAL = 0.02  # of the regret; an interval of a difference within this says that there is none
FEW_RUNS = 10  # fewer than this, all of them covered, say little about coverage


# Title, what the paper says, how it is measured and the rule of the verdict.
TEXTS: list[tuple[str, str, str]] = [
    (
        "Delayed OFU-GLM has lower regret than DUCB",
        "The approach out-performs existing algorithms, which inflate the exploration bonus by the "
        "number of missing rewards; results are similar for all delays considered.",
        "Difference in regret after the last round, Delayed OFU-GLM minus DUCB, run by run, for "
        "each setting with delays; mean and 95% Student interval. Holds if every interval lies "
        "below 0. Does not hold if one lies above 0 (higher), or around 0 and within "
        f"{EQUAL:.0%} of DUCB's regret (equal). Cannot be judged if it only fails to tell in some "
        "settings (unclear). Each interval stands for itself: were there no difference, 1 in 40 "
        "would lie below 0 and 1 in 40 above by chance, so the count that survives Bonferroni's "
        "correction is given too. theta_star is one draw for each dimension.",
    ),
    (
        "The penalty of the delay is additive for Delayed OFU-GLM and grows for DUCB",
        "The delayed feedback causes an additive penalty for Delayed OFU-GLM and a larger, "
        "multiplicative one, of order square root of T, for DUCB.",
        "Penalty: regret minus that of the same policy without delay, run by run, after about "
        "T/16, T/8, T/4, T/2 and T rounds. Growth: what the last step adds. Exponent: slope of "
        "log mean penalty against log rounds over the last three of these, with the jackknife's "
        "95% interval over runs; 0 is no growth, 1/2 the square root. Judged on the mean penalty "
        "over all settings of a family, Pareto delays left out (their delays are short within "
        f"the horizon) and settings with T/2 up to {SETTLED} expected delays left out (the "
        "penalty still builds up). Holds if in each family the exponent of Delayed OFU-GLM lies "
        f"below {GROWTH_LIMIT}, or its last growth at or below 0, upper limit included, and that "
        "of every DUCB above both this and the exponent of Delayed OFU-GLM, lower limit "
        f"included. Does not hold if Delayed OFU-GLM lies above {GROWTH_LIMIT}, or a DUCB below "
        "it, with 95% confidence. Logarithmic growth counts as none.",
    ),
    (
        "Final regret grows at most linearly with the expected delay",
        "Regret after the last round as a function of the expected delay is consistent with the "
        "bound, whose penalty is linear in it.",
        "For each family, dimension and sub-exponential law: exponent p in (regret - regret "
        "without delay) ~ E^p, slope on logarithmic scales over the expected delays E, with the "
        "jackknife's 95% interval over runs; and the bend: what the quadratic term of a parabola "
        "fitted to regret against E, no delay included, adds at the largest E, with Student's "
        "interval. Does not hold if the lower limit of p is above 1 in some setting, or, where p "
        "is undefined because a mean penalty is not positive, that of the bend above 0. Settings "
        "whose interval of p contains both 1 and 2 are too noisy to count. So 'holds' says: no "
        "evidence of faster growth.",
    ),
    (
        "Pareto delays cost less, as most of them are short",
        "The penalty for Pareto delays is lesser than for the other distributions, perhaps because "
        "this parameterisation produces many small delays.",
        "Difference in final regret of Delayed OFU-GLM, Pareto minus each other law of the same "
        "expected delay, run by run, with 95% Student intervals; judged like claim 1. Why: a run "
        "of T rounds feels E[min(tau, T)] of a delay tau, not its mean. Measured beside it: the "
        "mean of ceil(tau) cut at T + 1, which rounding up makes about half a round longer, and "
        "the mean number of missing rewards. Delays this short say little on robustness to heavy "
        "tails.",
    ),
    (
        "theta_star stays in the confidence set",
        "The confidence sets stay valid under delays: theta_star is in all of them with "
        "probability at least 1 - delta.",
        "Share of runs in which theta_star was outside the set in some round, with the exact "
        "(Clopper-Pearson) 95% interval, for each setting. Holds if no lower limit for Delayed "
        "OFU-GLM is above delta, which says: no evidence of a larger share; with fewer than "
        f"{FEW_RUNS} runs that cannot be judged. Other policies with a set are shown, not judged. "
        "In the pooled rows runs of one world count once for each of its lanes, which share their "
        "random numbers: those intervals are too narrow, so the number of worlds is given too.",
    ),
]
