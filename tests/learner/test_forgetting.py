"""Rewards that count by the age of their decision, against estimates with explicit weights."""

import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import belated.bandit.in_memory
from belated import Bandit, Bernoulli, DelayedOFUGLM, Features, Gaussian
from belated.estimators.laplace.fit import take_terms
from belated.experiments.league.players import Ours
from belated.experiments.league.playing import play
from belated.families import Poisson
from belated.learner.forgetting import (
    GONE,
    POWERS,
    ages_of,
    half_life_of,
    refuse_forgetting,
    weights_at,
)
from belated.model.plain_policy import is_own
from belated.model.protocols import derivatives
from belated.policies import AdaptiveThompson, Greedy, InverseGap, LinUCB, Thompson
from belated.registry import POLICIES, load
from belated.worlds.shops.changing import Drift
from naive import estimators

HALF_LIFE, ROUNDS, DIM = 25.0, 100, 4
FIXED = AdaptiveThompson(prior_sd=0.7, strength=1e12)
GROUPS = {"ad": 3, "intercept": 1}


def some_actions(rng, n=4, dim=DIM):
    x = rng.normal(size=(n, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def reward_of(family, rng):
    return float(rng.normal()) if isinstance(family, Gaussian) else float(rng.integers(2))


def played(family, policy, rounds=ROUNDS, seed=0, **settings):
    """Returns a bandit, and when it was told the reward of each decision, if at all."""
    rng = np.random.default_rng(seed)
    groups = GROUPS if isinstance(policy, AdaptiveThompson) else None
    bandit = Bandit(DIM, family=family, policy=policy, seed=seed, groups=groups, **settings)
    due = {}
    for t in range(rounds):
        id = bandit.decide(some_actions(rng)).id
        if rng.random() < 0.8:
            due.setdefault(t + int(rng.integers(40)), []).append((id, reward_of(family, rng)))
        bandit.learn(due.pop(t, []))
    return bandit


def explicit_weights(n, half_life=HALF_LIFE):
    """2^(-ticks / 16), from the definition."""
    ticks = [math.floor(16 * row / half_life) for row in range(n)]
    return np.array([2.0 ** (-(ticks[-1] - tick) / 16) for tick in ticks])


def returned(bandit):
    """Vectors, rewards and explicit weights of the decisions whose reward is known."""
    learner = bandit._learner
    n = learner.n_decided
    x, y = belated.bandit.reading.played_rows(learner), learner.history.y[:n]
    came = ~np.isnan(y)
    return x[came], y[came], explicit_weights(n)[came]


# ------------------------------------------------------------------------------------- weights


def test_weights_are_powers_that_no_rounding_wears_away():
    ages = np.arange(GONE)
    np.testing.assert_allclose(weights_at(ages), 2.0 ** (-ages / 16), rtol=1e-15)
    assert (weights_at(ages[::16]) == 2.0 ** -(ages[::16] // 16)).all()
    assert (weights_at(np.array([GONE, 10**12])) == 0.0).all()
    assert (ages_of(POWERS) == np.arange(GONE + 1)).all()
    weight = np.ones(1)
    for _ in range(300):
        weight = weights_at(ages_of(weight) + 1)
    assert weight == POWERS[300]


def test_a_tick_is_a_sixteenth_of_a_half_life():
    decisions, seconds = half_life_of(32, "decisions"), half_life_of(0.8, "seconds")
    assert decisions.tick(np.arange(6), None).tolist() == [0, 0, 1, 1, 2, 2]
    assert half_life_of(8, "decisions").tick(np.arange(4), None).tolist() == [0, 2, 4, 6]
    assert seconds.tick(None, np.array([0, 49_999, 50_000, 800_000])).tolist() == [0, 0, 1, 16]


@pytest.mark.parametrize(
    ("family", "policy"),
    [
        (Bernoulli(), FIXED),
        (Poisson(), FIXED),
        (Gaussian(sd=0.5), FIXED),
    ],
    ids=str,
)
def test_the_default_finds_the_mode_of_the_weighted_posterior(family, policy):
    bandit = played(family, policy, half_life=HALF_LIFE)
    x, y, w = returned(bandit)
    learner, fit = bandit._learner, bandit._learner.state.fit
    precision, phi = fit.precision[fit.group], fit.scalars[1]

    def parts(theta):
        mu, slope, _ = np.array([derivatives(family, z) for z in x @ theta]).T
        return x.T @ (w * (mu - y)) / phi + precision * theta, (x.T * w * slope) @ x / phi

    def objective(theta):
        z = x @ theta
        cumulant = {
            "Bernoulli": np.logaddexp(0.0, z),
            "Poisson": np.exp(z),
            "Gaussian": z * z / 2,
        }[type(family).__name__]
        return (w * (cumulant - y * z)).sum() / phi + (precision * theta**2).sum() / 2

    mode = minimize(
        objective,
        np.zeros(DIM),
        method="trust-exact",
        jac=lambda theta: parts(theta)[0],
        hess=lambda theta: parts(theta)[1] + np.diag(precision),
        options={"gtol": 1e-11},
    ).x
    np.testing.assert_allclose(learner.exact_theta(), mode, atol=1e-8)
    error = bandit.theta - mode
    H = parts(bandit.theta)[1] + np.diag(precision)
    assert math.sqrt(error @ H @ error) <= bandit.certificate.error + 1e-9 < 0.5
    take_terms(fit)
    S = np.triu(fit.S) + np.triu(fit.S, 1).T
    H = parts(fit.center)[1] + np.diag(precision)
    np.testing.assert_allclose(S @ H, np.eye(DIM), atol=1e-9)
    np.testing.assert_allclose(bandit.W, (x.T * w) @ x, atol=1e-12)


@pytest.mark.parametrize(
    ("family", "policy", "radius"),
    [
        (Bernoulli(), Thompson(), math.inf),
        (Gaussian(), Thompson(prior_sd=2.0), math.inf),
        (Bernoulli(), DelayedOFUGLM(m1=0.4), 0.4),
        (Bernoulli(), DelayedOFUGLM(m1=3.0, order=2), 3.0),
        (Gaussian(), DelayedOFUGLM(), math.inf),
        (Gaussian(), LinUCB(alpha=1.0), math.inf),
    ],
    ids=str,
)
def test_other_policies_find_the_weighted_estimate(family, policy, radius):
    bandit = played(family, policy, half_life=HALF_LIFE)
    x, y, w = returned(bandit)
    lam, kappa = bandit.policy.lam, getattr(bandit.estimator, "kappa", 1.0)
    name = type(family).__name__.lower()
    theta = estimators.mle(name, x, y, lam * kappa, radius, w)
    np.testing.assert_allclose(bandit._learner.exact_theta(), theta, atol=1e-7)
    W = lam * np.eye(DIM) + (x.T * w) @ x
    np.testing.assert_allclose(bandit.W, W, atol=1e-10)
    np.testing.assert_allclose(bandit._state.W_inv, np.linalg.inv(W), atol=1e-9)
    assert bandit._state.scalars[0] == pytest.approx(np.linalg.slogdet(W)[1], abs=1e-9)
    # The certificate is in the norm of the Hessian where the model was made, its slack in W's.
    ref = getattr(bandit._state.fit, "ref", bandit.theta)
    _, _, H = estimators.objective(name, x, y, lam * kappa, ref, w)
    error = bandit.theta - theta
    assert math.sqrt(error @ H @ error) <= bandit.certificate.error + 1e-9 < 0.1
    assert math.sqrt(error @ W @ error) <= bandit.certificate.slack + 1e-9


def test_the_noise_and_the_priors_are_learnt_from_what_is_remembered():
    """Rewards of sd 3 are followed by rewards of sd 0.5: only these are left to learn from."""
    rng = np.random.default_rng(2)
    bandit = Bandit(2, family=Gaussian(sd=None), seed=1, half_life=16.0)
    for t in range(120):
        x = some_actions(rng, 1, 2)
        bandit.learn(bandit.decide(x).id, float(rng.normal()) * (3.0 if t < 20 else 0.5))
    assert math.sqrt(bandit._state.fit.scalars[1]) == pytest.approx(0.5, rel=0.25)


@pytest.mark.parametrize(
    "policy", [FIXED, AdaptiveThompson(), InverseGap(), Thompson(), DelayedOFUGLM()], ids=str
)
@pytest.mark.parametrize("unit", ["decisions", "seconds"])
def test_a_huge_half_life_is_none(policy, unit):
    forgets = played(Bernoulli(), policy, half_life=1e12, half_life_unit=unit)
    remembers = played(Bernoulli(), policy)
    np.testing.assert_allclose(forgets.theta, remembers.theta, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(forgets.W, remembers.W, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("policy", [FIXED, DelayedOFUGLM()], ids=str)
def test_a_late_reward_counts_by_the_age_of_its_decision(policy):
    """It counts as if it had come at once, and less than one of a fresh decision."""
    estimates = []
    for late in (False, True):
        rng = np.random.default_rng(5)
        bandit = Bandit(DIM, family=Bernoulli(), policy=policy, seed=3, half_life=10.0)
        first = bandit.decide(np.eye(DIM)[:1]).id
        if not late:
            bandit.learn(first, 1.0)
        for _ in range(40):
            bandit.learn(bandit.decide(some_actions(rng, 1)).id, float(rng.integers(2)))
        if late:
            bandit.learn(first, 1.0)
        estimates.append(bandit._learner.exact_theta())
    np.testing.assert_allclose(*estimates, rtol=0.0, atol=1e-9)
    assert bandit._history.weight[0] == 2.0**-4
    fresh = bandit.decide(np.eye(DIM)[:1]).id
    before = bandit.theta[0]
    bandit.learn(fresh, 1.0)
    assert bandit.theta[0] - before > 2.0 * abs(estimates[1][0] - estimates[0][0])


def test_seconds_count_by_the_time_of_a_decision():
    now, forgetting = [1_700_000_000.0], {"half_life": 16.0, "half_life_unit": "seconds"}
    bandit = Bandit(DIM, family=Bernoulli(), policy=FIXED, **forgetting, clock=lambda: now[0])
    for wait in (0.0, 0.4, 1.2, 32.0, 0.0):  # seconds before each decision
        now[0] += wait
        bandit.learn(bandit.decide(np.eye(DIM)).id, 1.0)
    ages = np.array([33, 33, 32, 0, 0])
    np.testing.assert_allclose(bandit._history.weight[:5], 2.0 ** (-ages / 16), rtol=1e-14)
    now[0] -= 3  # a clock that goes back makes nothing younger
    bandit.decide(np.eye(DIM))
    assert bandit._history.weight[4] == 1.0
    now[0] += 10**6
    bandit.decide(np.eye(DIM))
    assert bandit._history.weight[:6].tolist() == [0.0] * 6
    np.testing.assert_allclose(bandit.theta, 0.0, atol=1e-9)


def test_what_is_forgotten_is_gone():
    bandit = played(Bernoulli(), Thompson(), rounds=60, half_life=1.0)
    n = bandit.n_decided
    assert (bandit._history.weight[: n - 32] == 0.0).all()
    assert (bandit._history.weight[n - 31 : n] > 0.0).all()


# ---------------------------------------------------------------------- what goes on as it was


def test_grown_features_keep_their_ages():
    """The bandit is that which knew all categories from the start."""
    rows = [{"ad": ad} for ad in "abc"]
    small, large = (Features(categorical=["ad"]).fit(rows[:n]) for n in (2, 3))
    grown, known = (
        Bandit(family=Bernoulli(), policy=FIXED, features=f, seed=1, half_life=12.0)
        for f in (small, large)
    )
    rng = np.random.default_rng(1)
    for t in range(60):
        if t == 30:
            grown.grow(small.with_categories({"ad": ["c"]}))
        row = rows[int(rng.integers(3 if t >= 30 else 2))]
        y, learns = float(rng.integers(2)), rng.random() < 0.7
        for bandit in (grown, known):
            id = bandit.decide([row]).id
            if learns:
                bandit.learn(id, y)
    assert grown._history.weight[:60].tolist() == known._history.weight[:60].tolist()
    np.testing.assert_allclose(
        grown._learner.exact_theta(), known._learner.exact_theta(), atol=1e-9
    )


@pytest.mark.parametrize("policy", [None, DelayedOFUGLM()], ids=str)
@pytest.mark.parametrize("rounds", [0, 70])
def test_a_saved_bandit_goes_on_forgetting(policy, rounds, tmp_path):
    bandit = played(Bernoulli(), policy, rounds=rounds, half_life=20.0)
    bandit.save(tmp_path / "bandit.npz")
    twin = Bandit.load(tmp_path / "bandit.npz", same_stream=True)
    assert twin.fingerprint() == bandit.fingerprint()
    rng = np.random.default_rng(4)
    for _ in range(20):
        x, y = some_actions(rng), float(rng.integers(2))
        for one in (bandit, twin):
            one.learn(one.decide(x).id, y)
    assert twin.fingerprint() == bandit.fingerprint()
    assert 0.0 < bandit._history.weight[0] < 1.0


STILL = AdaptiveThompson(scale=0.0), Thompson(scale=0.0), DelayedOFUGLM()


@pytest.mark.parametrize("policy", STILL, ids=str)
def test_in_memory_and_in_a_ledger_it_is_the_same(policy, tmp_path):
    """Of policies whose draws decide nothing: in a ledger, draws are a function of the id."""
    rng = np.random.default_rng(6)
    durable, reopened, memory = (
        Bandit(DIM, family=Bernoulli(), policy=policy, seed=2, half_life=15.0, **ledger)
        for ledger in [{"ledger": f"sqlite:///{tmp_path}/a.db"}] * 2 + [{}]
    )
    ids = []
    for t in range(60):
        x = some_actions(rng)
        one, other = durable.decide(x), memory.decide(x)
        assert (one.index, one.score, one.propensity) == (
            other.index,
            other.score,
            other.propensity,
        )
        ids.append((one.id, other.id))
        if t % 3:
            k, y = int(rng.integers(len(ids))), float(rng.integers(2))
            one, other = ids.pop(k)
            durable.learn(one, y)
            memory.learn(other, y)
    assert durable.fingerprint() == memory.fingerprint() == reopened.fingerprint()


def test_a_ledgers_half_life_stays_and_can_be_changed(tmp_path):
    """After a change it is as if the half-life had been that from the start."""
    url, rng = f"sqlite:///{tmp_path}/a.db", np.random.default_rng(6)
    opened = {"family": Bernoulli(), "policy": FIXED, "seed": 2}
    first = Bandit(DIM, **opened, ledger=url)
    twin = Bandit(DIM, **opened, half_life=15.0)
    for _ in range(50):
        x, y = some_actions(rng, 1), float(rng.integers(2))
        for one in (first, twin):
            one.learn(one.decide(x).id, y)
    without = first._learner.exact_theta()
    assert len(first._history.weight) == 0
    second = Bandit(DIM, **opened, ledger=url, half_life=15.0)
    third = Bandit(DIM, **opened, ledger=url)
    for one in (first, second, third):
        one.decide(np.eye(DIM)[:1])
    assert first._learner.half_life == third._learner.half_life == (15.0, "decisions")
    for _ in range(3):
        twin.decide(np.eye(DIM)[:1])
    exact = twin._learner.exact_theta()
    assert second.n_decided == twin.n_decided  # and has taken in what the others wrote
    np.testing.assert_allclose(second._learner.exact_theta(), exact, atol=1e-9)
    assert np.abs(exact - without).max() > 0.05
    fourth = Bandit(DIM, **opened, ledger=url, half_life=None)
    np.testing.assert_allclose(fourth._learner.exact_theta(), without, atol=1e-9)
    assert fourth._learner.half_life is None
    assert fourth.fingerprint() == second.fingerprint()


# ------------------------------------------------------------------------------ what it is for


@pytest.mark.compiled
@pytest.mark.slow
@pytest.mark.parametrize("family", [Gaussian(), Bernoulli()], ids=str)
def test_the_set_holds_at_each_time_while_theta_star_stays(family):
    """At the end of each of many runs; by the exact binomial law."""
    runs, delta, failed = 400, 0.1, 0
    for run in range(runs):
        rng, angle = np.random.default_rng(run), 2.0 * math.pi * run / runs
        truth = np.array([math.cos(angle), math.sin(angle)])
        policy = DelayedOFUGLM(delta=delta)
        bandit, due = Bandit(2, family=family, policy=policy, half_life=20.0), {}
        for t in range(120):
            x = some_actions(rng, dim=2)
            decision = bandit.decide(x)
            z = float(x[decision.index] @ truth)
            y = (
                z + rng.normal()
                if family == Gaussian()
                else float(rng.random() < 1 / (1 + np.exp(-z)))
            )
            due.setdefault(t + int(rng.integers(15)), []).append((decision.id, y))
            bandit.learn(due.pop(t, []))
        error = bandit.theta - truth
        failed += math.sqrt(error @ bandit.W @ error) > bandit.radius
    assert stats.binom.sf(failed - 1, runs, delta) > 1e-4


@pytest.mark.nightly
@pytest.mark.compiled
@pytest.mark.slow
def test_forgetting_earns_where_effects_drift():
    """In a shop whose effects turn into others within four days; the same luck for both."""
    lifts = np.array([[lift(SlowDrift(seed), h) for h in (None, 5_000.0)] for seed in range(6)])
    gains = lifts[:, 1] - lifts[:, 0]
    assert gains.mean() > 2.0 * gains.std(ddof=1) / math.sqrt(len(gains))


class SlowDrift(Drift):
    turn = 20_000


def lift(world, half_life):
    """The share of what is possible that the default earns in 30,000 decisions."""
    player = Ours("adaptive-thompson", world)
    features = player.bandit.features
    player.bandit = Bandit(
        family=world.family, features=features, seed=world.seed, half_life=half_life
    )
    sums = play(world, player, np.array([30_000]))
    earned, uniform, best = (sums[name][-1] for name in ("earned", "uniform", "best"))
    return (earned - uniform) / (best - uniform)


# -------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("half_life", [0, -1.0, math.nan, math.inf, 1e13, "soon", True])
def test_a_half_life_is_a_number(half_life):
    with pytest.raises((ValueError, TypeError), match=r"^half_life = .*: expected a .*number") as e:
        Bandit(DIM, family=Bernoulli(), half_life=half_life)
    assert "\n" not in str(e.value)


def test_its_unit_is_named():
    with pytest.raises(ValueError, match="half_life_unit = 'days': expected 'decisions' or"):
        Bandit(DIM, family=Bernoulli(), half_life=3, half_life_unit="days")


WHY_NOT = {
    "takes every reward in once and cannot weigh it again": ["gloc", "glb-omd", "ada-ofu-ecolog"],
    "has a confidence set that is not proved for rewards that count for less": [
        *("oful", "glm-ucb", "ucb-glm", "log-ucb-1", "inflated-ts"),
        *("ofuglb", "ofuglb-e", "ofulog-r"),  # their estimator keeps all rewards
    ],
    "keeps a memory of its own, which is not made anew as rewards age": [
        *("ducb-ridge", "ducb-literal", "oful-rarely", "otf-lin-ucb", "otf-lin-ts")
    ],
    "draws from the rewards themselves, each of which counts in full": ["polya-gamma"],
}
REASONS = {policy: reason for reason, policies in WHY_NOT.items() for policy in policies}
COMPILED = [name for name in POLICIES if not is_own(load(POLICIES, name)())]


@pytest.mark.parametrize("name", COMPILED)
def test_a_policy_that_cannot_forget_says_why(name):
    made = load(POLICIES, name)()
    known = {"horizon": 99, "window": 9}
    policy = made._replace(**{option: known[option] for option in known if option in made._fields})
    family = Gaussian() if name in ("oful", "oful-rarely", "lin-ts") else Bernoulli()
    if name not in REASONS:
        assert Bandit(DIM, family=family, policy=policy, half_life=9)._learner.half_life.length == 9
        return
    with pytest.raises(ValueError, match=r"^half_life = 9\.0: \w+ .*; expected None, or an") as e:
        Bandit(DIM, family=family, policy=policy, half_life=9)
    assert str(e.value).split("; ")[0].endswith(f"{type(policy).__name__} {REASONS[name]}")


def test_the_page_lists_every_policy_with_the_reason():
    page = (Path(__file__).parents[2] / "docs/how-to/forgetting.md").read_text()
    takes, refuses = (
        page.split("## Which policies")[1].split("## How long")[0].split("| they cannot")
    )
    rows = [set(re.findall("`([a-z0-9-]+)`", line)) for line in refuses.splitlines()[2:6]]
    assert sorted(map(sorted, rows)) == sorted(map(sorted, WHY_NOT.values()))
    named = set(re.findall("`([a-z0-9-]+)`", takes)) | {"adaptive-thompson"}
    assert named == set(COMPILED) - set(REASONS)


def test_an_estimator_of_your_own_that_cannot_weigh_rewards_is_named():
    class Other(NamedTuple):
        looks_back: bool = True

    with pytest.raises(ValueError, match="Greedy has an estimator that cannot weigh rewards: Oth"):
        refuse_forgetting(half_life_of(9, "decisions"), Greedy(), Other())


def test_actions_that_are_refused_begin_no_tick():
    bandit = Bandit(DIM, family=Gaussian(), policy=DelayedOFUGLM(), half_life=1.0)
    bandit.learn(bandit.decide(np.eye(DIM)).id, 1.0)
    before = bandit.fingerprint()
    with pytest.raises(ValueError, match="has norm"):
        bandit.decide(3.0 * np.eye(DIM))
    assert bandit.fingerprint() == before
