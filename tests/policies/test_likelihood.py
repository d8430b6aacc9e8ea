"""Sets of likelihood ratios: OFUGLB-e, OFUGLB and OFULog-r."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit
from scipy.stats import binom, poisson

import naive.estimators
import naive.families
import naive.likelihood
from belated import Bandit, Bernoulli, Binomial, Bounded, Gaussian, Poisson, Probit, Tanh
from belated.checks.families import reward_law
from belated.engine.reference import draw_world, play
from belated.model.protocols import self_concordance
from belated.model.steps import covers
from belated.policies import DelayedOFUGLM
from belated.policies.ofuglb import OFUGLB, OFULogR
from belated.policies.ofuglb_e import OFUGLBe
from belated.policies.shared.level_set import farthest
from belated.worlds.delays import Constant, Exponential, Informative
from belated.worlds.environments import FixedArms, UnitBall

NAMED = {
    "gaussian": Gaussian(0.5),
    "bernoulli": Bernoulli(),
    "bounded": Bounded(),
    "binomial": Binomial(naive.families.TRIALS),
    "tanh": Tanh(),
    "probit": Probit(),
    "poisson": Poisson(),
}
LATE = Exponential(6.0)
ALL = pytest.mark.parametrize("name", NAMED)


def twin_of(name, bandit):
    p = bandit.policy
    return naive.likelihood.LikelihoodSet(
        name,
        bandit.dim,
        lam=p.lam,
        m1=p.m1,
        max_norm=bandit.max_norm,
        a_phi=NAMED[name].a_phi,
        delta=p.delta,
        concordance=concordance(name, p.m1 * bandit.max_norm),
    )


def concordance(name, bound):
    return max(1.0, bound) if name == "probit" else naive.families.CONCORDANCE.get(name, 1.0)


def played(policy, family, delay=LATE, rounds=120, d=3, K=9, seed=2, theta_star=None):
    world = draw_world(UnitBall(K), d, rounds, seed, theta_star)
    bandit = Bandit(d, family=family, policy=policy)
    return bandit, play(bandit, world, delay), world


def follow(name, bandit, run, world, scores, tolerance, every=1):
    """In every so many rounds the arm played has the best score of the twin.

    The twin learns as rewards come. Returns how often its scores were not merely the norms.
    """
    twin, told = twin_of(name, bandit), 0
    for t, actions in enumerate(world.actions):
        if t % every == 0:
            values = scores(twin, actions)
            assert values[run.index[t]] >= values.max() - tolerance
            told += not np.allclose(values, bandit.policy.m1 * np.linalg.norm(actions, axis=1))
        due = np.flatnonzero(run.arrives == t + 1)
        if due.size:
            twin.learn(world.actions[due, run.index[due]], run.reward[due])
    return told


def returned(bandit):
    n = bandit.n_decided
    y = bandit._history.y[:n]
    known = ~np.isnan(y)
    return bandit._history.x[:n][known], y[known]


# --------------------------------------------------------------------------------------- OFUGLB-e


@pytest.mark.parametrize("delay", [Constant(0.0), LATE], ids=["undelayed", "late"])
@ALL
def test_ellipsoid_run_equals_the_slow_twin(name, delay):
    policy = OFUGLBe(m1=1.5, delta=0.1, tol=1e-12, drift=1e-9)
    bandit, run, world = played(policy, NAMED[name], delay, rounds=60)
    follow(name, bandit, run, world, naive.likelihood.LikelihoodSet.ellipsoid_scores, 1e-7)


@ALL
def test_ellipsoid_width_is_its_formula(name):
    """Recomputed from the returned rewards and the point at which the Hessian is taken."""
    family, m1, lam, delta, c = NAMED[name], 1.3, 0.7, 0.2, 0.8
    policy = OFUGLBe(m1=m1, lam=lam, delta=delta, drift=0.3, tol=0.3)
    world = draw_world(UnitBall(9), 3, 120, 2)
    bandit = Bandit(3, family=family, policy=policy, max_norm=c)
    play(bandit, world._replace(actions=c * world.actions), LATE)
    assert bandit.n_missing > 2
    X, y = returned(bandit)
    twin = twin_of(name, bandit)
    twin.X, twin.y = X, y
    width = math.sqrt(twin.factor * (family.a_phi * twin.beta2 + lam * m1**2 / 2))
    assert bandit.sqrt_beta == pytest.approx(width, rel=1e-9)
    ref = bandit._state.fit.ref
    H = naive.estimators.objective(name, X, y, lam, ref)[2]
    M = concordance(name, m1 * c)
    u = M * np.linalg.norm(X, axis=1).max() * np.linalg.norm(bandit.theta - ref)
    assert u <= 0.3
    error = bandit.certificate.error
    assert bandit.radius == pytest.approx(math.exp(u / 2) * width + twin.factor * error, rel=1e-9)
    if name not in ("gaussian", "bounded"):
        assert u > 0.0
        assert error > 0.0
    actions = c * draw_world(UnitBall(50), 3, 1, 9).actions[0]
    norms = np.sqrt(((actions @ np.linalg.inv(H)) * actions).sum(1))
    scores = actions @ bandit.theta + bandit.radius * norms
    decision = bandit.decide(actions)
    assert decision.index == np.argmax(scores)
    assert decision.score == pytest.approx(scores.max())
    low, high = bandit.interval(actions[0])
    ends = [actions[0] @ bandit.theta + s * bandit.radius * norms[0] for s in (-1, 1)]
    assert (low, high) == pytest.approx(tuple(naive.families.FAMILIES[name][0](np.array(ends))))
    error = np.array([0.1, -0.2, 0.05])
    inside = math.sqrt(error @ H @ error) <= bandit.radius
    assert covers(bandit.policy, bandit._state, bandit.theta - error) == inside


@ALL
def test_hessian_is_near_that_at_the_estimate(name):
    """Between e^-drift and e^drift times it, whatever passes and constraints did to the inverse."""
    bandit, _, _ = played(OFUGLBe(m1=0.6, drift=0.05), NAMED[name], theta_star=np.full(3, 0.5))
    X, y = returned(bandit)
    fit = bandit._state.fit
    ratio = np.linalg.eigvals(
        np.linalg.solve(
            naive.estimators.objective(name, X, y, bandit.policy.lam, bandit.theta)[2], fit.H
        )
    ).real
    assert (np.abs(np.log(ratio)) <= 0.05 + 1e-9).all()
    assert np.allclose(fit.P @ fit.H, np.eye(3), atol=1e-9)
    along, across, v = fit.cap[1], fit.cap[0], fit.cap[4:]
    cap = across * np.eye(3) + (along - across) * np.outer(v, v)
    assert np.linalg.eigvalsh(cap - fit.P).min() > 0.0


def test_bound_for_pruning_survives_passes():
    """A pass takes the Hessian at another point, where it may be smaller: its inverse outgrows a
    bound on the old one."""
    bandit = Bandit(2, family=Bernoulli(), policy=OFUGLBe(m1=8.0))
    fit, grew = bandit._state.fit, 0
    for t in range(240):
        before, passes = fit.P.copy(), bandit.certificate.passes
        decision = bandit.decide([[1.0, 0.0] if t % 4 else [0.0, 0.5]])
        bandit.learn(decision.id, float(t % 2 or t > 80))
        if bandit.certificate.passes > passes:
            grew += np.linalg.eigvalsh(fit.P - before).max() > 1e-4 * before.max() and t > 80
        v = fit.cap[4:]
        cap = fit.cap[0] * np.eye(2) + (fit.cap[1] - fit.cap[0]) * np.outer(v, v)
        assert np.linalg.eigvalsh(cap - fit.P).min() > 0.0
    assert grew > 3


def test_width_golden():
    """Bernoulli: Lip = n sigma(S), so beta^2 = log 20 + d log(2 e n sigma(1) / d) at S = 1."""
    bandit = Bandit(3, family=Bernoulli(), policy=OFUGLBe())
    assert bandit.sqrt_beta**2 == pytest.approx(4 * (math.log(20) + 1))  # lam = 2
    for k in range(100):
        bandit.decide([np.eye(3)[k % 3]])
    bandit.learn(1, 1.0)
    beta2 = math.log(20) + 2 * expit(1)  # 2 S Lip is below d
    assert bandit.sqrt_beta**2 == pytest.approx(4 * (beta2 + 1))
    bandit.learn([(k + 1, float(k % 3 > 0)) for k in range(1, 100)])
    beta2 = math.log(20) + 3 * math.log(2 * math.e * 100 * expit(1) / 3)
    assert beta2 == pytest.approx(17.6551, abs=1e-4)
    assert bandit.sqrt_beta**2 == pytest.approx(4 * (beta2 + 1))


def test_poisson_lipschitz_constant():
    """Sum of max(e^S - y, y - e^-S): below e^S n + sum y."""
    bandit = Bandit(2, family=Poisson(), policy=OFUGLBe(m1=2.0))
    rewards = [0.0, 3.0, 9.0, 1.0]
    for _ in rewards:
        bandit.decide([[0.5, 0.5]])
    bandit.learn(list(enumerate(rewards, 1)))
    lip = sum(max(math.exp(2) - y, y - math.exp(-2)) for y in rewards)
    assert bandit._state.fit.reach[0] == pytest.approx(lip)
    assert lip < 4 * math.exp(2) + sum(rewards)


def test_scaling():
    """x -> c x, theta_star -> theta_star / c, m1 -> m1 / c: same arms."""
    world, c = draw_world(UnitBall(8), 3, 80, seed=5), 0.25
    small = world._replace(actions=c * world.actions, theta_star=world.theta_star / c)
    for kind in (OFUGLBe, OFUGLB, OFULogR):
        values = {} if kind is OFUGLBe else {"horizon": 80}
        one = Bandit(3, family=Bernoulli(), policy=kind(**values))
        other = Bandit(3, family=Bernoulli(), policy=kind(m1=1 / c, **values), max_norm=c)
        assert np.array_equal(play(one, world, LATE).index, play(other, small, LATE).index)
        assert one.radius == pytest.approx(other.radius, rel=1e-3)


@pytest.mark.parametrize(("family", "m1"), [(Bernoulli(), 40.0), (Poisson(), 4.0), (Probit(), 9.0)])
def test_large_norms(family, m1):
    """Where the least slope is next to nothing, and Delayed OFU-GLM refuses or is at a loss."""
    theta_star = np.array([0.5, -0.4, 0.6]) * 3
    bandit, run, _ = played(OFUGLBe(m1=m1), family, theta_star=theta_star, rounds=150)
    assert run.covered.all()
    assert math.isfinite(bandit.radius)
    assert np.linalg.norm(bandit.theta) <= m1 * (1 + 1e-12)


# ------------------------------------------------------------------------ what the sets rest on


@ALL
def test_golden_relation_of_norm_and_likelihood(name):
    """||theta - theta_hat||_H^2 <= 2 (1 + M S) (F(theta) - F(theta_hat)), for theta in the ball.

    For F, the penalised likelihood; and with its own constant for L, the plain one.
    """
    rng, ratios, plain = np.random.default_rng(5), [], []
    for _ in range(40):
        n, d, S = int(rng.integers(1, 40)), int(rng.integers(1, 4)), rng.uniform(0.5, 3.0)
        X = rng.standard_normal((n, d))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
        star = rng.standard_normal(d)
        star *= S / np.linalg.norm(star) * rng.uniform(0, 1)
        mean = naive.families.FAMILIES[name][0](X @ star)
        y = rng.poisson(np.exp(X @ star)) if name == "poisson" else mean + rng.uniform(-0.1, 0.1, n)
        ridge = 2 / S**2
        theta_hat = naive.estimators.mle(name, X, y, ridge, S)
        F, _, H = naive.estimators.objective(name, X, y, ridge, theta_hat)
        factor = 2 * (1 + concordance(name, S) * S)
        for _ in range(20):
            theta = rng.standard_normal(d)
            theta *= S / np.linalg.norm(theta) * rng.uniform(0, 1) ** (1 / d)
            step = theta - theta_hat
            distance = step @ H @ step
            above = naive.estimators.objective(name, X, y, ridge, theta)[0] - F
            ratios.append(factor * above / distance)
            data = step @ (H - ridge * np.eye(d)) @ step
            likelihood = above - ridge / 2 * (theta @ theta - theta_hat @ theta_hat)
            plain.append(factor * (likelihood + ridge * S**2 / 4) - data)
    assert min(ratios) >= 1.0 - 1e-9
    if name == "gaussian":
        assert min(ratios) < 1.01  # equality for a quadratic, away from the boundary
    assert min(ratios) < 3.0
    assert min(plain) >= -1e-9


def law(name, z):
    """Rewards and their probabilities."""
    mu = float(naive.families.FAMILIES[name][0](np.array(z)))
    if name == "gaussian":
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        return z + 0.5 * nodes, weights / weights.sum()
    if name == "bounded":
        y = reward_law(Bounded(), z)  # quantiles
        return y, np.full(len(y), 1 / len(y))
    if name == "poisson":
        return np.arange(150.0), poisson.pmf(np.arange(150), mu)
    if name == "binomial":
        return np.arange(5), binom.pmf(np.arange(5), 4, mu / 4)
    if name == "tanh":
        return np.array([-1, 1]), np.array([1 - mu, 1 + mu]) / 2
    return np.array([0, 1]), np.array([1 - mu, mu])


@ALL
def test_likelihood_ratios_are_supermartingales(name):
    """E exp(s y) <= exp((b(z + a s) - b(z)) / a): for the quasi-likelihoods, too."""
    a, b, gaps = NAMED[name].a_phi, naive.families.FAMILIES[name][2], []
    for z in (-3.0, -1.5, 0.0, 0.7, 2.0):
        y, weights = law(name, z)
        for s in (-3.0, -1.0, -0.5, 0.5, 1.0, 2.0):
            gaps.append((b(z + a * s) - b(z)) / a - math.log(weights @ np.exp(s * y)))
    assert min(gaps) > -1e-9
    if name in ("bounded", "probit"):
        assert min(gaps) > 1e-6  # strictly: their law is not the exponential family's
    else:
        assert max(gaps) < 1e-9


def test_probit_slope_exceeds_the_variance():
    z = np.linspace(-8, 8, 4001)
    mu, slope, _ = naive.families.FAMILIES["probit"]
    assert (slope(z) >= mu(z) * mu(-z)).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OFUGLBe, OFUGLB])
@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_coverage(name, kind):
    """The set holds theta_star in all rounds of well over 1 - delta of the runs; a far smaller
    one would not."""
    runs, delta, far = (4 if kind is OFUGLB else 12), 0.2, 0
    for seed in range(runs):
        values = {"horizon": 100} if kind is OFUGLB else {}
        bandit, run, world = played(
            kind(delta=delta, **values), NAMED[name], Exponential(10.0), 100, d=2, K=5, seed=seed
        )
        assert run.covered.all()
        error = bandit.theta - world.theta_star
        X, y = returned(bandit)
        F, star = (
            naive.estimators.objective(name, X, y, 0.0, t)[0]
            for t in (bandit.theta, world.theta_star)
        )
        assert star - F <= bandit.radius**2
        far += math.sqrt(error @ bandit._state.fit.H @ error) > 0.1 * bandit.radius
    assert far > 0


def test_informative_delays_break_coverage():
    """When good news travels fast and bad news never, the set loses theta_star."""
    world = draw_world(FixedArms(np.eye(2)), 2, 500, 1, np.array([-0.3, -0.5]))
    bandit = Bandit(2, family=Tanh(), policy=OFUGLBe(delta=0.2))
    assert not play(bandit, world, Informative(threshold=0.0)).covered.all()


# ------------------------------------------------------------------------------------- level sets


@pytest.mark.parametrize("delay", [Constant(0.0), Exponential(3.0)], ids=["undelayed", "late"])
@pytest.mark.parametrize(
    ("name", "m1", "told"), [("gaussian", 1.0, 6), ("poisson", 2.0, 6), ("bernoulli", 3.0, 2)]
)
def test_level_set_run_equals_the_slow_twin(name, m1, told, delay):
    policy = OFUGLB(m1=m1, delta=0.3, tol=1e-12, horizon=60)
    star = np.array([0.8, 0.5])
    bandit, run, world = played(policy, NAMED[name], delay, 60, d=2, K=4, theta_star=star)
    scores = naive.likelihood.LikelihoodSet.level_scores
    assert follow(name, bandit, run, world, scores, 1e-6, every=5) >= told


def test_logistic_level_set_plays_the_longest_arm_at_first():
    bandit, run, world = played(OFULogR(horizon=60), Bernoulli(), rounds=60)
    longest = np.linalg.norm(world.actions, axis=2).argmax(axis=1)
    assert np.array_equal(run.index, longest)
    n, p = bandit.n_observed, bandit.policy
    assert p.lam == pytest.approx(3 * math.log(62))
    gamma = naive.likelihood.abeille_gamma(3, n, lam=p.lam, m1=1.0, delta=0.05)
    assert bandit.radius == pytest.approx(gamma + gamma**2 / math.sqrt(p.lam))


def test_logistic_level_set_in_one_dimension():
    """Where it says something: at the lower end F has risen by the square of the radius."""
    n, lam = 3000, 4.0
    bandit = Bandit(1, family=Bernoulli(), policy=OFULogR(lam=lam, delta=0.5, horizon=n + 1))
    for _ in range(n):
        bandit._state.counts[0] += 1  # decided, as decide would
    bandit._learner.history = bandit._history._replace(x=np.ones((n, 1)), y=np.full(n, np.nan))
    y = (np.arange(n) % 4 > 0).astype(float)
    bandit.learn(list(enumerate(y, 1)))
    X = np.ones((n, 1))
    base = naive.estimators.objective("bernoulli", X, y, lam, bandit.theta)[0]
    end = brentq(
        lambda t: (
            naive.estimators.objective("bernoulli", X, y, lam, np.array([t]))[0]
            - base
            - bandit.radius**2
        ),
        -1.0,
        bandit.theta[0],
    )
    assert end > -0.99
    low, _ = bandit.interval([1.0])
    assert low == pytest.approx(expit(end), rel=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.7])
@ALL
def test_farthest_point_by_another_solver(name, ridge):
    """SLSQP on the problem as it stands, in four dimensions, in all directions of a run."""
    family, m1 = NAMED[name], 2.0
    policy = OFUGLB(m1=m1, horizon=200, tol=1e-9)
    bandit, _, _ = played(policy, family, rounds=60, d=4, theta_star=np.full(4, 0.4))
    X, y = returned(bandit)
    theta, kinds = bandit.theta, set()
    for k, height in enumerate([0.01, 0.3, 2.0, 5.0, 20.0, 200.0]):
        x = np.random.default_rng(k).standard_normal(4) / 3
        base = naive.estimators.objective(name, X, y, ridge, theta)[0]

        def room(t, base=base, height=height):
            return base + height - naive.estimators.objective(name, X, y, ridge, t)[0]

        found = minimize(
            lambda t, x=x: -x @ t,
            theta,
            jac=lambda t, x=x: -x,
            constraints=[
                {
                    "type": "ineq",
                    "fun": room,
                    "jac": lambda t: -naive.estimators.objective(name, X, y, ridge, t)[1],
                },
                {"type": "ineq", "fun": lambda t: m1**2 - t @ t, "jac": lambda t: -2 * t},
            ],
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        assert room(found.x) > -1e-7
        index = farthest(family, bandit._state, ridge, m1, height, x, 1.0)
        assert index == pytest.approx(-found.fun, rel=1e-6, abs=1e-6)
        back = farthest(family, bandit._state, ridge, m1, height, -x, -1.0)
        assert back == index
        kinds.add(bool(np.linalg.norm(found.x) > m1 * (1 - 1e-6)))
    assert len(kinds) == 2  # the ball binds in some, not in all


def test_gaussian_level_set_is_an_ellipsoid():
    """No ridge to speak of, the ball far away: x'theta + sqrt(2 a beta^2) ||x||_{(X'X)^-1}."""
    policy = OFUGLB(m1=50.0, lam=1e-7, horizon=100)
    bandit, _, _ = played(policy, Gaussian(0.3), Constant(0.0), rounds=80)
    X, _ = returned(bandit)
    actions = draw_world(UnitBall(20), 3, 1, 9).actions[0]
    norms = np.sqrt(((actions @ np.linalg.inv(X.T @ X)) * actions).sum(1))
    scores = actions @ bandit.theta + math.sqrt(2) * bandit.radius * norms
    decision = bandit.decide(actions)
    assert decision.index == np.argmax(scores)
    assert decision.score == pytest.approx(scores.max(), rel=1e-6)
    assert decision.width == pytest.approx(decision.score - decision.estimate, rel=1e-5)


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_pruning_is_exact_and_the_ellipsoid_holds_the_set(name):
    """All indices one by one: the decision is their arg max, and none exceeds its upper bound."""
    family, m1 = NAMED[name], 1.5
    values = {"m1": m1, "delta": 0.2}
    bandit, _, world = played(OFUGLB(horizon=90, **values), family, rounds=80, d=2, K=12)
    outer = Bandit(2, family=family, policy=OFUGLBe(**values))
    run_x, run_y = returned(bandit)
    for x in run_x:
        outer.decide([x])
    outer.learn(list(enumerate(run_y, 1)))
    state, height = bandit._state, bandit.radius**2
    for actions in world.actions[:5]:
        indices = [farthest(family, state, 0.0, m1, height, x, 1.0) for x in actions]
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(indices)
        assert decision.score == max(indices)
        for x, index in zip(actions, indices, strict=True):
            assert index <= m1 * np.linalg.norm(x)
            bound = x @ outer.theta + outer.radius * math.sqrt(
                x @ np.linalg.solve(outer._state.fit.H, x)
            )
            assert index <= bound
            low, high = bandit.interval(x)
            mu = naive.families.FAMILIES[name][0]
            width = (
                max(index, farthest(family, state, 0.0, m1, height, x, -1.0) + 2 * x @ bandit.theta)
                - x @ bandit.theta
            )
            assert high == pytest.approx(mu(x @ bandit.theta + width))
            assert low == pytest.approx(mu(x @ bandit.theta - width))


def test_ties_go_to_the_lowest_row():
    world = draw_world(UnitBall(3), 2, 40, seed=3)
    doubled = world._replace(actions=np.concatenate([world.actions] * 3, axis=1))
    policy = OFUGLB(horizon=40)
    one, other = (Bandit(2, family=Gaussian(0.2), policy=policy) for _ in range(2))
    assert np.array_equal(play(one, world, LATE).index, play(other, doubled, LATE).index)


# ------------------------------------------------------------------------------------- parameters


def test_derived_parameters():
    p = OFUGLBe(m1=2.0).resolve(Gaussian(3.0), dim=5, max_norm=1.0)
    assert (p.lam, p.a_phi, p.M, p.max_norm) == (4.5, 9.0, 0.0, 1.0)
    p = OFUGLBe(m1=2.0).resolve(Probit(), dim=5, max_norm=2.0)
    assert p.M == self_concordance(Probit(), 4.0) == 4.0
    assert OFULogR(horizon=98).resolve(Bernoulli(), 5, 2.0).lam == 20 * math.log(100)


@pytest.mark.parametrize("kind", [OFUGLBe, OFUGLB, OFULogR])
@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("delta", 1.0, "strictly between 0 and 1"),
        ("m1", 0.0, "above 0"),
        ("m1", "one", "a number above 0"),
        ("lam", -1.0, "above 0"),
        ("tol", 1e-13, "1e-12 or more"),
    ],
)
def test_bad_parameters(kind, argument, value, expected):
    with pytest.raises((ValueError, TypeError)) as error:
        kind(**{argument: value})
    assert f"{argument} = {value!r}" in str(error.value)
    assert expected in str(error.value)


def test_parameters_that_do_not_fit():
    with pytest.raises(ValueError, match=r"drift = 1e-10: expected 1e-09 or more"):
        OFUGLBe(drift=1e-10)
    with pytest.raises(ValueError, match=r"m1 = 400\.0: expected 700 / max_norm at most"):
        OFUGLBe(m1=400.0).resolve(Poisson(), 2, 2.0)
    with pytest.raises(ValueError, match=r"lam = 1e-12: expected a number from 1e-09 to 1e100"):
        OFUGLBe(lam=1e-12).resolve(Poisson(), 2, 1.0)
    for kind in (OFUGLB, OFULogR):
        with pytest.raises(ValueError, match=f"horizon = None: .* which {kind.__name__} needs"):
            Bandit(2, family=Bernoulli(), policy=kind())
        with pytest.raises(ValueError, match=r"horizon = 0: expected a whole number, 1 or more"):
            kind(horizon=0)


@pytest.mark.parametrize("family", [Gaussian(), Binomial(4), Tanh(), Probit(), Poisson()], ids=repr)
def test_logistic_means_only(family):
    with pytest.raises(ValueError, match=r"OFULogR is for rewards in \[0, 1\].*use OFUGLB"):
        Bandit(2, family=family, policy=OFULogR(horizon=10))


def test_decisions_beyond_the_horizon_are_refused():
    bandit = Bandit(2, family=Bernoulli(), policy=OFUGLB(horizon=3))
    for _ in range(3):
        bandit.decide(np.eye(2))
    before = bandit.fingerprint()
    with pytest.raises(ValueError, match="the horizon has passed"):
        bandit.decide(np.eye(2))
    assert bandit.fingerprint() == before
    bandit.learn([(1, 1.0), (2, 0.0), (3, 1.0)])


def test_poisson_is_pointed_here():
    with pytest.raises(ValueError, match=r"a policy whose set needs no R \(OFUGLBe\)"):
        Bandit(2, family=Poisson(), policy=DelayedOFUGLM())
