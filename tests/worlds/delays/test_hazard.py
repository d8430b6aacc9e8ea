"""Delays that depend on the action."""

import math

import numpy as np
import pytest

from belated import Bandit, Bernoulli, checks, simulate
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import draw_world, play
from belated.engine.worlds import Lane, WorldSettings, play_world, seed_of_run
from belated.policies import DelayedOFUGLM, Greedy, OTFLinUCB, UniformPlay
from belated.worlds.delays import (
    Constant,
    Exponential,
    Hazard,
    Informative,
    Never,
    expected_missing,
    is_known_in_advance,
    quantile,
    sample,
)
from belated.worlds.environments import UnitBall
from belated.worlds.feedback import Conversions, Identified
from support.conversions import COLUMN, LATE, D, K, bandit_of

WEIGHTS = np.array([-2.0, 1.0, 0.5])
BY_ACTION = [Hazard(WEIGHTS), Informative(Hazard(WEIGHTS), Never())]


@pytest.mark.parametrize("check", checks.DELAY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("delay", BY_ACTION, ids=repr)
def test_checks_of_delays(delay, check):
    check(delay)


def test_hazard_of_an_action_is_exponential():
    rng = np.random.default_rng(1)
    for x in rng.uniform(-1, 1, (5, 3)):
        law = Exponential(math.exp(-x @ WEIGHTS))
        for u in (0.0, 0.3, 0.99):
            assert quantile(Hazard(WEIGHTS), u, x=x) == pytest.approx(quantile(law, u))
            late = quantile(Informative(Hazard(WEIGHTS), Constant(3.0)), u, 1.0, x)
            assert late == pytest.approx(quantile(law, u))
            assert quantile(Informative(Hazard(WEIGHTS), Constant(3.0)), u, 0.0, x) == 3.0
    drawn = sample(Hazard([1.0]), 4000, rng, x=[2.0])
    assert drawn.mean() == pytest.approx(math.exp(-2.0), rel=5 / math.sqrt(4000))
    assert quantile(Hazard([1e9]), 0.0, x=[-1.0]) == 0.0
    assert (
        0.0
        < quantile(Hazard([1e9]), 0.5, x=[1.0])
        < quantile(Hazard([1e9]), 0.5, x=[-1.0])
        < math.inf
    )
    assert math.isnan(Hazard(WEIGHTS).mean)
    assert math.isnan(Hazard(WEIGHTS).survival(1.0))


class Own:
    """Plays the rows of another run, in plain Python, and keeps when rewards came."""

    def __init__(self, rows, feedback="identified"):
        self.rows, self.feedback, self.heard = rows, feedback, []

    def choose(self, actions, t):
        return int(self.rows[t - 1])

    def observe(self, x, y, t):
        self.heard.append(t)


def hazard_worlds(policy, delay, feedback, rounds):
    """The same rounds played by the engine, by ``play``, and in plain Python."""
    seeds = seed_of_run(7, D, 0)
    theta_star = np.array([0.5, -0.5, 0.3])
    world = draw_world(UnitBall(K), D, rounds, seeds, theta_star)
    player = Bandit(D, family=Bernoulli(), policy=policy, seed=seeds.spawn(1)[0])
    run = play(player, world, delay, feedback=feedback)
    lanes = [Lane(policy, Bernoulli(), delay)]
    settings = WorldSettings(
        *(UnitBall(K), D, rounds, 0, 7, np.arange(1, rounds + 1), tuple(lanes), 1.0),
        theta_star,
        feedback,
    )
    record = play_world(settings)[0]
    own = OwnPlayer(Own(run.index), Bernoulli(), D, np.random.SeedSequence(1))
    assert np.array_equal(play(own, world, delay, feedback=feedback).arrives, run.arrives)
    return run, world, record, settings


@pytest.mark.parametrize("delay", BY_ACTION, ids=repr)
@pytest.mark.parametrize("feedback", [Identified(), Conversions(6.0)], ids=repr)
def test_every_driver_delays_by_action(delay, feedback):
    policy = DelayedOFUGLM() if feedback == Identified() else OTFLinUCB(window=6)
    run, world, record, settings = hazard_worlds(policy, delay, feedback, 80)
    played_x = world.actions[np.arange(80), run.index]
    hazard = np.exp(played_x @ WEIGHTS)
    late = np.ceil(-np.log1p(-world.lateness) / hazard)
    if delay == BY_ACTION[1]:
        late = np.where(run.reward > 0, late, np.inf)
    if feedback != Identified():
        late = np.where((run.reward > 0) & (late <= 6), late, np.inf)
    assert np.array_equal(run.arrives, np.arange(1, 81) + late)
    assert np.array_equal(record[:, COLUMN["missing"]], run.missing)
    assert np.array_equal(record[:, COLUMN["delay_sum"]], np.cumsum(np.minimum(late, 81)))
    assert record[-1, COLUMN["regret"]] == pytest.approx(run.regret[-1])
    own = Own(run.index, "identified" if feedback == Identified() else "conversions")
    lanes = (Lane(own, Bernoulli(), delay), settings.lanes[0], Lane(policy, Bernoulli(), LATE))
    together = play_world(settings._replace(lanes=lanes), block_rounds=7)
    assert np.array_equal(together[0, :, COLUMN["missing"]], run.missing)
    assert np.array_equal(together[1], record, equal_nan=True)


@pytest.mark.compiled
def test_every_driver_delays_by_action_compiled():
    run, _, record, _ = hazard_worlds(UniformPlay(), Hazard(WEIGHTS), Identified(), 300)
    assert np.array_equal(record[:, COLUMN["missing"]], run.missing)


def test_one_law_in_two_lanes_is_not_one_schedule():
    """Other actions, other delays: lanes of two policies do not share them."""
    lanes = [Lane(p, Bernoulli(), Hazard(WEIGHTS)) for p in (Greedy(), UniformPlay())]
    settings = WorldSettings(UnitBall(K), D, 60, 0, 7, np.arange(1, 61), tuple(lanes))
    first, second = play_world(settings)
    assert not np.array_equal(first[:, COLUMN["delay_sum"]], second[:, COLUMN["delay_sum"]])
    assert not is_known_in_advance(Hazard(WEIGHTS))
    assert is_known_in_advance(LATE)


def test_hazard_bad_input():
    for weights in ([], [[1.0]], [math.nan], "abc", 3.0):
        with pytest.raises(ValueError, match="weights"):
            Hazard(weights)
    with pytest.raises(ValueError, match=r"x = \(\): expected an action of 3 numbers"):
        quantile(Hazard(WEIGHTS), 0.5)
    with pytest.raises(ValueError, match="depends on neither the reward nor the action"):
        expected_missing(Hazard(WEIGHTS), 10)
    message = r"delay = .*expected weights for actions of 2 numbers, not 3"
    for delay in BY_ACTION:
        lanes = (Lane(Greedy(), Bernoulli(), delay),)
        for call in (
            lambda lanes=lanes: play_world(
                WorldSettings(UnitBall(K), 2, 5, 0, 7, np.array([5]), lanes)
            ),
            lambda delay=delay: simulate([Greedy()], delays=[delay], dims=[2], horizon=5, runs=1),
            lambda delay=delay: play(
                bandit_of(Greedy(), 2), draw_world(UnitBall(K), 2, 5, 1), delay
            ),
        ):
            with pytest.raises(ValueError, match=message):
                call()


def test_hazard_in_a_simulation():
    results = simulate(
        ["greedy"], ["bernoulli"], [Hazard([1.0, 0.0])], dims=[2], horizon=20, runs=2
    )
    frame = results.frame()
    assert frame.delay.str.startswith("Hazard").all()
    assert frame.expected.isna().all()
