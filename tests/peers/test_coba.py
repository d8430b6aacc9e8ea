"""Learners of coba as lanes, and a bandit as a learner of coba."""

import coba
import numpy as np
import pytest
from coba.learners import BanditEpsilonLearner, LinTSLearner, LinUCBLearner, RandomLearner
from coba.safety import SafeLearner

from belated import Bandit, Bernoulli, Features, Gaussian, checks, simulate
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import draw_world, play
from belated.peers import Coba, CobaLearner
from belated.policies import Thompson
from belated.worlds.delays import Constant
from belated.worlds.environments import Sphere, UnitBall

LEARNERS = [(LinUCBLearner, {"features": ["a"]}), (LinTSLearner, {"features": ["a"], "v": 0.1})]


@pytest.mark.parametrize("check", checks.OWN_POLICY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda pair: pair[0].__name__)
def test_shared_checks(learner, check):
    kind, options = learner
    check(Coba(kind, **options), Gaussian(sd=0.3))


@pytest.mark.parametrize("delay", [0, 7])
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda pair: pair[0].__name__)
def test_by_hand(learner, delay):
    """The same decisions as of a learner of coba that is driven without the adapter."""
    kind, options = learner
    world, seed = draw_world(UnitBall(4), 2, 60, seed=3), np.random.SeedSequence(11)
    policy = Coba(kind, **options)
    run = play(OwnPlayer(policy, Gaussian(), 2, seed), world, Constant(float(delay)))
    twin = kind(**options, seed=int(np.random.default_rng(seed).integers(2**31)))
    kept = []
    for t, actions in enumerate(world.actions):
        rows = [tuple(row) for row in actions.tolist()]
        action, probability = twin.predict(None, rows)
        assert rows.index(action) == run.index[t], t
        kept.append((action, probability))
        if t >= delay:
            action, probability = kept[t - delay]
            twin.learn(None, action, run.reward[t - delay], probability)


def test_beside_ours_behind_delays():
    frame = simulate(
        [Coba(LinUCBLearner, features=["a"]), "uniform"],
        ["gaussian:sd=0.3"],
        ["exponential:10"],
        environment=Sphere(3),
        dims=[2],
        horizon=200,
        runs=2,
        seed=2,
        checkpoints=2,
    ).frame()
    last = frame.query("t == 200").groupby("policy").regret.mean()
    assert last["coba.LinUCBLearner"] < 0.7 * last["uniform"]


def test_columns_that_all_actions_share_are_the_context():
    policy = Coba(LinUCBLearner, features=["a", "ax"], shared=[1])
    policy.start(3, np.random.default_rng(1))
    _, (context, action, *_) = policy.pick(np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0]]), 1)
    assert context == (9.0,)
    assert len(action) == 2
    assert policy._asdict()["shared"] == [1]


def test_wrong_learners():
    for wrong in (3, LinUCBLearner(), int):
        with pytest.raises(TypeError, match=r"learner = .*: expected the class of a learner"):
            Coba(wrong)
    with pytest.raises(TypeError, match="epsilon"):
        Coba(RandomLearner, epsilon=0.1)
    assert Coba(BanditEpsilonLearner, epsilon=0.1)._asdict()["epsilon"] == 0.1


# ---------------------------------------------------------------------- a bandit in coba


def features():
    rows = [{"action": name, "x0": x} for name in "abc" for x in (0.0, 1.0)]
    made = Features(categorical=["action"], numeric=["x0"], interactions=[("action", "x0")])
    return made.fit(rows)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_bandit_in_an_experiment_of_coba():
    """It beats a learner that draws at random; coba copies what plays in two environments."""
    environment = coba.Environments.from_lambda(
        100, lambda i, rng: [rng.random()], lambda i, c, rng: ["a", "b", "c"],
        lambda i, c, a, rng: float((a == "a") == (c[0] > 0.5)), seed=1,
    )  # fmt: skip
    bandit = Bandit(family=Bernoulli(), features=features(), seed=1)
    learners = [CobaLearner(bandit), RandomLearner()]
    result = coba.Experiment(environment, learners).run(quiet=True)
    names = dict(zip(result.learners["learner_id"], result.learners["family"], strict=True))
    means = {name: [] for name in names.values()}
    interactions = result.interactions
    for learner, reward in zip(interactions["learner_id"], interactions["reward"], strict=True):
        means[names[learner]].append(reward)
    assert np.mean(means["belated"]) > np.mean(means["Random"]) + 0.15
    assert bandit.n_decided == bandit.n_observed == 100
    short = environment.take(5)
    twice = coba.Experiment(short + short, learners[:1]).run(quiet=True)
    assert len(twice.interactions) == 10
    assert bandit.n_decided == 100


def test_a_bandit_answers_with_its_probabilities():
    learner = SafeLearner(CobaLearner(Bandit(family=Bernoulli(), features=features(), seed=1)))
    assert learner.params == {"family": "belated", "policy": "AdaptiveThompson"}
    actions = ["a", "b", "c"]
    action, probability, more = learner.predict([0.3], actions)
    chance = learner.score([0.3], actions, action)
    assert probability == pytest.approx(chance, abs=1 / 2049)  # a choice counts as one more point
    assert sum(learner.score([0.3], actions, a) for a in actions) == pytest.approx(1.0, abs=1e-3)
    learner.learn([0.3], action, 1.0, probability, **more)
    assert learner.learner.bandit.n_observed == 1


def test_actions_without_features_are_vectors():
    learner = CobaLearner(Bandit(2, family=Gaussian(), policy=Thompson(), seed=1))
    action, _, more = learner.predict(None, [(1.0, 0.0), (0.0, 1.0)])
    learner.learn(None, action, 0.5, 0.5, **more)
    assert learner.bandit.W.trace() == 3.0
    with pytest.raises(TypeError, match=r"context = .*: expected None for a bandit without"):
        learner.predict([1.0], [(1.0, 0.0)])
    with pytest.raises(TypeError, match="bandit = 3: expected a Bandit"):
        CobaLearner(3)
