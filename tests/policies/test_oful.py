"""LinUCB, OFUL and the OFUL that looks up rarely."""

import math

import numpy as np
import pytest

from belated import Bandit, Bernoulli, Gaussian
from belated.engine.reference import draw_world
from belated.engine.worlds import Lane, WorldSettings, play_world
from belated.policies import OFUL, DelayedOFUGLM, GLMUCBPractical, Greedy, LinUCB, OFULRarely
from belated.worlds.environments import UnitBall
from support.optimistic import LATE, fresh_actions, norms, played


def test_linucb_plays_its_formula_under_delay():
    bandit, _ = played(LinUCB(delta=0.1, horizon=500, lam=2.0), Gaussian())
    assert bandit.n_missing > 2
    for K in (5, 50):  # the number of actions counts in the round at hand
        actions = fresh_actions(3, K)
        alpha = math.sqrt(0.5 * math.log(2 * 500 * K / 0.1))
        scores = actions @ bandit.theta + alpha * norms(bandit.W, actions)
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max())
    returned = ~np.isnan(bandit._history.y[:150])
    X, y = bandit._history.x[:150][returned], bandit._history.y[:150][returned]
    assert bandit.theta == pytest.approx(np.linalg.solve(2 * np.eye(3) + X.T @ X, X.T @ y))


def test_linucb_with_a_fixed_multiplier():
    bandit, _ = played(LinUCB(alpha=0.7), Gaussian())  # needs no horizon
    actions = fresh_actions(3)
    scores = actions @ bandit.theta + 0.7 * norms(bandit.W, actions)
    assert bandit.decide(actions).score == pytest.approx(scores.max())
    greedy = [played(p, Gaussian())[1] for p in (LinUCB(alpha=0.0), Greedy(lam=1.0))]
    assert np.array_equal(greedy[0].index, greedy[1].index)


def test_linucb_has_no_set():
    bandit = Bandit(2, family=Bernoulli(), policy=LinUCB(alpha=1.0))
    with pytest.raises(TypeError, match="has no confidence set"):
        bandit.radius  # noqa: B018
    practical = Bandit(2, family=Bernoulli(), policy=GLMUCBPractical())
    with pytest.raises(TypeError, match="has no confidence set"):
        practical.sqrt_beta  # noqa: B018


# -------------------------------------------------------------------------------------------- OFUL


def test_oful_is_delayed_ofu_glm_for_gaussian_rewards():
    runs = [played(p, Gaussian(0.4)) for p in (OFUL(), DelayedOFUGLM())]
    assert np.array_equal(runs[0][1].index, runs[1][1].index)
    assert runs[0][0].sqrt_beta == pytest.approx(runs[1][0].sqrt_beta, rel=1e-14)
    assert runs[0][0].interval([0.3, 0.2, 0.1]) == runs[1][0].interval([0.3, 0.2, 0.1])


@pytest.mark.parametrize("d", [1, 2, 5])
def test_width_without_determinant(d):
    """The formula; wider than the other; in one dimension 2 log(1 / delta) is needed."""
    lam, m1, R, delta = 0.5, 0.8, 0.3, 0.1
    bandits = [
        played(OFUL(m1=m1, delta=delta, lam=lam, determinant=determinant), Gaussian(R), d=d)[0]
        for determinant in (False, True)
    ]
    n = bandits[0].n_observed
    assert 100 < n < 150
    square = d * math.log(1 + n / lam) + max(d, 2) * math.log(1 / delta)
    assert bandits[0].sqrt_beta == pytest.approx(math.sqrt(lam) * m1 + R * math.sqrt(square))
    if d > 1:
        printed = d * math.log((1 + n / lam) / delta)
        assert square == pytest.approx(printed)
    assert bandits[0].sqrt_beta > bandits[1].sqrt_beta
    start = [
        Bandit(d, family=Gaussian(), policy=OFUL(determinant=determinant)).sqrt_beta
        for determinant in (False, True)
    ]
    assert start[0] >= start[1]


def test_one_dimension_needs_more_than_the_printed_width():
    """There log((1 + n) / delta) < log det(W) + 2 log(1 / delta), which it should be above."""
    widths = {}
    for determinant in (False, True):
        policy = OFUL(delta=0.01, determinant=determinant)
        bandit = Bandit(1, family=Gaussian(), policy=policy)
        for _ in range(3):
            bandit.learn(bandit.decide([[1.0]]).id, 0.5)
        widths[determinant] = bandit.sqrt_beta
    assert 1.0 + math.sqrt(math.log((1 + 3) / 0.01)) < widths[True]
    assert widths[False] == pytest.approx(widths[True])


def test_rarely_with_no_patience_is_oful():
    runs = [played(p, Gaussian())[1] for p in (OFULRarely(C=0.0), OFUL())]
    assert np.array_equal(runs[0].index, runs[1].index)
    patient = played(OFULRarely(C=3.0), Gaussian())[1]
    assert not np.array_equal(patient.index, runs[1].index)


@pytest.mark.filterwarnings("ignore::belated.AssumptionWarning")  # no noise
def test_rarely_looks_up_when_the_determinant_has_grown():
    """Between switches the very same scores, from what was known then; and few switches."""
    C, d, rounds = 0.5, 3, 120
    bandit = Bandit(d, family=Gaussian(0.2), policy=OFULRarely(C=C))
    world = draw_world(UnitBall(8), d, rounds, 3)
    theta, W, width, switches, stale, pending = np.zeros(d), np.eye(d), bandit.radius, 0, 0, []
    cap = bandit._state.cap.copy()
    for t, actions in enumerate(world.actions):
        if np.linalg.det(bandit.W) > (1 + C) * np.linalg.det(W):
            theta, W, width, switches = bandit.theta, bandit.W, bandit.radius, switches + 1
            cap = bandit._state.cap.copy()
        stale += not np.array_equal(W, bandit.W)
        scores = actions @ theta + width * norms(W, actions)
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max())
        assert decision.width == pytest.approx((width * norms(W, actions))[decision.index])
        assert np.array_equal(bandit._state.memory.cap, cap)  # an old one would only be slower
        pending.append((decision.id, float(actions[decision.index] @ world.theta_star)))
        if t % 3 == 2:
            bandit.learn(pending[:-2])
            del pending[:-2]
    most = d * math.log(1 + bandit.n_observed / d) / math.log(1 + C)
    assert 5 < switches <= most
    assert stale > rounds / 3


@pytest.mark.parametrize("policy", [OFUL(delta=0.1), OFULRarely(delta=0.1)], ids=repr)
def test_oful_covers(policy):
    for seed in range(15):
        _, run = played(policy, Gaussian(), rounds=60, seed=seed)
        assert run.covered.all()


def test_rarely_certifies_its_regret():
    """The widths are those of the last switch: wider than now, so their sum bounds the regret."""
    lanes = tuple(Lane(p, Gaussian(0.1), LATE) for p in (OFUL(), OFULRarely(C=0.1)))
    world = WorldSettings(UnitBall(8), 3, 300, 0, 5, np.arange(1, 301), lanes)
    record = play_world(world)
    assert (record[:, :, 1] >= record[:, :, 0]).all()
    assert (record[:, -1, 1] < 2.0 * 300).all()
