"""Policies that explore by drawing: each against its slow twin, its law, its limits."""

import math
from functools import partial

import numpy as np
import pytest

import naive.optimistic
import naive.randomised
from belated import Bandit, Bernoulli, Bounded, Gaussian, Poisson, Probit
from belated.engine.reference import draw_world, play
from belated.model.state import WORK
from belated.policies import EVILL, GLMFPL, Greedy, InflatedTS, LinTS, PolyaGamma, Thompson
from belated.policies.glm_fpl import add_noise
from belated.policies.shared.sampling import DRAW, SAMPLE
from belated.worlds.environments import UnitBall
from support.randomised import (
    DELAYS,
    KAPPA,
    LATE,
    MANY,
    assert_normal,
    given_data,
    samples,
    stream,
    watched,
)

# ----------------------------------------------------------------------------------------- LinTS


@pytest.mark.parametrize("inflated", [True, False])
@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_lin_ts_is_its_slow_twin(delay, inflated):
    policy = LinTS(delta=0.1, lam=0.7, inflated=inflated)
    pair = watched(
        policy,
        Gaussian(0.4),
        lambda d, rng: naive.randomised.LinTS(d, 0.7, rng, R=0.4, delta=0.1, inflated=inflated),
        delay,
    )
    assert all(pair.agreed)


def test_lin_ts_draws():
    """N(theta, v^2 W^-1), W over returned rewards, in the round of 31 decisions made."""
    bandit, X, y = given_data(LinTS(delta=0.1, lam=0.5), Gaussian(0.6))
    W = 0.5 * np.eye(2) + X.T @ X
    v = 0.6 * math.sqrt(9 * 2 * math.log(31 / 0.1))
    assert_normal(samples(bandit, MANY), np.linalg.solve(W, X.T @ y), v**2 * np.linalg.inv(W))


def test_lin_ts_golden_width():
    """In round 1, d = 2, delta = 0.05, R = lam = 1: v = sqrt(18 log 20) = 7.343244..."""
    bandit = Bandit(2, family=Gaussian(), policy=LinTS(delta=0.05))
    assert samples(bandit, 1, stream(8))[0] == pytest.approx(
        7.343244 * stream(8).standard_normal(2), rel=1e-6
    )


def test_lin_ts_in_practice_is_the_posterior():
    """Without inflation, and the ridge of the prior: Bayesian linear regression, draw by draw."""
    s, v0 = 0.6, 0.8
    lin, X, y = given_data(LinTS(lam=s**2 / v0**2, inflated=False), Gaussian(s))
    bayes, _, _ = given_data(Thompson(prior_sd=v0), Gaussian(s))
    assert np.allclose(samples(lin, 20), samples(bayes, 20), rtol=1e-12)
    S = np.linalg.inv(X.T @ X / s**2 + np.eye(2) / v0**2)
    assert_normal(samples(lin, 4000), S @ X.T @ y / s**2, S)


# ------------------------------------------------------------------------------------ inflated TS


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_inflated_ts_is_its_slow_twin(delay):
    policy = InflatedTS(m1=0.8, delta=0.1, lam=1.3, horizon=120)
    pair = watched(
        policy,
        Gaussian(0.4),
        lambda d, rng: naive.randomised.InflatedTS(
            "gaussian", d, 1.3, rng, m1=0.8, R=0.4, kappa=1.0, delta=0.1, horizon=120
        ),
        delay,
    )
    assert all(pair.agreed)


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_inflated_ts_for_logistic_rewards_is_its_slow_twin(delay):
    """Up to the certified error of the estimate, a hundredth in the norm of the Hessian."""
    pair = watched(
        InflatedTS(delta=0.1, horizon=80),
        Bernoulli(),
        lambda d, rng: naive.randomised.InflatedTS(
            "bernoulli", d, 1.0, rng, m1=1.0, R=0.5, kappa=KAPPA, delta=0.1, horizon=80
        ),
        delay,
        rounds=80,
    )
    assert np.mean(pair.agreed) > 0.95
    assert max(pair.behind) < 0.05  # of draws about ten wide


def test_inflated_ts_width():
    """sqrt_beta at delta / (4 horizon), the draw as wide, and what a decision reports."""
    family, lam, delta, T = Bernoulli(), 1.5, 0.2, 400
    policy = InflatedTS(m1=1.0, lam=lam, delta=delta, horizon=T, scale=0.5)
    bandit, _, _ = given_data(policy, family)
    assert bandit.n_missing == 4
    width = naive.optimistic.sqrt_beta(bandit.W, lam, 1.0, 0.5, KAPPA, delta / (4 * T))
    assert bandit.sqrt_beta == pytest.approx(width)
    radius = width + bandit.certificate.slack
    assert bandit.radius == pytest.approx(radius)
    W_inv = np.linalg.inv(bandit.W)
    assert_normal(samples(bandit, MANY), bandit.theta, (0.5 * radius) ** 2 * W_inv)
    for actions in draw_world(UnitBall(9), 2, 20, 9).actions:
        decision = bandit.decide(actions)
        estimates, reach = (
            actions @ bandit.theta,
            radius * np.sqrt(((actions @ W_inv) * actions).sum(1)),
        )
        k = decision.index
        assert decision.estimate == pytest.approx(estimates[k])
        gap = (estimates + reach).max() - (estimates - reach)[k]
        assert decision.width == pytest.approx(gap / 2)
    low, high = bandit.interval(actions[0])
    z = [math.log(p / (1 - p)) for p in (low, high)]
    assert (z[1] - z[0]) / 2 == pytest.approx(reach[0])


def test_inflated_ts_covers_and_certifies_its_regret():
    """The set holds, and then 2 L_mu width bounds the regret of every round."""
    for seed in range(10):
        world = draw_world(UnitBall(9), 3, 60, seed)
        bandit = Bandit(3, family=Gaussian(), policy=InflatedTS(delta=0.2, horizon=60), seed=seed)
        widths, decide = [], bandit.decide

        def noting(actions, decide=decide, widths=widths, **asked):
            decision = decide(actions, **asked)
            widths.append(decision.width)
            return decision

        bandit.decide = noting
        run = play(bandit, world, LATE)
        assert run.covered.all()
        assert (np.diff(run.regret, prepend=0.0) <= 2 * np.array(widths)).all()


# --------------------------------------------------------------------------------------- Thompson


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
@pytest.mark.parametrize("family", [Gaussian(0.4), Bernoulli()], ids=repr)
def test_thompson_is_its_slow_twin(family, delay):
    name = "gaussian" if isinstance(family, Gaussian) else "bernoulli"
    pair = watched(
        Thompson(prior_sd=0.9, drift=1e-4),
        family,
        lambda d, rng: naive.randomised.Laplace(
            name, d, family.a_phi / 0.81, rng, a_phi=family.a_phi
        ),
        delay,
        rounds=80,
    )
    assert all(pair.agreed) if name == "gaussian" else np.mean(pair.agreed) > 0.97


# ---------------------------------------------------------------------------------------- GLM-FPL


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
@pytest.mark.parametrize("family", [Gaussian(0.4), Bernoulli()], ids=repr)
def test_glm_fpl_is_its_slow_twin(family, delay):
    name = "gaussian" if isinstance(family, Gaussian) else "bernoulli"
    pair = watched(
        GLMFPL(scale=1.2, lam=0.7, explore_until=1.5, drift=1e-3),
        family,
        lambda d, rng: naive.randomised.GLMFPL(
            name, d, 0.7, rng, a=1.2 * family.R, explore_until=1.5
        ),
        delay,
        rounds=100,
    )
    assert all(pair.agreed) if name == "gaussian" else np.mean(pair.agreed) > 0.95


def test_glm_fpl_noise_has_the_law_of_noise_on_rewards():
    """-sum of z_i x_i is N(0, (scale R)^2 X'X); theta_z N(theta, (scale R)^2 W^-1 X'X W^-1)."""
    lam, s = 0.8, 0.6
    bandit, X, y = given_data(GLMFPL(scale=1.5, lam=lam), Gaussian(s))
    state, rng, drawn = bandit._state, np.random.default_rng(1), np.empty((MANY, 2))
    for draw in drawn:
        add_noise(bandit.policy, state, state.work[DRAW], rng)
        draw[:] = state.work[DRAW]
    assert_normal(drawn, 0.0, (1.5 * s) ** 2 * X.T @ X)
    W_inv = np.linalg.inv(lam * np.eye(2) + X.T @ X)
    law = W_inv @ X.T @ y, (1.5 * s) ** 2 * W_inv @ X.T @ X @ W_inv
    assert_normal(samples(bandit, MANY), *law)
    noisy = y + 1.5 * s * rng.standard_normal((MANY, len(y)))
    assert_normal(noisy @ X @ W_inv, *law)


def test_glm_fpl_explores_on_what_has_returned():
    bandit = Bandit(2, family=Gaussian(), policy=GLMFPL(explore_until=0.5), seed=1)
    decide = partial(bandit.decide, probabilities=False)
    for x in np.eye(2)[[0, 1] * 10]:
        decide([0.9 * x])
    arms = np.array([[1.0, 0.0], [0.1, 0.0], [-1.0, 0.0]])
    assert len({decide(arms).index for _ in range(30)}) == 3
    bandit.learn([(1, 1.0), (2, 1.0)])
    assert {decide(arms).index for _ in range(30)} == {0, 2}  # 1 is never best


# ------------------------------------------------------------------------------------- no noise


@pytest.mark.parametrize("family", [Gaussian(), Bernoulli()], ids=repr)
@pytest.mark.parametrize(
    "policy",
    [
        LinTS(scale=0.0),
        InflatedTS(scale=0.0, horizon=80),
        EVILL(scale=0.0),
        GLMFPL(scale=0.0, explore_until=0.1),
    ],
    ids=lambda p: type(p).__name__,
)
def test_no_noise_is_greedy(policy, family):
    if isinstance(policy, LinTS) and not isinstance(family, Gaussian):
        pytest.skip("linear")
    world = draw_world(UnitBall(9), 3, 80, 2)
    bandit = Bandit(3, family=family, policy=policy, seed=4)
    decide, greedy = bandit.decide, []

    def noting(actions, **asked):
        best = int(np.argmax(actions @ bandit.theta))
        explored = np.linalg.eigvalsh(bandit.W)[0] >= bandit.policy.lam + 0.1
        decision = decide(actions, **asked)
        if bandit.n_observed and (explored or not isinstance(policy, GLMFPL)):
            greedy.append(decision.index == best)
        return decision

    bandit.decide = noting
    run = play(bandit, world, LATE)
    assert len(greedy) > 50
    assert all(greedy)
    if isinstance(policy, LinTS | InflatedTS):
        other = Bandit(3, family=family, policy=Greedy(lam=1.0))
        assert np.array_equal(run.index, play(other, world, LATE).index)


# --------------------------------------------------------------------------- what is not accepted


def test_bad_parameters():
    for make, message in [
        (lambda: LinTS(delta=1.0), r"delta = 1\.0: expected"),
        (lambda: LinTS(lam=0.0), r"lam = 0\.0: expected"),
        (lambda: LinTS(scale=-1.0), r"scale = -1\.0: expected"),
        (lambda: LinTS(inflated=1), r"inflated = 1: expected True or False"),
        (lambda: LinTS(R=0.0), r"R = 0\.0: expected"),
        (lambda: InflatedTS(m1=-1.0), r"m1 = -1\.0: expected"),
        (lambda: InflatedTS(horizon=0), r"horizon = 0: expected"),
        (lambda: InflatedTS(horizon=1.5), r"horizon = 1\.5: expected"),
        (lambda: InflatedTS(scale=math.nan), r"scale = nan: expected"),
        (lambda: EVILL(scale=-0.1), r"scale = -0\.1: expected"),
        (lambda: EVILL(lam=math.inf), r"lam = inf: expected"),
        (lambda: EVILL(drift=0.0), r"drift = 0\.0: expected"),
        (lambda: GLMFPL(explore_until=0.0), r"explore_until = 0\.0: expected"),
        (lambda: GLMFPL(R=-1.0), r"R = -1\.0: expected"),
        (lambda: PolyaGamma(prior_sd=0.0), r"prior_sd = 0\.0: expected"),
        (lambda: PolyaGamma(sweeps=0), r"sweeps = 0: expected"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            make()


def test_refusals():
    def refused(policy, family, message):
        with pytest.raises(ValueError, match=message):
            Bandit(2, family=family, policy=policy)

    for family in (Bernoulli(), Poisson(), Probit()):
        refused(LinTS(), family, "LinTS is for rewards with mean x'theta only")
    for family in (Gaussian(), Probit(), Bounded(), Poisson()):
        refused(PolyaGamma(), family, "PolyaGamma has the posterior of rewards 0 or 1 with a log")
    refused(InflatedTS(), Gaussian(), "horizon = None: expected the number of rounds")
    refused(InflatedTS(horizon=9), Poisson(), "InflatedTS has no width for them")
    refused(GLMFPL(), Poisson(), r"R = None: Poisson rewards are not sub-Gaussian")
    Bandit(2, family=Poisson(), policy=GLMFPL(R=1.0))
    assert LinTS(R=2.0).resolve(Gaussian(), 2, 1.0).R == 2.0


def test_scratch_is_apart():
    """Rows of the scratch that are in use at the same time differ, and come before the matrix."""
    from belated.estimators import perturbed

    rows = {0, DRAW, SAMPLE}
    for name in ("MOVED", "BENT", "RIGHT", "CHANGE", "BEST", "START"):
        assert getattr(perturbed, name) not in rows
        rows.add(getattr(perturbed, name))
    assert max(rows) < WORK
