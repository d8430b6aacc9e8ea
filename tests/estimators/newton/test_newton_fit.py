"""The estimate is what it claims to be: against a slow solver and against other libraries."""

import math

import numpy as np
import pytest

import naive.estimators
import naive.families
from belated import Bandit, DelayedOFUGLM
from belated.estimators.newton.certificate import _line_search, _objective, _propose, _remainder
from belated.estimators.newton.fit import LEAST_SLOPE, LONGEST, MULTIPLIER, SHIFT, LazyNewton
from belated.families import Bernoulli, Gaussian, Poisson
from belated.model.state import History
from belated.numerics.linalg import grow
from support.estimation import FAMILIES, exact, fed, make_family, scratch, stream, taylor

# Each family is compiled anew: all but one are slow.
COMPILED = {name: pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES}
COMPILED["bernoulli"] = "bernoulli"


@pytest.mark.compiled
@pytest.mark.parametrize("constrained", [True, False], ids=["ball", "paper"])
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", COMPILED.values())
def test_certificate_is_never_violated(name, order, constrained):
    """At random times of random streams, the exact estimate is as near as certified."""
    family = make_family(name)
    rng = np.random.default_rng(0)
    ratios, on_ball = [], 0
    for seed in range(12):
        d, m1 = int(rng.integers(1, 7)), float(rng.choice([0.5, 1.0, 2.0]))
        tol, longest = float(10 ** rng.uniform(-5, 1)), float(rng.choice([0.3, 1.0, 3.0]))
        # the truth may lie outside the ball: the certificate does not care
        star = m1 / longest * rng.uniform(0.2, 1.5)
        X, y = stream(family, 300, d, norm=star, seed=seed, longest=longest)
        policy = DelayedOFUGLM(
            m1=m1 / longest, R=1.0, order=order, constrained=constrained, tol=tol
        )
        bandit = Bandit(d, family=family, policy=policy, max_norm=longest)
        for x in X:
            bandit.decide(x[np.newaxis])
        stops = set(rng.integers(1, 300, 8))
        for s in range(300):
            bandit.learn(s + 1, y[s])
            if s in stops:
                certificate = bandit.certificate
                assert certificate.error <= tol
                gap = bandit.theta - exact(name, bandit, X[: s + 1], y[: s + 1])
                if name == "gaussian":
                    assert certificate.error == 0.0
                    assert np.abs(gap).max() < 1e-12
                    continue
                fit = bandit._state.fit
                on_ball += fit.scalars[MULTIPLIER] > 0.0 and fit.scalars[SHIFT] > 0.0
                distance = math.sqrt(gap @ fit.H @ gap)
                assert distance <= certificate.error * (1 + 1e-6) + 1e-10
                in_W = math.sqrt(gap @ bandit.W @ gap)
                assert in_W <= certificate.slack * (1 + 1e-6) + 1e-9
                ratios.append(distance / max(certificate.error, 1e-10))
    assert name == "gaussian" or max(ratios) > 1e-3, "a certificate this loose tests nothing"
    assert name == "gaussian" or (on_ball > 10) == constrained


@pytest.mark.compiled
@pytest.mark.parametrize("constrained", [True, False], ids=["ball", "paper"])
@pytest.mark.parametrize("name", COMPILED.values())
def test_small_tol_gives_the_exact_estimate(name, constrained):
    family = make_family(name)
    X, y = stream(family, 200, 4, norm=1.5, seed=3)
    policy = DelayedOFUGLM(m1=1.0, R=1.0, constrained=constrained, tol=1e-12)
    bandit = fed(family, policy, X, y, batches=[1, 2, 50, 51])
    assert np.abs(bandit.theta - exact(name, bandit, X, y)).max() < 1e-10
    if constrained and name != "gaussian":
        assert np.linalg.norm(bandit.theta) <= 1.0 + 1e-12


@pytest.mark.compiled
@pytest.mark.parametrize("name", [p for f, p in COMPILED.items() if f != "gaussian"])
def test_optimality(name):
    """T5: the gradient of F vanishes, or points out of the ball along theta."""
    family = make_family(name)
    for norm in (0.5, 3.0):
        X, y = stream(family, 400, 3, norm=norm, seed=5)
        bandit = fed(family, DelayedOFUGLM(m1=1.0, R=1.0, tol=1e-12), X, y)
        theta, ridge = bandit.theta, bandit.policy.lam * bandit.policy.kappa
        _, gradient, _ = naive.estimators.objective(name, X, y, ridge, theta)
        inside = np.linalg.norm(theta) < 1.0 - 1e-9
        nu = 0.0 if inside else -(gradient @ theta) / (theta @ theta)
        assert nu >= 0.0
        assert np.abs(gradient + nu * theta).max() < 1e-8


def test_reference_minimises():
    """The slow twin is itself a minimiser: no point nearby, in the ball, is better."""
    rng = np.random.default_rng(1)
    for name in FAMILIES:
        X, y = stream(make_family(name), 60, 3, norm=2.0, seed=2)
        for radius in (math.inf, 0.7):
            theta = naive.estimators.mle(name, X, y, 0.3, radius)
            best = naive.estimators.objective(name, X, y, 0.3, theta)[0]
            assert np.linalg.norm(theta) <= radius * (1 + 1e-12)
            for _ in range(50):
                other = theta + 1e-3 * rng.standard_normal(3)
                other *= min(1.0, radius / np.linalg.norm(other))
                assert naive.estimators.objective(name, X, y, 0.3, other)[0] >= best - 1e-9


@pytest.mark.parametrize("name", ["bernoulli", "tanh", "probit", "poisson"])
def test_coefficients_follow_the_rewards(name):
    """Between passes, what is kept is what a pass would give; the anchor's terms included."""
    family, d = make_family(name), 4
    X, y = stream(family, 120, d, 1.0, seed=8)
    bandit = Bandit(d, family=family, policy=DelayedOFUGLM(R=1.0, order=3, tol=1e-3))
    ridge, anchored = bandit.policy.lam * bandit.policy.kappa, 0
    for s in range(120):
        bandit.learn(bandit.decide(X[s : s + 1]).id, y[s])
        fit, seen = bandit._state.fit, X[: s + 1]
        _, gradient, H = naive.estimators.objective(name, seen, y[: s + 1], ridge, fit.ref)
        assert np.allclose(fit.gradient, gradient, atol=1e-10)
        assert np.allclose(fit.H, H, atol=1e-10)
        assert np.allclose(fit.H_anchor, H @ fit.anchor, atol=1e-10)
        h, slope = 1e-5, naive.families.FAMILIES[name][1]
        bend = (slope(seen @ fit.ref + h) - slope(seen @ fit.ref - h)) / (2 * h)
        T3 = naive.estimators.third_derivative(seen, bend)
        bent = np.einsum("ijk,j,k->i", T3, fit.anchor, fit.anchor) / 2
        assert np.allclose(fit.bent, bent, atol=1e-8)
        assert fit.scalars[LONGEST] == pytest.approx(np.linalg.norm(seen, axis=1).max())
        assert fit.scalars[LEAST_SLOPE] == pytest.approx(slope(seen @ fit.ref).min())
        anchored += bool(fit.anchor.any())
    assert anchored > 20
    assert bandit.certificate.passes < 100


@pytest.mark.parametrize("name", FAMILIES)
def test_objective_is_what_is_minimised(name):
    family = make_family(name)
    X, y = stream(family, 40, 2, 1.0, seed=4)
    estimator, history = taylor()[0], History(X, y)
    for theta in (np.zeros(2), np.array([0.5, -1.0])):
        expected = naive.estimators.objective(name, X, y, estimator.lam * estimator.kappa, theta)[0]
        ours = _objective(estimator, family, theta, history, 40)
        assert ours == pytest.approx(expected, rel=1e-12)


def test_line_search_lowers_the_objective_enough():
    """From anywhere, Newton's step or the largest half, quarter, ... of it that Armijo accepts."""
    X, y = np.ones((6, 1)), np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    history, shares = History(X, y), set()
    estimator = LazyNewton(lam=0.1, kappa=0.2, radius=math.inf, tol=1e-2, order=2)
    for at in np.linspace(-6.0, 9.0, 301):
        F, gradient, H = naive.estimators.objective("bernoulli", X, y, 0.02, np.array([at]))
        fit = estimator.new_fit(1)._replace(ref=np.array([at]), gradient=gradient)
        step = -gradient / H[0]
        share = _line_search(estimator, Bernoulli(), fit, step, history, 6, np.empty(1))

        def accepted(t, at=at, step=step, F=F, slope=float(gradient @ step)):
            there = naive.estimators.objective("bernoulli", X, y, 0.02, at + t * step)[0]
            return there <= F + 0.25 * t * slope + 1e-12

        assert share > 0.0
        assert accepted(share)
        assert share == 1.0 or not accepted(2 * share)
        shares.add(share)
    assert len(shares) > 2


@pytest.mark.parametrize("m1", [25.0, 28.0])
def test_no_warning_where_nothing_is_left_of_double_precision(m1):
    """Condition numbers of 1e14: overflow nowhere, and an estimate all the same."""
    bandit = Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM(m1=m1, constrained=False))
    for k in range(120):
        bandit.learn(bandit.decide([[0.6, 0.8]]).id, float(k % 3 > 0))
    assert np.isfinite(bandit.theta).all()
    assert bandit.certificate.error <= bandit.policy.tol


def test_a_reward_that_makes_the_reference_hopeless():
    """Counts of 1000 along short vectors: the next one meets a prediction of e^250."""
    rng = np.random.default_rng(11)
    g = rng.standard_normal((40, 5))
    X = 0.25 * g / np.sqrt((g**2).sum(1) + 2 * rng.exponential(size=40))[:, None]
    policy = DelayedOFUGLM(m1=1.5, R=1.0, lam=1e-4, constrained=False, order=2, tol=1e-3)
    bandit = Bandit(5, family=Poisson(), policy=policy, max_norm=0.25)
    for k, x in enumerate(X):
        bandit.learn(bandit.decide([x]).id, 1000.0)
        assert bandit.certificate.error <= 1e-3, k
    ridge = bandit.policy.lam * bandit.policy.kappa
    gap = bandit.theta - naive.estimators.mle("poisson", X, np.full(40, 1000.0), ridge)
    distance = math.sqrt(gap @ bandit._state.fit.H @ gap)
    assert distance <= bandit.certificate.error * (1 + 1e-6) + 1e-8


def test_slack_uses_the_least_slope_seen():
    """Outside the ball slopes fall below kappa, and the norm of W says so."""
    X, y = np.ones((40, 1)), np.ones(40)
    policy = DelayedOFUGLM(m1=1.0, constrained=False, tol=0.5)
    bandit = fed(Bernoulli(), policy, X, y, batches=range(1, 40))
    slope = 1 / (2 + 2 * math.cosh(bandit._state.fit.ref[0]))
    assert slope < bandit.policy.kappa
    error, slack = bandit.certificate.error, bandit.certificate.slack
    assert error > 0.0
    assert slack == pytest.approx(error / math.sqrt(slope))


@pytest.mark.parametrize("name", ["bernoulli", "probit"])
def test_ill_conditioned_streams(name):
    """One direction only, and a kappa of next to nothing: no NaN, and the certificate holds."""
    family = make_family(name)
    m1 = 22.0 if name == "bernoulli" else 6.0
    x = np.array([0.6, 0.8])
    for constrained in (True, False):
        policy = DelayedOFUGLM(m1=m1, constrained=constrained)
        bandit = Bandit(2, family=family, policy=policy)
        for k in range(400):
            bandit.learn(bandit.decide([x]).id, float(k % 3 > 0))
        assert np.isfinite(bandit.theta).all()
        y = np.array([float(k % 3 > 0) for k in range(400)])
        ridge = bandit.policy.lam * bandit.policy.kappa
        along = naive.estimators.mle(name, np.ones((400, 1)), y, ridge, m1)[0]  # theta = along * x
        gap = bandit.theta - along * x
        distance = math.sqrt(gap @ bandit._state.fit.H @ gap)
        assert distance <= bandit.certificate.error * (1 + 1e-6) + 1e-9
        assert bandit.certificate.error <= bandit.policy.tol


def test_far_estimates_are_found():
    """Short vectors and hardly any ridge: the estimate is far away, and found."""
    for name, lam in (("bernoulli", 1e-6), ("probit", 1e-2), ("poisson", 1e-3)):
        family = make_family(name)
        policy = DelayedOFUGLM(lam=lam, constrained=False, R=1.0)
        bandit = Bandit(1, family=family, policy=policy)
        for _ in range(30):
            bandit.decide([[0.01]])
        y = np.full(30, 1.0 if name != "poisson" else 50.0)
        bandit.learn(list(enumerate(y, start=1)))
        exact = naive.estimators.mle(name, np.full((30, 1), 0.01), y, lam * bandit.policy.kappa)
        assert exact[0] > 40.0
        assert bandit.certificate.error <= policy.tol
        assert bandit.certificate.passes < 30
        gap = abs(bandit.theta[0] - exact[0]) * math.sqrt(bandit._state.fit.H[0, 0])
        assert gap <= bandit.certificate.error * (1 + 1e-6) + 1e-9


def test_gradient_bound():
    """Inequality (1) of the certificate: ||grad F(theta_q)||_{H^-1} <= psi(M r) ||D||_H."""
    for name in ("bernoulli", "tanh", "probit", "poisson"):
        family = make_family(name)
        for seed in range(20):
            X, y = stream(family, 40, 3, 1.0, seed)
            policy = DelayedOFUGLM(R=1.0, order=2, tol=10.0, constrained=False)
            bandit = fed(family, policy, X, y)
            fit, step = bandit._state.fit, np.zeros(3)
            _propose(bandit.estimator, family, fit, step, scratch(3))
            ridge = bandit.policy.lam * bandit.policy.kappa
            _, gradient, _ = naive.estimators.objective(name, X, y, ridge, fit.ref + step)
            r = np.linalg.norm(step)
            M = naive.families.CONCORDANCE.get(name, 1.0)
            if name == "probit":
                M = max(1.0, np.linalg.norm(fit.ref) + r)
            bound = _remainder(M * r, 2) * math.sqrt(step @ fit.H @ step)
            assert math.sqrt(gradient @ np.linalg.solve(fit.H, gradient)) <= bound * (1 + 1e-9)


def test_separable_data_of_many_lengths():
    """The minimiser is far away, and vectors that no longer matter are long."""
    rng = np.random.default_rng(0)
    X = np.eye(3)[rng.integers(0, 3, 300)] * rng.uniform(0.01, 20.0, (300, 1))
    y = (X @ np.array([1.0, -1.0, 1.0]) > 0).astype(float)
    policy = DelayedOFUGLM(m1=0.4, lam=3e-3, constrained=False, tol=1e-5)
    bandit = Bandit(3, family=Bernoulli(), policy=policy, max_norm=20.0)
    for x in X:
        bandit.decide([x])
    bandit.learn([(k + 1, y[k]) for k in range(300)])
    ridge = bandit.policy.lam * bandit.policy.kappa
    gap = bandit.theta - naive.estimators.mle("bernoulli", X, y, ridge)
    assert np.linalg.norm(bandit.theta) > 20.0
    assert bandit.certificate.error <= 1e-5
    assert math.sqrt(gap @ bandit._state.fit.H @ gap) <= bandit.certificate.error + 1e-9
    assert bandit.certificate.passes < 60


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("order", "constrained", "table"), [(3, True, 119), (3, False, 119), (2, False, 501)]
)
def test_few_passes(order, constrained, table):
    """100,000 rounds in 10 dimensions: at most twice the passes that were tabled."""
    T, d, K = 100_000, 10, 100
    rng = np.random.default_rng(4)
    theta_star = rng.standard_normal(d)
    theta_star *= 0.98 / np.linalg.norm(theta_star)
    policy = DelayedOFUGLM(delta=0.05 / 3, order=order, constrained=constrained, tol=1e-2)
    bandit = Bandit(d, family=Bernoulli(), policy=policy)
    due: dict[int, list] = {}
    for start in range(0, T, 1000):
        g = rng.standard_normal((1000, K, d))
        sets = g / np.sqrt((g**2).sum(2) + 2 * rng.exponential(size=(1000, K)))[:, :, None]
        delays = np.ceil(rng.exponential(100.0, 1000)).astype(int)
        luck = rng.random(1000)
        for k in range(1000):
            decision = bandit.decide(sets[k])
            y = float(luck[k] < 1 / (1 + math.exp(-sets[k, decision.index] @ theta_star)))
            t = start + k
            due.setdefault(t + delays[k], []).append((decision.id, y))
            if t in due:
                bandit.learn(due.pop(t))
    assert 0 < bandit.certificate.passes <= 2 * table
    rows = ~np.isnan(bandit._history.y[:T])
    gap = bandit.theta - naive.estimators.mle(
        "bernoulli",
        bandit._history.x[:T][rows],
        bandit._history.y[:T][rows],
        bandit.policy.lam * bandit.policy.kappa,
        1.0 if constrained else math.inf,
    )
    assert math.sqrt(gap @ bandit._state.fit.H @ gap) <= bandit.certificate.error + 1e-9


def test_a_determinant_lost_to_rounding_is_made_anew():
    """A spoilt inverse makes x'W^-1 x negative: the determinant must not become NaN."""
    A, A_inv, x = np.diag([5.0, 2.0]), np.diag([-0.2, 0.5]), np.array([1.0, 0.0])
    log_det = grow(A, A_inv, math.nan, 1.0, x, False, np.empty(2))
    assert log_det == pytest.approx(math.log(12.0))
    assert np.allclose(A_inv, np.diag([1 / 6, 1 / 2]))


@pytest.mark.filterwarnings("ignore::belated.AssumptionWarning")  # no noise
def test_width_with_hardly_any_ridge():
    """The smallest lam that is let in, and one direction only, for more than a refactorisation."""
    x = np.array([0.3, -0.2, 0.1])
    bandit = Bandit(3, family=Gaussian(), policy=DelayedOFUGLM(lam=1e-9))
    for k in range(1100):
        bandit.decide([x])
        bandit.learn(k + 1, 0.3)
    log_det = math.log1p(1100 * (x @ x) / 1e-9)
    expected = math.sqrt(1e-9) + math.sqrt(log_det + 2 * math.log(20))
    assert bandit.sqrt_beta == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match=r"lam = 1e-10, .*: expected lam from 1e-09"):
        Bandit(3, family=Gaussian(), policy=DelayedOFUGLM(lam=1e-10))


def test_no_certificate_from_numbers_that_overflowed():
    """Huge Poisson counts on short vectors: H loses its ridge to rounding, and that must show.

    On the way x'ref can reach 400, H 1e170 and of rank one, depending on the last digits. What is
    certified must be stationary; a bound of 0 on an estimate that is off by 1e90 was once given.
    """
    rng = np.random.default_rng([1, 128])
    d, n, longest = int(rng.integers(1, 4)), int(rng.integers(2, 12)), 10 ** rng.uniform(-2, 1.5)
    order, constrained = int(rng.integers(2, 4)), bool(rng.random() < 0.3)
    m1, lam = 10 ** rng.uniform(-1, 1.5) / longest, 10 ** rng.uniform(-6, 3)
    policy = DelayedOFUGLM(
        m1=m1, R=1.0, lam=lam, constrained=constrained, tol=10 ** rng.uniform(-4, 1), order=order
    )
    X = rng.standard_normal((n, d))
    lengths = longest * rng.random((n, 1)) ** 3 / np.linalg.norm(X, axis=1, keepdims=True)
    y = np.floor(10 ** (rng.uniform(0, 15.9) * rng.random(n)))
    with np.errstate(all="ignore"):
        for digits in range(1, 7):
            x = (X * (lengths * (1 - digits * 1e-14)))[:2]
            bandit = Bandit(d, family=Poisson(), policy=policy, max_norm=longest)
            for k in range(2):
                bandit.decide(x[k : k + 1])
                bandit.learn(k + 1, float(y[k]))
            if bandit.certificate.error < math.inf:
                ridge = bandit.policy.lam * bandit.policy.kappa
                gradient = x.T @ (np.exp(x @ bandit.theta) - y[:2]) + ridge * bandit.theta
                assert np.linalg.norm(gradient) <= 1e-3 * np.linalg.norm(x.T @ y[:2])
