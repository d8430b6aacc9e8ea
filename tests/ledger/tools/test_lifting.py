"""`belated lift`: from a ledger to the difference between a bandit and its holdout."""

import json
import sys

import msgspec
import numpy as np
import pytest

from belated import Bernoulli
from belated.commands.main import main
from belated.evaluation.holdout_lift import ALL_ALIKE
from belated.ledger.events import IMPORTED, NOBODY, START, Decided, Draft, Guardrail, Kind
from belated.ledger.ids import Ids
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools.lifting import NO_HOLDOUT, NOT_ALLOWED_FOR, is_it_worth_it
from belated.policies import Greedy

HOUR = 3600 * 1_000_000
BEGIN = 1_700_000_000 * 1_000_000
DAY = 24 * HOUR


def settings(ledger, time=BEGIN, **given):
    spec = Spec.of(2, Bernoulli(), Greedy(), **({"holdout": 0.3} | given))
    body = msgspec.json.encode(spec.as_kept())
    ledger.commit([Draft(Kind.CONFIGURED, "shop", NOBODY, time, body=body)])
    return spec


def decided(time, held_out, *, due=None, policy="greedy", subject="", repeats=b""):
    """A decision: the bandit plays "fast", the baseline is "slow"."""
    action, x = ("slow", [0.0, 0.5]) if held_out else ("fast", [0.5, 0.0])
    body = Decided(np.array(x).tobytes(), action, int(held_out), 1.0, 0, policy, 0.0, 0.0, 0.0,
                   subject=subject, held_out=held_out, repeats=repeats)  # fmt: skip
    encoded = msgspec.msgpack.encode(body)
    return Draft(Kind.DECIDED, "shop", Ids(lambda: time)(), time, due=due, body=encoded)


def fill(ledger, spec, n=6000, rates=(0.3, 0.3), days=(0.2, 1.5), begin=BEGIN):
    """Decisions of six days, and the rewards that came by then, in their order."""
    rng = np.random.default_rng(1)
    drafts = []
    for k in range(n):
        time = begin + 6 * DAY * k // n
        held_out = rng.random() < 0.3
        made = decided(time, bool(held_out), due=spec.window_at(time)[0])
        reward = float(rng.random() < rates[held_out])
        came = time + round(rng.exponential(days[held_out]) * DAY)
        drafts.append((time, made))
        counts = spec.loop == "explicit" or (reward and came < made.due)
        if counts and came < begin + 6 * DAY:
            drafts.append((came, Draft(Kind.REWARDED, "shop", made.id, came, reward)))
    drafts.sort(key=lambda pair: pair[0])
    ledger.commit([draft for _, draft in drafts])


@pytest.mark.parametrize("given", [{}, {"loop": "conversion", "window": 2 * 86_400.0}])
def test_the_faster_action_of_the_bandit_is_no_lift(given):
    ledger = MemoryLedger()
    spec = settings(ledger, **given)
    # Of conversions within two days, both groups have the same rate; the bandit's come first.
    fill(ledger, spec, rates=(0.3, 0.3) if not given else (0.3, 0.3 / 0.736))
    view = is_it_worth_it(ledger, "shop", BEGIN + 6 * DAY)
    assert view.sentence.startswith("Too early to tell: the difference is ")
    assert view.low < 0.0 < view.high
    bandit, holdout = view.groups
    assert (bandit.name, holdout.name) == ("bandit", "holdout")
    assert bandit.decisions + holdout.decisions == 6000
    assert 0 < holdout.pending < holdout.decisions
    assert bandit.mean == pytest.approx(0.3, abs=0.03)
    assert view.since == "2023-11-14T22:13:20.000000Z"


def test_what_is_compared_is_said():
    ledger = MemoryLedger()
    fill(ledger, settings(ledger), rates=(0.6, 0.2))
    view = is_it_worth_it(ledger, "shop")
    assert view.sentence.startswith("The bandit earns more than its holdout: +0.")
    assert view.sentence.endswith("a decision (95% interval, valid whenever you look).")
    assert view.compared.endswith("against an action drawn uniformly")
    settings(ledger, BEGIN + 6 * DAY, baseline="slow")
    again = is_it_worth_it(ledger, "shop")
    assert "against the action 'slow'" in again.compared
    assert [group.decisions for group in again.groups] == [0, 0]  # those before are not compared
    assert again.sentence.startswith("Too early to tell: the bandit has 0 rewards")
    settings(ledger, BEGIN + 6 * DAY, holdout=0.0)
    assert is_it_worth_it(ledger, "shop").sentence == NO_HOLDOUT
    with pytest.raises(ValueError, match="name = 'none': expected one of shop"):
        is_it_worth_it(ledger, "none")


def test_the_bandit_may_be_worse():
    ledger = MemoryLedger()
    fill(ledger, settings(ledger), rates=(0.2, 0.6))
    assert is_it_worth_it(ledger, "shop").sentence.startswith("The bandit earns less than")


def test_only_decisions_that_were_carried_out_and_rewards_in_time_count():
    ledger = MemoryLedger()
    spec = settings(ledger, loop="conversion", window=86_400.0, default_reward=1.0)
    times = [BEGIN + k * HOUR for k in range(4)]
    dues = [spec.window_at(time)[0] for time in times]
    made = [decided(time, False, due=due) for time, due in zip(times, dues, strict=True)]
    made.append(decided(times[0], True, due=dues[0], policy=IMPORTED))
    ledger.commit(made)
    ledger.commit([Draft(Kind.CANCELLED, "shop", made[0].id, times[0])])
    ledger.commit([Draft(Kind.REWARDED, "shop", made[1].id, dues[1] + HOUR, 0.0)])
    ledger.commit([Draft(Kind.REWARDED, "shop", made[2].id, times[2] + HOUR, 0.0)])
    bandit, holdout = is_it_worth_it(ledger, "shop", times[3] + HOUR).groups
    assert (bandit.decisions, bandit.pending, bandit.rewards) == (3, 2, 1)
    assert holdout.decisions == 0


def noted(made, name, value, at, event_id=""):
    body = msgspec.msgpack.encode(Guardrail(name, event_id))
    return Draft(Kind.OUTCOME, "shop", made.id, at, value, body=body)


def guarded(n=2000, **given):
    """Half a day of decisions; the bandit makes more visitors complain, and costs the same."""
    ledger = MemoryLedger()
    spec = settings(ledger, **given)
    rng, due = np.random.default_rng(1), spec.window_at(BEGIN)[0]
    made = [decided(BEGIN + k, k % 2 == 1, due=due) for k in range(n)]
    ledger.commit(made)
    for k, one in enumerate(made):
        happened = BEGIN + round(rng.exponential(2.0) * HOUR)
        reward, complains = (float(rng.random() < rate) for rate in (0.5, (0.4, 0.2)[k % 2]))
        reports = spec.loop == "explicit"
        if reports or reward:
            ledger.commit([Draft(Kind.REWARDED, "shop", one.id, happened, reward)])
        if happened < BEGIN + 5 * HOUR and (reports or complains):  # some are still pending
            ledger.commit([noted(one, "complaint", complains, happened)])
        if happened < BEGIN + 5 * HOUR:
            ledger.commit([noted(one, "cost", 3.0, happened, f"part {p}") for p in range(2)])
    return is_it_worth_it(ledger, "shop", BEGIN + 5 * HOUR if due is None else due + HOUR)


@pytest.mark.parametrize("given", [{}, {"loop": "conversion", "window": 18_000.0}])
def test_guardrails_are_compared_beside_the_reward(given):
    view = guarded(**given)
    complaint, cost = view.guardrails
    assert (complaint.name, cost.name) == ("complaint", "cost")
    seen = 1.0 if not given else 1.0 - np.exp(-2.5)  # of a window the part that comes in time
    expected = np.array([0.4, 0.2]) * seen
    assert [complaint.bandit, complaint.holdout] == pytest.approx(expected, abs=0.04)
    assert 0.0 < complaint.low < complaint.difference < complaint.high
    assert complaint.sentence.startswith("complaint: more with the bandit than in its holdout: +0.")
    if given:  # most had a cost, some had none
        assert [cost.bandit, cost.holdout] == pytest.approx([6.0 * seen] * 2, abs=0.3)
        assert cost.sentence.startswith("cost: no difference is seen: ")
    else:  # what is 6 wherever it is known has no interval: nothing bounds a cost
        assert [cost.bandit, cost.holdout] == pytest.approx([6.0, 6.0])
        assert cost.difference is cost.low is None
        assert cost.sentence == f"cost: too early to tell: {ALL_ALIKE}."


def with_parts(n=16_000, **given):
    """Decisions of six days, of which three in ten have two events worth 1, or else one of 0.

    The second event comes sooner with the bandit; those of rewards and of guardrails are alike.
    """
    ledger = MemoryLedger()
    spec = settings(ledger, combine="sum", **given)
    rng, drafts = np.random.default_rng(1), []
    for k in range(n):
        time = BEGIN + 6 * DAY * k // n
        held_out = bool(rng.random() < 0.3)
        due, closes = spec.window_at(time)
        made = decided(time, held_out, due=due)
        made = msgspec.structs.replace(made, closes=closes, combine="sum")
        drafts.append((time, made))
        converts, first = rng.random() < 0.3, 0.5 * DAY * rng.random()
        later = first + DAY * (0.1 + 1.3 * held_out * rng.random())
        if spec.loop == "conversion" and not converts:
            continue
        for name, wait in (("one", first), ("two", later))[: 1 + converts]:
            at = time + round(wait)
            if at < BEGIN + 6 * DAY:
                value = float(converts)
                drafts.append((at, Draft(Kind.REWARDED, "shop", made.id, at, value, event_id=name)))
                drafts.append((at, noted(made, "calls", value, at, name)))
    drafts.sort(key=lambda pair: pair[0])
    ledger.commit([draft for _, draft in drafts])
    return is_it_worth_it(ledger, "shop", BEGIN + 6 * DAY)


@pytest.mark.parametrize(
    "given", [{"loop": "conversion", "window": 2 * 86_400.0}, {"window": 2 * 86_400.0}, {}]
)
def test_the_faster_second_reward_of_the_bandit_is_no_lift(given):
    view = with_parts(**given)
    calls = view.guardrails[0]
    assert view.difference == pytest.approx(calls.difference)
    assert (NOT_ALLOWED_FOR in view.sentence) == (NOT_ALLOWED_FOR in calls.sentence) == (not given)
    if given:
        assert (calls.low, calls.high) == pytest.approx((view.low, view.high))
        assert view.low < 0.0 < view.high < 0.15
        assert [group.mean for group in view.groups] == pytest.approx([0.6, 0.6], abs=0.05)
    else:  # and that is why the sentence has to be there
        assert view.low > 0.0


def test_all_intervals_hold_together():
    """With two guardrails each of the three has the level 1 - 0.05 / 3."""
    ledger = MemoryLedger()
    fill(ledger, settings(ledger), n=1000)
    alone = is_it_worth_it(ledger, "shop")
    (first, *_) = (e for e in ledger.follow(START)[0] if e.kind == Kind.DECIDED)
    alike = is_it_worth_it(ledger, "shop", level=1.0 - 0.05 / 3)
    ledger.commit([noted(first, name, 1.0, first.time) for name in ("complaint", "cost")])
    three = is_it_worth_it(ledger, "shop")
    assert (three.low, three.high) == pytest.approx((alike.low, alike.high))
    assert three.high - three.low > alone.high - alone.low
    assert (
        "rewards of decisions that are old enough, and 50 are needed"
        in three.guardrails[0].sentence
    )


def test_repeats_are_one_with_their_first_decision_after_retention():
    """Every decision is repeated three times, with the same reward: that says no more than once."""
    intervals = []
    for times in (1, 4):
        ledger, rng = MemoryLedger(), np.random.default_rng(1)
        settings(ledger, sticky=60.0)
        for k in range(400):
            reward, first = float(rng.random() < 0.5), None
            for _ in range(times):
                made = decided(BEGIN + k, k % 2 == 1, subject=f"s{k}", repeats=first or b"")
                first = first or made.id
                ledger.commit([made, Draft(Kind.REWARDED, "shop", made.id, BEGIN + k, reward)])
        view = is_it_worth_it(ledger, "shop", BEGIN + DAY)
        ledger.retain(BEGIN + DAY)
        again = is_it_worth_it(ledger, "shop", BEGIN + DAY)
        assert (again.low, again.high) == pytest.approx((view.low, view.high))
        intervals.append((view.low, view.high))
    assert intervals[0] == pytest.approx(intervals[1])


def test_an_outcome_after_the_window_is_left_out():
    ledger = MemoryLedger()
    spec = settings(ledger, loop="conversion", window=3600.0)
    made = decided(BEGIN, False, due=spec.window_at(BEGIN)[0])
    ledger.commit([made])
    ledger.commit([noted(made, "late", 1.0, BEGIN + 2 * HOUR)])
    assert is_it_worth_it(ledger, "shop").guardrails == []


def test_a_default_reward_is_part_of_the_mean():
    """Silence is worth 1 here, and a conversion 0: of both groups 3 in 10 convert."""
    ledger = MemoryLedger()
    spec = settings(ledger, loop="conversion", window=86_400.0, default_reward=1.0)
    drafts = [decided(BEGIN + k, k % 2 == 1, due=spec.window_at(BEGIN)[0]) for k in range(1000)]
    ledger.commit(drafts)
    ledger.commit([
        Draft(Kind.REWARDED, "shop", made.id, BEGIN + HOUR, 0.0)
        for k, made in enumerate(drafts) if k // 2 % 10 < 3
    ])  # fmt: skip
    view = is_it_worth_it(ledger, "shop", BEGIN + 2 * DAY)
    assert [group.mean for group in view.groups] == pytest.approx([0.7, 0.7])
    assert view.difference == pytest.approx(0.0)


def test_the_command(tmp_path, monkeypatch, capsys):
    ledger = SQLiteLedger(tmp_path / "x.db")
    fill(ledger, settings(ledger), n=1000)
    ledger.close()

    def run(*args):
        url = f"sqlite:///{tmp_path}/x.db"
        monkeypatch.setattr(sys, "argv", ["belated", "lift", *args, "--ledger", url])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0, *capsys.readouterr()

    code, out, _ = run("shop")
    assert code == 0
    assert out.startswith("Too early to tell: ")
    assert "holdout" in out
    code, out, _ = run("shop", "--json")
    assert [group["name"] for group in json.loads(out)["groups"]] == ["bandit", "holdout"]
    assert run("shop", "--level", "2")[2].startswith("belated: --level = 2.0: expected a number")
    assert run("none")[::2] == (2, "belated: name = 'none': expected one of shop\n")
