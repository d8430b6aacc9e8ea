"""Only conversions return: policies for that, delays that depend on the action, and their model."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import naive
from belated import Bandit, Bernoulli, Gaussian, checks, registry, simulate
from belated.engine import (
    RECORD,
    Lane,
    OwnPlayer,
    WorldSettings,
    draw_world,
    play,
    play_world,
    seed_of_run,
)
from belated.policies import DelayedOFUGLM, Greedy, OTFLinTS, OTFLinUCB, UniformPlay
from belated.worlds.delays import (
    Constant,
    Exponential,
    Geometric,
    Hazard,
    Informative,
    Never,
    expected_missing,
    is_known_in_advance,
    quantile,
    sample,
)
from belated.worlds.dfm import dfm_loss, draw_dfm_log, fit_dfm
from belated.worlds.environments import FixedArms, UnitBall
from belated.worlds.feedback import Conversions, Identified, feedback_for

COLUMN = {name: i for i, name in enumerate(RECORD)}
T, D, K = 150, 3, 9
LATE = Exponential(4.0)


def bandit_of(policy, dim=D, seed=4):
    return Bandit(dim, family=Bernoulli(), policy=policy, seed=seed)


def played(policy, delay=LATE, rounds=T, seed=2, environment=None, theta_star=None):
    dim = D if theta_star is None else len(theta_star)
    world = draw_world(environment or UnitBall(K), dim, rounds, seed, theta_star)
    bandit = bandit_of(policy, dim)
    return bandit, play(bandit, world, delay, feedback=feedback_for(policy)), world


# ------------------------------------------------------------------------------ OTFLinUCB, OTFLinTS


def transcribed(twin, world, delay, choose):
    """Rows that ``choose`` plays from the twin's formulas, conversions handed over when due."""
    due, rows = {}, []
    for t, actions in enumerate(world.actions):
        k = choose(actions)
        rows.append(k)
        twin.play(actions[k])
        p = 1 / (1 + math.exp(-(actions[k] @ world.theta_star)))
        late = math.ceil(quantile(delay, world.lateness[t]))
        if world.luck[t] > 1 - p and late <= twin.m:
            due.setdefault(t + late, []).append(t)
        twin.converted |= set(due.pop(t, []))
    return rows


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("delay", "window"), [(Constant(0.0), 0), (Constant(0.0), 7), (LATE, 0), (LATE, 7), (LATE, 40)]
)
def test_otf_lin_ucb_plays_its_formula(delay, window, exact):
    """Round by round, with and without delay, against everything computed from the definitions."""
    policy = OTFLinUCB(window=window, delta=0.1, lam=0.7, exact=exact)
    bandit, run, world = played(policy, delay)
    twin = naive.OTFLin(D, window=window, delta=0.1, lam=0.7, stale=not exact)
    rows = transcribed(twin, world, delay, lambda actions: int(np.argmax(twin.scores(actions))))
    assert np.array_equal(run.index, rows)
    assert bandit.theta == pytest.approx(twin.theta, abs=1e-12)
    assert pytest.approx(bandit.V) == bandit._state.memory.V
    assert bool(twin.converted) == (window > 0 or delay == Constant(0.0))
    decision = bandit.decide(world.actions[0])
    scores = twin.scores(world.actions[0])
    assert decision.score == pytest.approx(scores.max())
    assert decision.width == pytest.approx(scores.max() - decision.estimate)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("delay", "window"), [(Constant(0.0), 0), (LATE, 7)])
def test_otf_lin_ts_plays_its_formula(delay, window, exact):
    """The same draws: theta + scale sqrt(beta) U^-1 z, with V = U'U."""
    _, run, world = played(OTFLinTS(window=window, scale=0.3, exact=exact), delay)
    twin = naive.OTFLin(D, window=window, stale=not exact)
    rng = np.random.Generator(np.random.PCG64(4))

    def choose(actions):
        return int(np.argmax(actions @ twin.draw(rng.standard_normal(D), 0.3)))

    assert np.array_equal(run.index, transcribed(twin, world, delay, choose))


def test_otf_without_delay_or_window_is_linucb_on_all_data():
    """E.1: D = 0, m = 0. Ridge regression on all rewards, width 2 f, nothing waited for."""
    world = draw_world(UnitBall(K), D, T, 3)
    bandit = bandit_of(OTFLinUCB(window=0, delta=0.1))
    X, y = np.zeros((0, D)), np.zeros(0)
    for t, actions in enumerate(world.actions):
        V_inv = np.linalg.inv(np.eye(D) + X.T @ X)
        f = 1 + math.sqrt(2 * math.log(10) + D * math.log(1 + (t + 1) / D))
        scores = actions @ V_inv @ X.T @ y + 2 * f * np.sqrt(((actions @ V_inv) * actions).sum(1))
        decision = bandit.decide(actions)
        assert decision.index == np.argmax(scores)
        X = np.vstack([X, actions[decision.index]])
        y = np.append(y, float(world.luck[t] < 0.5))
        if y[-1]:
            bandit.learn(decision.id, 1.0)


def test_golden_width_of_the_first_round():
    """2 (1 + sqrt(2 log 20 + 2 log(3 / 2))) for d = 2, lam = 1, delta = 0.05; the draw has 1."""
    decision = bandit_of(OTFLinUCB(window=5), 2).decide([[1.0, 0.0]])
    assert decision.width == pytest.approx(7.21628, abs=1e-5)
    scores = [
        bandit_of(OTFLinTS(window=5), 2, seed).decide([[1.0, 0.0]]).score for seed in range(400)
    ]
    assert abs(np.std(scores) - 1) < 5 / math.sqrt(800)


def test_draws_have_the_covariance_of_the_formula():
    """Algorithm 2: the variance of x'theta~ is beta x'V^-1 x for every x, beta = 1 + B / f."""
    bandit, _, _ = played(OTFLinTS(window=6, exact=True), rounds=60)
    twin = naive.OTFLin(D, window=6)
    for x in bandit._history.x[:60]:
        twin.play(x)
    sd = math.sqrt(1 + twin.bias() / twin.f())
    assert 1 < sd < 1.5
    state = bandit._state
    for x in np.eye(D) + 0.3:
        draws = []
        for seed in range(1500):
            options = checks.decision_set(x[np.newaxis])
            rng = np.random.Generator(np.random.PCG64(seed))
            draws.append(checks.choose(bandit.policy, state, options, rng)[1])
        expected = sd * math.sqrt(x @ np.linalg.inv(bandit.V) @ x)
        assert abs(np.mean(draws) - x @ bandit.theta) < 5 * expected / math.sqrt(1500)
        assert abs(np.std(draws) / expected - 1) < 5 / math.sqrt(3000)


def test_no_scale_is_greedy():
    bandit, _, world = played(OTFLinTS(window=9, scale=0.0))
    for actions in world.actions[:20]:
        values = actions @ bandit.theta
        assert bandit.decide(actions).index == np.argmax(values)


@pytest.mark.parametrize("window", [1, 6, 40, 400])
def test_stale_norms_are_upper_bounds(window):
    """Never below the exact sum, and never far above it."""
    bandit, _, _ = played(OTFLinUCB(window=window), rounds=300)
    V_inv, recent = np.linalg.inv(bandit.V), bandit._history.x[:300][-window:]
    exact = np.sqrt(((recent @ V_inv) * recent).sum(1)).sum()
    kept = bandit._state.memory.scalars[0]
    assert exact * (1 - 1e-12) <= kept <= 1.1 * exact
    memory = bandit._state.memory
    assert kept == pytest.approx(memory.norms.sum())


ONE_HOT, THETA_STAR = FixedArms(np.eye(3)), np.array([1.0, -0.5, -2.0])


def test_estimate_is_the_share_within_the_window():
    """theta estimates tau_m mu(theta_star): ridge, censoring and all, within five errors."""
    window, n = 5, 1500
    bandit, _, _ = played(
        OTFLinUCB(window=window), rounds=n, environment=ONE_HOT, theta_star=THETA_STAR
    )
    tau = 1 - LATE.survival(window)
    pulls = np.diag(bandit.V) - 1
    p = tau / (1 + np.exp(-THETA_STAR))
    error = 5 * np.sqrt(p * (1 - p) / pulls) + (1 + window) / pulls
    assert (abs(bandit.theta - p) < error).all()
    assert (pulls > 100).all()
    assert (abs(bandit.theta - p / tau) > error).any()


def test_the_width_of_the_paper_holds():
    """||theta - tau_m theta_star||_V <= 2 f + B now and then: E.1, probability 1 - 2 delta."""
    window, failures = 4, 0
    p = (1 - LATE.survival(window)) / (1 + np.exp(-THETA_STAR))
    for seed in range(20):
        policy = OTFLinUCB(window=window, delta=0.2)
        world = draw_world(ONE_HOT, 3, 60, seed, THETA_STAR)
        bandit = bandit_of(policy)
        twin = naive.OTFLin(3, window=window, delta=0.2)
        for t in range(0, 60, 12):
            bandit = bandit_of(policy)
            part = world._replace(
                actions=world.actions[: t + 12],
                luck=world.luck[: t + 12],
                lateness=world.lateness[: t + 12],
            )
            play(bandit, part, LATE, feedback=Conversions(window))
            twin.x = []
            for x in bandit._history.x[: t + 12]:
                twin.play(x)
            error = bandit.theta - p
            failures += math.sqrt(error @ bandit.V @ error) > 2 * twin.f() + twin.bias()
    assert failures == 0


def test_otf_beats_uniform():
    """On one-hot arms, where the linear model is exact; paired, on the same worlds."""
    for policy in (OTFLinUCB(window=8, width_scale=0.3), OTFLinTS(window=8)):
        final = []
        for kind in (policy, UniformPlay()):
            world = draw_world(ONE_HOT, 3, 1200, 1, THETA_STAR)
            final.append(play(bandit_of(kind), world, LATE, feedback=Conversions(8)).regret[-1])
        assert final[0] < 0.5 * final[1]


def test_otf_lin_ts_is_far_from_uniform_at_its_defaults():
    """Widths of f + B, a misreading of Algorithm 2, lost as much as uniform play here."""
    world = draw_world(ONE_HOT, 3, 1200, 1, THETA_STAR)
    regret = [
        play(bandit_of(policy), world, LATE, feedback=Conversions(30)).regret[-1]
        for policy in (OTFLinTS(window=30), UniformPlay())
    ]
    assert regret[0] < 0.25 * regret[1]


@pytest.mark.parametrize(("window", "mean", "share"), [(100, 100, 0.63), (500, 100, 0.993)])
def test_shares_that_the_paper_prints(window, mean, share):
    """tau_m of Section 8; for (100, 500) it prints 1 / tau_m = 5.5."""
    assert 1 - Geometric(mean).survival(window) == pytest.approx(share, abs=0.005)
    assert 1 / (1 - Geometric(500).survival(100)) == pytest.approx(5.5, abs=0.05)


def regret_in_figure_1(policy, rounds=3000, d=5, K=10, mean=100):
    """Section 8: theta_star = 1 / sqrt(d), actions from {0, 1}^d normalised, geometric delays."""
    rng, theta_star = np.random.default_rng(1), np.full(d, 1 / math.sqrt(d))
    bandit, due, regret = bandit_of(policy, d), {}, 0.0
    for t in range(rounds):
        actions = rng.integers(0, 2, (K, d)) + 0.0
        actions = actions[actions.any(1)]
        actions /= np.linalg.norm(actions, axis=1, keepdims=True) * (1 + 1e-12)
        decision, means = bandit.decide(actions), actions @ theta_star
        regret += means.max() - means[decision.index]
        late = rng.geometric(1 / mean)
        if rng.random() < means[decision.index] and late <= policy.window:
            due.setdefault(t + late, []).append((decision.id, 1.0))
        if t in due:
            bandit.learn(due.pop(t))
    return regret


def test_figure_1_of_the_paper():
    """Printed, m = mean = 100: some 155 (OTFLinTS) and 100 (OTFLinUCB) after 3000 rounds.

    As printed OTFLinTS has 1.5 times that. OTFLinUCB cannot have been played with the printed
    width: it has seven times that, more than uniform play (615).
    """
    assert 155 < regret_in_figure_1(OTFLinTS(window=100)) < 2 * 155
    assert regret_in_figure_1(OTFLinUCB(window=100)) > 615


def test_a_zero_is_no_news():
    """Nobody has to report a zero; who does changes nothing."""
    silent, told = (played(OTFLinUCB(window=9))[0] for _ in range(2))
    missing = np.flatnonzero(np.isnan(told._history.y[:T]))
    assert told.learn([(int(s) + 1, 0.0) for s in missing]) == len(missing) > 10
    assert np.array_equal(silent.theta, told.theta)
    assert told.decide(np.eye(D)) == silent.decide(np.eye(D))


def test_no_set_is_claimed():
    for kind in (OTFLinUCB, OTFLinTS):
        bandit, run, _ = played(kind(window=3), rounds=20)
        assert not run.covered.any()
        with pytest.raises(TypeError, match="has no confidence set"):
            bandit.radius  # noqa: B018


@pytest.mark.parametrize("kind", [OTFLinUCB, OTFLinTS])
def test_window_is_that_of_the_feedback(kind):
    def world(policy, feedback):
        lanes = (Lane(policy, Bernoulli(), LATE),)
        return WorldSettings(UnitBall(K), 2, 40, 0, 3, np.array([40]), lanes, feedback=feedback)

    told = play_world(world(kind(window=6), Conversions(6.0)))
    for window in (6.0, 6.9):  # delays are whole rounds
        filled = play_world(world(kind(), Conversions(window)))
        assert np.array_equal(told, filled, equal_nan=True)
    other = play_world(world(kind(), Conversions(2.0)))
    assert not np.array_equal(told, other, equal_nan=True)
    message = r"window = 6: expected 7 as in the feedback, or None"
    with pytest.raises(ValueError, match=message):
        play_world(world(kind(window=6), Conversions(7.0)))
    with pytest.raises(ValueError, match=message):
        simulate([kind(window=6)], ["bernoulli"], feedback="conversions:window=7", runs=1)
    with pytest.raises(ValueError, match=message):
        play(
            bandit_of(kind(window=6)),
            draw_world(UnitBall(K), D, 3, 1),
            LATE,
            feedback=Conversions(7),
        )
    with pytest.raises(
        ValueError, match=r"window = inf: expected a finite number of rounds, which"
    ):
        simulate([kind()], ["bernoulli"], feedback="conversions", runs=1)
    with pytest.raises(
        ValueError, match=f"window = None: expected a finite.*{kind.__name__} needs"
    ):
        bandit_of(kind())
    with pytest.raises(ValueError, match=f"{kind.__name__} learns from conversions feedback"):
        play_world(world(kind(window=6), Identified()))
    assert feedback_for(kind(window=6)) == Conversions(6.0)
    assert feedback_for(kind(window=0)) == Conversions(0.0)
    assert feedback_for(kind()) == Conversions()


def test_bad_parameters():
    for make, message in [
        (lambda: OTFLinUCB(window=-1), r"window = -1: expected a whole number, 0 or more"),
        (lambda: OTFLinUCB(window=2.5), r"window = 2\.5: expected a whole number"),
        (lambda: OTFLinUCB(delta=1.0), r"delta = 1\.0: expected"),
        (lambda: OTFLinUCB(lam=0.0), r"lam = 0\.0: expected"),
        (lambda: OTFLinUCB(width_scale=0.0), r"width_scale = 0\.0: expected"),
        (lambda: OTFLinUCB(exact=1), r"exact = 1: expected True or False"),
        (lambda: OTFLinTS(scale=-1.0), r"scale = -1\.0: expected"),
        (lambda: bandit_of(OTFLinTS(window=3, lam=1e-12)), r"lam = 1e-12: expected a number from"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            make()
    for kind in (OTFLinUCB, OTFLinTS):
        with pytest.raises(ValueError, match=rf"{kind.__name__} learns from rewards of 0 or 1"):
            Bandit(2, family=Gaussian(), policy=kind(window=3))


def test_longer_actions_widen_the_noise():
    """f counts squared norms: log(1 + t X^2 / (d lam))."""
    bandit = Bandit(2, family=Bernoulli(), policy=OTFLinUCB(window=3), max_norm=3.0)
    width = 2 * (1 + math.sqrt(2 * math.log(20) + 2 * math.log(1 + 9 / 2)))
    assert bandit.decide([[1.0, 0.0]]).width == pytest.approx(width)


# ------------------------------------------------------------- delays that depend on the action

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


# ------------------------------------------------------------------------ delayed feedback model

W_C, W_D = np.array([-0.5, 1.0, -0.7]), np.array([-0.5, 0.8, 0.3])
RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(300), RNG.uniform(-1, 1, (300, 2))])
LOG = draw_dfm_log(X, W_C, W_D, RNG.uniform(0, 5, 300), seed=3)


def test_loss_is_the_formula():
    value, _, _ = dfm_loss(*LOG, W_C, W_D)
    assert value == pytest.approx(naive.dfm_loss(*LOG, W_C, W_D), rel=1e-12)
    penalised, _, _ = dfm_loss(*LOG, W_C, W_D, conversion_penalty=2.0, delay_penalty=3.0)
    assert penalised == pytest.approx(value + W_C @ W_C + 1.5 * W_D @ W_D)


def test_gradients_are_finite_differences():
    for w_c, w_d in [(W_C, W_D), (np.zeros(3), np.ones(3)), (3 * W_D, -W_C)]:
        _, for_conversion, for_delay = dfm_loss(
            *LOG, w_c, w_d, conversion_penalty=0.5, delay_penalty=2.0
        )

        def loss(w, w_c=w_c, w_d=w_d):
            penalty = 0.25 * w[:3] @ w[:3] + w[3:] @ w[3:]
            return naive.dfm_loss(*LOG, w[:3], w[3:]) + penalty

        w, h = np.concatenate([w_c, w_d]), 1e-5
        differences = [(loss(w + h * e) - loss(w - h * e)) / (2 * h) for e in np.eye(6)]
        assert np.concatenate([for_conversion, for_delay]) == pytest.approx(
            differences, rel=1e-6, abs=1e-5
        )


def logistic_loss(w_c):
    z = LOG.x @ w_c
    return (np.logaddexp(0.0, z) - LOG.converted * z).sum()


@pytest.mark.parametrize("elapsed", [1e6, math.inf])
def test_old_decisions_give_the_logistic_loss(elapsed):
    """E -> infinity: what has not converted never will. Fitting is logistic regression then."""
    from sklearn.linear_model import LogisticRegression

    delays = np.where(LOG.converted, LOG.time, elapsed)
    value, for_conversion, for_delay = dfm_loss(LOG.x, LOG.converted, delays, W_C, W_D)
    waited, seen = np.exp(LOG.x @ W_D) * LOG.time, LOG.converted
    assert value == pytest.approx(logistic_loss(W_C) - (LOG.x @ W_D - waited)[seen].sum())
    assert for_delay == pytest.approx(LOG.x[seen].T @ (waited[seen] - 1.0))
    p = 1 / (1 + np.exp(-LOG.x @ W_C))
    assert for_conversion == pytest.approx(LOG.x.T @ (p - LOG.converted))
    model = fit_dfm(LOG.x, LOG.converted, delays, conversion_penalty=2.0)
    reference = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000)
    reference.fit(LOG.x, LOG.converted)
    assert model.conversion_weights == pytest.approx(reference.coef_[0], abs=1e-5)
    assert model.converged


def test_great_hazards_give_immediate_feedback():
    """Hazard -> infinity: whoever converts has converted; the loss is the logistic one again."""
    at_once = np.where(LOG.converted, 0.0, LOG.time + 0.01)
    value, for_conversion, _ = dfm_loss(LOG.x, LOG.converted, at_once, W_C, [30.0, 0.0, 0.0])
    assert value + 30.0 * LOG.converted.sum() == pytest.approx(logistic_loss(W_C))
    p = 1 / (1 + np.exp(-LOG.x @ W_C))
    assert for_conversion == pytest.approx(LOG.x.T @ (p - LOG.converted))


def test_delays_of_conversions_are_an_exponential_regression():
    """All converted: counts of one with exposure D, the Poisson regression of statsmodels."""
    import statsmodels.api as sm

    n = 200
    delays = np.random.default_rng(2).standard_exponential(n) * np.exp(-X[:n] @ W_D)
    model = fit_dfm(X[:n], np.ones(n), delays, delay_penalty=1e-9)
    poisson = sm.GLM(np.ones(n), X[:n], family=sm.families.Poisson(), exposure=delays).fit(
        tol=1e-12
    )
    assert model.delay_weights == pytest.approx(poisson.params, abs=1e-6)
    assert np.sqrt(np.diag(model.covariance))[3:] == pytest.approx(poisson.bse, rel=1e-5)


def test_em_finds_what_a_general_optimiser_finds():
    penalties = {"conversion_penalty": 0.5, "delay_penalty": 0.2}
    model = fit_dfm(*LOG, **penalties)

    def loss(w):
        return naive.dfm_loss(*LOG, w[:3], w[3:]) + 0.25 * w[:3] @ w[:3] + 0.1 * w[3:] @ w[3:]

    best = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-4})
    assert np.concatenate([model.conversion_weights, model.delay_weights]) == pytest.approx(
        best.x, abs=1e-4
    )
    assert model.converged
    assert -model.objective[-1] == pytest.approx(best.fun, rel=1e-9)
    unpenalised = naive.dfm_loss(*LOG, model.conversion_weights, model.delay_weights)
    assert model.log_likelihood == pytest.approx(-unpenalised)
    _, for_conversion, for_delay = dfm_loss(
        *LOG, model.conversion_weights, model.delay_weights, **penalties
    )
    assert np.abs([for_conversion, for_delay]).max() <= 1e-8 * 300


@pytest.mark.parametrize("seed", range(5))
def test_em_never_goes_down(seed):
    rng = np.random.default_rng(seed)
    n, d = 60, 4
    x = rng.standard_normal((n, d)) * rng.choice([0.1, 1.0, 5.0])
    log = draw_dfm_log(
        x, rng.standard_normal(d), rng.standard_normal(d), rng.choice([0.3, 3.0]), seed=seed
    )
    model = fit_dfm(*log, conversion_penalty=0.1, delay_penalty=0.1, max_iterations=60)
    assert model.iterations == len(model.objective) - 1 > 3
    assert (np.diff(model.objective) >= -1e-10 * np.abs(model.objective[1:])).all()


def test_information_is_the_slope_of_the_gradient():
    model = fit_dfm(*LOG, conversion_penalty=0.5, delay_penalty=0.2)
    w, h, columns = np.concatenate([model.conversion_weights, model.delay_weights]), 1e-6, []
    for e in np.eye(6):
        up, down = (
            np.concatenate(
                dfm_loss(*LOG, v[:3], v[3:], conversion_penalty=0.5, delay_penalty=0.2)[1:]
            )
            for v in (w + h * e, w - h * e)
        )
        columns.append((up - down) / (2 * h))
    assert model.covariance @ np.array(columns) == pytest.approx(np.eye(6), abs=1e-5)


def test_weights_are_recovered():
    """Within four of its own standard errors; the naive rate is far outside."""
    rng = np.random.default_rng(5)
    n = 8000
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
    log = draw_dfm_log(x, W_C, W_D, rng.uniform(0, 5, n), seed=6)
    model = fit_dfm(*log, conversion_penalty=1e-3, delay_penalty=1e-3)
    errors = np.sqrt(np.diag(model.covariance))
    estimates = np.concatenate([model.conversion_weights, model.delay_weights])
    assert (np.abs(estimates - np.concatenate([W_C, W_D])) < 4 * errors).all()
    assert (errors < 0.2).all()
    p = 1 / (1 + np.exp(-x @ W_C))
    assert abs(model.predict(x).mean() - p.mean()) < 0.03 < p.mean() - log.converted.mean()


def test_predictions():
    model = fit_dfm(*LOG)
    p = 1 / (1 + np.exp(-X @ model.conversion_weights))
    hazard = np.exp(X @ model.delay_weights)
    assert model.predict(X) == pytest.approx(p)
    assert model.predict_within(X, 2.0) == pytest.approx(p * (1 - np.exp(-2.0 * hazard)))
    assert model.predict_within(X, math.inf) == pytest.approx(p)
    assert model.mean_delay(X) == pytest.approx(1 / hazard)
    early = fit_dfm(*LOG, max_iterations=1)
    assert early.iterations == 1
    assert not early.converged


def test_a_drawn_log_has_the_laws_of_the_model():
    n = 20_000
    x = np.tile([1.0, 0.5], (n, 1))
    log = draw_dfm_log(x, [0.2, 0.4], [-0.3, 0.2], 1.5, seed=1)
    p, hazard = 1 / (1 + math.exp(-0.4)), math.exp(-0.2)
    seen = p * (1 - math.exp(-hazard * 1.5))
    assert abs(log.converted.mean() - seen) < 5 * math.sqrt(seen / n)
    assert (log.time[~log.converted] == 1.5).all()
    assert (log.time[log.converted] < 1.5).all()
    median = -math.log(1 - (1 - math.exp(-hazard * 1.5)) / 2) / hazard
    assert abs(np.mean(log.time[log.converted] < median) - 0.5) < 5 / math.sqrt(4 * seen * n)


def test_a_simulated_bandit_makes_a_log_of_the_model():
    """Bernoulli rewards with Hazard delays are the model: its weights come back from a run."""
    n, theta_star, weights = 1500, np.array([0.9, -0.4]), np.array([-1.0, 0.8])
    bandit, run, world = played_uniform(n, theta_star, Hazard(weights))
    delay = -np.log1p(-world.lateness) / np.exp(bandit._history.x[:n] @ weights)
    age = n - np.arange(n)
    seen = (run.reward == 1.0) & (delay <= age)
    model = fit_dfm(bandit._history.x[:n], seen, np.where(seen, delay, age), conversion_penalty=0.1)
    errors = np.sqrt(np.diag(model.covariance))
    estimates = np.concatenate([model.conversion_weights, model.delay_weights])
    assert (np.abs(estimates - np.concatenate([theta_star, weights])) < 4 * errors).all()
    assert (errors < 0.5).all()


def played_uniform(n, theta_star, delay):
    world = draw_world(UnitBall(4), 2, n, 8, theta_star)
    bandit = Bandit(2, family=Bernoulli(), policy=UniformPlay(), seed=1)
    return bandit, play(bandit, world, delay, feedback=Conversions()), world


def test_dfm_bad_input():
    good = (X[:4], [1, 0, 0, 1], [1.0, 2.0, math.inf, 0.0])
    fit_dfm(*good)
    for change, message in [
        ({0: X[0]}, r"x has shape \(3,\): expected \(n, d\)"),
        ({0: X[:0]}, r"x has shape \(0, 3\)"),
        ({0: X[:4] * math.nan}, r"x = .*nan.*: expected finite numbers"),
        ({1: [1, 0, 0]}, r"converted has shape \(3,\): expected \(4,\)"),
        ({1: [1, 0, 0, 2]}, r"converted = .*2.*: expected True or False"),
        ({2: [1.0, 2.0]}, r"time has shape \(2,\): expected \(4,\)"),
        ({2: [1.0, -2.0, 0.0, 0.0]}, r"time = .*-2.*: expected numbers, 0 or more"),
        ({2: [1.0, math.nan, 0.0, 0.0]}, r"time = .*nan.*: expected numbers, 0 or more"),
        ({2: [math.inf, 2.0, 0.0, 0.0]}, r"time = inf: expected a finite delay where converted"),
    ]:
        arguments = [change.get(i, value) for i, value in enumerate(good)]
        with pytest.raises(ValueError, match=message):
            fit_dfm(*arguments)
    for name, value in [
        ("conversion_penalty", 0.0),
        ("delay_penalty", -1.0),
        ("tol", math.nan),
        ("max_iterations", 0),
    ]:
        with pytest.raises(ValueError, match=f"{name} = {value}: expected"):
            fit_dfm(*good, **{name: value})
    with pytest.raises(ValueError, match=r"delay_weights = .*expected 3 finite numbers"):
        dfm_loss(*good, W_C, W_D[:2])
    with pytest.raises(ValueError, match=r"elapsed = .*-1.*expected numbers, 0 or more"):
        draw_dfm_log(X, W_C, W_D, -1.0, seed=1)
    with pytest.raises(ValueError, match=r"x has shape \(4, 2\): expected \(n, 3\)"):
        fit_dfm(*good).predict(X[:4, :2])


def test_extremes_do_not_overflow():
    """Hazards beyond the range of numbers, and a log in which nothing has converted."""
    value, for_conversion, for_delay = dfm_loss(*LOG, 1e3 * W_C, [-1e3, 0.0, 0.0])
    assert math.isfinite(value)
    assert np.isfinite([for_conversion, for_delay]).all()
    nothing = fit_dfm(X, np.zeros(300), np.full(300, 1e8))
    assert (nothing.predict(X) < 0.2).all()
    assert nothing.converged


def test_names_in_the_registry():
    assert registry.parse(registry.POLICIES, "otf-lin-ucb:window=30") == OTFLinUCB(window=30)
    assert registry.parse(registry.POLICIES, "otf-lin-ts:window=30,scale=0.5").scale == 0.5
