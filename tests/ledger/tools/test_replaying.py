"""`belated ledger replay`, with the policy that decided and with another one."""

import math

import msgspec
import numpy as np
import pytest

from belated import Bernoulli, DelayedOFUGLM, Features
from belated.core.sparse import dense
from belated.learner.learner import Learner
from belated.learner.rows import rows_between
from belated.ledger import open_ledger
from belated.ledger.events import Decided, Kind
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec, vectors_in
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.policies import AdaptiveThompson
from support.shop_ledger import DIM, Clock, content, log_of, rebuilt


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


def test_what_was_repeated_is_not_compared(tmp_path, ask):
    ledger = SQLiteLedger(tmp_path / "x.db")
    replica = Replica(ledger, clock=Clock(), seed=1)
    replica.configure("shop", Spec.of(2, Bernoulli(), DelayedOFUGLM(), sticky=60.0))
    replica.register("shop", {"a": [0.9, 0.0], "b": [0.0, 0.3]})
    for k in range(12):
        replica.commit([replica.propose("shop", Ask(subject=f"s{k % 5}")).draft])
    ledger.close()
    _, same = ask("replay", f"sqlite:///{tmp_path}/x.db", "--policy", "delayed-ofu-glm")
    assert same["compared"] == 5


def test_what_was_held_out_is_not_compared(tmp_path, ask):
    ledger = SQLiteLedger(tmp_path / "x.db")
    replica = Replica(ledger, clock=Clock(), seed=1)
    replica.configure("shop", Spec.of(2, Bernoulli(), DelayedOFUGLM(), holdout=0.5))
    replica.register("shop", {"a": [0.9, 0.0], "b": [0.0, 0.3]})
    made = [replica.propose("shop", Ask(subject=f"s{k}")) for k in range(40)]
    replica.commit([proposal.draft for proposal in made])
    ledger.close()
    _, same = ask("replay", f"sqlite:///{tmp_path}/x.db", "--policy", "delayed-ofu-glm")
    n = sum(not proposal.body.held_out for proposal in made)
    assert (same["compared"], same["chosen_differently"]) == (n, 0)
    assert 0 < n < 40


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
    assert ask("replay", shop, "--bandit", "shop", "--until", "1700006400.0") == (code, early)
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


ADS = [{"ad": name, "price": price} for name, price in [("a", 1.0), ("b", 2.0), ("c", 4.0)]]


def played(path, spec, asks, actions=None):
    """Writes the decisions of a default policy, each with a reward, into a new file."""
    replica = Replica(SQLiteLedger(path), seed=1)
    replica.configure("shop", spec)
    if actions:
        replica.register("shop", actions)
    rng = np.random.default_rng(2)
    for ask in asks:
        draft = replica.propose("shop", ask).draft
        replica.commit([draft])
        replica.reward([(draft.id, float(rng.integers(2)))])
    return replica.fold("shop").learner


def test_a_policy_with_a_bound_replays_the_log_of_one_without(tmp_path, ask):
    features = Features(numeric=["price"], categorical=["ad", "device"], max_norm=0.8)
    features.fit(ADS, [{"device": device} for device in ("phone", "desk", "phone")])
    spec = Spec.of(
        *(features.dim, Bernoulli(), AdaptiveThompson()),
        max_norm=0.8,
        features=features.unbounded().to_dict(),
    )
    contexts = [{"device": device} for device in ("phone", "desk")] * 10
    asks = [Ask(context, msgspec.json.encode(context)) for context in contexts]
    actions = {row["ad"]: row for row in ADS}
    learner = played(tmp_path / "a.db", spec, asks, actions)
    _, said = ask("replay", f"sqlite:///{tmp_path}/a.db", "--policy", "delayed-ofu-glm:m1=1")
    assert said["compared"] == 20
    assert said["vectors_shrunk_by"] == pytest.approx(0.4)  # of four blocks
    # A bandit that had the bounded features from the start has the same estimate.
    twin = Learner(features.dim, Bernoulli(), DelayedOFUGLM(m1=1.0), 0.8)
    for x, y in zip(dense_rows(learner), learner.history.y[:20], strict=True):
        decision = twin.decide(0.4 * x[np.newaxis], None)
        twin.learn({decision.id - 1: float(y)})
    shown = said["bandits"][1]["theta"]
    assert shown == pytest.approx(twin.state.theta[: len(shown)], abs=1e-4)


def dense_rows(learner):
    return dense(rows_between(learner.history, 0, learner.n_decided), learner.dim)


def test_vectors_without_features_are_shrunk_to_the_longest_of_the_log(tmp_path, ask):
    spec = Spec.of(2, Bernoulli(), AdaptiveThompson(), features=vectors_in({"a": 1, "b": 1}))
    played(tmp_path / "a.db", spec, [Ask()] * 6, {"x": [3.0, 4.0], "y": [0.0, 1.0]})
    _, said = ask("replay", f"sqlite:///{tmp_path}/a.db", "--policy", "delayed-ofu-glm:m1=1")
    assert (said["compared"], said["vectors_shrunk_by"]) == (6, 0.2)
    _, same = ask("replay", f"sqlite:///{tmp_path}/a.db", "--policy", "adaptive-thompson")
    assert (same["compared"], same["vectors_shrunk_by"]) == (6, 1.0)
    assert same["bandits"][0]["digest"] == same["bandits"][1]["digest"]


def test_no_row_of_tags_is_longer_than_longest():
    features = Features(categorical=["ad"], tags=["likes"], interactions=[("ad", "likes")])
    rows = [{"ad": "a", "likes": ["sea", "snow", "wind"]}, {"ad": "b", "likes": []}]
    free = features.fit(rows).unbounded()
    assert np.linalg.norm(free.transform(rows), axis=1).max() == pytest.approx(free.longest)
    assert free.longest == pytest.approx(math.sqrt(1 + 3 + 3 + 1))
