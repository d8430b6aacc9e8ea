"""Noise of Gaussian rewards that is left out: learnt by a policy that can, 1 for the others."""

import msgspec
import numpy as np
import pytest

from belated import Bandit, Features, Gaussian, registry
from belated.estimators.laplace.fit import DISPERSION
from belated.experiments.experiment import new_experiment
from belated.experiments.options import Options
from belated.learner.assumptions import AssumptionWarning
from belated.ledger.events import NOBODY, START, Draft, Kind
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.policies import AdaptiveThompson
from belated.service.settings import spec_of
from belated.wire import BanditSettings

ARMS = [{"arm": arm} for arm in "abcd"]
MEANS = [200.0, 240.0, 280.0, 320.0]  # and a noise of 50


def plays_of_the_best(family, seed, **settings):
    features = Features(categorical=["arm"]).fit(ARMS)
    bandit = Bandit(family=family, features=features, seed=seed, **settings)
    rng, best = np.random.default_rng(seed), 0
    for _ in range(200):
        decision = bandit.decide(ARMS)
        bandit.learn(decision.id, MEANS[decision.index] + 50.0 * rng.standard_normal())
        best += decision.index == 3
    return best


@pytest.mark.parametrize("family", [Gaussian(), "gaussian"], ids=str)
def test_the_default_finds_the_best_arm_whatever_the_unit_of_rewards(family):
    assert all(plays_of_the_best(family, seed) > 150 for seed in range(3))


def test_inverse_gap_learns_it_too():
    known, left_out = (
        Bandit(1, family=family, policy="inverse-gap") for family in (Gaussian(sd=50.0), Gaussian())
    )
    for y in 50.0 * np.random.default_rng(0).standard_normal(200):
        for bandit in (known, left_out):
            bandit.learn(bandit.decide([[1.0]]).id, y)
    noise = [bandit._learner.state.fit.scalars[DISPERSION] for bandit in (known, left_out)]
    assert noise == pytest.approx([2_500.0, 2_500.0], rel=0.2)


@pytest.mark.filterwarnings("ignore:.*taken to vary:belated.AssumptionWarning")
def test_noise_that_is_given_is_known():
    assert plays_of_the_best(Gaussian(sd=1.0), 0) < 100


@pytest.mark.parametrize("policy", ["linucb:alpha=1", "thompson", "delayed-ofu-glm"])
def test_other_policies_take_1(policy):
    left_out, known = (
        Bandit(2, family=family, policy=policy, seed=1) for family in (Gaussian(), Gaussian(sd=1.0))
    )
    for y in (0.5, -1.0, 2.0):
        one, other = (bandit.decide(np.eye(2)) for bandit in (left_out, known))
        assert one == other
        for bandit in (left_out, known):
            bandit.learn(one.id, y)
    assert left_out.fingerprint() == known.fingerprint()


def test_a_policy_that_takes_1_says_where_that_is_wrong():
    bandit = Bandit(1, family=Gaussian(), policy="thompson", seed=1)
    rewards = 50.0 * np.random.default_rng(0).standard_normal(100)
    ids = [bandit.decide([[1.0]]).id for _ in rewards]
    with pytest.warns(AssumptionWarning, match="taken to vary around their mean with sd = 1"):
        bandit.learn(ids, rewards)


def test_what_was_set_is_shown():
    assert repr(Gaussian()) == "Gaussian(sd=None, max_reward=1000000000.0)"
    assert repr(Gaussian(sd=1.0)) == "Gaussian(sd=1.0, max_reward=1000000000.0)"
    assert Gaussian() == Gaussian(sd=None) != Gaussian(sd=1.0)
    for text in ("gaussian", "gaussian:1", "gaussian:0.5"):
        family = registry.parse(registry.FAMILIES, text)
        assert registry.spell(registry.FAMILIES, family) == text
        assert eval(repr(family), {"Gaussian": Gaussian}) == family


# ------------------------------------------------------------------------------------ logs, files


def families_in(ledger):
    written = [msgspec.json.decode(event.body) for event in ledger.follow(START)[0]]
    return [settings["family"]["values"] for settings in written]


def test_a_log_that_has_noise_keeps_it():
    ledger = MemoryLedger()
    Bandit(2, family=Gaussian(sd=2.0), ledger=ledger)
    again = Bandit(2, family=Gaussian(), ledger=ledger)
    assert again.family == Gaussian(sd=2.0)
    assert families_in(ledger) == [{"sd": 2.0}]
    known = Spec.of(2, Gaussian(sd=2.0), AdaptiveThompson())
    assert known.changed_to(spec_of(BanditSettings(family="gaussian", dim=2), known)) == known


def test_a_log_without_noise_goes_on_learning_it():
    ledger = MemoryLedger()
    for family in (Gaussian(), Gaussian(sd=None), Gaussian(max_reward=1e10)):
        assert Bandit(2, family=family, ledger=ledger).family == family
    assert families_in(ledger) == [{"sd": None}, {"sd": None, "max_reward": 1e10}]
    with pytest.raises(ValueError, match=r"'sd': 1\.0.*as the log has it"):
        Bandit(2, family=Gaussian(sd=1.0), ledger=ledger)


def test_a_log_of_before_sd_could_be_null():
    spec = Spec.of(2, Gaussian(), AdaptiveThompson())
    values = {"sd": 1.0, "learns_sd": True}
    old = msgspec.json.encode({**spec.as_kept(), "family": {"type": "gaussian", "values": values}})
    ledger = MemoryLedger()
    ledger.commit([Draft(Kind.CONFIGURED, "bandit", NOBODY, 0, body=old)])
    bandit = Bandit(2, family=Gaussian(), ledger=ledger)
    assert bandit.family == Gaussian()
    assert len(ledger.follow(START)[0]) == 1


def test_a_file_holds_what_was_set(tmp_path):
    for family in (Gaussian(), Gaussian(sd=1.0)):
        Bandit(2, family=family).save(tmp_path / "file")
        assert Bandit.load(tmp_path / "file").family == family


def test_over_http_the_noise_is_learnt():
    spec = spec_of(BanditSettings(family="gaussian", dim=2))
    assert spec.learner().policy.learns_dispersion
    known = spec_of(BanditSettings(family="gaussian:sd=1", dim=2))
    assert not known.learner().policy.learns_dispersion


# ------------------------------------------------------------------------------------ experiments


@pytest.mark.parametrize(("other", "sd"), [("greedy", 1.0), ("adaptive-thompson", None)])
def test_folders_of_policies_that_take_1_can_be_resumed(other, sd):
    options = Options(["delayed-ofu-glm", other], ["gaussian"], ["exponential:5"], horizon=10)
    described = new_experiment(options).identity()["families"]
    assert described == {"gaussian": {"type": "gaussian", "values": {"sd": sd}}}
