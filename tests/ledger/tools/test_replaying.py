"""`belated ledger replay`, with the policy that decided and with another one."""

import msgspec
import numpy as np
import pytest

from belated import Bernoulli, DelayedOFUGLM
from belated.ledger import open_ledger
from belated.ledger.events import Decided, Kind
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.sqlite import SQLiteLedger
from support.shop_ledger import DIM, content, log_of, rebuilt


def test_replay(shop, ask, belated):
    code, said = ask("replay", shop)
    replica = rebuilt(open_ledger(shop))
    assert code == 0
    assert said["events"] == len(log_of(open_ledger(shop)))
    for row in said["bandits"]:
        fold = replica.folds[row["bandit"]]
        assert row["digest"] == fold.digest()
        assert row["decisions"] == fold.n_rows
        assert row["rewards"] == fold.counts.rewarded
        assert row["pending"] == len(fold.pending)
        assert row["theta"] == pytest.approx(fold.learner.state.theta.tolist(), abs=1e-6)
    assert [row["bandit"] for row in ask("replay", shop, "--bandit", "clicks")[1]["bandits"]] == [
        "clicks"
    ]
    code, out, _ = belated("replay", shop)
    assert "events per second" in out


def test_another_policy_from_the_same_log(shop, tmp_path, ask, belated):
    before = content(tmp_path)
    code, same = ask("replay", shop, "--bandit", "clicks", "--policy", "delayed-ofu-glm")
    live, other = same["bandits"]
    assert code == 0
    assert live["digest"] == other["digest"]  # the same policy makes the same of it
    assert same["compared"] == 60
    # It differs exactly where its choice was not played: by exploration, or because nothing had
    # been learnt and all three were drawn alike. The policy would have played the first then.
    explored = 0
    for e in log_of(open_ledger(shop)):
        if e.kind == Kind.DECIDED and e.bandit == "clicks":
            body = msgspec.msgpack.decode(e.body, type=Decided)
            spread = body.propensity == 1 / 3
            explored += body.index != 0 if spread else body.propensity < 0.5
    assert same["chosen_differently"] == explored > 0
    code, greedy = ask("replay", shop, "--bandit", "clicks", "--policy", "greedy")
    assert greedy["bandits"][1]["policy"] == "greedy"
    assert greedy["chosen_differently"] != explored
    code, wide = ask("replay", shop, "--bandit", "shop", "--policy", "delayed-ofu-glm:delta=0.1")
    assert wide["compared"] == 0  # matrices were not logged
    assert wide["bandits"][0]["digest"] != wide["bandits"][1]["digest"]
    assert wide["bandits"][0]["theta"] == pytest.approx(wide["bandits"][1]["theta"], abs=1e-3)
    code, early = ask("replay", shop, "--bandit", "shop", "--until", "2023-11-15T00:00:00Z")
    assert early["bandits"][1]["events"] < early["bandits"][0]["events"]
    code, bounded = ask("replay", shop, "--bandit", "shop", "--family", "gaussian:0.5")
    assert bounded["bandits"][1]["decisions"] == bounded["bandits"][0]["decisions"]
    code, _, err = belated("replay", shop, "--bandit", "shop", "--policy", "gredy")
    assert (code, "did you mean greedy?" in err) == (2, True)
    code, _, err = belated("replay", shop, "--policy", "greedy")
    assert code == 2
    assert "--bandit = None: expected one of this ledger: shop, clicks" in err
    assert content(tmp_path) == before


def test_logged_matrices_can_be_compared(tmp_path, ask):
    ledger = SQLiteLedger(tmp_path / "a.db")
    replica = Replica(ledger, seed=1)
    replica.configure("shop", Spec.of(DIM, Bernoulli(), DelayedOFUGLM(), log_actions=True))
    rng = np.random.default_rng(2)
    for _ in range(20):
        draft = replica.propose("shop", Ask(matrix=rng.normal(size=(4, DIM)) / 5)).draft
        replica.commit([draft])
        replica.reward([(draft.id, float(rng.integers(2)))])
    _, said = ask("replay", f"sqlite:///{tmp_path}/a.db", "--policy", "delayed-ofu-glm")
    assert (said["compared"], said["chosen_differently"]) == (20, 0)
