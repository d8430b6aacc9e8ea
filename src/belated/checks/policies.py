"""Checks that every policy must pass."""

import math
import re
import tempfile
from collections.abc import Callable, Mapping
from inspect import getdoc
from pathlib import Path
from typing import Any

import numpy as np

from belated.bandit import Bandit
from belated.bandit.reading import played_rows
from belated.checks.confidence_sets import (
    check_set_holds_the_truth,
    check_widths_follow_from_the_set,
)
from belated.checks.estimates import check_remaking_changes_nothing, check_revision_is_exchange
from belated.checks.trial_runs import (
    ACTIONS,
    DIM,
    LATE,
    ROUNDS,
    THETA_STAR,
    distance,
    fed,
    trial,
    trial_bandit,
    trial_player,
    trial_world,
)
from belated.core.arguments import wrong
from belated.engine.lanes import RECORD
from belated.engine.reference import draw_world, mean_rewards, play
from belated.engine.worlds import Lane, WorldSettings, play_world, seed_of_run
from belated.learner.weighing import weighs_cheaply
from belated.model.plain_policy import is_own
from belated.model.protocols import (
    Family,
    Policy,
    choose,
    delay_quantile,
    is_randomised,
    is_sparse,
    with_horizon,
)
from belated.model.state import LOG_DET
from belated.numerics.pruning import decision_set
from belated.worlds.delays import Constant, Never
from belated.worlds.environments import FixedArms, UnitBall
from belated.worlds.feedback import feedback_for

REPLAYS = 1_000  # choices on one state, against the probabilities that the policy says

LEARNING_SHARE, SMALL_SHARE = 0.85, 0.25  # of the regret of uniform play
# Six actions near the first two of three orthogonal unit vectors; one of the two is good, the other
# bad
AXES = np.array([[2.0, -2.0, 1.0], [1.0, 2.0, 2.0], [2.0, 1.0, -2.0]]) / 3.0
ARMS = np.array([[x, 0.96 - x, z] for z in (-0.28, 0.0, 0.28) for x in (0.96, 0.0)]) @ AXES


def check_policy(
    policy: Any, family: Family, *, except_for: Mapping[str, str] | None = None
) -> None:
    """Run every check that applies to a policy; raise ``AssertionError`` at the first violation.

    A policy in plain Python is checked only for what can be seen from outside. ``except_for``
    leaves out checks by name, each with a reason.

    >>> from belated import Gaussian
    >>> from belated.policies import UniformPlay
    >>> reason = {"check_learns_from_rewards": "the baseline that never learns"}
    >>> check_policy(UniformPlay(), Gaussian(), except_for=reason)
    """
    left_out, known = dict(except_for or {}), [check.__name__ for check in POLICY_CHECKS]
    if not all(name in known and reason for name, reason in left_out.items()):
        raise wrong("except_for", left_out, f"a reason for each of some of {', '.join(known)}")
    for check in OWN_POLICY_CHECKS if is_own(policy) else POLICY_CHECKS:
        if check.__name__ not in left_out:
            check(policy, family)


def check_parameters_are_documented(policy: Policy, family: Family) -> None:
    """The docstring names every parameter, and resolving twice changes nothing more."""
    kind = type(policy)
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-+$|\Z)", getdoc(kind) or "", re.MULTILINE | re.DOTALL
    )
    lines = section[1].splitlines() if section else []
    named = {name.strip() for line in lines if line[:1].strip() for name in line.split(",")}
    missing = [field for field in getattr(kind, "_fields", ()) if field not in named]
    assert not missing, (
        f"{kind.__name__} does not document {', '.join(missing)}: give its docstring a section "
        "Parameters (underlined with hyphens) with a line for each parameter that holds its name, "
        "and what it means indented below"
    )
    resolved = policy.resolve(family, DIM, 1.0)
    again = resolved.resolve(family, DIM, 1.0)
    assert resolved == again, (
        f"resolve turns {resolved} into {again}: it may derive only what is still None, so that a "
        "resolved policy stays as it is"
    )


def check_same_seed_same_run(policy: Any, family: Family) -> None:
    """A run depends on its seed alone: nothing is left over from another run."""
    seed, feedback = np.random.SeedSequence(1), feedback_for(policy)
    worlds = (trial_world(), trial_world(seed=8), trial_world())
    players = [trial_player(policy, family, seed) for _ in worlds]
    first, _, again = (
        play(player, world, LATE, feedback=feedback)
        for player, world in zip(players, worlds, strict=True)
    )
    remedy = (
        "draw random numbers from the rng that choose (or start) is handed, and keep what the "
        "policy remembers in the state, the fit or new_memory, never on the class or the module"
    )
    assert np.array_equal(first.index, again.index), (
        f"two runs with one seed make different decisions: {remedy}"
    )
    one, _, two = players
    if isinstance(one, Bandit) and isinstance(two, Bandit):
        assert one.fingerprint() == two.fingerprint(), (
            f"two runs with one seed make the same decisions and end in different states: {remedy}"
        )


def check_choosing_changes_nothing(policy: Policy, family: Family) -> None:
    """``choose`` reads the state and returns a row with a score that is a number."""
    bandit, _ = trial(policy, family)
    before = bandit.fingerprint()
    rng = np.random.default_rng(0) if is_randomised(policy) else None
    row, *numbers = choose(bandit.policy, bandit._state, decision_set(np.eye(DIM)), rng)
    assert 0 <= row < DIM, (
        f"choose returned row {row} of {DIM} actions: return a row of actions.rows first"
    )
    assert all(map(math.isfinite, numbers)), (
        f"choose returned score, estimate and width {numbers}: return finite numbers, a width of 0 "
        "where there is none"
    )
    assert bandit.fingerprint() == before, (
        "choose changed the state: it may write to state.work and actions.work only; what was "
        "played is remembered in a case of remember"
    )


def check_probabilities_are_frequencies(policy: Policy, family: Family) -> None:
    """The probabilities of a decision are how often the policy plays each action.

    A policy without a case of ``probabilities`` or ``score_law`` is exempt: its frequencies are
    what is reported.
    """
    bandit, _ = trial(policy, family)
    learner = bandit._learner
    if not weighs_cheaply(learner.policy):
        return
    options, before = (
        learner.options(trial_world(seed=8, rounds=1).actions[0]),
        bandit.fingerprint(),
    )
    rng, shares = np.random.default_rng(0), np.zeros(ACTIONS)
    said = learner.choose_from(options, rng, weighed=True).probabilities
    assert said is not None, "a weighed choice has no probabilities: register score_law"
    assert abs(said.sum() - 1.0) < 1e-9, (
        f"the probabilities of all actions add up to {said.sum():.6g}: fill in all of out, or, in "
        "score_law, finite means and roots"
    )
    assert (said >= 0.0).all(), f"a probability is {said.min()}: fill in 0 or more"
    assert bandit.fingerprint() == before, (
        "probabilities or score_law changed the state: it may write to state.work and "
        "actions.work only"
    )
    for _ in range(REPLAYS):
        shares[learner.choose_from(options, rng).index] += 1.0 / REPLAYS
    room = 5.0 * np.sqrt(said * (1.0 - said) / REPLAYS) + 0.02
    assert (abs(shares - said) <= room).all(), (
        f"of {REPLAYS} choices {shares.round(3)} were of each action, but the policy says "
        f"{said.round(3)}: let probabilities, or score_law, follow what choose draws"
    )


def check_matrices_match_their_definitions(policy: Policy, family: Family) -> None:
    """W, its inverse and determinant, V and the counts follow from the history."""
    bandit, run = trial(policy, family)
    state, y = bandit._state, bandit._history.y[:ROUNDS]
    x = played_rows(bandit._learner)
    returned = run.arrives <= ROUNDS
    remedy = "kernels of a policy or an estimator may read this, but only the bandit writes it"
    assert np.array_equal(y, np.where(returned, run.reward, np.nan), equal_nan=True), (
        f"history.y is not the rewards that returned and NaN elsewhere: {remedy}"
    )
    assert bandit.n_missing == (~returned).sum() == run.missing[-1], (
        f"{bandit.n_missing} rewards count as missing, {(~returned).sum()} are: {remedy}"
    )
    ridge = getattr(bandit.policy, "lam", 0.0) * np.eye(DIM)
    W, V = ridge + x[returned].T @ x[returned], ridge + x.T @ x
    for name, matrix, wanted, sum_over in (
        ("W", bandit.W, W, "returned rounds"),
        ("V", bandit.V, V, "all rounds"),
    ):
        assert np.allclose(matrix, wanted, rtol=1e-12, atol=1e-12), (
            f"{name} is not lam I + the sum of x x' over {sum_over}: {remedy}; matrices of your "
            "own go into the fit or new_memory"
        )
    if is_sparse(policy):
        return  # it keeps no W: the property computes it
    assert np.allclose(state.W_inv @ W, np.eye(DIM), atol=1e-9), (
        f"state.W_inv is not the inverse of W: {remedy}"
    )
    assert math.isclose(state.scalars[LOG_DET], np.linalg.slogdet(W)[1], abs_tol=1e-9), (
        f"state.scalars[LOG_DET] is not log det W: {remedy}"
    )


def check_zero_delay_is_undelayed(policy: Policy, family: Family) -> None:
    """Rewards that take no time give the run in which each is learned before the next decision."""
    world = trial_world()
    _, run = trial(policy, family, Constant(0.0), world)
    bandit = trial_bandit(policy, family)
    for t in range(ROUNDS):
        decision = bandit.decide(world.actions[t], probabilities=False)
        assert decision.index == run.index[t], (
            f"round {t + 1} of a simulation without delay plays action {run.index[t]}, decide and "
            f"learn by hand play {decision.index}: radius and set_norm, which a simulation asks in "
            "every round, must not change the state"
        )
        bandit.learn(decision.id, run.reward[t])


def check_constant_delay_uses_rows_before(policy: Policy, family: Family) -> None:
    """With delay k the decision of round t rests on rounds 1 to t - 1 - k, and no others."""
    k = 5
    for rounds in (1, k, k + 1, 2 * k, ROUNDS):
        bandit, _ = trial(policy, family, Constant(float(k)), trial_world(rounds=rounds))
        y = bandit._history.y[:rounds].copy()
        y[max(0, rounds - k) :] = np.nan
        fresh = fed(policy, family, bandit, y)
        seen = f"of {rounds} rounds with delay {k}, the rewards of the first {max(0, rounds - k)}"
        assert np.allclose(bandit.W, fresh.W, rtol=1e-12, atol=1e-12), (
            f"W does not follow from what returned ({seen}): only the bandit may write it"
        )
        apart, allowed = distance(bandit, fresh)
        assert apart <= allowed, (
            f"theta does not follow from what returned ({seen}): handed over at once they give "
            f"an estimate {apart:g} away, {allowed:g} allowed; take_in and refit may use "
            "returned rewards only, not the number or time of decisions"
        )


def check_infinite_delay_never_crashes(policy: Any, family: Family) -> None:
    """Without a single reward the bandit goes on choosing and knows nothing."""
    bandit = trial_player(policy, family, np.random.SeedSequence(1))
    run = play(bandit, trial_world(), Never(), feedback=feedback_for(policy))
    assert run.missing[-1] == ROUNDS, (
        f"{ROUNDS - run.missing[-1]} rewards count as returned, but none ever does: leave "
        "state.counts alone"
    )
    assert ((run.index >= 0) & (run.index < ACTIONS)).all(), (
        "a decision without any reward is not a row of actions: choose must work before the first "
        "reward"
    )
    if isinstance(bandit, Bandit):
        assert (bandit.n_missing, bandit.n_observed) == (ROUNDS, 0), (
            f"{bandit.n_observed} rewards count as observed, but none ever returns: leave "
            "state.counts alone"
        )
        assert not bandit.theta.any(), (
            "theta is not 0 although no reward has returned: write it in refit only"
        )
        ridge = getattr(bandit.policy, "lam", 0.0) * np.eye(DIM)
        assert np.array_equal(bandit.W, ridge), (
            "W is not lam I although no reward has returned: it grows when a reward returns, not "
            "when an action is played (a design matrix of all rounds goes into new_memory)"
        )


def check_no_peeking(policy: Any, family: Family) -> None:
    """Rewards that have not returned may be anything: decisions up to then stay the same."""
    world, seed, feedback = trial_world(), np.random.SeedSequence(1), feedback_for(policy)
    run = play(trial_player(policy, family, seed), world, LATE, feedback=feedback)
    # when each reward would arrive if it were seen; where only successes are seen, any might be one
    due = 1 + np.arange(ROUNDS) + np.ceil([delay_quantile(LATE, u, 0.0) for u in world.lateness])
    for cut in (ROUNDS // 4, ROUNDS // 2, ROUNDS):
        hidden = due >= cut
        other = world._replace(luck=np.where(hidden, 1.0 - world.luck, world.luck))
        mutated = play(trial_player(policy, family, seed), other, LATE, feedback=feedback)
        assert np.array_equal(run.index[:cut], mutated.index[:cut]), (
            f"decisions before round {cut + 1} change with rewards that had not returned by then: "
            "learn from what take_in, refit or observe is handed and from nothing else"
        )
        assert not np.array_equal(run.reward, mutated.reward), (
            "rewards do not depend on the luck behind them, so nothing was tested: check the "
            "family with check_family first"
        )


def check_order_within_a_round_is_irrelevant(policy: Policy, family: Family) -> None:
    """Shuffling the rewards that arrive together changes nothing.

    Estimators that say ``order_matters`` are exempt: they take rewards in as they come.
    """
    resolved = policy.resolve(family, DIM, 1.0)
    if getattr(resolved.estimator(family, DIM, 1.0), "order_matters", False):
        return
    rng = np.random.default_rng(3)
    straight, run = trial(policy, family)
    shuffled = trial_bandit(policy, family)
    other = play(shuffled, trial_world(), LATE, feedback=feedback_for(policy), shuffle=rng.shuffle)
    same_theta = np.allclose(straight.theta, shuffled.theta, rtol=0.0, atol=1e-12)
    assert (same_theta, list(run.index)) == (True, list(other.index)), (
        "the order of rewards that return in one round changes the estimate or the decisions: "
        "declare a property order_matters = True on an estimator that depends on their order (they "
        "are then handed over in the order of decisions), or take sums that do not"
    )


def check_rotation_is_irrelevant(policy: Policy, family: Family) -> None:
    """Turning actions and theta_star together gives the same rows.

    Policies that draw random numbers are exempt: their draws do not turn along.
    """
    if is_randomised(policy):
        return
    world = trial_world()
    _, run = trial(policy, family, LATE, world)
    Q, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((DIM, DIM)))
    turned = world._replace(theta_star=Q @ world.theta_star, actions=world.actions @ Q.T)
    assert np.array_equal(run.index, trial(policy, family, LATE, turned)[1].index), (
        "turning all actions and theta_star together changes decisions: use inner products and "
        "norms, not single coordinates (or leave out the property randomised = False if the policy "
        "draws random numbers)"
    )


def check_lane_plays_like_a_bandit(policy: Any, family: Family) -> None:
    """The engine decides as ``play`` does, for any size of block and beside any other lane."""
    rounds = np.arange(1, ROUNDS + 1)
    lanes = (Lane(policy, family, LATE), Lane(policy, family, Never()))
    feedback = feedback_for(policy)
    world = WorldSettings(
        UnitBall(ACTIONS), DIM, ROUNDS, 0, 7, rounds, lanes, 1.0, THETA_STAR, feedback
    )
    remedy = (
        "keep what the policy remembers in the state, the fit or new_memory; an estimator that "
        "reads the history must not declare looks_back = False, for a simulation then drops "
        "rewards that have returned"
    )
    record = play_world(world, block_rounds=ROUNDS)
    assert np.array_equal(record, play_world(world, block_rounds=7), equal_nan=True), (
        f"a simulation in blocks of 7 rounds differs from one in a single block: {remedy}"
    )
    alone = play_world(world._replace(lanes=lanes[:1]))
    assert np.array_equal(record[:1], alone, equal_nan=True), (
        f"a simulation depends on what else is simulated beside it: {remedy}"
    )
    seeds = seed_of_run(7, DIM, 0)
    drawn = draw_world(UnitBall(ACTIONS), DIM, ROUNDS, seeds, THETA_STAR)
    policy = with_horizon(policy, ROUNDS)
    run = play(trial_player(policy, family, seeds.spawn(1)[0]), drawn, LATE, feedback=feedback)
    lane = dict(zip(RECORD, record[0].T, strict=True))
    assert np.allclose(lane["regret"], run.regret, rtol=1e-9, atol=1e-9), (
        f"a simulation plays otherwise than a bandit in the same world: {remedy}"
    )
    counts = [lane["missing"], lane["observed"]]
    assert np.array_equal(counts, [run.missing, rounds - run.missing]), (
        f"a simulation counts other rewards as missing than a bandit in the same world: {remedy}"
    )
    failures = lane["failures"]
    assert np.isnan(failures).any() or np.array_equal(failures, np.cumsum(~run.covered)), (
        f"the confidence set fails in other rounds of a simulation than for a bandit: {remedy}"
    )


def check_save_and_load_go_on(policy: Policy, family: Family) -> None:
    """A bandit read back from disk goes on byte for byte."""
    bandit, run = trial(policy, family)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bandit"
        bandit.save(path)
        twin = Bandit.load(path, same_stream=True, types=[type(policy), type(family)])
    remedy = (
        "keep what is remembered in the arrays of the state, the fit or new_memory; checked must "
        "return the values that it was given, or values that it would not change again"
    )
    assert twin.fingerprint() == bandit.fingerprint(), (
        f"a bandit that was saved and loaded is another one: {remedy}"
    )
    late = [(int(s) + 1, run.reward[s]) for s in np.flatnonzero(run.arrives > ROUNDS)]
    for actions in trial_world(seed=8, rounds=5).actions:
        assert bandit.decide(actions) == twin.decide(actions), (
            f"a bandit that was saved and loaded decides otherwise: {remedy}"
        )
    if late:
        bandit.learn(late)
        twin.learn(late)
    assert twin.fingerprint() == bandit.fingerprint(), (
        f"a bandit that was saved and loaded learns otherwise: {remedy}"
    )


def check_bad_input_changes_nothing(policy: Policy, family: Family) -> None:
    """A refused call leaves no trace."""
    bandit, run = trial(policy, family)
    before = bandit.fingerprint()
    nan, good = math.nan, np.eye(DIM)
    pending = int(np.flatnonzero(run.arrives > ROUNDS)[0]) + 1
    returned = int(np.flatnonzero(run.arrives <= ROUNDS)[0]) + 1
    bad_calls: dict[str, Callable[[], Any]] = {
        "no actions": lambda: bandit.decide(good[:0]),
        "one action that is no matrix": lambda: bandit.decide(good[0]),
        "actions with too few columns": lambda: bandit.decide(good[:, :-1]),
        "actions with NaN": lambda: bandit.decide(good * nan),
        "infinite actions": lambda: bandit.decide(np.where(good > 0, math.inf, 0.0)),
        "actions longer than max_norm": lambda: bandit.decide(good * 1.01),
        "text for actions": lambda: bandit.decide("abc"),
        "a reward of no decision": lambda: bandit.learn(0, 1.0),
        "a reward of a decision to come": lambda: bandit.learn(ROUNDS + 1, 1.0),
        "a reward that is NaN": lambda: bandit.learn(pending, nan),
        "an infinite reward": lambda: bandit.learn(pending, math.inf),
        "another reward than before": lambda: bandit.learn(returned, run.reward[returned - 1] + 1),
        "one good reward and one bad": lambda: bandit.learn(
            [(pending, run.reward[pending - 1]), (ROUNDS + 1, 1.0)]
        ),
        "a decision without a reward": lambda: bandit.learn([pending]),  # type: ignore[list-item]
        "an interval of NaN": lambda: bandit.interval(good[0] * nan),
    }
    if not getattr(policy, "needs_bound", True):
        del bad_calls["actions longer than max_norm"]
    for name, call in bad_calls.items():
        try:
            call()
        except (ValueError, TypeError):
            assert bandit.fingerprint() == before, (
                f"{name}: refused, but the state has changed: check all before changing anything"
            )
        else:
            raise AssertionError(f"{name}: accepted; raise ValueError or TypeError")
    assert bandit.learn(returned, run.reward[returned - 1]) == 0, (
        "the same reward again counts as news: return 0 for it"
    )
    assert bandit.fingerprint() == before, (
        "the same reward again changed the state: a reward is taken in once"
    )


def check_learns_from_rewards(policy: Any, family: Family, rounds: int = 300) -> None:
    """Regret is lower than that of uniform play, and lower in the second half than in the first.

    It need not fall where the second half has at most a quarter of the regret of uniform play.
    The policy plays two runs with delayed rewards and six actions, the same in all rounds. Three
    are equally good and three equally bad, and in the second run it is the other way round. Worlds
    and seeds are fixed: a policy passes always or never.
    """
    if hasattr(policy, "horizon"):
        policy = policy._replace(horizon=rounds)
    halves, uniform = np.zeros(2), 0.0
    for run, sign in enumerate((-0.7, 0.7)):
        world = draw_world(FixedArms(ARMS), DIM, rounds, run, sign * (AXES[0] - AXES[1]))
        player = trial_player(policy, family, np.random.SeedSequence(run))
        regret = play(player, world, LATE, feedback=feedback_for(policy)).regret
        middle = regret[rounds // 2 - 1]
        halves += middle, regret[-1] - middle
        means = mean_rewards(family, world)
        uniform += float((means.max(axis=1) - means.mean(axis=1)).sum())
    remedy = (
        "look for a reversed sign in take_in, refit or the score, for rewards that are dropped, "
        "and for a width that hides the estimate; if the policy is not meant to learn, give "
        "check_policy except_for={'check_learns_from_rewards': reason}; if it or the family needs "
        f"more than {rounds} rounds, give this check more"
    )
    share, (first, second) = halves.sum() / uniform, halves
    assert share <= LEARNING_SHARE, (
        f"regret is {share:.0%} of that of uniform play, expected {LEARNING_SHARE:.0%} or less: "
        f"{remedy}"
    )
    assert second < first or second <= SMALL_SHARE * uniform / 2.0, (
        f"regret does not fall: {first:.3g} in the first half of the rounds, {second:.3g} in the "
        f"second: {remedy}"
    )


POLICY_CHECKS: list[Callable[[Any, Family], None]] = [
    check_parameters_are_documented,
    check_same_seed_same_run,
    check_choosing_changes_nothing,
    check_probabilities_are_frequencies,
    check_matrices_match_their_definitions,
    check_zero_delay_is_undelayed,
    check_constant_delay_uses_rows_before,
    check_infinite_delay_never_crashes,
    check_no_peeking,
    check_lane_plays_like_a_bandit,
    check_order_within_a_round_is_irrelevant,
    check_rotation_is_irrelevant,
    check_save_and_load_go_on,
    check_revision_is_exchange,
    check_remaking_changes_nothing,
    check_set_holds_the_truth,
    check_widths_follow_from_the_set,
    check_bad_input_changes_nothing,
    check_learns_from_rewards,
]
OWN_POLICY_CHECKS: list[Callable[[Any, Family], None]] = [
    check_same_seed_same_run,
    check_infinite_delay_never_crashes,
    check_no_peeking,
    check_lane_plays_like_a_bandit,
    check_learns_from_rewards,
]
