"""Policies that see each reward once: GLOC, ada-OFU-ECOLog, GLB-OMD."""

import math

import numpy as np
import pytest

import naive.estimators
import naive.families
import naive.one_pass
from belated import Bandit
from belated.engine.lanes import RECORD, looks_back, new_lanes, with_room
from belated.engine.reference import draw_world, play
from belated.engine.worlds import Lane, WorldSettings, play_world
from belated.estimators.one_pass import FAILED
from belated.families import Bernoulli, Binomial, Bounded, Gaussian, Poisson, Probit, Tanh
from belated.model.protocols import reward_quantile
from belated.numerics.lowered.products import dot
from belated.policies import GLBOMD, GLOC, AdaOFUECOLog
from belated.policies.ecolog import SAFE_BOUND
from belated.policies.shared.one_pass import is_logistic, is_quasi
from belated.worlds.delays import Constant, Exponential, arrival, quantile
from belated.worlds.environments import UnitBall

D = 3
ALL = [GLOC, AdaOFUECOLog, GLBOMD]
FAMILIES = {
    "gaussian": Gaussian(0.5),
    "bernoulli": Bernoulli(),
    "bounded": Bounded(),
    "binomial": Binomial(naive.families.TRIALS),
    "tanh": Tanh(),
    "probit": Probit(),
    "poisson": Poisson(),
}


def twin_of(policy, name, X=1.0):
    """The slow transcription with the same parameters, derived from the formulas where open."""
    family, S = FAMILIES[name], policy.m1 * X
    given = {"m1": policy.m1, "delta": policy.delta, "X": X}
    slope = naive.families.FAMILIES[name][1]
    if isinstance(policy, GLOC):
        R = 1.3 if name == "poisson" else family.R
        given |= {"R": R, "kappa": min(slope(np.array([S, -S])))}
        return naive.one_pass.GLOC(name, D, lam=policy.lam or 1.0, **given)
    if isinstance(policy, AdaOFUECOLog):
        trials = naive.families.TRIALS if name == "binomial" else 1
        eta = 1 if policy.literal else 1 + S
        lam = max(1.0, eta * trials * X**2 / math.log(2)) if S > 1.762 else 1.0
        given |= {"literal": policy.literal, "subtract": policy.subtract, "trials": trials}
        return naive.one_pass.ECOLog(name, D, lam=policy.lam or lam, **given)
    M = {"probit": max(1.0, S)}.get(name, naive.families.CONCORDANCE.get(name, 1.0))
    lipschitz = math.exp(S) if name == "poisson" else slope(np.array(0.0))
    lam = D * X**2 / family.a_phi
    if policy.literal and M > 0:
        eta, a = 1 + M * S, family.a_phi
        lam = max(14 * D * eta * M**2 * X**2, 6 * eta * M * S * lipschitz * X**2 / a)
    given |= {"M": M, "a_phi": family.a_phi, "slope": lipschitz, "literal": policy.literal}
    return naive.one_pass.GLBOMD(name, D, lam=policy.lam or lam, **given)


def follow(policy, name, delay, rounds=70, X=1.0, theta_star=None, seed=3):
    """Play the bandit beside its twin; every decision, score and width must be the same."""
    family = FAMILIES[name]
    world = draw_world(UnitBall(7), D, rounds, seed, theta_star)
    bandit = Bandit(D, family=family, policy=policy, max_norm=X)
    twin, due = twin_of(policy, name, X), {}
    for t in range(rounds):
        actions = X * world.actions[t]
        scores = twin.scores(actions)
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(scores)
        assert decision.score == pytest.approx(scores.max(), rel=1e-7)
        assert bandit.radius == pytest.approx(twin.radius, rel=1e-7)
        x = actions[decision.index]
        y = float(reward_quantile(family, float(dot(x, world.theta_star)), world.luck[t]))
        when = arrival(t + 1, quantile(delay, world.lateness[t]))
        due.setdefault(when, []).append((decision.id, x, y))
        returned = due.pop(t + 1, [])
        if returned:
            bandit.learn([(id, y) for id, _, y in returned])
        for _, x, y in returned:
            twin.learn(x, y)
        assert bandit.theta == pytest.approx(twin.centre, abs=1e-9)
    return bandit, twin


CASES = [
    (GLOC(), "gaussian"),
    (GLOC(), "bernoulli"),
    (GLOC(lam=2.0, delta=0.2), "tanh"),
    (GLOC(), "probit"),
    (GLOC(R=1.3), "poisson"),
    (GLOC(m1=2.5), "bernoulli"),
    (AdaOFUECOLog(), "bernoulli"),
    (AdaOFUECOLog(subtract=True), "bounded"),
    (AdaOFUECOLog(), "binomial"),
    (AdaOFUECOLog(literal=True), "bernoulli"),
    (AdaOFUECOLog(m1=3.0, delta=0.2), "bernoulli"),
    (AdaOFUECOLog(m1=0.3, lam=0.1), "bernoulli"),
    (GLBOMD(), "gaussian"),
    (GLBOMD(lam=0.5), "bernoulli"),
    (GLBOMD(), "tanh"),
    (GLBOMD(delta=0.2), "poisson"),
    (GLBOMD(), "binomial"),
    (GLBOMD(literal=True), "bernoulli"),
    (GLBOMD(m1=0.2, lam=0.1), "bernoulli"),
]


@pytest.mark.parametrize(("policy", "name"), CASES, ids=str)
@pytest.mark.parametrize("delay", [Constant(0.0), Exponential(6.0)], ids=["undelayed", "late"])
def test_plays_like_the_slow_twin(policy, name, delay):
    """Without delay the algorithm of its paper; with delay the same, fed in order of arrival."""
    _, twin = follow(policy, name, delay)
    if policy.m1 <= 0.3:  # the ball binds: the nested root was needed
        norms = np.linalg.norm(twin.iterates, axis=1)
        assert (norms > policy.m1 * (1 - 1e-9)).sum() > 10


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (GLOC(m1=0.6), "bernoulli"),
        (AdaOFUECOLog(m1=1.5), "bernoulli"),
        (AdaOFUECOLog(literal=True, m1=0.6), "bernoulli"),
        (GLBOMD(literal=True), "bernoulli"),
        (GLBOMD(), "poisson"),
    ],
    ids=str,
)
def test_actions_may_be_longer_than_one(policy, name):
    follow(policy, name, Exponential(4.0), X=1.5, rounds=40)


# ---------------------------------------------------------------------------------- GLOC


@pytest.mark.parametrize("name", ["bernoulli", "gaussian"])
def test_gloc_as_its_section_asks(name):
    """sum z^2 - theta'sum z x >= 0, and every iterate lies in the ball, where it binds, too."""
    family = FAMILIES[name]
    world = draw_world(UnitBall(6), D, 150, 2)
    bandit = Bandit(D, family=family, policy=GLOC(m1=0.4))
    on_sphere = 0
    for t in range(150):
        decision = bandit.decide(world.actions[t])
        z = float(world.actions[t, decision.index] @ world.theta_star)
        bandit.learn(decision.id, float(reward_quantile(family, z, world.luck[t])))
        fit = bandit._state.fit
        norm = np.linalg.norm(fit.iterate)
        assert norm <= 0.4 * (1 + 1e-12)
        on_sphere += norm > 0.4 * (1 - 1e-9)
        assert fit.scalars[1] - bandit.theta @ fit.b >= -1e-12
        assert not np.allclose(fit.iterate, bandit.theta)  # the centre is another point
    assert on_sphere > 10


def test_gloc_of_gaussian_rewards_is_ridge_regression():
    """kappa = 1 and no ball in the way: the iterate is the ridge estimate, in any order."""
    bandit, X, y = fed(GLOC(m1=50.0, lam=0.7), Gaussian(0.5))
    ridge = np.linalg.solve(0.7 * np.eye(D) + X.T @ X, X.T @ y)
    assert bandit._state.fit.iterate == pytest.approx(ridge, abs=1e-9)


def test_gloc_width_before_any_reward():
    """B = 2 kappa lam m1^2: golden values."""
    gaussian = Bandit(D, family=Gaussian(), policy=GLOC()).radius
    assert gaussian**2 == pytest.approx(10 + 8 * math.log(40 * math.sqrt(1 + 4 + 1600)))
    assert gaussian == pytest.approx(8.3087034, abs=1e-6)
    logistic = Bandit(D, family=Bernoulli(), policy=GLOC()).radius
    assert logistic == pytest.approx(22.0974010, abs=1e-6)


# ---------------------------------------------------------------------- what the proofs rest on


def fed(policy, family, rounds=80, seed=0, order=None, d=D):
    """A bandit that played random vectors; their rewards come back in ``order``."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rounds, d))
    X *= (rng.random(rounds) ** 0.3 / np.linalg.norm(X, axis=1))[:, None]
    theta = np.full(d, 0.4)
    y = np.array([float(reward_quantile(family, float(x @ theta), rng.random())) for x in X])
    bandit = Bandit(d, family=family, policy=policy)
    for x in X:
        bandit.decide([x])
    for s in range(rounds) if order is None else order:
        bandit.learn(s + 1, y[s])
    return bandit, X, y


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (AdaOFUECOLog(m1=1.0), "bernoulli"),
        (AdaOFUECOLog(m1=4.0, lam=0.2), "bernoulli"),
        (AdaOFUECOLog(m1=2.0), "binomial"),
        (GLBOMD(m1=1.0, lam=0.5), "bernoulli"),
        (GLBOMD(m1=4.0, lam=0.2), "bernoulli"),
        (GLBOMD(m1=2.0, lam=1.0), "tanh"),
        (GLBOMD(m1=1.5, lam=1.0), "poisson"),
        (GLBOMD(), "gaussian"),
    ],
    ids=str,
)
def test_distance_shrinks_as_the_proof_says(policy, name):
    """radius^2 - 2 eta log(1/delta) bounds the distance to any theta of the ball, plus the losses:

    ||theta - any||_H^2 <= (what radius^2 counts) + 2 eta sum of (l(any) - l(predictable point)).
    """
    family, b = FAMILIES[name], naive.families.FAMILIES[name][2]
    rng = np.random.default_rng(5)
    anys = rng.standard_normal((40, D))
    anys *= (policy.m1 * rng.random(40) ** 0.2 / np.linalg.norm(anys, axis=1))[:, None]
    bandit, X, y = fed(policy, family, rounds=0)
    _, X, y = fed(policy, family)
    twin = twin_of(policy, name)
    eta, a, closest = twin.eta, family.a_phi, math.inf
    losses = np.zeros(len(anys))
    for t, (x, reward) in enumerate(zip(X, y, strict=True)):
        bandit.decide([x])
        if isinstance(policy, AdaOFUECOLog):
            at = x @ naive.estimators.proximal_point(
                twin.A / eta, twin.iterate, x, lambda z: 2 * twin.mu(z) - twin.trials, policy.m1
            )
        else:
            at = x @ twin.iterate
        losses += [(b(x @ v) - b(at) - reward * (x @ v - at)) / a for v in anys]
        bandit.learn(t + 1, reward)
        twin.learn(x, reward)
        H = bandit._state.fit.H
        distance = np.array([(bandit.theta - v) @ H @ (bandit.theta - v) for v in anys])
        room = bandit.radius**2 - 2 * eta * math.log(1 / policy.delta) + 2 * eta * losses - distance
        assert room.min() >= -1e-9
        closest = min(closest, (room / distance).min())
    assert closest < 2.0  # not trivially so


def test_eta_of_one_does_not_close_the_sum():
    """With eta = 1 a step of ECOLog may leave the true parameter farther away:

    ||new - any||_{H + mu' x x'}^2 > ||old - any||_H^2 + 2 (1 + S) (l(any) - l(new)).
    """
    S, x, H, y, old, truth = 3.0, 1.0, 10.0, 1.0, -3.0, 0.0

    def room(eta):
        (new,) = naive.estimators.proximal_point(
            np.array([[H / eta]]),
            np.array([old]),
            np.array([x]),
            lambda z: 1 / (1 + math.exp(-z)) - y,
            S,
        )
        p = 1 / (1 + math.exp(-new))
        weight = H + p * (1 - p)
        losses = math.log1p(math.exp(-truth)) - math.log1p(math.exp(-new))
        return H * (old - truth) ** 2 + 2 * (1 + S) * losses - weight * (new - truth) ** 2

    assert room(1.0) < -5.0
    assert room(1 + S) >= 0.0


# ------------------------------------------------------------------------------- ada-OFU-ECOLog


def test_ecolog_condition():
    """mu' at bar may exceed twice mu' at theta only for a long reach and a small ridge."""
    rounds = {"rounds": 60}
    failed = {
        (m1, lam): fed(AdaOFUECOLog(m1=m1, lam=lam), Bernoulli(), **rounds)[0]._state.fit.scalars[
            FAILED
        ]
        for m1, lam in ((8.0, 0.01), (8.0, None), (1.7, 0.01))
    }
    assert failed[8.0, 0.01] > 0
    assert failed[8.0, None] == failed[1.7, 0.01] == 0

    def slope(z):
        return math.exp(-z) / (1 + math.exp(-z)) ** 2

    assert slope(0.0) / slope(SAFE_BOUND) == pytest.approx(2.0)
    resolved = AdaOFUECOLog(m1=8.0).resolve(Binomial(3), D, 0.5)
    assert resolved.lam == pytest.approx(5 * 3 * 0.25 / math.log(2))
    assert AdaOFUECOLog(m1=1.76).resolve(Bernoulli(), D, 1.0).lam == 1.0


def test_ecolog_widths_before_any_reward():
    def start(**values):
        return Bandit(D, family=Bernoulli(), policy=AdaOFUECOLog(**values)).radius ** 2

    assert start() == pytest.approx(1 + 4 * math.log(20))
    assert start(subtract=True) == start()
    assert start(literal=True) == pytest.approx(2 + 4 * (0.5 + 2 * math.log(40)))


def test_ecolog_subtraction_narrows():
    plain, less = (fed(AdaOFUECOLog(subtract=s), Bernoulli())[0] for s in (False, True))
    assert np.array_equal(plain.theta, less.theta)
    assert 0.5 * plain.radius < less.radius < 0.95 * plain.radius


# --------------------------------------------------------------------------------------- GLB-OMD


def test_glb_omd_of_gaussian_rewards_is_ridge_regression():
    """M = 0, eta = 1: the surrogate is the loss. With lam sd^2 for a ridge, in any order."""
    for order in (None, np.random.default_rng(3).permutation(80)):
        bandit, X, y = fed(GLBOMD(m1=50.0, lam=2.0), Gaussian(0.5), order=order)
        ridge = np.linalg.solve(0.5 * np.eye(D) + X.T @ X, X.T @ y)
        assert bandit.theta == pytest.approx(ridge, abs=1e-9)
        assert pytest.approx(2.0 * np.eye(D) + 4 * X.T @ X) == bandit._state.fit.H


def test_glb_omd_constants():
    policy = GLBOMD(m1=2.0, literal=True).resolve(Tanh(), 5, 1.5)
    assert policy.eta == 1 + 2 * 3.0
    assert policy.lam == max(14 * 5 * 7 * 9, 6 * 7 * 2 * 3 * 2.25)
    assert GLBOMD().resolve(Gaussian(0.5), 5, 2.0).lam == 5 * 4 / 0.25
    start = Bandit(D, family=Bernoulli(), policy=GLBOMD()).radius ** 2
    assert start == pytest.approx(3 + 4 * math.log(20))


# ------------------------------------------------------------------------------- width and norm


@pytest.mark.parametrize("policy", [AdaOFUECOLog(), GLBOMD()], ids=repr)
def test_matrix_interval_and_choice_under_delay(policy):
    """H from the iterates it was weighted at, the interval and the choice from H."""
    bandit, twin = follow(policy, "bernoulli", Exponential(8.0))
    assert bandit.n_missing > 2
    fit = bandit._state.fit
    assert pytest.approx(twin.A, rel=1e-9) == fit.H
    assert np.allclose(fit.H_inv @ twin.A, np.eye(D), atol=1e-9)
    x = np.array([0.3, -0.2, 0.6])
    width = twin.radius * math.sqrt(x @ np.linalg.inv(twin.A) @ x)
    z = x @ bandit.theta
    expected = [1 / (1 + math.exp(-v)) for v in (z - width, z + width)]
    assert bandit.interval(x) == pytest.approx(expected)


def test_gloc_interval_under_delay():
    bandit, twin = follow(GLOC(), "gaussian", Exponential(8.0))
    x = np.array([0.3, -0.2, 0.6])
    half = twin.radius * math.sqrt(x @ np.linalg.inv(bandit.W) @ x)
    assert bandit.interval(x) == pytest.approx((x @ bandit.theta - half, x @ bandit.theta + half))
    assert pytest.approx(twin.A) == bandit.W


# ------------------------------------------------------------------------------ memory and order


def size(value):
    return sum(map(size, value)) if isinstance(value, tuple) else value.nbytes


@pytest.mark.parametrize("kind", ALL)
def test_memory_does_not_grow(kind):
    few, many = (fed(kind(), Bernoulli(), rounds=n)[0] for n in (1, 400))
    assert size(few._state) == size(many._state)
    assert many.certificate.passes == 0
    d, T = 10, 100_000
    policy = kind().resolve(Bernoulli(), d, 1.0)
    estimator = policy.estimator(Bernoulli(), d, 1.0)
    assert estimator.order_matters
    assert not looks_back(estimator)
    lanes = with_room(new_lanes(policy, estimator, d, 1, T, 1), 1000)
    assert lanes.history.x.shape[1] == 1000  # pending rows only
    assert size(lanes) < 8 * T  # of which due, the calendar, is half


@pytest.mark.parametrize("kind", ALL)
def test_order_of_arrival(kind):
    """The order of rewards matters, how they are bundled does not; W never depends on it."""
    straight, X, y = fed(kind(), Bernoulli())
    turned, _, _ = fed(kind(), Bernoulli(), order=range(79, -1, -1))
    assert np.allclose(straight.W, turned.W, rtol=1e-12)
    gap = np.abs(straight.theta - turned.theta).max()
    assert 1e-6 < gap < 1.0
    together = Bandit(D, family=Bernoulli(), policy=kind())
    for x in X:
        together.decide([x])
    together.learn([(s + 1, v) for s, v in enumerate(y)])
    state, other = straight._state, together._state
    assert np.array_equal(state.theta, other.theta)
    for name, value in state.fit._asdict().items():
        if name != "cap":  # a bound that is renewed after each bundle
            assert np.array_equal(value, getattr(other.fit, name)), name


# ---------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize(
    ("policy", "family"),
    [
        (GLOC(delta=0.1), Gaussian(0.5)),
        (AdaOFUECOLog(delta=0.1, subtract=True), Bounded()),
        (GLBOMD(delta=0.1, lam=0.5), Poisson()),
    ],
    ids=str,
)
def test_coverage_of_a_few_runs(policy, family):
    failed = 0
    for seed in range(20):
        world = draw_world(UnitBall(5), 2, 60, seed)
        run = play(Bandit(2, family=family, policy=policy), world, Exponential(6.0))
        failed += not run.covered.all()
    assert failed <= 2


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize(
    "policy",
    [
        GLOC(delta=0.2),
        AdaOFUECOLog(delta=0.2, subtract=True),
        GLBOMD(delta=0.2, lam=0.5),
        AdaOFUECOLog(delta=0.2, literal=True),
        GLBOMD(delta=0.2, literal=True),
    ],
    ids=repr,
)
def test_coverage(policy):
    """theta_star on the edge of the ball, late rewards: the set fails in far fewer than delta."""
    runs, horizon, failed = 300, 300, 0
    angles = np.random.default_rng(0).uniform(0, 2 * math.pi, runs)
    lane = Lane(policy, Bernoulli(), Exponential(20.0))
    for run, angle in enumerate(angles):
        star = np.array([math.cos(angle), math.sin(angle)])
        settings = WorldSettings(
            UnitBall(5), 2, horizon, run, 9, np.array([horizon]), (lane,), theta_star=star
        )
        failed += play_world(settings)[0, -1, RECORD.index("failures")] > 0
    assert failed <= 0.2 * runs


# ----------------------------------------------------------------------- refusals, bad parameters


def test_which_families_are_refused():
    for name, family in FAMILIES.items():
        logistic = name in ("bernoulli", "bounded", "binomial")
        assert is_logistic(family) is logistic
        assert is_quasi(family) is (name == "probit")
        if not logistic:
            with pytest.raises(ValueError, match=r"family = .*AdaOFUECOLog needs .* logistic mean"):
                Bandit(2, family=family, policy=AdaOFUECOLog())
    with pytest.raises(ValueError, match=r"family = Probit.*GLBOMD needs an exponential family"):
        Bandit(2, family=Probit(), policy=GLBOMD())
    with pytest.raises(ValueError, match="GLOC has no width for them"):
        Bandit(2, family=Poisson(), policy=GLOC())


@pytest.mark.parametrize("kind", ALL)
def test_bad_parameters(kind):
    for field in ("m1", "lam"):
        for bad in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match=rf"{field} = {bad}: expected"):
                kind(**{field: bad})
    for bad in (0.0, 1.0):
        with pytest.raises(ValueError, match=rf"delta = {bad}: expected"):
            kind(delta=bad)
    with pytest.raises(TypeError, match="m1 = '1': expected"):
        kind(m1="1")
    with pytest.raises(ValueError, match=r"lam = 1e-30: expected a number from 1e-09 to 1e100"):
        kind(lam=1e-30).resolve(Bernoulli(), 2, 1.0)
    if kind is not GLOC:
        with pytest.raises(TypeError, match="literal = 1: expected True or False"):
            kind(literal=1)


def test_bad_parameters_of_one():
    with pytest.raises(ValueError, match=r"kappa = 0\.5: expected at most 0\.196"):
        GLOC(kappa=0.5).resolve(Bernoulli(), 2, 1.0)
    with pytest.raises(ValueError, match=r"R = -1\.0: expected"):
        GLOC(R=-1.0)
    with pytest.raises(ValueError, match="literal = True, subtract = True: expected one of them"):
        AdaOFUECOLog(literal=True, subtract=True)
    with pytest.raises(ValueError, match=r"m1 = 1000\.0: expected a bound at which the slope of"):
        GLBOMD(m1=1000.0).resolve(Tanh(), 2, 1.0)


@pytest.mark.parametrize(
    ("policy", "family", "rewards"),
    [
        (GLOC(), Gaussian(max_reward=1e100), (1e100, -1e100, 0.3)),
        (GLBOMD(), Gaussian(max_reward=1e100), (1e100, -1e100, 0.3)),
        (GLBOMD(m1=5.0), Poisson(max_reward=1e15), (0.0, 1e15, 3.0)),
        (GLOC(m1=25.0), Bernoulli(), (1.0, 0.0)),
        (AdaOFUECOLog(m1=300.0, lam=1e-9), Bernoulli(), (1.0, 0.0, 0.0)),
        (AdaOFUECOLog(m1=1e-6), Bernoulli(), (1.0,)),
    ],
    ids=str,
)
def test_extreme_numbers_stay_numbers(policy, family, rewards):
    rng = np.random.default_rng(0)
    bandit = Bandit(D, family=family, policy=policy)
    for t in range(40):
        actions = rng.standard_normal((4, D))
        actions /= np.linalg.norm(actions, axis=1).max() * (1 + 1e-12)
        bandit.learn(bandit.decide(actions).id, rewards[t % len(rewards)])
        fit = bandit._state.fit
        iterate = getattr(fit, "iterate", bandit.theta)
        assert np.linalg.norm(iterate) <= policy.m1 * (1 + 1e-12)
        assert np.isfinite(bandit.theta).all()
        assert math.isfinite(bandit.radius)


@pytest.mark.parametrize("kind", ALL)
def test_ties_go_to_the_lowest_row(kind):
    arms = np.random.default_rng(1).uniform(-0.5, 0.5, (20, 3))
    bandit = Bandit(3, family=Bernoulli(), policy=kind())
    for t in range(60):
        decision = bandit.decide(np.concatenate([arms, arms]))
        assert decision.index < 20
        if t % 3:
            bandit.learn(decision.id, float(t % 2))


@pytest.mark.parametrize("kind", ALL)
def test_learning_pays(kind):
    """The second half of a run costs less than half of what the first did."""
    world = draw_world(UnitBall(5), 2, 400, 4, np.array([0.9, 0.3]))
    family = Bernoulli() if kind is AdaOFUECOLog else Gaussian(0.2)
    run = play(Bandit(2, family=family, policy=kind()), world, Exponential(5.0))
    assert run.regret[-1] < 1.5 * run.regret[200]
