"""Numbers that would ruin a model are refused, with a bound that can be raised."""

import asyncio

import httpx2
import msgspec
import numpy as np
import pytest

from belated import Bandit, Gaussian, Poisson, simulate
from belated.core.extremes import recorded
from belated.ledger.events import START, Draft, Kind
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica, system_clock
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.tools.importing import Options, import_file
from belated.ledger.tools.invariants import Rules
from belated.policies import Greedy, Thompson
from belated.service.app import new_app
from belated.service.service import Service

ACTIONS = [[0.6, 0.0], [0.0, 0.8]]


@pytest.mark.parametrize("policy", ["greedy", None])  # None: the default
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_reward_beyond_the_bound_is_refused_until_it_is_raised(family, policy):
    bandit = Bandit(2, family=family, policy=policy)
    id = bandit.decide(ACTIONS).id
    bandit.learn(id, 1.0)
    theta = bandit.theta.copy()
    id = bandit.decide(ACTIONS).id
    with pytest.raises(ValueError, match=r"reward .* to 1e\+09; .*max_reward raises the bound"):
        bandit.learn(id, 1e15)
    assert np.array_equal(bandit.theta, theta)
    more = Bandit(2, family=f"{family}:max_reward=1e15", policy=policy)
    assert more.learn(more.decide(ACTIONS).id, 1e15) == 1


@pytest.mark.parametrize("policy", ["thompson", "evill"])
@pytest.mark.parametrize("reward", [3e7, 1e9])
@pytest.mark.parametrize("ordinary", [0, 3])
def test_a_large_count_below_the_bound_is_learnt(policy, reward, ordinary):
    """The exact estimate solves (n + 1) exp(t) + ridge t = the sum of the rewards, here by Newton.

    Thirty million left the estimate at 0 without a word: every share of the step was too long.
    """
    bandit = Bandit(1, family="poisson", policy=policy, seed=1)
    rewards = [2.0] * ordinary + [reward]
    for y in rewards:
        bandit.learn(bandit.decide([[1.0]], probabilities=False).id, y)
    ridge = bandit._learner.estimator.lam * bandit._learner.estimator.kappa
    n, t = len(rewards), np.log(reward)
    for _ in range(50):
        t -= (n * np.exp(t) + ridge * t - sum(rewards)) / (n * np.exp(t) + ridge)
    assert bandit.theta[0] == pytest.approx(t, abs=bandit.certificate.error + 1e-9)
    assert bandit.certificate.error < 0.2


@pytest.mark.parametrize("family", [Gaussian, Poisson])
@pytest.mark.parametrize("value", [0.0, -1.0, 1e200, np.nan, "x"])
def test_bounds_on_rewards_that_are_none(family, value):
    with pytest.raises((TypeError, ValueError), match="max_reward = "):
        family(max_reward=value)


EXTREMES = [
    ("adaptive-thompson", "prior_sd=1e308"),
    ("adaptive-thompson", "prior_sd=1e-300"),
    ("adaptive-thompson", "strength=1e300"),
    ("adaptive-thompson", "scale=1e308"),
    ("adaptive-thompson", "tol=1e300"),
    ("greedy", "lam=1e90"),
    ("greedy", "lam=1e308"),
    ("greedy", "m1=1e-300"),
    ("thompson", "prior_sd=1e308"),
    ("thompson", "prior_sd=1e-300"),
    ("thompson", "scale=1e308"),
    ("delayed-ofu-glm", "R=1e300"),
    ("delayed-ofu-glm", "tol=1e300"),
    ("delayed-ofu-glm", "width_scale=1e308"),
]


@pytest.mark.parametrize(("policy", "parameter"), EXTREMES)
def test_parameters_beyond_the_bound_are_refused(policy, parameter):
    name = parameter.partition("=")[0]
    for make in (
        lambda: Bandit(2, family="gaussian", policy=f"{policy}:{parameter}"),
        lambda: Bandit(2, family="gaussian", policy=f"{policy}:{parameter}", ledger="memory://"),
        lambda: simulate([f"{policy}:{parameter}"], dims=[2], horizon=5, runs=1),
    ):
        with pytest.raises(ValueError, match=rf"{name} = .*to 1e\+12.*BELATED_LARGEST="):
            make()


def test_the_bound_on_parameters_can_be_raised(monkeypatch):
    with pytest.raises(ValueError, match=r"BELATED_LARGEST=1e.20 in the environment") as refused:
        Bandit(2, family="gaussian", policy=Greedy(lam=1e20))
    monkeypatch.setenv("BELATED_LARGEST", str(refused.value).split("BELATED_LARGEST=")[1][:5])
    assert Bandit(2, family="gaussian", policy=Greedy(lam=1e20)).policy.lam == 1e20
    monkeypatch.setenv("BELATED_LARGEST", "much")
    with pytest.raises(ValueError, match="BELATED_LARGEST = 'much': expected a number"):
        Bandit(2, family="gaussian", policy="greedy")


def test_what_is_derived_is_not_bounded():
    """A large m1 gives a logistic mean a tiny slope, and a huge lam follows from that."""
    bandit = Bandit(2, family=Gaussian(sd=1e8), policy=Thompson(prior_sd=1e-3))
    assert bandit.policy.lam > 1e12


def test_what_was_saved_before_the_bounds_is_read_back(tmp_path):
    with recorded():
        old = Bandit(2, family="bernoulli", policy=Greedy(lam=1e30))
    old.learn(old.decide(ACTIONS).id, 1)
    old.save(tmp_path / "old.npz")
    loaded = Bandit.load(tmp_path / "old.npz")
    assert loaded.policy.lam == 1e30
    assert np.array_equal(loaded.theta, old.theta)


def test_the_service_refuses_them_too():
    service = Service("memory://")
    service.read_log()
    transport = httpx2.ASGITransport(new_app(service))

    async def ask():
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            settings = {"family": "gaussian", "policy": "greedy:lam=1e308", "dim": 2}
            refused = await http.put("/v1/bandits/shop", json=settings)
            del settings["policy"]  # the default
            assert (await http.put("/v1/bandits/shop", json=settings)).status_code == 201
            made = await http.post("/v1/bandits/shop/decisions", json={"matrix": ACTIONS})
            item = {"decision_id": made.json()["decision_id"], "reward": 1e19}
            invalid = await http.post("/v1/rewards", json={"rewards": [item]})
            settings["family"] = "gaussian:max_reward=1e20"
            assert (await http.put("/v1/bandits/shop", json=settings)).status_code == 200
            accepted = await http.post("/v1/rewards", json={"rewards": [item]})
            return refused, invalid.json(), accepted.json()

    refused, invalid, accepted = asyncio.run(ask())
    assert refused.status_code == 422
    assert "BELATED_LARGEST" in refused.json()["detail"]
    assert invalid["statuses"] == ["invalid"]
    assert "max_reward raises the bound (gaussian)" in invalid["reasons"][0]
    assert accepted == {"statuses": ["accepted"]}


def test_an_import_refuses_them_too(tmp_path):
    url = f"sqlite:///{tmp_path}/shop.db"
    Bandit(2, family="gaussian", policy="greedy", ledger=url).close()
    file = tmp_path / "log.csv"
    file.write_text("id,time,x0,x1,reward\n1,1700000000,0.5,0.5,1e19\n")
    report, failed = import_file(url, file, Options(vector="x0,x1"))
    assert failed
    (row,) = report["bad_rows"]
    assert row["line"] == 2
    assert "max_reward raises the bound" in row["reason"]


def old_ledger(**family):
    """A log as version 0.1 wrote it: a reward of 1e19 in it, and lam = 1e30."""
    ledger = MemoryLedger()
    with recorded():
        spec = Spec.of(2, Gaussian(sd=1.0), Greedy(lam=1e30))
    assert spec.family["values"] == {"sd": 1.0}  # as version 0.1 described it
    replica = Replica(ledger)
    replica.configure("bandit", msgspec.structs.replace(spec, **family))
    draft, _ = replica.propose("bandit", ask())
    replica.commit([draft])
    ledger.commit([Draft(Kind.REWARDED, "bandit", draft.id, replica.clock(), 1e19)], None)
    return ledger


def ask():
    return Ask(matrix=np.array(ACTIONS))


def test_a_log_of_before_the_bounds_opens_and_is_sound():
    ledger = old_ledger()
    replica = Replica(ledger)
    replica.catch_up()
    assert replica.folds["bandit"].learner.n_observed == 1
    rules = Rules(system_clock())
    events, _ = ledger.follow(START)
    assert [rules.problem(event) for event in events] == [""] * 3
    draft, _ = replica.propose("bandit", ask())
    replica.commit([draft])
    assert replica.reward([(draft.id, 1e19)]) == ["invalid"]  # but no more of that
    reward = Draft(Kind.REWARDED, "bandit", draft.id, replica.clock(), 1e19)
    (outcome,) = replica.commit([reward])
    assert "max_reward raises" in replica.refusal(reward, outcome)


def test_the_bound_on_rewards_of_a_bandit_is_raised_in_its_log():
    ledger = MemoryLedger()
    first = Bandit(2, family="gaussian", policy="greedy", ledger=ledger)
    id = first.decide(ACTIONS).id
    with pytest.raises(ValueError, match="max_reward"):
        first.learn(id, 1e10)
    second = Bandit(2, family="gaussian:max_reward=1e12", policy="greedy", ledger=ledger)
    assert second.learn(id, 1e10) == 1
    assert first.n_observed == 1  # it has read the log
    replayed = Replica(ledger)
    replayed.catch_up()
    assert replayed.folds["bandit"].support.high == 1e12
    with pytest.raises(ValueError, match=r"family = .*as the log has it"):
        Bandit(2, family="gaussian:sd=2", policy="greedy", ledger=ledger)
