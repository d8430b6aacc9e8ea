"""Worlds from a log, and what was played in them."""

import math
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from belated.families import Bernoulli, Gaussian, Poisson
from belated.logs.log_model import coded, family_of
from belated.logs.log_plan import (
    AS_LOGGED,
    AT_ONCE,
    COMPARED,
    DAILY,
    Candidate,
    Plan,
    Task,
    before,
    candidates,
    judged,
    lift_by_copy,
    make_plan,
    played,
    to_play,
)
from belated.logs.log_world import Delays, LogWorld, facts_of
from belated.logs.plan_words import advice, assumed, lateness, rows, write_plan_page
from belated.logs.values import PENDING
from belated.logs.whole_log import WholeLog
from support.logged import DAY, young_action_log

HOUR = 3_600_000_000  # microseconds
START = 1_750_000_000_000_000
SHORTER = ["half of the window", "a quarter of the window"]


def log_of(n=3000, seed=0, window=None, rates=(0.1, 0.3), late=(2.0, 8.0)):
    """A log of two banners on two devices, a minute apart; late by some hours, by banner."""
    rng = np.random.default_rng(seed)
    decided = START + np.arange(n) * (HOUR // 60)
    action, device = rng.integers(2, size=n), rng.integers(2, size=n)
    odds = np.log(np.array(rates) / (1.0 - np.array(rates)))[action] + 0.8 * (device == action)
    reward = (rng.random(n) < 1.0 / (1.0 + np.exp(-odds))).astype(float)
    wait = (rng.exponential(np.array(late)[action]) * HOUR).astype(np.int64)
    now = int(decided[-1])
    came = decided + wait <= now
    if window is not None:
        came &= (reward > 0.0) & (wait <= window * HOUR)
    return WholeLog(
        decided,
        np.where(came, decided + wait, PENDING),
        np.where(came, reward, np.nan),
        np.full(n, 0.5),
        action,
        ["a", "b"],
        {"device": np.where(device == 1, "phone", "desk").astype(object)},
        now,
    )


@cache  # a fit of thousands of rows takes seconds in plain Python
def facts_of_log(n, window=None):
    """What a world takes from a log; conversions come after six hours, whatever the banner."""
    if window is None:
        return facts_of(log_of(n), "explicit", None)
    return facts_of(log_of(n, window=window, late=(6.0, 6.0)), "conversion", window * 3600.0)


def test_the_model_finds_what_the_log_was_made_of():
    """Rates, the pair of banner and device, traffic, and delays by banner."""
    facts = facts_of_log(4000)
    assert (facts.names, facts.columns) == (["a", "b"], {"device": 2})
    assert facts.family == Bernoulli()
    assert facts.seconds == pytest.approx(60.0)
    world = LogWorld(1, facts)
    found = np.empty((2, 2))
    for device in range(2):
        found[device] = world.visit(0, {"device": device}, (0.5, 0.5)).expected
    log = log_of(4000)
    first = coded(log.context["device"]) == 0
    for code, use in enumerate((first, ~first)):
        for k in range(2):
            own = use & (log.action == k) & ~np.isnan(log.reward)
            assert found[code, k] == pytest.approx(log.reward[own].mean(), abs=0.06)
    medians = [law.quantile(0.5) / 3600.0 for law in facts.delays]
    assert medians == pytest.approx([2.0 * math.log(2.0), 8.0 * math.log(2.0)], rel=0.15)


def test_the_delays_of_an_action_that_is_younger_than_the_window():
    """Conversions come evenly over 7 days; of the new action only those of 4 days can be there."""
    log = young_action_log(np.random.default_rng(1), 8000)
    laws = facts_of(log, "conversion", 7.0 * DAY).delays
    means = [float(np.diff(law.within, prepend=0.0) @ law.times) / DAY for law in laws]
    assert means == pytest.approx([3.5, 3.5], abs=0.3)


def test_copies_differ_as_much_as_the_log_leaves_open():
    few, many = (facts_of_log(n) for n in (300, 4000))
    spread = [
        np.std([LogWorld(s, facts).theta for s in range(20)], axis=0) for facts in (few, many)
    ]
    sd = [np.sqrt((facts.theta.root**2).sum(axis=1)) for facts in (few, many)]
    assert spread[1].mean() < spread[0].mean()
    for drawn, known in zip(spread, sd, strict=True):
        assert drawn.mean() == pytest.approx(known.mean(), rel=0.3)


def test_silence_of_a_young_log_is_not_failure():
    """Half of the log is open; its rates are those of the log that was closed."""
    window = 24.0
    facts = facts_of_log(4000, window)
    log = log_of(4000, late=(1e-6, 1e-6))  # the same rewards, all known
    within = 1.0 - math.exp(-window / 6.0)
    world = LogWorld(1, facts._replace(theta=facts.theta._replace(root=0.0 * facts.theta.root)))
    for device in range(2):
        expected = world.visit(0, {"device": device}, (0.5, 0.5)).expected
        for k in range(2):
            own = (coded(log.context["device"]) == device) & (log.action == k)
            truth = within * np.nanmean(log.reward[own])
            assert expected[k] == pytest.approx(truth, abs=0.04)


@cache
def sales(whole=False):
    """What a world takes from conversions worth amounts: those of the second banner are larger."""
    log = log_of(1500, window=6.0, late=(2.0, 2.0))
    amount = np.random.default_rng(5).gamma(3.0, np.where(log.action == 1, 20.0, 10.0))
    worth = np.ceil(amount) if whole else amount
    log = log._replace(reward=log.reward * worth)
    return log, facts_of(log, "conversion", 6.0 * 3600.0)


@pytest.mark.parametrize("whole", [False, True])
def test_conversions_may_be_worth_amounts(whole):
    """Most visitors are worth 0, and a bandit is told so; prices without cents are amounts, too."""
    log, facts = sales(whole)
    assert (facts.family, facts.family_name.partition(":")[0]) == (Bernoulli(), "gaussian")
    assert facts.window == 6.0 * 3600.0
    closed = log.age >= facts.window
    for k in range(2):
        own = closed & (log.action == k)
        truth = np.nansum(log.reward[own]) / own.sum()
        found = [
            np.mean([LogWorld(s, facts).visit(0, {"device": d}, (0.5, 0.5)).expected[k]
                     for s in range(20)]) for d in range(2)
        ]  # fmt: skip
        assert np.mean(found) == pytest.approx(truth, rel=0.2)
    names = [c.name for c in candidates(facts, ["adaptive-thompson"])]
    assert names[1:4] == ["failure at once", *SHORTER]  # it holds without being told


def test_outcomes_of_conversions_worth_amounts_have_the_expected_mean():
    world = LogWorld(1, sales()[1])
    draws = np.random.default_rng(2).random((4000, 2))
    for k in range(2):
        visit = world.visit(0, {"device": 1}, (0.5, 0.5))
        got = [world.outcome(visit._replace(luck=(u, v)), k) for u, v in draws]
        rewards = np.array([outcome.reward for outcome in got])
        assert rewards.mean() == pytest.approx(visit.expected[k], rel=0.1)
        assert [outcome.wait == math.inf for outcome in got] == [r == 0.0 for r in rewards]
    other = LogWorld(2, sales()[1])
    assert (world.worth != other.worth).all()  # what amounts are on average is drawn, too


def test_a_conversion_loop_needs_a_window_that_the_log_can_be_of():
    log = log_of(500, window=2.0)
    with pytest.raises(ValueError, match=r"--window = None: expected how long a conversion counts"):
        facts_of(log, "conversion", None)
    with pytest.raises(ValueError, match=r"--loop = 'sales': expected explicit or conversion"):
        facts_of(log, "sales", 7200.0)
    with pytest.raises(ValueError, match=r"--window = '1 day': expected at most the age of the"):
        facts_of(log, "conversion", 86_400.0)


def test_a_window_of_an_explicit_loop_changes_nothing():
    with_it, without = (facts_of(log_of(500), "explicit", window) for window in (3600.0, None))
    assert with_it.window is None
    shares = np.linspace(0.01, 0.99, 50)
    waits, expected = (
        [law.quantile(u) for law in facts.delays for u in shares] for facts in (with_it, without)
    )
    assert waits == expected
    assert max(wait for wait in waits if wait < math.inf) > 3600.0


def test_who_waits_for_windows_does_not_when_rewards_come_at_once():
    """A bandit of amounts learns when windows close, which here is after the end of the run."""
    facts = sales()[1]
    late, once = (
        played(Task(facts, Candidate(world, "greedy", world), 1, 120))["earned"].iloc[-1]
        for world in (AS_LOGGED, AT_ONCE)
    )
    assert late != once


def test_outcomes_are_those_of_the_log():
    window = 24.0
    facts = facts_of_log(4000, window)
    world = LogWorld(1, facts)
    visit = world.visit(0, {"device": 0}, (1.0 - 1e-9, 0.5))
    assert world.outcome(visit, 0) == (1.0, facts.delays[0].quantile(0.5) / 60.0)
    assert world.outcome(visit._replace(luck=(1e-9, 0.5)), 0) == (0.0, math.inf)
    assert LogWorld(1, facts, at_once=True).outcome(visit, 0).wait == 0.0
    drawn = world.draw_visitors(np.random.default_rng(0), 2000)
    assert drawn.mean(axis=0) == pytest.approx(facts.visitors.mean(axis=0), abs=0.05)


def test_a_share_may_never_come():
    law = Delays(np.array([1.0, 2.0]), np.array([0.25, 0.5]))
    assert [law.quantile(u) for u in (0.1, 0.25, 0.3, 0.51)] == [1.0, 1.0, 2.0, math.inf]
    assert law.share_at(np.array([0.5, 1.0, 9.0])).tolist() == [0.0, 0.25, 0.5]


@pytest.mark.parametrize(
    ("rewards", "family"),
    [([0.0, 1.0], Bernoulli()), ([0.0, 3.0], Poisson()), ([-1.0, 1.0], Gaussian(sd=1.0))],
)
def test_the_law_of_rewards_is_read_off(rewards, family):
    assert family_of(np.array(rewards))[0] == family


def test_a_log_that_says_nothing_is_refused():
    log = log_of(50)
    with pytest.raises(ValueError, match="expected decisions at different times"):
        facts_of(log._replace(decided=np.full(50, START)), "explicit", None)
    with pytest.raises(ValueError, match="expected rewards, and none has come"):
        facts_of(log._replace(reward=np.full(50, np.nan)), "explicit", None)
    with pytest.raises(ValueError, match="expected rewards that differ, and all that came are 0"):
        facts_of(log._replace(reward=0.0 * log.reward), "explicit", None)
    log = log_of(500)
    wide = {f"c{k}": np.arange(500.0) for k in range(400)}
    with pytest.raises(ValueError, match="name fewer columns"):
        facts_of(log._replace(context=wide), "explicit", None)


def test_conversions_have_waiting_rules():
    explicit = facts_of_log(300)
    names = [c.name for c in candidates(explicit, ["greedy"])]
    assert names == ["greedy", AT_ONCE, DAILY]
    conversions = explicit._replace(window=86_400.0)
    rules = candidates(conversions, ["adaptive-thompson", "greedy"])
    assert [c.name for c in rules[2:-2]] == ["hold", "failure at once", *SHORTER]
    with pytest.raises(ValueError, match="no-such"):
        candidates(explicit, ["no-such"])


@pytest.mark.parametrize("policy", COMPARED)
def test_what_is_compared_by_default_can_be_played(policy):
    table = played(Task(facts_of_log(300), Candidate(policy, policy), 1, 60))
    assert table["t"].max() == 60
    assert (table["earned"] <= table["best"]).all()


def test_candidates_are_compared_in_pairs():
    def runs(world, player, earned):
        shared = {"uniform": 10.0, "best": 20.0, "learnt": 1, "seconds": 1.0, "t": 100}
        return [
            {"world": world, "player": player, "seed": s, "earned": earned + s, **shared}
            for s in range(3)
        ]

    frame = pd.DataFrame(
        runs("as in the log", "mine", 12.0) + runs("as in the log", "other", 11.0)
        + runs(AT_ONCE, AT_ONCE, 14.0) + runs(DAILY, DAILY, 11.5)
    )  # fmt: skip
    frame = pd.concat([frame.assign(t=90), frame])  # a tenth of the run ends at its last row
    table = judged(frame, "mine").set_index("player")
    assert table.loc["other", "ahead"] == pytest.approx(-0.1)
    assert table.loc[AT_ONCE, "verdict"] == "higher"
    assert table.loc["mine", "earned"] == pytest.approx(0.13)


def test_the_best_that_is_ahead_beyond_chance_is_to_be_played():
    """One that is further ahead by luck, or that no user can have, is not."""
    table = pd.DataFrame(
        {
            "player": [AT_ONCE, "lucky", "good", "fair", "mine"],
            "verdict": ["higher", "even", "higher", "higher", ""],
        }
    )
    assert to_play(table, "mine") == "good"
    assert to_play(table.assign(verdict="even"), "mine") == "mine"


@pytest.mark.slow
def test_a_plan_finds_another_candidate_than_the_first_where_that_is_better():
    """In few decisions who explores least earns most, in the world and so in the plan."""
    policies, seeds, n = ["linucb", "greedy", "uniform"], range(1, 7), 400
    facts, other = (facts_of(log_of(m, m, late=(0.2, 0.5)), "explicit", None) for m in (1000, 4000))
    truth = other._replace(theta=other.theta._replace(root=0.0 * other.theta.root))
    frames = [
        pd.concat([played(Task(f, Candidate(p, p), s, n)) for s in seeds for p in policies])
        for f in (facts, truth)
    ]
    table = judged(frames[0], "linucb")
    plan = Plan(facts, frames[0], table, "linucb", len(seeds), n)
    best_first = ["greedy", "linucb", "uniform"]
    told = set(combinations(best_first, 2))
    assert before(lift_by_copy(frames[1])) == told
    assert before(lift_by_copy(frames[0])) == told
    assert table["player"].tolist() == best_first
    assert [row["place"] for row in rows(plan)] == ["1", "2", "3"]
    assert advice(plan).startswith("Play greedy: ")


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["explicit", "conversion"])
def test_a_plan_from_end_to_end(loop, tmp_path):
    window = 12.0 if loop == "conversion" else None
    facts = facts_of(log_of(1500, window=window), loop, None if window is None else 43_200.0)
    plan = make_plan(facts, ["adaptive-thompson", "uniform"], copies=2, decisions=150, threads=1)
    uniform = plan.table.set_index("player").loc["uniform"]
    assert abs(uniform["lift"]) < 0.35
    assert len(rows(plan)) == len(candidates(facts, ["adaptive-thompson", "uniform"]))
    assert "adaptive-thompson earned" in advice(plan)
    assert "rewards a day" in lateness(plan)[0]
    assert "2 actions" in assumed(plan)
    too_short = window is not None and 150 * facts.seconds < 43_200.0
    assert ("before its first window closes" in assumed(plan)) == too_short
    write_plan_page(plan, "log.csv", tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert "one that goes beyond the edge is cut there" in page
    assert "What to play" in page
    assert "The bars at the right are 95 % intervals" in page
