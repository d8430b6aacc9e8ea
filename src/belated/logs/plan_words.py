"""The answer of ``belated plan`` in words, as rows of a table, and as a page."""

from pathlib import Path
from typing import Any

import numpy as np

from belated.logs.log_plan import AS_LOGGED, AT_ONCE, DAILY, Plan, to_play
from belated.monitoring.words import counted, duration

TITLE = "What to play"
LIFT = "Lift is (earned - uniform) / (best - uniform), in expected rewards."


def rows(plan: Plan) -> list[dict[str, Any]]:
    """Returns the candidates, the best first."""
    return [
        {
            "candidate": row.player,
            "lift": round(row.lift, 3),
            "rewards per 1,000 decisions": round(1000.0 * row.earned, 2),
            "ahead": round(row.ahead, 3),
            "95 % interval": ""
            if row.player == plan.reference
            else f"{row.low:.3f} to {row.high:.3f}",
            "verdict": row.verdict,
        }
        for row in plan.table.itertuples()
    ]


def advice(plan: Plan) -> str:
    """Says which candidate to play, and which could not be told from it."""
    real = plan.table[~plan.table["player"].isin((AT_ONCE, DAILY))].set_index("player")
    best, lift = to_play(plan.table, plan.reference), real["lift"]
    earned = f"Play {best}: it earned {lift[best]:.0%} of what is possible beyond uniform play"
    if best != plan.reference:
        return f"{earned}, {plan.reference} {lift[plan.reference]:.0%}."
    worse = int((real["verdict"] == "lower").sum())
    even = ", ".join(real.index[real["verdict"] == "even"])
    beside = f"; {even} could not be told from it" if even else ""
    return f"{earned}, and {worse} of {len(real) - 1} others earned less{beside}."


def lateness(plan: Plan) -> list[str]:
    """Says what delays and batches cost the reference, in rewards a day."""
    earned = plan.table.set_index("player")["earned"]
    now, per_day = earned[plan.reference], plan.facts.per_day
    hours = mean_delay(plan) / 3600.0
    late = per_day * (earned[AT_ONCE] - now)
    batched = per_day * (now - earned[DAILY])
    words = [
        f"Rewards that come late ({duration(3600.0 * hours)} on average) cost {late:.3g} rewards a "
        f"day over the first {counted(plan.decisions, 'decision')}"
        + (f", {late / hours:.2g} for every hour." if hours > 0.0 else ".")
    ]
    return [
        *words,
        f"To hand them over once a day would cost {batched:.3g} more, {batched / 24.0:.2g} for "
        "every hour between two deliveries.",
    ]


def mean_delay(plan: Plan) -> float:
    """Returns the mean delay of the rewards that come, over actions, in seconds."""
    means = [
        float(np.diff(law.within, prepend=0.0) @ law.times / law.within[-1])
        for law in plan.facts.delays
        if len(law.times)
    ]
    return float(np.mean(means))


def assumed(plan: Plan) -> str:
    """Says what the world is made of."""
    facts = plan.facts
    named = ", ".join(facts.columns) or "none"
    rewards = f"{facts.family_name.partition(':')[0]} rewards"
    if facts.window is not None:
        worth = "" if facts.amounts is None else " worth amounts as in the log"
        rewards = f"conversions within {duration(facts.window)}{worth}, {rewards} for the bandit"
    return (
        f"{plan.copies} worlds like that of the log, {counted(plan.decisions, 'decision')} each: "
        f"{counted(len(facts.names), 'action')}, columns of the context: {named}, "
        f"{facts.per_day:,.0f} decisions a day, {rewards}. "
        "Effects are drawn from what the log says of them, delays from the log; "
        "nothing changes with time."
    )


def write_plan_page(plan: Plan, name: str, path: Path) -> None:
    """Write the page about a log of this name."""
    from belated.experiments.reporting.lift_figure import draw_lifts
    from belated.experiments.reporting.report import figure, section, write_body
    from belated.logs.delay_figure import png

    logged = plan.frame[plan.frame["world"] == AS_LOGGED]
    body = [
        section("The answer", " ".join([advice(plan), *lateness(plan)]), {}),
        figure(png(draw_lifts(logged)), "Lift up to each decision, mean of all copies."),
        section(
            "All candidates", "Lift is (earned - uniform) / (best - uniform).", {"": rows(plan)}
        ),
        section("What was played", assumed(plan), {}),
    ]
    write_body(path, TITLE, f"{name}: what to play, and what lateness costs.", "\n".join(body))
