"""The holdout over HTTP: as a setting, in decisions, and what the bandit earns above it."""

from belated.ledger.holdout import is_held_out
from belated.ledger.tools.lifting import NO_HOLDOUT
from support.service_client import ACTIONS, Client


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


def test_without_a_holdout_it_says_what_to_set():
    assert shop()("GET", "/v1/bandits/shop/lift")["sentence"] == NO_HOLDOUT
