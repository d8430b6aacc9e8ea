"""What every policy, family and delay must satisfy: for ours, and for yours.

``check_policy``, ``check_family`` and ``check_delay`` run everything that applies and raise
``AssertionError`` at the first violation. ``POLICY_CHECKS`` and its siblings list the single
checks, so that a test runner can show each as a test of its own.

>>> from belated import Bernoulli, DelayedOFUGLM
>>> from belated.worlds.delays import Exponential
>>> check_delay(Exponential(10.0))
>>> check_family(Bernoulli())
>>> check_policy(DelayedOFUGLM(), Bernoulli())
"""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from belated.bandit import Bandit
from belated.engine import (
    RECORD,
    Lane,
    OwnPlayer,
    Player,
    Run,
    World,
    WorldSettings,
    draw_world,
    is_own,
    play,
    play_world,
    seed_of_run,
)
from belated.model.protocols import (
    Delay,
    Family,
    Policy,
    choose,
    concordance,
    cumulant,
    delay_quantile,
    delay_quantile_of,
    derivatives,
    least_slope,
    mean,
    reward_quantile,
    self_concordance,
    with_horizon,
)
from belated.model.state import LOG_DET
from belated.numerics.pruning import decision_set
from belated.worlds.delays import Constant, Exponential, Never, dim_of, is_known_in_advance
from belated.worlds.environments import UnitBall
from belated.worlds.feedback import feedback_for

ROUNDS, ACTIONS, DIM = 80, 6, 3
THETA_STAR = np.linspace(-0.5, 0.5, DIM)
LATE = Exponential(8.0)


def check_policy(policy: Any, family: Family) -> None:
    """Everything below that concerns a policy; of a policy in plain Python, what can be seen."""
    for check in OWN_POLICY_CHECKS if is_own(policy) else POLICY_CHECKS:
        check(policy, family)


def check_family(family: Family) -> None:
    """Everything below that concerns a family."""
    for check in FAMILY_CHECKS:
        check(family)


def check_delay(delay: Delay) -> None:
    """Everything below that concerns a delay."""
    for check in DELAY_CHECKS:
        check(delay)


# --------------------------------------------------------------------------------------- policies


def _world(seed: int = 7, rounds: int = ROUNDS) -> World:
    return draw_world(UnitBall(ACTIONS), DIM, rounds, seed, THETA_STAR)


def _bandit(policy: Policy, family: Family, seed: int = 1) -> Bandit:
    return Bandit(DIM, family=family, policy=policy, seed=seed)


def _player(policy: Any, family: Family, seed: np.random.SeedSequence) -> Player:
    if is_own(policy):
        return OwnPlayer(with_horizon(policy, ROUNDS), family, DIM, seed)
    return Bandit(DIM, family=family, policy=policy, seed=seed)


def _played(
    policy: Policy, family: Family, delay: Delay = LATE, world: World | None = None
) -> tuple[Bandit, Run]:
    bandit = _bandit(policy, family)
    return bandit, play(bandit, world or _world(), delay, feedback=feedback_for(policy))


def _fed(policy: Policy, family: Family, bandit: Bandit, rows: int) -> Bandit:
    """A new bandit that was handed all decisions of another, and rewards of the first ``rows``.

    Of those, the ones that are ever seen: of conversions, the ones.
    """
    fresh = _bandit(policy, family)
    for x in bandit._history.x[: bandit.n_decided]:
        fresh.decide(x[np.newaxis])
    y = bandit._history.y
    fresh.learn([(s + 1, y[s]) for s in range(rows) if not math.isnan(y[s])])
    return fresh


def _assert_same_estimate(one: Bandit, other: Bandit) -> None:
    """Two estimates of the same data may differ by what their certificates allow, no more."""
    gap = one.theta - other.theta
    allowed = one.certificate.slack + other.certificate.slack + 1e-9
    assert math.sqrt(gap @ one.W @ gap) <= allowed


def check_parameters_are_documented(policy: Policy, family: Family) -> None:
    """The type has a docstring, and resolving twice changes nothing more."""
    assert type(policy).__doc__
    resolved = policy.resolve(family, DIM, 1.0)
    assert resolved == resolved.resolve(family, DIM, 1.0)


def check_same_seed_same_run(policy: Any, family: Family) -> None:
    """Nothing random but the seed, and nothing left over from another run."""
    seed, feedback = np.random.SeedSequence(1), feedback_for(policy)
    worlds = (_world(), _world(seed=8), _world())
    players = [_player(policy, family, seed) for _ in worlds]
    first, _, again = (
        play(player, world, LATE, feedback=feedback)
        for player, world in zip(players, worlds, strict=True)
    )
    assert np.array_equal(first.index, again.index)
    one, _, two = players
    if isinstance(one, Bandit) and isinstance(two, Bandit):
        assert one.fingerprint() == two.fingerprint()


def check_choosing_changes_nothing(policy: Policy, family: Family) -> None:
    """``choose`` reads the state and returns a column with a score that is a number."""
    bandit, _ = _played(policy, family)
    before = bandit.fingerprint()
    rng = np.random.default_rng(0) if getattr(policy, "randomised", True) else None
    actions = decision_set(np.eye(DIM))
    column, score, estimate, width = choose(bandit.policy, bandit._state, actions, rng)
    assert 0 <= column < DIM
    assert all(math.isfinite(v) for v in (score, estimate, width))
    assert bandit.fingerprint() == before


def check_matrices_match_their_definitions(policy: Policy, family: Family) -> None:
    """W, its inverse and determinant, V and the counts follow from the history."""
    bandit, run = _played(policy, family)
    state, history = bandit._state, bandit._history
    x, y = history.x[:ROUNDS], history.y[:ROUNDS]
    returned = run.arrives <= ROUNDS
    assert np.array_equal(~np.isnan(y), returned)
    assert np.array_equal(y[returned], run.reward[returned])
    assert bandit.n_missing == (~returned).sum() == run.missing[-1]
    W = bandit.policy.lam * np.eye(DIM) + x[returned].T @ x[returned]
    assert np.allclose(bandit.W, W, rtol=1e-12, atol=1e-12)
    assert np.allclose(bandit.V, bandit.policy.lam * np.eye(DIM) + x.T @ x, rtol=1e-12, atol=1e-12)
    assert np.allclose(state.W_inv @ W, np.eye(DIM), atol=1e-9)
    assert math.isclose(state.scalars[LOG_DET], np.linalg.slogdet(W)[1], abs_tol=1e-9)


def check_zero_delay_is_undelayed(policy: Policy, family: Family) -> None:
    """Rewards that take no time give the run in which each is learned before the next decision."""
    world = _world()
    _, run = _played(policy, family, Constant(0.0), world)
    bandit = _bandit(policy, family)
    for t in range(ROUNDS):
        decision = bandit.decide(world.actions[t])
        assert decision.index == run.index[t]
        bandit.learn(decision.id, run.reward[t])


def check_constant_delay_uses_rows_before(policy: Policy, family: Family) -> None:
    """With delay k the decision of round t rests on rounds 1 to t - 1 - k, and no others."""
    k = 5
    for rounds in (1, k, k + 1, 2 * k, ROUNDS):
        bandit, _ = _played(policy, family, Constant(float(k)), _world(rounds=rounds))
        fresh = _fed(policy, family, bandit, max(0, rounds - k))
        assert np.allclose(bandit.W, fresh.W, rtol=1e-12, atol=1e-12)
        _assert_same_estimate(bandit, fresh)


def check_infinite_delay_never_crashes(policy: Any, family: Family) -> None:
    """Without a single reward the bandit goes on choosing and knows nothing."""
    bandit = _player(policy, family, np.random.SeedSequence(1))
    run = play(bandit, _world(), Never(), feedback=feedback_for(policy))
    assert run.missing[-1] == ROUNDS
    assert ((run.index >= 0) & (run.index < ACTIONS)).all()
    if not isinstance(bandit, Bandit):
        return
    assert bandit.n_missing == ROUNDS
    assert bandit.n_observed == 0
    assert not bandit.theta.any()
    assert np.array_equal(bandit.W, bandit.policy.lam * np.eye(DIM))


def check_no_peeking(policy: Any, family: Family) -> None:
    """Rewards that have not returned may be anything: decisions up to then stay the same."""
    world, seed, feedback = _world(), np.random.SeedSequence(1), feedback_for(policy)
    run = play(_player(policy, family, seed), world, LATE, feedback=feedback)
    # when each reward would arrive were it seen: where only successes are, the others might be one
    due = 1 + np.arange(ROUNDS) + np.ceil([delay_quantile(LATE, u, 0.0) for u in world.lateness])
    for cut in (ROUNDS // 4, ROUNDS // 2, ROUNDS):
        hidden = due >= cut
        other = world._replace(luck=np.where(hidden, 1.0 - world.luck, world.luck))
        mutated = play(_player(policy, family, seed), other, LATE, feedback=feedback)
        assert np.array_equal(run.index[:cut], mutated.index[:cut])
        assert not np.array_equal(run.reward, mutated.reward), "nothing was mutated"


def check_order_within_a_round_is_irrelevant(policy: Policy, family: Family) -> None:
    """Shuffling the rewards that arrive together changes nothing.

    One-pass estimators are exempt: they take rewards in as they come.
    """
    resolved = policy.resolve(family, DIM, 1.0)
    if getattr(resolved.estimator(family, DIM, 1.0), "one_pass", False):
        return
    rng = np.random.default_rng(3)
    straight, run = _played(policy, family)
    shuffled = _bandit(policy, family)
    other = play(shuffled, _world(), LATE, feedback=feedback_for(policy), shuffle=rng.shuffle)
    assert np.array_equal(run.index, other.index)
    assert np.allclose(straight.theta, shuffled.theta, rtol=0.0, atol=1e-12)


def check_rotation_is_irrelevant(policy: Policy, family: Family) -> None:
    """Turning actions and theta_star together gives the same rows.

    Policies that draw random numbers are exempt: their draws do not turn along.
    """
    world = _world()
    _, run = _played(policy, family, LATE, world)
    if getattr(policy, "randomised", True):
        return
    Q, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((DIM, DIM)))
    turned = world._replace(theta_star=Q @ world.theta_star, actions=world.actions @ Q.T)
    assert np.array_equal(run.index, _played(policy, family, LATE, turned)[1].index)


def check_lane_plays_like_a_bandit(policy: Any, family: Family) -> None:
    """The engine, in blocks of any size, beside any other lane, plays what ``play`` plays."""
    rounds = np.arange(1, ROUNDS + 1)
    lanes = (Lane(policy, family, LATE), Lane(policy, family, Never()))
    feedback = feedback_for(policy)
    world = WorldSettings(
        UnitBall(ACTIONS), DIM, ROUNDS, 0, 7, rounds, lanes, 1.0, THETA_STAR, feedback
    )
    record = play_world(world, block_rounds=ROUNDS)
    assert np.array_equal(record, play_world(world, block_rounds=7), equal_nan=True)
    alone = play_world(world._replace(lanes=lanes[:1]))
    assert np.array_equal(record[:1], alone, equal_nan=True)
    seeds = seed_of_run(7, DIM, 0)
    drawn = draw_world(UnitBall(ACTIONS), DIM, ROUNDS, seeds, THETA_STAR)
    policy = with_horizon(policy, ROUNDS)
    run = play(_player(policy, family, seeds.spawn(1)[0]), drawn, LATE, feedback=feedback)
    lane = dict(zip(RECORD, record[0].T, strict=True))
    assert np.allclose(lane["regret"], run.regret, rtol=1e-9, atol=1e-9)
    assert np.array_equal(lane["missing"], run.missing)
    assert np.array_equal(lane["missing"] + lane["observed"], rounds)
    if not np.isnan(lane["failures"]).any():
        assert np.array_equal(lane["failures"], np.cumsum(~run.covered))


def check_save_and_load_go_on(policy: Policy, family: Family) -> None:
    """A bandit read back from disk goes on byte for byte."""
    bandit, run = _played(policy, family)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bandit"
        bandit.save(path)
        twin = Bandit.load(path, same_stream=True, types=[type(policy), type(family)])
    assert twin.fingerprint() == bandit.fingerprint()
    late = [(int(s) + 1, run.reward[s]) for s in np.flatnonzero(run.arrives > ROUNDS)]
    for actions in _world(seed=8, rounds=5).actions:
        assert bandit.decide(actions) == twin.decide(actions)
    if late:
        bandit.learn(late)
        twin.learn(late)
    assert twin.fingerprint() == bandit.fingerprint()


def check_bad_input_changes_nothing(policy: Policy, family: Family) -> None:
    """A refused call leaves no trace."""
    bandit, run = _played(policy, family)
    before = bandit.fingerprint()
    nan, good = math.nan, np.eye(DIM)
    pending = int(np.flatnonzero(run.arrives > ROUNDS)[0]) + 1
    returned = int(np.flatnonzero(run.arrives <= ROUNDS)[0]) + 1
    bad_calls: list[Callable[[], Any]] = [
        lambda: bandit.decide(good[:0]),
        lambda: bandit.decide(good[0]),
        lambda: bandit.decide(good[:, :-1]),
        lambda: bandit.decide(good * nan),
        lambda: bandit.decide(np.where(good > 0, math.inf, 0.0)),
        lambda: bandit.decide(good * 1.01),
        lambda: bandit.decide("abc"),
        lambda: bandit.learn(0, 1.0),
        lambda: bandit.learn(ROUNDS + 1, 1.0),
        lambda: bandit.learn(pending, nan),
        lambda: bandit.learn(pending, math.inf),
        lambda: bandit.learn(returned, run.reward[returned - 1] + 1.0),
        lambda: bandit.learn([(pending, run.reward[pending - 1]), (ROUNDS + 1, 1.0)]),
        lambda: bandit.learn([pending]),  # type: ignore[list-item]
        lambda: bandit.interval(good[0] * nan),
    ]
    for call in bad_calls:
        try:
            call()
        except (ValueError, TypeError):
            assert bandit.fingerprint() == before
        else:
            raise AssertionError("bad input was accepted")
    assert bandit.learn(returned, run.reward[returned - 1]) == 0  # the same again is no news
    assert bandit.fingerprint() == before


# --------------------------------------------------------------------------------------- families

GRID = np.linspace(-2.0, 2.0, 81)
BOUND = 2.0


def check_derivatives_are_derivatives(family: Family) -> None:
    """B' = mu, and mu' and mu'' are the slopes of what comes before them."""
    h = 1e-5
    for z in GRID:
        here = derivatives(family, z)
        up, down = derivatives(family, z + h), derivatives(family, z - h)
        difference = (cumulant(family, z + h) - cumulant(family, z - h)) / (2 * h)
        assert math.isclose(here[0], difference, rel_tol=1e-7, abs_tol=1e-8)
        assert math.isclose(here[1], (up[0] - down[0]) / (2 * h), rel_tol=1e-7, abs_tol=1e-8)
        assert math.isclose(here[2], (up[1] - down[1]) / (2 * h), rel_tol=1e-7, abs_tol=1e-8)
        assert math.isclose(here[0], mean(family, z))


def check_bounds_are_the_extremes(family: Family) -> None:
    """kappa, L_mu and M_mu are attained on ``|z| <= bound``, not merely safe."""
    fine = np.linspace(-BOUND, BOUND, 4001)
    values = np.array([derivatives(family, z) for z in fine])
    assert math.isclose(family.kappa(BOUND), values[:, 1].min(), rel_tol=1e-6)
    assert math.isclose(family.kappa(BOUND), least_slope(family, BOUND))
    assert math.isclose(family.lipschitz(BOUND), values[:, 1].max(), rel_tol=1e-6)
    assert math.isclose(family.curvature(BOUND), np.abs(values[:, 2]).max(), abs_tol=1e-6)
    assert (np.diff(values[:, 0]) > 0).all(), "the mean must increase"


def check_self_concordance(family: Family) -> None:
    """``|mu''| <= M mu'`` and ``|mu'''| <= M^2 mu'``: what the certificate rests on."""
    M, h = self_concordance(family, BOUND), 1e-5
    for z in GRID:
        _, slope, bend = derivatives(family, z)
        third = (derivatives(family, z + h)[2] - derivatives(family, z - h)[2]) / (2 * h)
        assert abs(bend) <= M * slope * (1 + 1e-9)
        assert abs(third) <= M * M * slope * (1 + 1e-6) + 1e-9
        sharp, third_sharp = concordance(family, abs(z))
        assert abs(bend) <= sharp * slope * (1 + 1e-9)
        assert abs(third) <= third_sharp * slope * (1 + 1e-6) + 1e-9


def _rewards(family: Family, z: float) -> Any:
    """The law of the reward, as its quantiles at 4000 evenly spaced levels."""
    levels = (np.arange(4000) + 0.5) / 4000
    return np.array([reward_quantile(family, z, u) for u in levels])


def check_rewards_have_their_mean(family: Family) -> None:
    """Rewards lie in the support, grow with the uniform behind them, and average to mu(z)."""
    for z in (-1.5, 0.0, 0.7):
        rewards = _rewards(family, z)
        assert all(family.support.contains(y) for y in rewards)
        assert (np.diff(rewards) >= 0.0).all()
        assert math.isclose(rewards.mean(), mean(family, z), abs_tol=2e-3 * (1 + rewards.std()))


def check_noise_is_subgaussian(family: Family) -> None:
    """E exp(s (Y - mu)) <= exp(s^2 R^2 / 2), wherever the family claims an R."""
    if family.R is None:
        return
    for z in (-1.5, 0.0, 0.7):
        noise = _rewards(family, z) - mean(family, z)
        for s in (-2.0, -0.5, 0.5, 2.0):
            bound = s * s * family.R**2 / 2.0
            assert math.log(np.exp(s * noise).mean()) <= bound * (1 + 1e-3) + 1e-3


# ----------------------------------------------------------------------------------------- delays

LEVELS = (1e-9, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0 - 1e-9)


def check_quantiles_are_delays(delay: Delay) -> None:
    """Never negative, never NaN, growing with the level, for every reward and action."""
    for x in np.linspace(-1.0, 1.0, 3 * dim_of(delay)).reshape(3, -1):
        for y in (-1.0, 0.0, 1.0):
            values = [delay_quantile_of(delay, x, u, y) for u in LEVELS]
            assert all(v >= 0.0 for v in values)
            assert values == sorted(values)


def check_survival_matches_quantiles(delay: Delay) -> None:
    """P(delay > q) <= 1 - u <= P(delay >= q) at the quantile q of level u."""
    if not is_known_in_advance(delay):
        return
    for u in LEVELS:
        q = delay_quantile_of(delay, np.zeros(0), u, 0.0)
        if q < math.inf:
            assert delay.survival(q * (1 + 1e-9) + 1e-9) <= (1.0 - u) * (1 + 1e-6) + 1e-12
        if q > 1e-6:
            just_below = min(q * (1 - 1e-6), 1e300)
            assert delay.survival(just_below) >= (1.0 - u) * (1 - 1e-6) - 1e-12
    assert delay.survival(-1e-9) == 1.0


def check_mean_is_the_integral_of_survival(delay: Delay) -> None:
    """E[tau] lies between the lower and the upper sum of P(tau > t), a bracket of 0.1 per cent."""
    if not is_known_in_advance(delay):
        return
    if delay.mean == math.inf:
        assert delay.survival(1e300) > 0.0, "an infinite mean needs a heavier tail"
        return
    lower = upper = left = 0.0
    for step in range(1, 690_000):
        right = math.expm1(step / 1000.0)
        before, after = delay.survival(left), delay.survival(right)
        lower += after * (right - left)
        upper += before * (right - left)
        if after * right <= 1e-9 * delay.mean:
            assert lower * (1 - 1e-9) <= delay.mean <= upper * (1 + 1e-6) + 1e-12
            return
        left = right
    assert lower <= delay.mean, "and the tail beyond 1e299 is the rest"


POLICY_CHECKS: list[Callable[[Policy, Family], None]] = [
    check_parameters_are_documented,
    check_same_seed_same_run,
    check_choosing_changes_nothing,
    check_matrices_match_their_definitions,
    check_zero_delay_is_undelayed,
    check_constant_delay_uses_rows_before,
    check_infinite_delay_never_crashes,
    check_no_peeking,
    check_lane_plays_like_a_bandit,
    check_order_within_a_round_is_irrelevant,
    check_rotation_is_irrelevant,
    check_save_and_load_go_on,
    check_bad_input_changes_nothing,
]
OWN_POLICY_CHECKS: list[Callable[[Any, Family], None]] = [
    check_same_seed_same_run,
    check_infinite_delay_never_crashes,
    check_no_peeking,
    check_lane_plays_like_a_bandit,
]
FAMILY_CHECKS: list[Callable[[Family], None]] = [
    check_derivatives_are_derivatives,
    check_bounds_are_the_extremes,
    check_self_concordance,
    check_rewards_have_their_mean,
    check_noise_is_subgaussian,
]
DELAY_CHECKS: list[Callable[[Delay], None]] = [
    check_quantiles_are_delays,
    check_survival_matches_quantiles,
    check_mean_is_the_integral_of_survival,
]
