"""Broken assumptions: named with what to change where they are broken, and nowhere else."""

import os
import warnings

import numpy as np
import pytest
from scipy.stats import binom

from belated import Bandit, Bernoulli, Binomial, DelayedOFUGLM, Features, Gaussian, Poisson
from belated.learner import assumptions
from belated.learner.assumptions import FIRST_LOOK, AssumptionWarning
from belated.learner.learner import Learner
from belated.policies import OFUGLB, AdaptiveThompson, Greedy, LinUCB, Thompson

NIGHTLY = bool(os.environ.get("BELATED_NIGHTLY"))
RUNS = 300 if NIGHTLY else 3  # of each healthy world
LOOKS = 5  # at 100, 200, ..., 1,600 rewards

BANNERS, DEVICES, COUNTRIES = range(20), range(3), range(5)


def unit(rng, *shape):
    """Vectors of norm 1."""
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def play(bandit, rounds, actions, reward):
    """Rewards return in batches that double, so that each is followed by a look; returns looks."""
    broken, batch = [], []
    for t in range(1, rounds + 1):
        shown = actions()
        decision = bandit.decide(shown)
        batch.append((decision.id, reward(np.asarray(shown[decision.index]))))
        if t % FIRST_LOOK == 0 and (t // FIRST_LOOK).bit_count() == 1:
            bandit.learn(batch)
            batch = []
            broken.append([b.name for b in bandit.broken_assumptions])
    bandit.learn(batch)
    return broken


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


# ---------------------------------------------------------------------------------------- the shop


def shop(policy, rounds, rate=0.02, late=100, seed=0):
    """The shop whose default earned nothing: 20 banners, 2 per cent conversions, late rewards."""
    rng = np.random.default_rng(seed)
    rows = [
        {"banner": str(b), "device": str(d), "country": str(c)}
        for b in BANNERS
        for d in DEVICES
        for c in COUNTRIES
    ]
    columns = ["banner", "device", "country"]
    features = Features(categorical=columns, interactions=[("banner", "device")]).fit(rows)
    banner, device, country = (rng.normal(0.0, sd, n) for sd, n in [(0.5, 20), (0.2, 3), (0.3, 5)])
    both = rng.normal(0.0, 0.4, (20, 3))
    base = np.log(rate / (1.0 - rate))
    bandit = Bandit(family=Bernoulli(), policy=policy, features=features, seed=1)
    waiting = []
    actions = [{"banner": str(b)} for b in BANNERS]
    for t in range(rounds):
        d, c = rng.integers(3), rng.integers(5)
        decision = bandit.decide(actions, {"device": str(d), "country": str(c)})
        b = decision.index
        z = base + banner[b] + device[d] + country[c] + both[b, d]
        waiting.append((t + rng.exponential(late), decision.id, float(rng.random() < sigmoid(z))))
        if t % 50 == 49:
            bandit.learn([(id, y) for due, id, y in waiting if due <= t])
            waiting = [w for w in waiting if w[0] > t]
    return bandit


def test_a_bound_that_excludes_two_per_cent_is_named():
    with pytest.warns(AssumptionWarning, match="m1 = 1, so mean rewards lie between 0.269 and 0.7"):
        bandit = shop("delayed-ofu-glm", 300)
    (broken,) = bandit.broken_assumptions
    assert broken.name == "m1"
    length = float(broken.change.split("raise m1 to about ")[1].split(";")[0])
    assert 4.0 < length < 15.0  # an intercept of -9, by the scaling of the features
    assert broken.sentence in repr(bandit)


def test_it_is_named_at_the_first_look():
    """The mean of 100 rewards is 5 standard deviations below what m1 = 1 allows: 0.27."""
    bandit = shop("delayed-ofu-glm", FIRST_LOOK - 1, late=0)  # a warning would be an error
    assert bandit.n_observed == FIRST_LOOK // 2
    assert bandit.broken_assumptions == []
    with pytest.warns(AssumptionWarning, match="the mean of 100 rewards"):
        shop("delayed-ofu-glm", FIRST_LOOK, late=0)


@pytest.mark.compiled
@pytest.mark.slow
def test_the_default_policy_is_fine_in_the_shop():
    """With false alarms in one shop of a hundred this fails in fewer than one run of a thousand."""
    shops, found = 300 if NIGHTLY else 6, 0
    for seed in range(shops):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AssumptionWarning)
            bandit = shop(None, 2_000, seed=seed)
        assert bandit.n_observed > 1_000
        assert ("broken" in repr(bandit)) == bool(bandit.broken_assumptions)
        found += any(issubclass(one.category, AssumptionWarning) for one in caught)
    assert binom.sf(found - 1, shops, 0.01) >= 1e-3


# --------------------------------------------------------------------------------- healthy worlds


def paper(seed, policy="delayed-ofu-glm", family="bernoulli", dim=5):
    """The paper's world at its hardest: theta_star on the sphere, and actions of norm 1."""
    rng = np.random.default_rng([seed, dim])
    theta = unit(rng, dim)
    bandit = Bandit(dim, family=family, policy=policy, seed=seed)

    def reward(x):
        z, family = float(x @ theta), bandit.family
        if isinstance(family, Gaussian):
            return z + family.sd * rng.normal()
        if isinstance(family, Poisson):
            return float(rng.poisson(np.exp(z)))
        return float(rng.binomial(getattr(family, "trials", 1), sigmoid(z)))

    return play(bandit, 1_600, lambda: unit(rng, 10, dim) * (1.0 - 1e-9), reward)


@pytest.mark.compiled
@pytest.mark.slow
def test_healthy_worlds_of_the_paper_are_not_accused():
    for seed in range(20):
        assert paper(seed) == [[]] * LOOKS


def rare(seed):
    """Rare conversions, the default policy, actions with one feature each beside a constant."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.0, 0.5, 10)
    bandit = Bandit(11, family=Bernoulli(), groups={"ad": 10, "intercept": 1}, seed=seed)
    actions = np.hstack([np.eye(10), np.ones((10, 1))])
    return play(
        bandit,
        1_600,
        lambda: actions,
        lambda x: float(rng.random() < sigmoid(-3.9 + x[:10] @ effects)),
    )


HEALTHY = {
    "delayed-ofu-glm": paper,
    "delayed-ofu-glm, gaussian": lambda seed: paper(seed, family=Gaussian()),
    "ofuglb": lambda seed: paper(seed, OFUGLB(horizon=1_600)),
    "default": lambda seed: paper(seed, None),
    "default, gaussian": lambda seed: paper(seed, None, Gaussian(sd=2.0)),
    "default, gaussian, sd learnt": lambda seed: paper(seed, None, Gaussian(sd=None)),
    "default, poisson": lambda seed: paper(seed, None, Poisson()),
    "default, binomial": lambda seed: paper(seed, None, Binomial(trials=5)),
    "default, rare": rare,
    "default, as many features as rewards": lambda seed: paper(
        seed, None, Gaussian(sd=1.0), dim=90
    ),
    "thompson, poisson": lambda seed: paper(seed, Thompson(), Poisson()),
    "linucb": lambda seed: paper(seed, LinUCB(horizon=1_600), Gaussian()),
}


@pytest.mark.compiled
@pytest.mark.slow
@pytest.mark.parametrize("world", HEALTHY)
@pytest.mark.filterwarnings("ignore::belated.AssumptionWarning")
def test_false_alarms_are_rarer_than_one_look_in_a_thousand(world):
    """At that rate so few would be found in one of a million runs; a short run must find none."""
    looks = [look for seed in range(RUNS) for look in HEALTHY[world](1_000 + seed)]
    found = sum(look != [] for look in looks)
    assert found == 0 or binom.cdf(found, len(looks), 1e-3) <= 1e-6


# ---------------------------------------------------------------------------------- broken worlds


def learnt(bandit, n, actions, reward):
    """Returns what is broken after n decisions and their rewards, taken in at once."""
    pairs = []
    for _ in range(n):
        shown = actions()
        decision = bandit.decide(shown)
        pairs.append((decision.id, float(reward(np.asarray(shown[decision.index])))))
    with pytest.warns(AssumptionWarning):
        bandit.learn(pairs)
    return bandit.broken_assumptions


BOUNDED = [DelayedOFUGLM(), DelayedOFUGLM(constrained=False), OFUGLB(horizon=800)]


@pytest.mark.parametrize("policy", BOUNDED)
def test_an_estimate_beyond_the_ball_or_pulled_out_of_it(policy):
    """Actions of both signs: the mean reward is near 0.5, only the estimate can tell."""
    rng = np.random.default_rng(0)
    theta = np.array([4.0, 0.0, 0.0])
    bandit = Bandit(3, family=Bernoulli(), policy=policy)
    (broken,) = learnt(
        bandit, 800, lambda: unit(rng, 1, 3) * 0.999, lambda x: rng.random() < sigmoid(x @ theta)
    )
    assert broken.name == "m1"
    assert "m1 = 1; the 800 rewards so far say that it is longer" in broken.sentence
    assert 3.0 < float(broken.change.split("about ")[1].split(";")[0]) < 5.0


def test_ridge_regression_beyond_the_ball():
    rng = np.random.default_rng(1)
    bandit = Bandit(3, family=Gaussian(), policy=DelayedOFUGLM())
    (broken,) = learnt(
        bandit, 400, lambda: unit(rng, 1, 3) * 0.999, lambda x: 2.0 * x[0] + rng.normal()
    )
    assert broken.name == "m1"
    assert 1.7 < float(broken.change.split("about ")[1].split(";")[0]) < 2.3


@pytest.mark.parametrize("policy", [None, DelayedOFUGLM(), Greedy(), LinUCB(horizon=300)])
@pytest.mark.parametrize(("sd", "noise"), [(1.0, 5.0), (1.0, 0.1)])
def test_noise_far_from_sd(policy, sd, noise):
    rng = np.random.default_rng(2)
    bandit = Bandit(3, family=Gaussian(sd=sd), policy=policy, seed=1)
    (broken,) = learnt(
        bandit, 300, lambda: unit(rng, 4, 3) * 0.999, lambda x: 0.5 * x[0] + noise * rng.normal()
    )
    assert broken.name == "noise"
    assert "with sd = 1" in broken.sentence
    measured = float(broken.change.split("sd = ")[1].split(",")[0])
    assert noise * 0.8 < measured < noise * 1.2


@pytest.mark.parametrize("family", [Poisson(), Binomial(trials=20)])
def test_counts_that_vary_too_much(family):
    rng = np.random.default_rng(3)

    def reward(x):
        if isinstance(family, Poisson):
            return rng.poisson(rng.gamma(0.5, 2.0 * np.exp(x[0])))
        return rng.binomial(20, rng.beta(0.5, 0.5))

    bandit = Bandit(2, family=family, seed=1)
    (broken,) = learnt(bandit, 1_000, lambda: unit(rng, 4, 2), reward)
    assert broken.name == "dispersion"
    assert type(family).__name__ in broken.sentence


@pytest.mark.parametrize("constant", [False, True])
def test_no_constant_while_the_mean_is_far_from_that_of_zero(constant):
    rng = np.random.default_rng(4)
    bandit = Bandit(3, family=Bernoulli(), seed=1)

    def actions():
        rows = rng.normal(size=(5, 3))
        rows[:, 2] = 1.0 if constant else rows[:, 2]
        return rows

    decisions = [bandit.decide(actions()).id for _ in range(400)]
    rewards = [(id, float(rng.random() < 0.03)) for id in decisions]
    if constant:
        bandit.learn(rewards)
        assert bandit.broken_assumptions == []
        return
    with pytest.warns(AssumptionWarning, match="no feature is constant"):
        bandit.learn(rewards)
    (broken,) = bandit.broken_assumptions
    assert broken.name == "constant"
    assert '"intercept": 1' in broken.change


@pytest.mark.parametrize("closed", [False, True])
def test_conversions_that_came_early_are_no_sample_of_rewards(closed):
    """Where silence is learnt from, a look is at decisions before the first that is open."""
    rng = np.random.default_rng(4)
    learner = Learner(3, Bernoulli(), AdaptiveThompson(), 1.0, hears=True)
    for _ in range(500):
        learner.decide(rng.normal(size=(2, 3)), rng)
    converts = rng.random(500) < 0.3
    came = {int(row): 1.0 for row in np.flatnonzero(converts)}
    if closed:  # the first 300 have no window any more
        came |= {row: 0.0 for row in range(300) if not converts[row]}
    learner.learn(came)
    silent = np.flatnonzero(np.isnan(learner.history.y[:500]))
    learner.hear(silent, np.full(len(silent), 0.5))
    look = assumptions._look(learner)
    if closed:
        assert look.n == silent[0] > 299
        assert abs(look.mean - 0.3) < 0.1
    else:
        assert look is None
        assert learner.broken_assumptions == []


# ------------------------------------------------------------------------------------------- looks


def test_looks_come_at_doubling_counts_and_each_kind_is_told_once(monkeypatch):
    counts, judge = [], assumptions.broken_assumptions

    def counted(learner):
        counts.append(learner.n_observed)
        return judge(learner)

    monkeypatch.setattr("belated.learner.learner.broken_assumptions", counted)
    bandit = Bandit(1, family=Bernoulli(), policy=DelayedOFUGLM())

    def learn():
        for _ in range(900):
            bandit.learn(bandit.decide([[1.0]]).id, 0.0)

    with pytest.warns(AssumptionWarning) as caught:
        learn()
    assert counts == [100, 200, 400, 800]
    (warning,) = caught
    assert warning.filename == __file__
    assert "raise m1;" in str(warning.message), "no conversion at all: no m1 would do"


def test_a_look_samples_a_long_history(monkeypatch):
    monkeypatch.setattr(assumptions, "SAMPLE", 300)
    rng = np.random.default_rng(5)
    bandit = Bandit(2, family=Gaussian(sd=1.0), seed=1)
    (broken,) = learnt(bandit, 401, lambda: unit(rng, 2, 2), lambda x: 5.0 * rng.normal())
    assert broken.name == "noise"
    assert len(assumptions._look(bandit._learner).y) == 201


@pytest.mark.parametrize("entry", [0.0, -1.0, np.nan])
def test_a_look_at_a_spoilt_hessian_says_nothing_and_raises_nothing(entry):
    """A log is taken in by the same call: an error would stop the bandit."""
    bandit = Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(m1=3.0))
    bandit.learn([(bandit.decide(np.eye(2)).id, float(k % 3 == 0)) for k in range(120)])
    bandit._learner.state.fit.H[:] = entry * np.eye(2)
    assert assumptions.broken_assumptions(bandit._learner) == []
