"""More features than a covariance can be kept of: refused where they are new, for every policy."""

import pytest

from belated import Bandit, Bernoulli, Features, simulate
from belated.core import arguments
from belated.ledger.stores.memory import MemoryLedger
from support.replicas import replayed, same

REFUSED = "expected at most 3 features; hash a column into fewer"


def features(n):
    return Features(categorical=["ad"], intercept=False).fit([{"ad": ad} for ad in range(n)])


@pytest.fixture
def narrow(monkeypatch):
    """Returns a function that lowers the limit to 3 features."""
    return lambda: monkeypatch.setattr(arguments, "WIDEST", 3)


@pytest.mark.parametrize("policy", ["thompson", "greedy", "delayed-ofu-glm"])
def test_a_file_of_before_the_limit_opens_and_goes_on(tmp_path, narrow, policy):
    bandit = Bandit(family=Bernoulli(), policy=policy, features=features(5))
    bandit.learn(bandit.decide([{"ad": 0}, {"ad": 4}]).id, 1.0)
    bandit.save(tmp_path / "bandit.npz")
    narrow()
    again = Bandit.load(tmp_path / "bandit.npz")
    again.learn(again.decide([{"ad": 1}, {"ad": 4}]).id, 0.0)
    with pytest.raises(ValueError, match=f"dim = 6: {REFUSED}"):
        again.grow(features(6))
    with pytest.raises(ValueError, match=f"dim = 5: {REFUSED}"):
        Bandit(family=Bernoulli(), policy=policy, features=features(5))


def test_a_log_of_before_the_limit_opens_and_goes_on(narrow):
    ledger = MemoryLedger()
    parts = {"family": Bernoulli(), "policy": "thompson", "ledger": ledger}
    Bandit(features=features(5), **parts)
    narrow()
    bandit = Bandit(features=features(5), **parts)
    bandit.learn(bandit.decide([{"ad": 0}, {"ad": 4}]).id, 1.0)
    assert same(bandit._backend._replica, replayed(bandit._backend._replica))
    with pytest.raises(ValueError, match=f"dim = 6: {REFUSED}"):
        bandit.grow(features(6))
    with pytest.raises(ValueError, match=f"dim = 5: {REFUSED}"):
        Bandit(features=features(5), name="new", **parts)


def test_simulations(narrow):
    narrow()
    with pytest.raises(ValueError, match=f"dim = 4: {REFUSED}"):
        simulate(["thompson"], dims=[4], horizon=5, runs=1)
