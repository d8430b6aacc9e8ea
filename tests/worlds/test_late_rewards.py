"""The Gymnasium environment: it is one, its arrivals are right, and a learner learns from them."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from belated import Bandit, Bernoulli, Gaussian
from belated.worlds.delays import Exponential, Never
from belated.worlds.environments import FixedArms, OneHot, Sphere
from belated.worlds.late_rewards import NAME, LateRewards


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"family": "gaussian", "environment": Sphere(4), "dim": 2},
        {"environment": FixedArms([[2.0, 0.0], [0.0, 3.0]]), "dim": 2, "delay": Never()},
        {"environment": OneHot(3), "delay": "constant:0"},
    ],
)
def test_it_is_an_environment_of_gymnasium(options):
    check_env(gymnasium.make(NAME, horizon=50, **options).unwrapped)


def played(env, choose=lambda actions, t: 0, seed=1):
    """All steps of an episode: the actions that were offered and what each step returned."""
    actions, info = env.reset(seed=seed)
    assert info["round"] == info["missing"] == 0
    steps, done = [], False
    while not done:
        offered = actions
        actions, reward, terminated, done, info = env.step(choose(actions, len(steps) + 1))
        assert not terminated
        steps.append((offered, reward, info))
    return steps


def test_rewards_arrive_when_they_are_due_and_each_once():
    """With one seed, the same rewards come, whatever the delay, and as late as it says."""
    rewards = {}
    for delay in (0, 7):
        env = LateRewards("gaussian", f"constant:{delay}", horizon=40)
        arrived = {}
        for t, (_, reward, info) in enumerate(played(env), 1):
            news = info["arrivals"]
            assert news["round"] == ([t - delay] if t > delay else [])
            assert reward == sum(news["reward"])
            assert info["missing"] == min(t, delay)
            arrived.update(zip(news["round"], news["reward"], strict=True))
        rewards[delay] = arrived
    assert rewards[7] == {t: y for t, y in rewards[0].items() if t <= 33}


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_each_environment_of_a_vector_has_its_own_arrivals(family, mode):
    name = f"belated.worlds.late_rewards:{NAME}"
    several = gymnasium.make_vec(
        name, num_envs=3, vectorization_mode=mode, family=family, delay="exponential:2"
    )
    several.reset(seed=1)
    heard = [[] for _ in range(3)]
    for _ in range(30):
        _, rewards, _, _, info = several.step([0, 0, 0])
        news = info["arrivals"]
        for env in range(3):
            assert sum(news["reward"][env]) == rewards[env]
            assert len(news["reward"][env]) == len(news["round"][env])
            heard[env] += news["round"][env]
    for env in range(3):
        assert len(set(heard[env])) == len(heard[env]) == 30 - info["missing"][env]
    several.close()


def test_random_delays_follow_their_law():
    env = LateRewards("gaussian", Exponential(5.0), horizon=1_500)
    waits = [
        t - decided
        for t, (_, _, info) in enumerate(played(env), 1)
        for decided in info["arrivals"]["round"]
    ]
    # the mean of ceil(tau) is 1 / (1 - exp(-1/5)), its standard deviation about 5
    assert abs(np.mean(waits) - 1.0 / (1.0 - np.exp(-0.2))) < 4 * 5.0 / np.sqrt(1_500)


def test_rewards_have_the_mean_of_their_action():
    truth = np.array([1.0, -1.0])
    env = LateRewards(
        "bernoulli", "constant:0", FixedArms(np.eye(2)), dim=2, horizon=4_000, theta_star=truth
    )
    steps = played(env, lambda actions, t: t % 2)
    rewards = np.array([reward for _, reward, _ in steps])
    for start, arm in ((0, 1), (1, 0)):
        expected = 1.0 / (1.0 + np.exp(-truth[arm]))
        assert abs(rewards[start::2].mean() - expected) < 4 * 0.5 / np.sqrt(2_000)
    gap = 1.0 / (1.0 + np.exp(-1.0)) - 1.0 / (1.0 + np.exp(1.0))
    assert steps[0][2]["regret"] == pytest.approx(gap)
    assert steps[1][2]["regret"] == 0.0


def test_a_bandit_that_learns_from_arrivals_beats_chance():
    env = LateRewards(Gaussian(sd=0.3), "exponential:10", Sphere(5), dim=2, horizon=200)

    def regret(choose, hear):
        (actions, _), done, total = env.reset(seed=3), False, 0.0
        while not done:
            actions, _, _, done, info = env.step(choose(actions))
            hear(info["arrivals"]["round"], info["arrivals"]["reward"])
            total += info["regret"]
        return total

    bandit = Bandit(2, family=Gaussian(sd=0.3), seed=1)
    learnt = regret(lambda actions: bandit.decide(actions).index, bandit.learn)
    assert bandit.n_decided == 200
    assert bandit.n_missing == env.missing
    assert learnt < 0.5 * regret(lambda actions: 0, lambda ids, rewards: 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dim": 0}, "dim = 0: expected"),
        ({"horizon": 1.5}, "horizon = 1.5: expected"),
        ({"theta_star": [1.0]}, r"theta_star = \[1.0\]: expected 3 numbers"),
        ({"delay": "soon"}, "delay = 'soon': "),
        ({"delay": 3.0}, "delay = 3.0: expected a delay"),
        ({"family": "odd"}, "family = 'odd': "),
    ],
)
def test_wrong_options(options, said):
    with pytest.raises((TypeError, ValueError), match=said):
        LateRewards(**options)


def test_a_wrong_action_changes_nothing():
    env = LateRewards(Bernoulli(), environment=Sphere(4))
    env.reset(seed=1)
    for action in (4, -1, 0.5):
        with pytest.raises(ValueError, match=r"action = .*: expected a row, 0 to 3"):
            env.step(action)
    assert env.round == 0
