"""What a plan says: the order of candidates, what to play, what lateness costs."""

import numpy as np
import pandas as pd

from belated.logs.log_plan import (
    AS_LOGGED,
    AT_ONCE,
    DAILY,
    Plan,
    before,
    copies_to_tell,
    judged,
    lift_by_copy,
)
from belated.logs.log_world import Delays, LogFacts
from belated.logs.plan_words import advice, lateness, rows

DELAYS = Delays(np.array([7200.0]), np.array([1.0]))


def facts_of(seconds=60.0):
    """Rewards come after two hours; all else of the log does not matter here."""
    return LogFacts(["a"], {}, None, None, "bernoulli", None, [DELAYS], seconds, None)


def plan_of(seconds=60.0, copies=8, spread=0.05, **lifts):
    """A plan in which candidates had these lifts, up to some noise of each copy."""
    rng, frames = np.random.default_rng(3), []
    lifts = {AT_ONCE: 0.5, DAILY: 0.5, **{k.replace("_", " "): v for k, v in lifts.items()}}
    for player, lift in lifts.items():
        world = player if player in (AT_ONCE, DAILY) else AS_LOGGED
        lift = lift + spread * rng.standard_normal(copies)
        for t in (900, 1000):
            sums = {"earned": t * (0.1 + 0.1 * lift), "uniform": 0.1 * t, "best": 0.2 * t}
            keys = {"world": world, "player": player, "seed": np.arange(copies), "t": t}
            frames.append(pd.DataFrame({**keys, **sums, "learnt": t, "seconds": 1.0}))
    frame = pd.concat(frames, ignore_index=True)
    return Plan(facts_of(seconds), frame, judged(frame, "mine"), "mine", copies, 1000)


def test_places_are_those_that_candidates_may_have():
    plan = plan_of(mine=0.5, alike=0.49, worse=0.2, worst=-0.2)
    assert {row["candidate"]: row["place"] for row in rows(plan)} == {
        "mine": "1 to 2", "alike": "1 to 2", "worse": "3", "worst": "4", AT_ONCE: "", DAILY: "",
    }  # fmt: skip


def test_an_order_is_right_for_all_pairs_together():
    """Of eight candidates without a difference some are apart one by one, and seldom together."""
    wrong = {True: 0, False: 0}
    for seed in range(200):
        drawn = np.random.default_rng(seed).standard_normal((8, 8))
        lift = pd.DataFrame(drawn, columns=list("abcdefgh"))
        wrong[True] += bool(before(lift))
        wrong[False] += bool(before(lift[["a", "b"]]))
    assert wrong[True] <= 17  # P(more) < 1 % at 5 %
    assert 3 <= wrong[False] <= 17


def test_verdicts_and_places_come_from_the_same_intervals():
    plan = plan_of(mine=0.5, ahead=0.62, behind=0.4, far=0.0, spread=0.08)
    order = before(lift_by_copy(plan.frame))
    verdict = plan.table.set_index("player")["verdict"]
    for name in ("ahead", "behind", "far"):
        told = {("mine", name): "lower", (name, "mine"): "higher"}
        assert verdict[name] == next((told[pair] for pair in told if pair in order), "even")


def test_the_number_of_copies_that_would_tell_does_tell():
    few = plan_of(mine=0.5, rival=0.52, worst=0.0, spread=0.05)
    lift = lift_by_copy(few.frame)
    assert ("rival", "mine") not in before(lift)
    needed = round(copies_to_tell(lift, "rival", "mine"))
    apart = lift["rival"] - lift["mine"]
    drawn = np.random.default_rng(1).standard_normal(needed)
    drawn = (drawn - drawn.mean()) / drawn.std(ddof=1)
    many = pd.DataFrame({"mine": 0.0, "rival": apart.mean() + apart.std(ddof=1) * drawn})
    many["worst"] = -1.0
    assert ("rival", "mine") in before(many)
    assert ("rival", "mine") not in before(many.iloc[: needed // 2])


def test_advice_names_one_that_is_ahead_and_those_that_are_not_told_from_it():
    said = advice(plan_of(mine=0.5, better=0.8, spread=0.001))
    earned = "better earned 80% of what is possible beyond uniform play, mine 50%."
    assert said == f"Play better: {earned}"
    said = advice(plan_of(mine=0.5, alike=0.48, worst=0.0))
    assert said.startswith("Play mine: mine earned ")
    assert said.endswith("1 of 2 others earned less; alike could not be told from it.")
    assert advice(plan_of(mine=0.5)).endswith("beyond uniform play.")


def test_no_advice_where_nothing_is_told_apart():
    """The first candidate was last: nobody is told to play it for what it earned."""
    said = advice(plan_of(mine=-0.45, other=0.1, third=0.0, spread=1.0))
    assert said.startswith("8 copies of 1,000 decisions are too few to say what to play: mine ")
    assert "other, third could not be told from it. To tell mine from other it would take" in said
    assert "about --copies " in said
    said = advice(plan_of(mine=-0.001, other=0.001, spread=1e-4))
    assert said.startswith("Play other: other earned 0% of what is possible")
    assert said.endswith("mine 0%.")
    alike = advice(plan_of(mine=0.5, other=0.5001, spread=0.0).frame.pipe(noisy))
    assert alike.endswith("More copies will hardly tell mine from other: they earn about the same.")


def noisy(frame):
    """A plan of runs whose difference is a thousandth of what copies differ by."""
    lift = np.where(frame["seed"] % 2 == 0, 0.01, -0.01) * (frame["player"] == "other")
    frame = frame.assign(earned=frame["earned"] + lift * frame["t"])
    return Plan(facts_of(), frame, judged(frame, "mine"), "mine", 8, 1000)


def test_what_lateness_costs_has_paired_intervals():
    """1,440 decisions a day, of which lift is worth a tenth; two hours of delay."""
    plan = plan_of(**{"mine": 0.5, AT_ONCE: 0.6, DAILY: 0.4}, spread=0.01)
    by = lift_by_copy(plan.frame.assign(world=AS_LOGGED))
    words = lateness(plan)
    for said, ahead, hours in (
        (words[0], by[AT_ONCE] - by["mine"], 2.0),
        (words[1], by["mine"] - by[DAILY], 24.0 - 10.0 / 60.0),
    ):
        mean, reach = 144.0 * ahead.mean(), 144.0 * 2.3646 * ahead.std(ddof=1) / np.sqrt(8)
        numbers = mean, mean - reach, mean + reach
        cost, low, high = (f"{x:.2g}" for x in numbers)
        assert f"cost {cost} ({low} to {high}) rewards a day" in said
        cost, low, high = (f"{x / hours:.2g}" for x in numbers)
        assert f"{cost} ({low} to {high}) for every hour." in said


def test_a_cost_that_may_be_none_is_called_so():
    words = lateness(plan_of(mine=0.5, spread=0.3))
    assert all(said.endswith("cannot be told apart from nothing.") for said in words[:2])
    assert "for every hour" not in " ".join(words)


def test_a_cost_beyond_chance_may_be_even_in_the_table_and_the_words_say_why():
    others = {f"other {k}": 0.1 * k for k in range(8)}
    plan = plan_of(**{"mine": 0.6, DAILY: 0.545}, **others, spread=0.03)
    verdict = {row["candidate"]: row["verdict"] for row in rows(plan)}
    assert verdict[DAILY] == "even"
    _, daily, why = lateness(plan)
    assert "rewards a day more, " in daily
    assert "nothing" not in daily
    assert "those of the table, which hold together, are wider, and may call even" in why


def test_who_decides_twice_a_day_has_no_use_for_daily_batches():
    assert "one by one" in lateness(plan_of(seconds=43_200.0, mine=0.5))[1]
