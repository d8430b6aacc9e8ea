"""``serve --bandits``: a process that serves some of the bandits of a ledger."""

import asyncio

import pytest

from belated.ledger.ids import from_text
from belated.ledger.replica import reward_draft
from belated.ledger.stores.memory import MemoryLedger
from belated.service.bandits_file import apply_config, config_drafts
from belated.service.service import Service
from belated.service.serving import ServeSettings, serve
from support.service_client import ACTIONS, Client
from support.serving import CONFIG

SHOP = {"family": "bernoulli", "policy": "delayed-ofu-glm", "dim": 2}


@pytest.fixture
def clients():
    """Clients of two processes: one serves ``here``, the other one all bandits."""
    everywhere = Client(ledger=MemoryLedger())
    for name in ("here", "there"):
        everywhere.bandit(name)
        everywhere("PATCH", f"/v1/bandits/{name}/actions", {"put": ACTIONS})
    here = Client(ledger=everywhere.service.ledger, only={"here"}, seed=2)
    return here, everywhere


def follow(*clients):
    for client in clients:
        client.service.replica.catch_up()


def test_a_bandit_that_lives_elsewhere_is_not_found(clients):
    here, _ = clients
    assert here("GET", "/v1/bandits")["bandits"] == ["here"]
    assert here.decide("here")["logged"]
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", SHOP),
        ("POST", "/decisions", {}),
        ("POST", "/ranking", {}),
        ("PATCH", "/actions", {"put": ACTIONS}),
        ("DELETE", "/subjects/x", None),
    ):
        refused = here(method, f"/v1/bandits/there{path}", body, 404)
        assert refused["type"] == "/problems/unknown-bandit"
        assert refused["detail"] == (
            "The bandit 'there' is not served by this process, only here: ask another one."
        )
    refused = here("GET", "/v1/dashboard", bandit="there", status=404)
    assert "not served by this process" in refused["detail"]


def test_a_reward_of_a_decision_that_was_made_elsewhere_changes_nothing(clients):
    here, everywhere = clients
    mine, theirs = here.decide("here")["decision_id"], everywhere.decide("there")["decision_id"]
    follow(*clients)
    position = here.service.replica.position
    items = [{"decision_id": id, "reward": 1.0} for id in (mine, theirs)]
    refused = here("POST", "/v1/rewards", {"rewards": items}, 404)
    assert "'there' is not served" in refused["detail"]
    assert "not served" in here("POST", f"/v1/decisions/{theirs}/cancel", status=404)["detail"]
    follow(*clients)
    assert here.service.replica.position == position, "nothing was written"
    assert here.reward((mine, 1.0), ("00000000-0000-7000-8000-000000000000", 1.0)) == [
        "accepted",
        "unknown",
    ]
    assert everywhere.reward((theirs, 1.0)) == ["accepted"]
    assert "not served" in here("POST", "/v1/rewards", {"rewards": items}, 404)["detail"]


def test_a_late_reward_of_a_decision_that_was_made_elsewhere_changes_nothing():
    """Such a reward is written without a look at its bandit."""
    everywhere = Client(ledger=MemoryLedger())
    everywhere.bandit("there", loop="conversion", window=60, late="revise", open="hold")
    everywhere("PATCH", "/v1/bandits/there/actions", {"put": ACTIONS})
    late = everywhere.decide("there")["decision_id"]
    everywhere.now += 100_000_000
    asyncio.run(everywhere.service.expire())
    here = Client(ledger=everywhere.service.ledger, only={"here"}, seed=2)
    here.now = everywhere.now
    items = {"rewards": [{"decision_id": late, "reward": 1.0}]}
    assert "not served" in here("POST", "/v1/rewards", items, 404)["detail"]
    assert everywhere.reward((late, 1.0)) == ["accepted"], "it is still the first"


def test_requests_that_are_committed_together_are_refused_one_by_one(clients):
    here, everywhere = clients
    mine, theirs = here.decide("here")["decision_id"], everywhere.decide("there")["decision_id"]
    follow(*clients)
    here("GET", "/v1/bandits")

    async def at_once():
        service = here.service
        drafts = [reward_draft("", here.now, from_text(id), 1.0) for id in (mine, theirs)]
        return await asyncio.gather(
            *(service.write([draft]) for draft in drafts), return_exceptions=True
        )

    (accepted,), refused = asyncio.run(at_once())
    assert accepted.status == "accepted"
    assert "not served" in str(refused)


def test_the_same_decisions_and_digests_as_in_a_process_that_serves_all(clients):
    here, everywhere = clients
    for k in range(5):
        here.reward((here.decide("here")["decision_id"], float(k % 2)))
        everywhere.decide("there")
    follow(*clients)
    assert [*here.service.replica.folds] == ["here"]
    digests = [c.service.replica.folds["here"].digest() for c in clients]
    assert digests[0] == digests[1]


def test_a_file_for_all_processes_is_applied_as_far_as_it_is_for_this_one(tmp_path):
    (tmp_path / "bandits.toml").write_text(CONFIG)
    service = Service("memory://", ledger=MemoryLedger(), only={"plain", "other"})
    assert apply_config(service.replica, tmp_path / "bandits.toml") == ["plain"]
    assert config_drafts(service.replica, tmp_path / "bandits.toml") == []


def test_names_are_checked():
    some = {"ledger": "memory:", "port": 0, "bandits": ("shop", "a b")}
    with pytest.raises(ValueError, match="bandits = 'a b': expected names"):
        serve(ServeSettings(**some))
    some["bandits"] = ("shop",)
    with pytest.raises(ValueError, match="personalizer = 'pages': expected one of --bandits shop"):
        serve(ServeSettings(personalizer="pages", **some))
