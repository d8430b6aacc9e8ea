"""Rows are shrunk to a bound for policies of which something is proved within it, and no others."""

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM, Features, Gaussian, registry
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.model.plain_policy import is_own
from belated.model.protocols import claims_set
from belated.policies import Greedy, LinUCB, Thompson
from support.replicas import new_replica, replayed, same
from support.service_client import Client

ADS = [{"ad": "a"}, {"ad": "b"}]
PHONE = {"device": "phone"}
FREE = {
    *("adaptive-thompson", "thompson", "inverse-gap", "linucb", "greedy", "uniform"),
    *("evill", "glm-fpl", "polya-gamma"),
}


def shop():
    features = Features(
        categorical=["ad", "device"],
        tags=["likes"],
        interactions=[("ad", "device")],
        optional=["likes"],
    )
    rows = [{"ad": "a", "device": "phone", "likes": ["sea"]}, {"ad": "b", "device": "phone"}]
    return features.fit(rows)


def policies():
    kinds = {name: registry.load(registry.POLICIES, name) for name in registry.POLICIES}
    return {name: kind for name, kind in kinds.items() if not is_own(kind)}


def test_only_what_claims_no_set_needs_no_bound():
    kinds = policies()
    assert {name for name, kind in kinds.items() if not getattr(kind, "needs_bound", True)} == FREE
    assert not any(claims_set(registry.example_policy(kinds[name], Bernoulli())) for name in FREE)


@pytest.mark.parametrize("policy", ["thompson", "uniform", "greedy", "delayed-ofu-glm"])
def test_a_new_bandit_has_the_rows_that_its_policy_needs(policy):
    free, features = policy in FREE, shop()
    client = Client()
    settings = {
        "categorical": {"ad": ["a", "b"], "device": ["phone"]},
        "tags": {"likes": ["sea"]},
        "interactions": [["ad", "device"]],
    }
    client.bandit(policy=policy, dim=None, features=settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {ad["ad"]: ad for ad in ADS}})
    client.decide(context=PHONE)
    served = client.service.replica.folds["shop"]
    kept = Bandit(family=Bernoulli(), policy=policy, features=features, ledger="memory://")
    bandit = Bandit(family=Bernoulli(), policy=policy, features=features)
    for made in (kept, bandit):
        made.decide(ADS, PHONE)
        assert made.features.bounded is not free
    assert served.actions.features.bounded is not free
    for learner in (kept._learner, bandit._learner, served.learner):
        # of the ad, the device, their pair and the constant; a fifth entry would be a tag
        norm = 2.0 if free else np.sqrt(4 / 5)
        assert np.linalg.norm(learner.history.x[0]) == pytest.approx(norm)
        assert learner.max_norm == (pytest.approx(np.sqrt(5.0)) if free else 1.0)


def test_the_posterior_is_that_of_rows_as_they_are():
    bandit = Bandit(family=Gaussian(sd=0.5), policy=Thompson(prior_sd=2.0), features=shop(), seed=1)
    for reward in (1.0, 0.5, 0.25):
        bandit.learn(bandit.decide(ADS, PHONE).id, reward)
    x = bandit._learner.history.x[:3]
    assert set(np.unique(x)) == {0.0, 1.0}
    expected = np.linalg.solve(0.25 / 4.0 * np.eye(x.shape[1]) + x.T @ x, x.T @ [1.0, 0.5, 0.25])
    assert bandit.theta == pytest.approx(expected, abs=1e-12)


def bounded_log(policy):
    """A ledger as it was before: rows of every policy but the default were shrunk."""
    features = shop()
    spec = Spec.of(features.dim, Bernoulli(), policy, features=features.to_dict())
    replica = new_replica(spec, MemoryLedger())
    replica.register("shop", {ad["ad"]: ad for ad in ADS})
    return replica


@pytest.mark.parametrize("policy", [Thompson(), Greedy(), LinUCB(alpha=1.0)], ids=str)
def test_a_bandit_of_an_old_log_keeps_its_bound(policy):
    ledger = bounded_log(policy).ledger
    with_more = shop().with_categories({"ad": ["c"], "likes": ["snow"]})
    bandit = Bandit(
        family=Bernoulli(), policy=policy, features=shop(), ledger=ledger, name="shop", seed=1
    )
    for _ in range(2):
        bandit.learn(bandit.decide(ADS, PHONE).id, 1.0)
        x = bandit._learner.history.x[bandit.n_decided - 1]
        assert np.linalg.norm(x) == pytest.approx(np.sqrt(4 / 5))
        assert bandit._learner.max_norm == 1.0
        bandit.grow(with_more)
    assert bandit.features.bounded


def test_a_setting_put_again_keeps_the_bound_of_an_old_log():
    replica = bounded_log(Thompson())
    client = Client(replica.ledger)
    fitted = dict(shop().to_dict()["fitted"]["categories"])
    body = {
        "family": "bernoulli",
        "policy": "thompson",
        "features": {
            "categorical": {"ad": [*fitted["ad"], "c"], "device": fitted["device"]},
            "tags": {"likes": fitted["likes"]},
            "interactions": [["ad", "device"]],
        },
    }
    client("PUT", "/v1/bandits/shop", body, 200)
    features = client.service.replica.folds["shop"].actions.features
    assert features.bounded
    assert "ad=c" in features.names


@pytest.mark.parametrize("old", [False, True])
def test_a_saved_bandit_keeps_its_rows(tmp_path, old):
    bandit = Bandit(family=Bernoulli(), policy=Greedy(), features=shop(), seed=1)
    if old:  # as version 0.1 saved it
        features = shop()
        bandit = Bandit(features.dim, family=Bernoulli(), policy=Greedy(), seed=1)
        bandit._backend.features = features
    for reward in (1.0, 0.0, 1.0):
        bandit.learn(bandit.decide(ADS, PHONE).id, reward)
    bandit.save(tmp_path / "bandit.npz")
    again = Bandit.load(tmp_path / "bandit.npz", seed=1)
    for twin in (bandit, again):
        twin.learn(twin.decide(ADS, PHONE).id, 1.0)
        twin.grow(shop().with_categories({"likes": ["snow", "sun"]}))
        assert twin.features.bounded is old
        assert twin._learner.max_norm == (1.0 if old else pytest.approx(np.sqrt(7.0)))
        twin.decide([{**ADS[0], "likes": ["sea", "snow", "sun"]}], PHONE)
    assert np.array_equal(bandit.theta, again.theta)


def test_features_that_grow_in_a_log_may_give_longer_rows():
    bandit = Bandit(family=Bernoulli(), policy=Thompson(), features=shop(), ledger="memory://")
    bandit.learn(bandit.decide(ADS, PHONE).id, 1.0)
    bandit.grow(shop().with_categories({"likes": ["snow", "sun"]}))
    bandit.decide([{**ADS[0], "likes": ["sea", "snow", "sun"]}], PHONE)
    replica = bandit._backend._replica
    assert same(replica, replayed(replica))
    assert msgspec.structs.asdict(replica.folds["bandit"].spec)["max_norm"] == 1.0


def test_a_policy_that_needs_the_bound_refuses_longer_rows():
    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=shop().unbounded())
    with pytest.raises(ValueError, match="expected at most max_norm = "):
        bandit.decide(ADS, PHONE)


VECTORS = [[1.0, 1.0, 1.0], [2.0, -1.0, 0.0]]


@pytest.mark.parametrize("ledger", [None, "memory://"])
@pytest.mark.parametrize("policy", sorted(FREE))
def test_vectors_are_free_too(policy, ledger):
    """Without features: what needs no bound takes vectors beyond ``max_norm``."""
    if ledger and policy == "polya-gamma":
        return  # it is for bandits in memory only
    policy = "linucb:alpha=1" if policy == "linucb" else policy
    bandit = Bandit(3, family=Bernoulli(), policy=policy, ledger=ledger, seed=1)
    for reward in (1.0, 0.0, 1.0):
        bandit.learn(bandit.decide(VECTORS).id, reward)
    assert np.isfinite(bandit.theta).all()
    assert bandit.ranking(VECTORS).best.index in (0, 1)
    with pytest.raises(ValueError, match=r"^actions\[1\] has "):
        bandit.decide([[1.0, 1.0, 1.0], [3e6, 0.0, 0.0]])
    assert bandit.n_decided == 3


def test_vectors_of_a_policy_that_needs_the_bound():
    bandit = Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM())
    with pytest.raises(ValueError, match=r"norm 1\.73205081: expected at most max_norm = 1; scale"):
        bandit.decide(VECTORS[:1])


def test_the_posterior_of_long_vectors_is_that_of_the_vectors():
    bandit = Bandit(3, family=Gaussian(sd=0.5), policy=Thompson(prior_sd=2.0), seed=1)
    for reward in (1.0, 0.5, 0.25):
        bandit.learn(bandit.decide(VECTORS).id, reward)
    x = bandit._learner.history.x[:3]
    expected = np.linalg.solve(0.25 / 4.0 * np.eye(3) + x.T @ x, x.T @ [1.0, 0.5, 0.25])
    assert bandit.theta == pytest.approx(expected, abs=1e-9)


def test_registered_vectors_are_as_long_as_the_ridge_allows():
    client = Client()
    client.bandit(policy="greedy", dim=2)
    put = {"a": [3.0, 4.0], "b": [0.0, 1.0]}
    client("PATCH", "/v1/bandits/shop/actions", {"put": put})
    client.reward((client.decide()["decision_id"], 1.0))
    said = client("PATCH", "/v1/bandits/shop/actions", {"put": {"c": [1e5, 0.0]}}, 422)
    assert "'c' has norm 100000" in said["detail"]
    replica = client.service.replica
    assert same(replica, replayed(replica))
