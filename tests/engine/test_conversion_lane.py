"""Policies for identified rewards where only conversions return: they play as a bandit would."""

import math

import numpy as np
import pytest

from belated import Bandit, Bernoulli, simulate
from belated.engine.conversion_lane import Served
from belated.engine.lanes import RECORD
from belated.engine.reference import Rounds, draw_world, play
from belated.engine.worlds import Lane, WorldSettings, play_world, seed_of_run
from belated.experiments.labels import policies_by_label
from belated.policies import AdaptiveThompson, DelayedOFUGLM, Thompson
from belated.worlds.delays import Exponential
from belated.worlds.environments import FixedArms
from belated.worlds.feedback import Conversions

T, WINDOW, LATE = 120, 20, Exponential(6.0)
ARMS, THETA_STAR = FixedArms(np.eye(3)), np.array([0.0, -1.0, -2.5])
BERNOULLI, FEEDBACK = Bernoulli(), Conversions(window=WINDOW)


def regret(*policies):
    """Cumulative regret in every round, one row per policy, in one simulated world."""
    lanes = tuple(Lane(policy, BERNOULLI, LATE) for policy in policies)
    rounds = np.arange(1, T + 1)
    world = WorldSettings(ARMS, 3, T, 0, 7, rounds, lanes, 1.0, THETA_STAR, FEEDBACK)
    return play_world(world)[:, :, RECORD.index("regret")]


def played(open, policy):
    """A user's bandit in the same world."""
    seeds = seed_of_run(7, 3, 0)
    world = draw_world(ARMS, 3, T, seeds, THETA_STAR)
    bandit = Bandit(
        3, family=BERNOULLI, policy=policy, seed=seeds.spawn(1)[0],
        window=WINDOW, default_reward=0.0, open=open, clock=Rounds(),
    )  # fmt: skip
    return bandit, play(bandit, world, LATE, feedback=FEEDBACK)


@pytest.mark.parametrize("open", ["silence", "hold"])
def test_a_lane_plays_like_the_bandit_of_a_user(open):
    policy = AdaptiveThompson()
    bandit, run = played(open, policy)
    lane = policy if open == "silence" else Served(policy, "hold")
    np.testing.assert_allclose(regret(lane)[0], run.regret, rtol=1e-9, atol=1e-9)
    y = bandit._history.y[:T]
    assert np.array_equal(y[~np.isnan(y)] == 1.0, np.isfinite(run.arrives)[~np.isnan(y)])
    closed = np.arange(1, T + 1) + WINDOW < T
    if open == "hold":
        assert (np.isnan(y) == ~closed).all()  # the window is counted in rounds
    else:
        assert (~np.isnan(y[~closed])).any()  # conversions are learnt before


def test_silence_holding_and_on_the_fly_in_one_run():
    policies = ["adaptive-thompson", "hold adaptive-thompson", "wait=hold delayed-ofu-glm",
                "otf-lin-ts"]  # fmt: skip
    results = simulate(
        policies, ["bernoulli"], [LATE], dims=[3], environment=ARMS, horizon=60, runs=1,
        feedback="conversions:window=20", threads=1,
    )  # fmt: skip
    last = results.frame().groupby("policy").regret.max()
    assert sorted(last.index) == ["adaptive-thompson", "hold adaptive-thompson", "otf-lin-ts",
                                  "wait"]  # fmt: skip
    assert last["adaptive-thompson"] != last["hold adaptive-thompson"]


def test_labels_tell_parameters_apart():
    labels = policies_by_label(["hold thompson", "hold thompson:scale=2", "thompson"])
    assert list(labels) == ["hold thompson", "hold thompson:scale=2", "thompson"]
    assert labels["hold thompson:scale=2"] == Served(Thompson(scale=2.0), "hold")


@pytest.mark.parametrize(
    ("policy", "feedback", "said"),
    [
        ("delayed-ofu-glm", "conversions:window=20", "learns from identified feedback"),
        ("hold delayed-ofu-glm", "identified", "learns from conversions feedback"),
        ("adaptive-thompson", "conversions", "window = inf"),
        ("hold otf-lin-ts", "conversions:window=20", "identified rewards"),
        ("hold nobody", "conversions:window=20", "nobody"),
    ],
)
def test_what_cannot_play_is_refused_before_the_run(policy, feedback, said):
    with pytest.raises(ValueError, match=said):
        simulate([policy], ["bernoulli"], horizon=10, runs=1, feedback=feedback)


def test_holding_learns_nothing_before_the_first_window_closes():
    player = Served(DelayedOFUGLM(), "hold", window=WINDOW).start(3, np.random.default_rng(1))
    for t in range(1, WINDOW + 3):
        player.choose(np.eye(3), t)
        player.observe(np.eye(3)[0], 1.0, t)
        learner = player.replica.folds["lane"].learner
        assert learner.n_observed == max(0, t - WINDOW - 1)
    assert not math.isnan(learner.history.y[0])
