"""Evaluating policies on logs with known truth: values, intervals, levels, refusals."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from belated.evaluation.anytime import least_reach
from belated.evaluation.confidence import normal_interval
from belated.evaluation.off_policy import (
    estimate,
    explicit_rewards,
    inverse_propensity,
    self_normalised,
)
from belated.evaluation.shares_seen import strata_of
from belated.logs.evaluating import evaluate_log
from belated.logs.evaluation_report import OF_UNKNOWN_RANGE, assumptions
from belated.logs.policy_values import INTERVALS, Options, policy_values
from belated.logs.seen_rewards import seen_rewards
from belated.logs.values import PENDING
from belated.logs.whole_log import WholeLog
from support.logged import (
    GAIN,
    NAMES,
    NOW,
    PLAYED,
    TRUTH,
    WANTED,
    WINDOW,
    conversion_log,
    explicit_log,
    young_action_log,
)

RULE = "support.logged:target"
ROWS = {"explicit": 3_000, "conversion": 10_000}  # few of those are conversions of old decisions
LATER = pytest.mark.slow  # left to `make test-all`, whose levels are judged alike
LOGS = {"explicit": (explicit_log, None), "conversion": (conversion_log, WINDOW)}


def answer(log, loop, **options):
    """Returns the answer for the target, as a dict by estimator."""
    seen = seen_rewards(log, loop, LOGS[loop][1])
    _, found = policy_values(log, seen, [RULE], "action", Options(**options))
    assert not found.refusals
    return {line.estimator: line for line in found.estimates}


def wrong_intervals(loop, pending, runs, n, widest=np.inf, **options):
    """Returns for each estimator in how many runs its interval misses; none may be too wide."""
    wrong = {}
    for seed in range(runs):
        log = LOGS[loop][0](np.random.default_rng(seed), n, pending)
        for name, line in answer(log, loop, seed=seed, **options).items():
            gain = f"gain by {name}"
            if line.low is not None:
                wrong[name] = wrong.get(name, 0) + (not line.low <= TRUTH <= line.high)
                assert line.high - line.low < widest, name
            if line.gain_low is not None:
                wrong[gain] = wrong.get(gain, 0) + (not line.gain_low <= GAIN <= line.gain_high)
                assert line.gain_high - line.gain_low < widest, gain
    return wrong


@pytest.mark.parametrize("loop", LOGS)
@pytest.mark.parametrize("pending", [0.3, 0.7])
def test_the_logs_are_what_they_are_called(loop, pending):
    log = LOGS[loop][0](np.random.default_rng(1), 20_000, pending)
    came = ~np.isnan(log.reward)
    if loop == "explicit":
        assert 1.0 - came.mean() == pytest.approx(pending, abs=0.03)
    else:
        all_of_them = LOGS[loop][0](np.random.default_rng(1), 20_000, 0.0)
        seen = np.nansum(log.reward) / np.nansum(all_of_them.reward)
        assert 1.0 - seen == pytest.approx(pending, abs=0.03)


@pytest.mark.parametrize("loop", LOGS)
@pytest.mark.parametrize("pending", [0.0, 0.3, 0.7])
def test_values_are_near_the_truth(loop, pending):
    log = LOGS[loop][0](np.random.default_rng(2), 40_000, pending)
    found = answer(log, loop)
    assert set(found) == {"IPS", "clipped IPS", "SNIPS", "direct method", "doubly robust"}
    for line in found.values():
        error = (line.high - line.low) / 3.92
        assert abs(line.value - TRUTH) < 4.0 * error
        assert error < 0.04


@pytest.mark.parametrize("loop", LOGS)
@pytest.mark.parametrize("pending", [0.0, pytest.param(0.3, marks=LATER), 0.7])
def test_level_of_normal_intervals(loop, pending):
    runs = 200
    wrong = wrong_intervals(loop, pending, runs, ROWS[loop])
    assert len(wrong) == 10
    for name, count in wrong.items():
        assert binom.sf(count - 1, runs, 0.05) > 1e-3, (name, count)
        assert binom.cdf(count, runs, 0.05) > 1e-4, (name, count)  # nor is it far too wide


@pytest.mark.parametrize("loop", LOGS)
@pytest.mark.parametrize("pending", [pytest.param(p, marks=LATER) for p in (0.0, 0.3)] + [0.7])
@pytest.mark.parametrize("interval", ["bernstein", "anytime"])
def test_level_of_wide_intervals(loop, pending, interval):
    widest = {0.0: 0.2, 0.3: 0.6, 0.7: 0.9}[pending]  # an interval of everything is never wrong
    wrong = wrong_intervals(loop, pending, 60, ROWS[loop], widest, interval=interval)
    assert len(wrong) == {"bernstein": 2, "anytime": 10}[interval]
    for name, count in wrong.items():
        assert binom.sf(count - 1, 60, 0.05) > 1e-2, (name, count)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOGS)
@pytest.mark.parametrize(
    "pending", [pytest.param(p, marks=pytest.mark.nightly) for p in (0.0, 0.7)] + [0.3]
)
def test_level_of_bootstrap_intervals(loop, pending):
    runs = {"explicit": 150, "conversion": 60}[loop]
    wrong = wrong_intervals(loop, pending, runs, ROWS[loop], interval="bootstrap")
    assert len(wrong) == 10
    for name, count in wrong.items():
        assert binom.sf(count - 1, runs, 0.05) > 1e-3, (name, count)


def naive_interval(log, as_zero):
    """The usual estimates, with pending rewards as 0 or left out."""
    came = ~np.isnan(log.reward)
    keep = np.ones(len(came), bool) if as_zero else came
    reward = np.where(came, log.reward, 0.0)[keep]
    kind = (log.context["kind"] == "new").astype(int)
    weight = (WANTED[kind, log.action] / log.propensity)[keep]
    rewards = explicit_rewards(reward, np.ones(len(reward)))
    for terms in (inverse_propensity(weight), self_normalised(weight)):
        found = estimate(terms, rewards)
        yield normal_interval(found.value, float(np.sqrt(found.direct @ found.direct)))


@pytest.mark.parametrize(
    ("loop", "as_zero"), [("explicit", True), ("explicit", False), ("conversion", True)]
)
@pytest.mark.parametrize("pending", [0.3, 0.7])
def test_naive_estimates_fail_on_the_same_logs(pending, loop, as_zero):
    """Pending conversions are taken for 0: nobody knows which ones to leave out."""
    wrong = np.zeros(2, int)
    for seed in range(40):
        log = LOGS[loop][0](np.random.default_rng(seed), ROWS[loop], pending)
        wrong += [not low <= TRUTH <= high for low, high in naive_interval(log, as_zero)]
    assert (binom.sf(wrong - 1, 40, 0.05) < 1e-3).all(), wrong


def test_naive_estimates_of_conversions_hold_where_nothing_is_pending():
    """So it is the pending ones that the test above is about."""
    wrong = np.zeros(2, int)
    for seed in range(40):
        log = conversion_log(np.random.default_rng(seed), ROWS["conversion"], 0.0)
        wrong += [not low <= TRUTH <= high for low, high in naive_interval(log, True)]
    assert (binom.sf(wrong - 1, 40, 0.05) > 1e-3).all(), wrong


def test_without_the_uncertainty_of_the_delays_an_interval_is_too_narrow():
    log = explicit_log(np.random.default_rng(3), 3_000, 0.7)
    seen = seen_rewards(log, "explicit")
    kind = (log.context["kind"] == "new").astype(int)[seen.used]
    weight = WANTED[kind, log.action[seen.used]] / log.propensity[seen.used]
    found = estimate(inverse_propensity(weight), seen.rewards)
    for_given_shares = float(np.sqrt(found.direct @ found.direct))
    line = answer(log, "explicit")["IPS"]
    assert abs((line.high - line.low) / 3.92 / for_given_shares - 1.0) > 0.05


def test_nothing_pending_is_the_usual_estimate_bit_for_bit():
    log = explicit_log(np.random.default_rng(4), 2_000, 0.0)
    kind = (log.context["kind"] == "new").astype(int)
    weight = WANTED[kind, log.action] / log.propensity
    found = answer(log, "explicit")
    assert found["IPS"].value == (weight * log.reward).sum() / 2_000
    assert found["SNIPS"].value == (weight * log.reward).sum() / weight.sum()
    assert found["IPS"].effective_rows == weight.sum() ** 2 / (weight @ weight)


def test_the_policy_that_was_played():
    log = explicit_log(np.random.default_rng(5), 1_000, 0.0)
    seen = seen_rewards(log, "explicit")
    played, *_ = policy_values(log, seen, [], "action", Options())
    (line,) = played.estimates
    assert line.value == pytest.approx(log.reward.mean(), rel=1e-14)
    assert line.effective_rows == 1_000
    assert (line.gain, line.gain_low, line.gain_high) == (0.0, 0.0, 0.0)


def test_snips_is_replay_where_actions_were_drawn_evenly_and_the_target_is_certain():
    log = explicit_log(np.random.default_rng(6), 3_000, 0.0)
    even = log._replace(propensity=np.full(3_000, 1 / 3))
    seen = seen_rewards(even, "explicit")
    fixed = policy_values(even, seen, ["fixed:tent"], "action", Options())[1]
    assert not fixed.refusals
    snips = {line.estimator: line for line in fixed.estimates}["SNIPS"]
    assert snips.value == pytest.approx(log.reward[log.action == 2].mean(), rel=1e-12)


def test_rare_actions_have_the_law_of_all():
    action = np.repeat([0, 1, 2], [60, 49, 80])
    came = np.ones(189, bool)
    assert strata_of(action, came)[[0, 60, 109]].tolist() == [0, -1, 1]


def test_an_action_that_is_younger_than_the_window():
    """Both actions earn 0.3; what converts late with the new one, nobody can have seen yet."""
    missed, week = 0, 7 * 86_400.0
    for seed in range(20):
        log = young_action_log(np.random.default_rng(seed), 8_000)
        seen = seen_rewards(log, "conversion", week)
        played, boots = policy_values(log, seen, ["fixed:boots"], "action", Options())
        snips = {line.estimator: line for line in boots.estimates}["SNIPS"]
        missed += not snips.gain_low <= 0.0 <= snips.gain_high
        missed += not played.estimates[0].low <= 0.3 <= played.estimates[0].high
        assert played.estimates[0].high - played.estimates[0].low < 0.06
    assert missed <= binom.ppf(0.99, 40, 0.05)


def test_a_lone_old_decision_does_not_make_a_young_log_an_old_one():
    """Beyond the ages of the others it would be all that is known of late conversions."""
    log = conversion_log(np.random.default_rng(7), 2_000, 0.7)
    few = log.age < WINDOW
    few[np.flatnonzero(~few)[:30]] = True
    kept = [column[few] for column in (log.decided, log.returned, log.reward)]
    rest = log.propensity[few], log.action[few], log.names, {"kind": log.context["kind"][few]}, NOW
    with pytest.raises(ValueError, match="for 10 conversions at least, and it is over for"):
        seen_rewards(WholeLog(*kept, *rest), "conversion", WINDOW)


@pytest.mark.parametrize(
    ("loop", "window", "said"),
    [
        ("sometimes", None, "--loop = 'sometimes': expected explicit or conversion"),
        ("conversion", None, "--window = None: expected how long"),
        (
            "conversion",
            30 * 86_400.0,
            "--window = '30 days': expected at most the age of the oldest decision, 4 d",
        ),
    ],
)
def test_loops_that_cannot_be(loop, window, said):
    log = conversion_log(np.random.default_rng(7), 500, 0.3)
    with pytest.raises(ValueError, match=said):
        seen_rewards(log, loop, window)


def test_pending_rewards_without_times():
    zeros = np.zeros(4, np.int64)
    log = WholeLog(
        zeros, zeros, np.array([1.0, np.nan, 0.0, 1.0]), np.full(4, 0.5), zeros, NAMES[:1], {}, 0
    )
    with pytest.raises(ValueError, match="the log does not say when the others came"):
        seen_rewards(log._replace(has_delays=False), "explicit")


def rewards_of_the_same_second(n=2000):
    """Whatever comes comes at once; every fourth reward is lost."""
    rng = np.random.default_rng(12)
    time = NOW / 1e6 + np.arange(n) * 60.0
    action = rng.choice(["boots", "tent"], n)
    reward = 1.0 * (rng.random(n) < np.where(action == "tent", 0.6, 0.3))
    came = rng.random(n) < 0.75
    return pd.DataFrame(
        {
            "time": time,
            "action": action,
            "propensity": 0.5,
            "reward": np.where(came, reward, np.nan),
            "reward_time": np.where(came, time, np.nan),
        }
    )


def test_rewards_of_the_same_second_are_not_late():
    log = rewards_of_the_same_second()
    found = evaluate_log(log, ["fixed:tent"])["policies"][1]
    for line in found["estimates"]:
        assert line["low"] <= 0.6 <= line["high"], line
    for column in ("time", "reward_time"):
        with pytest.raises(ValueError, match="the log does not say when the others came"):
            evaluate_log(log.drop(columns=column), ["fixed:tent"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"interval": "exact"}, "--interval = 'exact': expected one of normal"),
        ({"level": 1.0}, "--level = 1.0: expected"),
        ({"clip": 0.0}, "--clip = 0.0: expected"),
        ({"replays": 1}, "--replays = 1: expected"),
    ],
)
def test_options_that_cannot_be(options, said):
    with pytest.raises(ValueError, match=said):
        Options(**options).checked()


def test_a_log_as_of_an_earlier_time():
    log = explicit_log(np.random.default_rng(9), 500, 0.3)
    day = 86_400_000_000
    then = log.as_of(NOW - day)
    known = log.decided <= NOW - day
    assert then.decided.tolist() == log.decided[known].tolist()
    came = (log.returned[known] != PENDING) & (log.returned[known] <= NOW - day)
    assert (~np.isnan(then.reward)).tolist() == came.tolist()
    assert (then.returned != PENDING).tolist() == came.tolist()
    assert then.age.max() == pytest.approx(log.age.max() - 86_400.0)
    with pytest.raises(ValueError, match=r"now = '2025.*': expected a time after the first dec"):
        log.as_of(NOW - 100 * day)


def test_a_log_that_is_too_young():
    """Half of the decisions were made in the last minutes, and nothing has come of them."""
    log = explicit_log(np.random.default_rng(10), 2_000, 0.7)
    decided, returned, reward = log.decided.copy(), log.returned.copy(), log.reward.copy()
    decided[:1_100], returned[:1_100], reward[:1_100] = NOW - 1_000_000, PENDING, np.nan
    young = log._replace(decided=decided, returned=returned, reward=reward)
    answers = policy_values(
        young, seen_rewards(young, "explicit"), ["uniform"], "action", Options()
    )
    assert [found.policy for found in answers] == ["as played", "uniform"]
    for found in answers:
        assert found.estimates == []
        assert "of the decisions are old enough" in found.refusals[0]


def test_a_log_of_conversions_alone_is_not_taken_for_explicit():
    """Its rewards would all be 1, and so would the value of every policy."""
    log = explicit_log(np.random.default_rng(1), 500, 0.3)
    ones = log._replace(reward=np.where(log.reward > 0.0, 1.0, np.nan))
    with pytest.raises(ValueError, match="all that came are 1; where only conversions report, say"):
        seen_rewards(ones, "explicit")


def test_a_log_whose_actions_alternate():
    """A and B by turns: what b earns, 0.5, is inside the interval of every estimate."""
    rng, n = np.random.default_rng(11), 4_000
    action = np.arange(n) % 2
    reward = (rng.random(n) < np.where(action == 1, 0.5, 0.3)).astype(float)
    decided = NOW + np.arange(n) * 60_000_000
    half = np.full(n, 0.5)
    log = WholeLog(decided, decided, reward, half, action, ["a", "b"], {}, int(decided[-1]))
    found = policy_values(log, seen_rewards(log, "explicit"), ["fixed:b"], "action", Options())[1]
    assert len(found.estimates) == 5
    for line in found.estimates:
        assert line.low <= 0.5 <= line.high, line
        assert line.high - line.low < 0.08


def constant_log(earned, n=200):
    """A and b by turns, each of which earns the same every time."""
    action = np.arange(n) % 2
    decided = NOW + np.arange(n) * 60_000_000
    half, reward = np.full(n, 0.5), np.array(earned)[action]
    return WholeLog(decided, decided, reward, half, action, ["a", "b"], {}, int(decided[-1]))


@pytest.mark.parametrize("interval", INTERVALS)
def test_no_interval_has_width_zero(interval):
    log = constant_log([0.0, 1.0])
    answers = policy_values(
        log, seen_rewards(log, "explicit"), ["fixed:b"], "action", Options(interval)
    )
    for line in answers[1].estimates:
        if line.low is not None:
            reach = least_reach(100, 1.0, 0.95)
            assert line.low <= line.value - reach < line.value + reach <= line.high, line
    log = constant_log([1.0, 1.0])  # not even the gain is certain
    answers = policy_values(
        log, seen_rewards(log, "explicit"), ["fixed:b"], "action", Options(interval)
    )
    assert answers[0].estimates[0].low in (None, 1.0 - least_reach(200, 1.0, 0.95))
    snips = next(line for line in answers[1].estimates if line.estimator == "SNIPS")
    assert snips.gain == 0.0
    if snips.gain_low is not None:
        assert snips.gain_low < -0.04 < 0.04 < snips.gain_high


def test_rewards_that_are_all_alike_and_of_no_known_range():
    log = constant_log([5.0, 5.0])
    for answer in policy_values(
        log, seen_rewards(log, "explicit"), ["uniform"], "action", Options()
    ):
        assert "All rewards that came are alike" in answer.refusals[0]


def nightly_log(read_at):
    """Conversions of an hour, handed in at 06:00 of the next day; three in ten convert."""
    rng, n, day, hour = np.random.default_rng(12), 4_000, 86_400.0, 3_600.0
    begin = NOW / 1e6 // day * day
    now = begin + 5 * day + read_at * hour
    decided = begin + np.sort(rng.uniform(0.0, now - begin, n))
    happened = decided + rng.exponential(hour, n)
    handed_in = (np.floor((happened - 6 * hour) / day) + 1) * day + 6 * hour
    came = (rng.random(n) < 0.3) & (handed_in <= now)
    micro = 1_000_000
    return WholeLog(
        (decided * micro).astype(np.int64),
        np.where(came, happened * micro, PENDING).astype(np.int64),
        np.where(came, 1.0, np.nan),
        *(np.ones(n), np.zeros(n, np.int64), ["a"], {}, int(now * micro)),
    )


def test_rewards_that_are_handed_in_at_night():
    """At 05:00 those of 23 hours are missing. As of the last delivery, nothing is."""
    log = nightly_log(read_at=5.0)
    played = policy_values(log, seen_rewards(log, "conversion", 86_400.0), [], "a", Options())[0]
    assert played.estimates[0].high < 0.3
    assert "no reward has come in the last 23 hours, and " in log.silent_end()
    delivery = int((log.now / 3_600e6 - 23.0) * 3_600e6)  # 06:00 of the day before
    then = log.as_of(delivery)
    assert then.silent_end() == ""
    played = policy_values(then, seen_rewards(then, "conversion", 86_400.0), [], "a", Options())[0]
    assert played.estimates[0].low < 0.3 < played.estimates[0].high


@pytest.mark.parametrize("loop", LOGS)
@pytest.mark.parametrize("pending", [0.0, 0.3, 0.7])
def test_other_logs_do_not_end_in_silence(loop, pending):
    log = LOGS[loop][0](np.random.default_rng(13), 3_000, pending)
    came = log.returned[log.returned != PENDING]
    assert log._replace(now=int(came.max())).silent_end() == ""
    if pending:
        assert log.silent_end() == ""


@pytest.mark.parametrize("loop", LOGS)
@pytest.mark.parametrize("pending", [0.0, 0.3, 0.7])
def test_wrong_propensities_are_refused_and_right_ones_are_not(loop, pending):
    """Whether rewards come late or not. What is said of boots is true of tents."""
    log = LOGS[loop][0](np.random.default_rng(14), ROWS[loop], pending)
    wrong = said_wrong(log)
    for one, reasons in ((log, 0), (wrong, 1)):
        seen = seen_rewards(one, loop, LOGS[loop][1])
        found = policy_values(one, seen, ["uniform"], "action", Options())[1]
        assert len(found.refusals) == reasons
    assert "the propensities of the log are wrong" in found.refusals[0]


def said_wrong(log):
    kind = (log.context["kind"] == "new").astype(int)
    return log._replace(propensity=PLAYED[kind, 2 - log.action])


def test_a_policy_that_learns_is_not_replayed_by_wrong_propensities():
    log = explicit_log(np.random.default_rng(15), 1_000, 0.0)
    wrong = log._replace(propensity=np.where(log.action == 0, 0.2, 0.6))
    found = policy_values(wrong, seen_rewards(wrong, "explicit"), ["greedy"], "a", Options())[1]
    (reason,) = found.refusals
    assert "of 'boots' in place of 0.333: the propensities of the log are wrong" in reason


def rare_log(seed, n=300):
    """Two actions by a coin; one reward in 250 is 100, the others next to nothing."""
    rng = np.random.default_rng(seed)
    reward = np.where(rng.random(n) < 0.004, 100.0, 0.1 * rng.random(n))
    decided = NOW - np.arange(n) * 60_000_000
    action = rng.integers(2, size=n)
    return WholeLog(decided, decided, reward, np.full(n, 0.5), action, ["boots", "tent"], {}, NOW)


@pytest.mark.parametrize("reward_range", [None, (0.0, 100.0)])
def test_bernstein_intervals_of_rare_rewards_need_their_range(reward_range):
    truth, missed = 0.004 * 100.0 + 0.996 * 0.05, 0
    for seed in range(50):
        log = rare_log(seed)
        seen = seen_rewards(log, "explicit", reward_range=reward_range)
        options = Options(interval="bernstein", reward_range=reward_range)
        lines = policy_values(log, seen, ["fixed:tent"], "action", options)[1].estimates
        line = {line.estimator: line for line in lines}["IPS"]
        assert line.high - line.low < 60.0
        missed += not line.low <= truth <= line.high
        said = assumptions(seen, [], options)
        assert (OF_UNKNOWN_RANGE in said) == (reward_range is None)
    assert (missed == 0) if reward_range else (missed > 10)


def test_the_range_of_rewards():
    log = rare_log(1)
    for bad, said in (
        ((1.0, 0.0), "two numbers, the smaller one first"),
        ((0.0, np.inf), "two numbers, the smaller one first"),
        ((0.0, 1e-3), "those of the log are between"),
    ):
        with pytest.raises(ValueError, match=f"--reward-range = .*{said}"):
            seen_rewards(log, "explicit", reward_range=bad)
    known = seen_rewards(log, "explicit", reward_range=(-50.0, 150.0))
    assert (known.range, known.knows_range) == (200.0, True)
    assert known.widest(np.ones(300)) == 200.0
    ones = log._replace(reward=(log.reward > 1.0).astype(float))
    assert (seen_rewards(ones, "explicit").range, seen_rewards(ones, "explicit").knows_range) == (
        1.0,
        True,
    )
