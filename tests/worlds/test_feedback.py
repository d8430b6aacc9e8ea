"""What is seen of a reward: all of it, successes only, or one sum a round."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from belated import Bandit, Bernoulli, Gaussian, simulate
from belated.engine.lanes import RECORD
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import draw_world, play
from belated.engine.worlds import Lane, WorldSettings, play_world, seed_of_run
from belated.policies import DelayedOFUGLM, UniformPlay
from belated.worlds.delays import Constant, Exponential, quantile
from belated.worlds.environments import UnitBall
from belated.worlds.feedback import Aggregated, Conversions, Identified, feedback_named

T, D, K = 80, 2, 5
BERNOULLI, THETA_STAR = Bernoulli(), np.array([0.6, -0.2])
COLUMN = {name: i for i, name in enumerate(RECORD)}


class Listens:
    """Plays the first row and keeps what it is told."""

    def __init__(self, feedback="identified"):
        self.feedback, self.heard = feedback, []

    def choose(self, actions, t):
        return 0

    def observe(self, x, y, t):
        self.heard.append((t, y))

    def observe_total(self, y, t):
        self.heard.append((t, y))


class HoldsParameters(NamedTuple):
    """A policy that is parameters only; ``start`` returns the player."""

    arm: int = 0

    def start(self, dim, rng):
        player = Listens()
        player.choose = lambda actions, t: self.arm
        return player


def world(policy, feedback, delay, family=BERNOULLI):
    rounds = np.arange(1, T + 1)
    lanes = (Lane(policy, family, delay),)
    return WorldSettings(UnitBall(K), D, T, 0, 3, rounds, lanes, 1.0, THETA_STAR, feedback)


def heard(policy, feedback, delay):
    """What a policy is told by ``play``, and the run."""
    drawn = draw_world(UnitBall(K), D, T, seed_of_run(3, D, 0), THETA_STAR)
    player = OwnPlayer(policy, Bernoulli(), D, np.random.SeedSequence(1))
    run = play(player, drawn, delay, feedback=feedback)
    player.decide(drawn.actions[0])  # the last round is over
    return player.policy.heard, run, drawn


@pytest.mark.parametrize("window", [0.0, 3.0, math.inf])
def test_only_successes_within_the_window_are_seen(window):
    seen, run, drawn = heard(Listens("conversions"), Conversions(window), Exponential(4.0))
    late = [math.ceil(quantile(Exponential(4.0), u)) for u in drawn.lateness]
    expected = {s + 1 for s in range(T) if run.reward[s] == 1.0 and late[s] <= window}
    in_time = {s for s in expected if s + late[s - 1] <= T}
    assert {s for s, _ in seen} == in_time
    assert all(y == 1.0 for _, y in seen)
    assert (in_time != set()) == (window > 0.0)


@pytest.mark.parametrize("window", [3.0, math.inf])
def test_lanes_see_the_same(window):
    """The engine's own lane and ``play`` agree on how many rewards are seen by each round."""
    _, run, _ = heard(Listens("conversions"), Conversions(window), Exponential(4.0))
    record = play_world(world(Listens("conversions"), Conversions(window), Exponential(4.0)))
    assert np.array_equal(record[0, :, COLUMN["missing"]], run.missing)


def test_one_sum_a_round():
    seen, run, _ = heard(Listens("aggregated"), Aggregated(), Constant(2.0))
    assert [t for t, _ in seen] == list(range(1, T + 1))
    totals = np.concatenate([[0.0, 0.0], run.reward[:-2]])
    assert [y for _, y in seen] == totals.tolist()
    record = play_world(world(Listens("aggregated"), Aggregated(), Constant(2.0)))
    assert record[0, -1, COLUMN["observed"]] == T - 2


def test_start_may_return_the_player():
    zero, one = (
        play_world(world(HoldsParameters(arm), Identified(), Constant(0.0))) for arm in (0, 1)
    )
    assert not np.array_equal(zero, one)
    again = play_world(world(Listens(), Identified(), Constant(0.0)))
    assert np.array_equal(zero, again, equal_nan=True)


@pytest.mark.parametrize("policy", [DelayedOFUGLM(), Listens()], ids=["compiled", "own"])
@pytest.mark.parametrize("feedback", ["conversions", "aggregated"])
def test_a_policy_for_other_feedback_is_refused(policy, feedback):
    message = rf"feedback = {feedback}: {type(policy).__name__} learns from identified feedback"
    with pytest.raises(ValueError, match=message):
        play_world(world(policy, feedback_named(feedback), Constant(0.0)))
    with pytest.raises(ValueError, match=message):
        simulate([policy], ["bernoulli"], dims=[2], horizon=5, runs=1, feedback=feedback)


def test_conversions_are_zeros_and_ones():
    with pytest.raises(ValueError, match=r"family = Gaussian.*rewards of 0 or 1"):
        play_world(world(Listens("conversions"), Conversions(), Constant(0.0), Gaussian()))


def test_names():
    assert feedback_named("conversions:window=30") == Conversions(30.0)
    assert feedback_named(Aggregated()) == Aggregated()
    with pytest.raises(TypeError, match="feedback = 3: expected one of identified, conversions"):
        feedback_named(3)
    with pytest.raises(ValueError, match="did you mean conversions"):
        feedback_named("conversion")
    with pytest.raises(ValueError, match="window = -1"):
        Conversions(-1.0)


def test_bandits_play_conversions():
    """``play`` withholds what a bandit would not see."""
    drawn = draw_world(UnitBall(K), D, T, 5)
    bandit = Bandit(D, family=Bernoulli(), policy=UniformPlay(), seed=1)
    run = play(bandit, drawn, Constant(1.0), feedback=Conversions())
    assert bandit.n_observed == run.reward[:-1].sum()
