"""Which action is best, and how sure is that: intervals of every policy, and the ranking."""

import math

import numpy as np
import pytest
from scipy import stats

from belated import Bandit, Bernoulli, DelayedOFUGLM, Features, Gaussian, Poisson, registry
from belated.core.ranking import RankedAction, verdict
from belated.model.plain_policy import is_own
from belated.model.protocols import claims_set, derivatives, mean, refusal, reward_quantile
from belated.policies import UCBGLM, Greedy, LinTS, LinUCB, OTFLinUCB, Thompson

LUCK = 1e-4  # chance that an interval which holds as often as it says is blamed


def fed(policy, family, rounds=60, dim=3, seed=1, theta_star=(0.6, -0.5, 0.3)):
    """A bandit that has played and has most of its rewards."""
    rng = np.random.default_rng(seed)
    bandit = Bandit(dim, family=family, policy=policy, seed=seed)
    for t in range(rounds):
        actions = rng.normal(size=(5, dim))
        actions /= np.linalg.norm(actions, axis=1)[:, np.newaxis]
        decision = bandit.decide(actions)
        z = float(actions[decision.index] @ theta_star)
        if t % 5:
            bandit.learn(decision.id, float(reward_quantile(family, z, rng.random())))
    return bandit


def returned(bandit):
    """Actions and rewards of the decisions whose reward has returned."""
    n = bandit.n_decided
    x, y = bandit._history.x[:n], bandit._history.y[:n]
    return x[~np.isnan(y)], y[~np.isnan(y)]


# ------------------------------------------------------------------------------- intervals


def policies():
    """Every compiled policy with the first family that it accepts."""
    for name in registry.POLICIES:
        kind = registry.load(registry.POLICIES, name)
        for family_name in ("bernoulli", "gaussian"):
            family = registry.load(registry.FAMILIES, family_name)()
            policy = registry.example_policy(kind, family)
            if not refusal(policy, family):
                break
        if not is_own(policy):
            yield pytest.param(policy, family, id=name)


@pytest.mark.parametrize(("policy", "family"), list(policies()))
def test_every_policy_gives_an_interval_in_reward_units(policy, family):
    bandit, actions = fed(policy, family), np.eye(3)
    before = bandit.fingerprint()
    assert bandit.interval_kind == ("confidence" if claims_set(policy) else "posterior")
    for row in bandit.ranking(actions):
        low, high = bandit.interval(actions[row.index])
        assert low <= row.mean <= high
        assert low < high
        if not getattr(policy, "linear_mean", False):
            assert family.support.low <= low < high <= family.support.high
        assert (row.low, row.high) == tuple(v if math.isfinite(v) else None for v in (low, high))
    assert bandit.fingerprint() == before


def test_gaussian_posterior_is_exact():
    sd, prior_sd, x = 0.5, 2.0, np.array([0.6, 0.0, -0.8])
    for policy, prior in ((Thompson(prior_sd=prior_sd), prior_sd), (LinTS(lam=0.3), sd / 0.3**0.5)):
        bandit = fed(policy, Gaussian(sd=sd))
        X, y = returned(bandit)
        covariance = np.linalg.inv(X.T @ X / sd**2 + np.eye(3) / prior**2)
        middle, spread = x @ covariance @ X.T @ y / sd**2, math.sqrt(x @ covariance @ x)
        expected = stats.norm.interval(0.95, middle, spread)
        assert bandit.interval(x) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
@pytest.mark.parametrize("policy", [Thompson(), Greedy()], ids=repr)
def test_laplace_by_hand(policy, family):
    """mu(x'theta +- 1.96 sqrt(x'H^-1 x)), the Hessian summed up at the estimate."""
    bandit, x = fed(policy, family), np.array([0.6, 0.0, -0.8])
    X, _ = returned(bandit)
    slopes = [derivatives(family, float(z))[1] for z in X @ bandit.theta]
    kappa = 1.0 if policy == Thompson() else family.kappa(1.0)
    hessian = bandit.policy.lam * kappa * np.eye(3) + (X.T * slopes) @ X
    half = stats.norm.ppf(0.975) * math.sqrt(x @ np.linalg.inv(hessian) @ x)
    z = float(x @ bandit.theta)
    expected = [float(mean(family, z - half)), float(mean(family, z + half))]
    assert bandit.interval(x) == pytest.approx(expected, rel=0.03)


def holds_as_often_as_it_says(held, runs, level=0.95):
    return stats.binomtest(held, runs, level).pvalue > LUCK


def posterior_hits(prior_sd, runs=400):
    """Runs in which the interval of a fixed action holds its mean, theta_star from N(0, I)."""
    x, held = np.array([0.8, 0.6]), 0
    for seed in range(runs):
        theta_star = np.random.default_rng([seed, 7]).normal(size=2)
        policy = Thompson(prior_sd=prior_sd)
        bandit = fed(policy, Gaussian(), rounds=25, dim=2, seed=seed, theta_star=theta_star)
        low, high = bandit.interval(x)
        held += low <= x @ theta_star <= high
    return held


@pytest.mark.slow
def test_posterior_intervals_cover_as_often_as_they_say():
    assert holds_as_often_as_it_says(posterior_hits(prior_sd=1.0), 400)


@pytest.mark.slow
def test_the_test_of_coverage_can_fail():
    assert not holds_as_often_as_it_says(posterior_hits(prior_sd=0.1), 400)


def test_linear_models_of_other_rewards_are_in_reward_units():
    """LinUCB regresses rewards on actions: 0.9 means 0.9, not sigma(0.9)."""
    bandit = Bandit(1, family=Bernoulli(), policy=LinUCB(alpha=1.0))
    bandit.learn([(bandit.decide([[1.0]]).id, float(k % 10 > 0)) for k in range(99)])
    (row,) = bandit.ranking([[1.0]])
    assert row.mean == pytest.approx(89 / 100)
    half = stats.norm.ppf(0.975) * 0.5 / math.sqrt(100)
    assert (row.low, row.high) == pytest.approx((0.89 - half, 0.89 + half))
    fresh = Bandit(1, family=Bernoulli(), policy=LinUCB(alpha=1.0))
    assert fresh.interval([1.0]) == pytest.approx((-1.96 * 0.5, 1.96 * 0.5), abs=1e-3)


def test_conversions_that_are_out_count_in_the_interval():
    """OTFLinUCB counts decisions, not rewards, and so does its interval."""
    bandit = Bandit(1, family=Bernoulli(), policy=OTFLinUCB(window=5))
    for k in range(99):
        decision = bandit.decide([[1.0]])
        if k % 4 == 0:
            bandit.learn(decision.id, 1.0)
    half = stats.norm.ppf(0.975) * 0.5 / math.sqrt(100)
    assert bandit.interval([1.0]) == pytest.approx((0.25 - half, 0.25 + half))


def test_nothing_is_claimed_yet():
    """The set of UCB-GLM is all of space until it has explored."""
    bandit = Bandit(2, family=Gaussian(), policy=UCBGLM(horizon=100))
    ranking = bandit.ranking(np.eye(2))
    assert [(row.low, row.high) for row in ranking] == [(None, None)] * 2
    assert "-" in repr(ranking).splitlines()[-1]


# --------------------------------------------------------------------------------- ranking


def test_the_best_comes_first_with_its_counts():
    bandit = Bandit(2, family=Gaussian(sd=0.1), policy=DelayedOFUGLM(), seed=1)
    a, b, never = [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]
    for k, (x, reward) in enumerate([(a, 0.2), (b, 0.9), (b, 0.8), (a, 0.3), (b, None)]):
        decision = bandit.decide([x])
        if reward is not None:
            assert bandit.learn(k + 1, reward) == 1 == decision.id - k
    ranking = bandit.ranking([a, b, never, [-0.0, 1.0]])
    assert [row.index for row in ranking] == [1, 3, 2, 0], "equal ones in the order given"
    assert [(row.decisions, row.rewards) for row in ranking] == [(3, 2), (3, 2), (0, 0), (2, 2)]
    assert ranking.best == ranking[0] == ranking.actions[0]
    assert ranking.best.mean == pytest.approx(bandit.theta[1])
    assert (ranking.kind, ranking.level, len(ranking)) == ("confidence", 0.95, 4)
    assert ranking.verdict == "No action leads: 2 have the same, highest estimate."
    assert "95 % confidence intervals of the mean reward" in repr(ranking)


def test_ranking_with_features_and_a_context():
    ads = [{"ad": "a"}, {"ad": "b"}]
    features = Features(categorical=["ad", "day"], interactions=[("ad", "day")])
    features.fit([{"ad": ad, "day": day} for ad in "ab" for day in ("mon", "sun")])
    bandit = Bandit(family=Bernoulli(), policy=Thompson(), features=features, seed=2)
    good = {("a", "mon"), ("b", "sun")}
    for k in range(80):
        day = ("mon", "sun")[k % 2]
        decision = bandit.decide(ads, {"day": day})
        bandit.learn(decision.id, float((ads[decision.index]["ad"], day) in good))
    assert bandit.ranking(ads, {"day": "mon"}).best.index == 0
    assert bandit.ranking(ads, {"day": "sun"}).best.index == 1
    counts = [row.decisions for day in ("mon", "sun") for row in bandit.ranking(ads, {"day": day})]
    assert sum(counts) == 80, "a vector is an action in a context"


def test_what_is_refused_is_named():
    bandit = Bandit(2, family=Gaussian(), policy=DelayedOFUGLM())
    with pytest.raises(ValueError, match=r"actions\[1\] has norm 2: expected at most max_norm = 1"):
        bandit.ranking([[1.0, 0.0], [0.0, 2.0]])
    with pytest.raises(ValueError, match=r"actions has shape \(1, 3\): expected \(K, 2\)"):
        bandit.ranking([[1.0, 0.0, 0.0]])
    with pytest.raises(TypeError, match=r"context = .*: expected None"):
        bandit.ranking([[1.0, 0.0]], {"day": "mon"})


def test_a_bandit_with_a_ledger_ranks_alike():
    plain = Bandit(2, family=Bernoulli(), policy=Thompson(), seed=3)
    durable = Bandit(2, family=Bernoulli(), policy=Thompson(), seed=3, ledger="memory://")
    for bandit in (plain, durable):
        for k in range(6):
            bandit.learn(bandit.decide([[1.0, 0.0], [0.0, 1.0]][k % 2 :][:1]).id, float(k % 2))
    assert plain.ranking(np.eye(2)) == durable.ranking(np.eye(2))
    durable.close()


def row(name, low, middle, high):
    return RankedAction(name, 0, middle, low, high)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([row("a", 3.0, 4.0, 5.0)], "a is the only action."),
        (
            [row("7", 3.0, 4.0, 5.0), row("b", 0.0, 1.0, 2.0), row("c", 0.0, 1.0, 2.9)],
            "action 7 is best: its interval lies above those of all 2 others.",
        ),
        (
            [row("a", 3.0, 4.0, 5.0), row("b", 0.0, 1.0, 3.0), row("c", 0.0, 1.0, 2.9)],
            "a leads, but its interval overlaps with that of b.",
        ),
        (
            [row("a", 3.0, 4.0, 5.0), *[row("b", 0.0, 1.0, 3.5)] * 2, row("c", 0.0, 1.0, 2.9)],
            "a leads, but its interval overlaps with those of 2 of 3 others.",
        ),
        (
            [row("a", None, 4.0, None), row("b", None, 1.0, None), row("c", 0.0, 0.0, 0.0)],
            "a leads, but its interval overlaps with those of all 2 others.",
        ),
    ],
)
def test_the_verdict_in_words(rows, sentence):
    assert verdict(rows, 5) == sentence
    assert verdict(rows, 0) == "No action leads: no reward has been learnt yet."
