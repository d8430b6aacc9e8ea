"""The holdout over HTTP: as a setting, in decisions, and what the bandit earns above it."""

import asyncio
import time

from belated.ledger.holdout import is_held_out
from belated.ledger.tools.lifting import NO_HOLDOUT, is_it_worth_it
from support.service_client import ACTIONS, SECOND, Client


def shop(**settings):
    client = Client()
    client.bandit(**settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": ACTIONS})
    return client


def test_who_is_held_out_gets_the_baseline_alone_in_a_batch_and_in_a_ranking():
    client = shop(holdout=0.5, baseline="c")
    assert client("GET", "/v1/bandits/shop")["settings"]["holdout"] == 0.5
    subjects = [f"s{k}" for k in range(12)]
    expected = [is_held_out("shop", subject.encode(), 0.5) for subject in subjects]
    assert len(set(expected)) == 2
    alone = [client.decide(subject=subject) for subject in subjects]
    batch = {"decisions": [{"subject": subject} for subject in subjects]}
    batch = client("POST", "/v1/bandits/shop/decisions/batch", batch)["decisions"]
    for answers in (alone, batch):
        assert [one["held_out"] for one in answers] == expected
        assert all(one["action"] == "c" for one in answers if one["held_out"])
        assert all(one["propensity"] == 1.0 for one in answers if one["held_out"])
    for subject, held_out in zip(subjects, expected, strict=True):
        top = {"top": 2, "subject": subject}
        top = client("POST", "/v1/bandits/shop/decisions/top", top)["decisions"]
        assert [one["held_out"] for one in top] == [held_out] * 2
    story = client("GET", f"/v1/decisions/{alone[expected.index(True)]['decision_id']}")
    assert (story["held_out"], story["action"]) == (True, "c")


def test_shares_that_cannot_be_are_refused():
    client = Client()
    settings = {"family": "bernoulli", "dim": 2}
    for refused in (1.0, -0.1, "few"):
        client("PUT", "/v1/bandits/shop", settings | {"holdout": refused}, 422)
    shadow = client("PUT", "/v1/bandits/shop", settings | {"holdout": 0.1, "mode": "shadow"}, 422)
    assert shadow["detail"] == "holdout = 0.1: expected 0 in shadow mode, where the caller plays"


def test_what_the_bandit_earns_above_its_holdout():
    client = shop(holdout=0.5)
    for _ in range(3):
        batch = {"decisions": [{}] * 100}
        made = client("POST", "/v1/bandits/shop/decisions/batch", batch)["decisions"]
        pays = [float(one["held_out"] == (k % 5 == 0)) for k, one in enumerate(made)]
        client.reward(*((one["decision_id"], p) for one, p in zip(made[:90], pays, strict=False)))
    view = client("GET", "/v1/bandits/shop/lift")
    assert view["sentence"].startswith("The bandit earns more than its holdout: +0.")
    bandit, holdout = view["groups"]
    assert bandit["mean"] > 0.7 > 0.3 > holdout["mean"]  # four in five, and one in five
    assert bandit["decisions"] + holdout["decisions"] == 300
    assert bandit["pending"] + holdout["pending"] == 30
    client("GET", "/v1/bandits/none/lift", status=404)


def test_who_asks_again_waits_for_the_same_work(monkeypatch):
    """A client that lost patience would otherwise start the work anew each time."""
    client, calls = shop(holdout=0.5), []

    def slow(*args):
        calls.append(args)
        time.sleep(0.2)
        return is_it_worth_it(*args)

    monkeypatch.setattr("belated.service.explaining.is_it_worth_it", slow)

    async def several():
        lift = client.service.explaining.lift
        return await asyncio.gather(*(lift("shop", client.now) for _ in range(3)))

    first, second, third = asyncio.run(several())
    assert first == second == third
    assert len(calls) == 1
    asyncio.run(several())
    assert len(calls) == 2


def test_without_a_holdout_it_says_what_to_set():
    assert shop()("GET", "/v1/bandits/shop/lift")["sentence"] == NO_HOLDOUT


# -------------------------------------------------------------------------------------- sticky


def test_a_subject_gets_its_action_again_alone_in_a_batch_and_in_a_ranking():
    client = shop(policy="uniform", sticky=60.0)
    first = client.decide(subject="ann")
    assert first["repeats"] is None
    again = client.decide(subject="ann", probabilities=True)
    assert (again["action"], again["repeats"]) == (first["action"], first["decision_id"])
    assert (again["propensity"], sorted(again["probabilities"])) == (1.0, [0.0, 0.0, 1.0])
    story = client("GET", f"/v1/decisions/{again['decision_id']}", explain=True)
    assert story["repeats"] == first["decision_id"]
    assert story["explanation"]["rule"].startswith("sticky: the action that the subject had got")
    ranked, repeated = (
        client("POST", "/v1/bandits/shop/decisions/top", {"top": 3, "subject": "ann"})["decisions"]
        for _ in range(2)
    )
    assert ranked[0]["repeats"] == first["decision_id"]
    assert [one["action"] for one in repeated] == [one["action"] for one in ranked]
    expected = [first["decision_id"], *(one["decision_id"] for one in ranked[1:])]
    assert [one["repeats"] for one in repeated] == expected
    client.now += 60 * SECOND
    assert client.decide(subject="ann")["repeats"] is None


def test_several_decisions_for_one_subject_in_a_batch_are_one_choice():
    client = shop(policy="uniform", sticky=60.0)
    asked = [{"subject": f"s{k % 7}"} for k in range(70)] + [{}] * 30
    made = client("POST", "/v1/bandits/shop/decisions/batch", {"decisions": asked})["decisions"]
    for k in range(7, 70):
        assert made[k]["action"] == made[k % 7]["action"]
        assert made[k]["repeats"] == made[k % 7]["decision_id"]
    assert {one["repeats"] for one in made[:7] + made[70:]} == {None}
    later = client.decide(subject="s3")
    assert later["repeats"] == made[3]["decision_id"]
    # an action that cannot be played in the middle of a batch begins a new stretch there
    rest = sorted(ACTIONS.keys() - {later["action"]})
    asked = [{"subject": "s3"}, {"subject": "s3", "eligible": rest}, {"subject": "s3"}]
    made = client("POST", "/v1/bandits/shop/decisions/batch", {"decisions": asked})["decisions"]
    assert [one["repeats"] for one in made] == [
        *(later["repeats"], None),
        made[1]["decision_id"],
    ]


def test_sticky_in_shadow_mode_is_refused_in_one_line():
    body = {"family": "bernoulli", "dim": 2, "sticky": 60.0, "mode": "shadow"}
    said = Client()("PUT", "/v1/bandits/shop", body, 422)
    assert said["detail"] == "sticky = 60.0: expected None in shadow mode, where the caller plays"


# ------------------------------------------------------------------------- guardrail outcomes


def outcomes(client, *items):
    named = ("decision_id", "name", "value", "at", "event_id")
    given = [dict(zip(named, item, strict=False)) for item in items]
    return client("POST", "/v1/outcomes", {"outcomes": given})


def test_guardrail_outcomes_are_written_once_and_not_learnt():
    client = shop(holdout=0.5)
    client.bandit("other")
    id = client.decide(subject="ann")["decision_id"]
    before = client.service.replica.folds["shop"].learner.state.theta.copy()
    answer = outcomes(
        client,
        (id, "complaint", 1.0),
        (id, "complaint", 1.0),
        (id, "complaint", 2.0),
        (id, "complaint", 2.0, None, "second"),
        (id, "seconds", 41.5, client.now / 1e6 + 10),
        ("nobody", "complaint", 1.0),
        (id, "seconds", 41.5, "noon"),
        (id, "calls", 1.0, "2000-01-01T00:00:00Z"),
        (id, "calls", -1e200),
    )
    accepted = ["accepted", "duplicate", "conflict", "accepted", "accepted"]
    assert answer["statuses"] == [*accepted, "unknown", *["invalid"] * 3]
    assert answer["reasons"][6].startswith("at = 'noon': expected")
    assert "expected no time before the decision" in answer["reasons"][7]
    assert answer["reasons"][8] == "value = -1e+200: expected a number of at most 1e+12 in size"
    assert (client.service.replica.folds["shop"].learner.state.theta == before).all()
    events = client("GET", f"/v1/decisions/{id}")["events"][1:]
    noted = [(e["kind"], e["outcome"], e["value"], e["event_id"], e["reward"]) for e in events]
    assert noted == [
        ("outcome", "complaint", 1.0, None, None),
        ("outcome", "complaint", 2.0, "second", None),
        ("outcome", "seconds", 41.5, None, None),
    ]
    assert client("GET", f"/v1/decisions/{id}")["status"] == "pending"
    for refused in ({"outcomes": []}, {"outcomes": [{"decision_id": id, "name": "", "value": 1}]}):
        client("POST", "/v1/outcomes", refused, 422)
    keys = {"name": "k", "scopes": ["reward"], "bandit": "other"}
    client.key = client("POST", "/v1/keys", keys, 201)["key"]
    assert outcomes(client, (id, "calls", 1.0))["statuses"] == ["unknown"]  # of another bandit


def test_guardrails_stand_beside_the_reward():
    client = shop(holdout=0.5)
    for _ in range(3):
        made = client("POST", "/v1/bandits/shop/decisions/batch", {"decisions": [{}] * 100})
        made = made["decisions"]
        client.reward(*((one["decision_id"], float(k % 2)) for k, one in enumerate(made)))
        given = [(one["decision_id"], "calls", 1.0 - one["held_out"]) for one in made[:-1]]
        outcomes(client, *given)
    view = client("GET", "/v1/bandits/shop/lift")
    (calls,) = view["guardrails"]
    assert (calls["name"], calls["bandit"], calls["holdout"]) == ("calls", 1.0, 0.0)
    assert calls["low"] is None  # each group is alike, and calls have no bound
    assert "nobody knows by how much the next may differ" in calls["sentence"]
