"""What open decisions count for if nobody says: silence in a new loop that can hear it."""

import shutil
from pathlib import Path

import msgspec
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM, Gaussian, Poisson
from belated.ledger import open_ledger
from belated.ledger.events import START
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.tools.replaying import other_spec
from belated.policies import AdaptiveThompson, InverseGap
from belated.service.settings import spec_of
from belated.wire import BanditSettings
from support.service_client import Client

OLD = Path(__file__).parents[1] / "data" / "version_0_1" / "shop.db"
CONVERSION = {"loop": "conversion", "window": 3600.0}


def usual(family=None, policy=None, **settings):
    settings = CONVERSION | settings
    parts = family or Bernoulli(), policy or AdaptiveThompson()
    return Spec.of(2, *parts, open=None, **settings).open


def test_silence_where_it_can_be_heard():
    assert usual() == usual(Poisson()) == usual(combine="first") == "silence"
    assert usual(policy=InverseGap()) == "silence"
    assert usual(combine="sum") == usual(combine="last") == usual(combine="max") == "hold"
    assert usual(Gaussian(sd=1.0)) == usual(policy=DelayedOFUGLM()) == "hold"
    assert usual(default_reward=1.0) == usual(loop="explicit") == "hold"


def test_settings_in_a_log_that_do_not_say_it_mean_hold():
    spec = Spec.of(2, Bernoulli(), AdaptiveThompson(), **CONVERSION)
    written = msgspec.to_builtins(spec)
    del written["open"]
    assert msgspec.convert(written, Spec).open == "hold"


@pytest.mark.parametrize("given", [None, "hold", "silence"])
def test_a_bandit_in_a_log_keeps_what_it_has(given):
    ledger = MemoryLedger()
    parts = {"family": Bernoulli(), "ledger": ledger, "window": 3600.0, "default_reward": 0.0}
    Bandit(2, **parts, **({} if given is None else {"open": given}))
    (made,) = [msgspec.json.decode(event.body) for event in ledger.follow(START)[0]]
    kept = made.get("open", "hold")  # as in every log before there was a choice
    assert kept == (given or "silence")
    Bandit(2, **parts)  # says nothing, and changes nothing
    assert len(ledger.follow(START)[0]) == 1
    other = "hold" if kept == "silence" else "silence"
    with pytest.raises(ValueError, match=f"open = '{other}': expected '{kept}', as the log"):
        Bandit(2, **parts, open=other)


def test_another_family_is_refused_by_its_name():
    ledger = MemoryLedger()
    parts = {"ledger": ledger, "window": 3600.0, "default_reward": 0.0}
    Bandit(2, family=Bernoulli(), **parts)
    with pytest.raises(ValueError, match=r"family = .*: expected .*, as the log has it"):
        Bandit(2, family=Gaussian(sd=1.0), **parts)
    client = Client()
    settings = {"dim": 2, **CONVERSION}
    client("PUT", "/v1/bandits/shop", settings | {"family": "bernoulli"}, 201)
    said = client("PUT", "/v1/bandits/shop", settings | {"family": "gaussian"}, 409)
    assert said["detail"].startswith("family = ")


def test_a_log_is_replayed_with_a_policy_that_hears_nothing():
    spec = Spec.of(2, Bernoulli(), AdaptiveThompson(), **CONVERSION, open="silence")
    assert other_spec(spec, "thompson", None).open == "hold"
    assert other_spec(spec, None, "gaussian").open == "hold"
    assert other_spec(spec, "adaptive-thompson:scale=0.5", None).open == "silence"


def test_the_service_decides_alike():
    settings = {"family": "bernoulli", "dim": 2, **CONVERSION}
    client = Client()
    assert client("PUT", "/v1/bandits/shop", settings, 201)["settings"]["open"] == "silence"
    held = settings | {"open": "hold"}
    assert client("PUT", "/v1/bandits/held", held, 201)["settings"]["open"] == "hold"
    assert client("PUT", "/v1/bandits/held", settings, 200)["settings"]["open"] == "hold"
    asked = msgspec.convert(settings, BanditSettings)
    assert spec_of(asked).open == "silence"
    assert spec_of(asked, Spec.of(2, Bernoulli(), AdaptiveThompson(), **CONVERSION)).open == "hold"


TRAP = {"family": "bernoulli", "dim": 2, "window": 3600.0, "default_reward": 0.0}
REFUSED = "default_reward = 0.0: expected loop = 'conversion' beside it"


def test_a_new_explicit_loop_with_a_default_reward_is_refused():
    client = Client()
    assert client("PUT", "/v1/bandits/shop", TRAP, 422)["detail"].startswith(REFUSED)
    made = client("PUT", "/v1/bandits/shop", TRAP | {"loop": "conversion"}, 201)
    assert made["settings"]["default_reward"] == 0.0
    unsaid = {key: value for key, value in TRAP.items() if key != "default_reward"}
    made = client("PUT", "/v1/bandits/other", unsaid | {"loop": "conversion"}, 201)
    assert made["settings"]["default_reward"] == 0.0
    assert client("PUT", "/v1/bandits/plain", unsaid, 201)["settings"]["loop"] == "explicit"


def test_an_explicit_loop_that_exists_may_be_put_again():
    """Before version 0.2 such a PUT was accepted, and it is sent again at every start."""
    client = Client()
    spec = Spec.of(2, Bernoulli(), AdaptiveThompson(), window=3600.0)
    draft = client.service.replica.settings_draft("shop", spec)
    client.service.ledger.commit([draft])
    client.service.replica.catch_up()
    again = client("PUT", "/v1/bandits/shop", TRAP)
    assert (again["settings"]["loop"], again["model_version"]) == ("explicit", 1)
    problem = client("PUT", "/v1/bandits/shop", TRAP | {"default_reward": 1.0}, 409)
    assert "default_reward = 1.0: expected 0.0, as the log has it" in problem["detail"]


def test_a_bandit_keeps_its_default_reward_where_none_is_said():
    client, settings = Client(), {"family": "bernoulli", "dim": 2, **CONVERSION}
    client("PUT", "/v1/bandits/shop", settings | {"default_reward": 1.0}, 201)
    again = client("PUT", "/v1/bandits/shop", settings)
    assert (again["settings"]["default_reward"], again["model_version"]) == (1.0, 1)


def test_loops_of_version_0_1_hold(tmp_path):
    shutil.copy(OLD, tmp_path)
    ledger = open_ledger(f"sqlite:///{tmp_path / OLD.name}")
    replica = Replica(ledger)
    replica.catch_up()
    specs = [fold.spec for fold in replica.folds.values()]
    assert "conversion" in {spec.loop for spec in specs}
    assert {spec.open for spec in specs} == {"hold"}
    ledger.close()
