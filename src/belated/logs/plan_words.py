"""The answer of ``belated plan`` in words, as rows of a table, and as a page."""

from pathlib import Path
from typing import Any

import numpy as np

from belated.core.wording import counted, duration
from belated.experiments.league.players import DELIVERY
from belated.experiments.run_intervals import Estimate, mean_interval
from belated.logs.log_plan import (
    AS_LOGGED,
    AT_ONCE,
    DAILY,
    Plan,
    copies_to_tell,
    lift_by_copy,
    to_play,
)

TITLE = "What to play"
LIFT = "Lift is (earned - uniform) / (best - uniform), in expected rewards."
TOGETHER = (
    "Ahead is the lift beyond that of {reference} in the same copies, and places are those that a "
    "candidate may have; the intervals of all pairs hold together with 95 per cent confidence."
)
EACH_BY_ITSELF = (
    "Either interval holds by itself with 95 per cent confidence; those of the table, which hold "
    "together, are wider, and may call even what is told apart here."
)
FIGURE = (
    "Lift up to each decision, mean of all copies. The bars at the right are 95 % intervals of the "
    "ends of the lines, each by itself; one that goes beyond the edge is cut there. Who is ahead "
    "of whom is in the table below."
)
MOST_COPIES = 1_000  # candidates that more would have to tell apart earn about the same


def rows(plan: Plan) -> list[dict[str, Any]]:
    """Returns the candidates, the best first."""
    return [
        {
            "candidate": row.player,
            "place": _place(row.first, row.last),
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


def _place(first: float, last: float) -> str:
    if np.isnan(first):
        return ""
    return f"{first:.0f}" if first == last else f"{first:.0f} to {last:.0f}"


def advice(plan: Plan) -> str:
    """Says which candidate to play, and which could not be told from it, or that none could be."""
    real = plan.table[~plan.table["player"].isin((AT_ONCE, DAILY))].set_index("player")
    best, lift = to_play(plan.table, plan.reference), real["lift"]
    shown = {name: f"{round(x, 2) + 0.0:.0%}" for name, x in lift.items()}  # 0%, not -0%
    earned = f"{best} earned {shown[best]} of what is possible beyond uniform play"
    if best != plan.reference:
        return f"Play {best}: {earned}, {plan.reference} {shown[plan.reference]}."
    worse, even = (list(real.index[real["verdict"] == word]) for word in ("lower", "even"))
    if not even:
        others = f", and {counted(len(worse), 'other')} earned less" if worse else ""
        return f"Play {best}: {earned}{others}."
    alike = f"{', '.join(even)} could not be told from it"
    if worse and lift.idxmax() == best:
        of_all = f"{len(worse)} of {counted(len(real) - 1, 'other')}"
        return f"Play {best}: {earned}, and {of_all} earned less; {alike}."
    rival = str(lift[even].idxmax())
    less = f"; {', '.join(worse)} earned less" if worse else ""
    return (
        f"{plan.copies} copies of {counted(plan.decisions, 'decision')} are too few to say what to "
        f"play: {earned}, {rival} {shown[rival]}, and {alike}{less}. {_more(plan, best, rival)}"
    )


def _more(plan: Plan, one: str, other: str) -> str:
    """Says how many copies would tell two candidates apart."""
    needed = copies_to_tell(lift_by_copy(plan.frame), one, other)
    if needed > MOST_COPIES:
        return f"More copies will hardly tell {one} from {other}: they earn about the same."
    asked = max(round(needed), plan.copies + 1)
    return f"To tell {one} from {other} it would take about --copies {asked}."


def lateness(plan: Plan) -> list[str]:
    """Says what delays and batches cost the reference, in rewards a day, with 95 % intervals.

    The last sentence says how these differ from the intervals of the table.
    """
    last = plan.frame[plan.frame["t"] == plan.frame["t"].max()]
    earned = (last["earned"] / last["t"]).groupby([last["seed"], last["player"]]).mean().unstack()
    a_day = plan.facts.per_day * earned
    now = a_day[plan.reference]
    late, hours = mean_interval(a_day[AT_ONCE] - now), mean_delay(plan) / 3600.0
    span = f"over the first {counted(plan.decisions, 'decision')}"
    words = _cost(
        f"Rewards that come late ({duration(3600.0 * hours)} on average) cost", late, span, hours
    )
    handed = DELIVERY * plan.facts.seconds / 3600.0  # hours between two deliveries as played
    if handed >= 24.0:
        return [words, "Decisions are so few that rewards of a day are handed over one by one."]
    batched = mean_interval(now - a_day[DAILY])
    daily = _cost("To hand them over once a day would cost", batched, "more", 24.0 - handed)
    return [words, daily, EACH_BY_ITSELF]


def _cost(what: str, cost: Estimate, span: str, hours: float) -> str:
    """Says what something costs a day, and every hour of it."""
    said = f"{what} {_interval(cost)} rewards a day {span}"
    if not (cost.low > 0.0 or cost.high < 0.0):
        return f"{said}: this cannot be told apart from nothing."
    if hours <= 0.0:
        return f"{said}."
    return f"{said}, {_interval(Estimate(*(x / hours for x in cost)))} for every hour."


def _interval(cost: Estimate) -> str:
    return f"{cost.value:.2g} ({cost.low:.2g} to {cost.high:.2g})"


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
    rewards, ends = f"{facts.family_name.partition(':')[0]} rewards", ""
    if facts.window is not None:
        if plan.decisions * facts.seconds < facts.window:
            ends = (
                " A world ends before its first window closes, so whoever holds learns nothing in "
                "it: say --decisions for longer worlds."
            )
        worth = "" if facts.amounts is None else " worth amounts as in the log"
        rewards = f"conversions within {duration(facts.window)}{worth}, {rewards} for the bandit"
    return (
        f"{plan.copies} worlds like that of the log, {counted(plan.decisions, 'decision')} each: "
        f"{counted(len(facts.names), 'action')}, columns of the context: {named}, "
        f"{facts.per_day:,.0f} decisions a day, {rewards}. "
        "Effects are drawn from what the log says of them, delays from the log; "
        f"nothing changes with time.{ends}"
    )


def write_plan_page(plan: Plan, name: str, path: Path) -> None:
    """Write the page about a log of this name."""
    from belated.experiments.reporting.lift_figure import draw_lifts
    from belated.experiments.reporting.report import figure, section, write_body
    from belated.logs.delay_figure import png

    logged = plan.frame[plan.frame["world"] == AS_LOGGED]
    body = [
        section("The answer", advice(plan), {}),
        figure(png(draw_lifts(logged)), FIGURE),
        section(
            "All candidates",
            f"{LIFT} {TOGETHER.format(reference=plan.reference)}",
            {"": rows(plan)},
        ),
        section("What lateness costs", " ".join(lateness(plan)), {}),
        section("What was played", assumed(plan), {}),
    ]
    write_body(path, TITLE, f"{name}: what to play, and what lateness costs.", "\n".join(body))
