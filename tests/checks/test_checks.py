"""Tests of the tests: for each public check something broken that it must catch, and say why."""

import ast
import sys
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM, Gaussian
from belated.checks import (
    DELAY_CHECKS,
    ENVIRONMENT_CHECKS,
    FAMILY_CHECKS,
    OWN_POLICY_CHECKS,
    POLICY_CHECKS,
    check_policy,
    policies,
    trial_runs,
)
from belated.checks.policies import check_learns_from_rewards
from belated.core.arguments import parameters
from belated.engine.reference import play
from belated.estimators import Ridge
from belated.ledger import checks as ledger_checks
from belated.model import protocols
from belated.model.protocols import (
    choose,
    delay_quantile,
    derivatives,
    draw_actions,
    dual_norm,
    luck,
    probabilities,
    radius,
    refit,
    remake,
    remember,
    revise,
    revise_row,
    reward_quantile,
    self_concordance,
    silence_derivatives,
    take_in,
    take_in_row,
)
from belated.model.state import DECIDED
from belated.numerics.pruning import most_optimistic
from belated.policies import UniformPlay
from belated.worlds.delays import Constant, Exponential
from belated.worlds.environments import UnitBall

GENERICS = [value for value in vars(protocols).values() if hasattr(value, "cases")]


def variant(base, cases=(), *args, **members):
    """An instance of a subclass with other methods, and other kernels: (generic, function)."""
    members = {"__slots__": (), "__doc__": base.__doc__, **members}
    kind = type(f"Broken{base.__name__}", (base,), members)
    # what the base does for rows, or with rewards that it took in, does not go with another kernel
    follow = {take_in: (take_in_row, revise, revise_row, remake), revise: (revise_row,)}
    dropped = [other for generic, _ in cases for other in follow.get(generic, ())]
    for generic in GENERICS:
        if base in generic.cases and generic not in dropped:
            generic.cases[kind] = generic.cases[base]
    for generic, function in cases:
        generic.case(kind)(function)
    return kind(*args)


# --------------------------------------------------------------------------------------- policies


@parameters
class Toy(NamedTuple):
    """Optimism with a width of one, and ridge regression.

    Parameters
    ----------
    lam
        The ridge.
    """

    lam: float = 1.0

    @property
    def randomised(self):
        return False

    def resolve(self, family, dim, max_norm):
        return self

    def estimator(self, family, dim, max_norm):
        return Ridge()


@choose.case(Toy)
def choose_optimistically(policy, state, actions, rng):
    return most_optimistic(state.theta, state.W_inv, state.cap, 1.0, actions, state.work)


def choosing(function):
    """A toy whose choice is first given to ``function``."""

    def choose_otherwise(policy, state, actions, rng):
        row, *numbers = choose_optimistically(policy, state, actions, rng)
        return function(row, state, actions.rows), *numbers

    return variant(Toy, [(choose, choose_otherwise)])


def estimating(*cases, **members):
    """A toy whose estimator has other kernels."""
    estimator = variant(Ridge, cases, **members)
    return variant(Toy, estimator=lambda self, family, dim, max_norm: estimator)


def undocumented():
    return variant(Toy, __doc__="Optimism.\n\nParameters\n----------\nlambda\n    The ridge.")


def restless():
    return variant(Toy, resolve=lambda self, *_: self._replace(lam=2.0 * self.lam))


def draws_without_a_seed():
    return choosing(lambda row, state, rows: int(np.random.default_rng().integers(len(rows))))


def changes_theta_in_choose():
    def grow(row, state, rows):
        state.theta[0] += 1.0
        return row

    return choosing(grow)


def saying(fill):
    """A policy that plays uniformly and says otherwise."""
    return variant(UniformPlay, [(probabilities, fill)])


def says_what_it_does_not_play():
    def fill(policy, state, actions, out):
        out[:] = [1.0, *np.zeros(len(out) - 1)]

    return saying(fill)


def says_too_little():
    def fill(policy, state, actions, out):
        out[:] = 0.5 / len(out)

    return saying(fill)


def says_less_than_nothing():
    def fill(policy, state, actions, out):
        out[:] = [1.1, -0.1, *np.zeros(len(out) - 2)]

    return saying(fill)


def counts_what_it_says():
    def fill(policy, state, actions, out):
        state.theta[0] += 1.0
        out[:] = 1.0 / len(out)

    return saying(fill)


def counts_rewards_twice():
    def twice(estimator, family, state, x, y):
        state.W[:] += np.outer(x, x)

    return estimating((take_in, twice))


def changes_theta_in_radius():
    def shrink(policy, state):
        state.theta[:] *= -1.0
        return 0.5

    return variant(Toy, [(radius, shrink)])


def weighs_by_the_clock():
    def weigh(estimator, family, state, x, y):
        state.fit.b[:] += state.counts[DECIDED] * y * x

    return estimating((take_in, weigh))


def grows_W_when_it_decides():
    def grow(policy, state, x):
        state.W[:] += np.outer(x, x)

    return variant(Toy, [(remember, grow)])


def reads_a_history_it_disclaims():
    def last_rows(estimator, family, state, history):
        x, y = np.clip(history.x, -1.0, 1.0), np.clip(np.nan_to_num(history.y), -1.0, 1.0)
        state.theta[:] = np.linalg.solve(np.eye(3) + x.T @ x, x.T @ y)

    return estimating((refit, last_rows))


def depends_on_the_order_in_silence():
    def descend(estimator, family, state, x, y):
        state.fit.b[:] += 0.3 * (y - state.fit.b @ x) * x

    def copy(estimator, family, state, history):
        state.theta[:] = state.fit.b

    return estimating((take_in, descend), (refit, copy))


def likes_the_first_coordinate():
    return choosing(lambda row, state, rows: int(np.argmax(rows[:, 0])))


def counts_outside_the_state():
    calls = count()
    return choosing(lambda row, state, rows: next(calls) % len(rows))


def climbs_the_loss():
    """The sign of the gradient is reversed."""

    def climb(estimator, family, state, x, y):
        state.fit.b[:] -= y * x

    return estimating((take_in, climb))


def takes_the_wrong_reward_out():
    def add_up(estimator, family, state, x, old, new):
        state.fit.b[:] += (old - new) * x

    return estimating((revise, add_up))


def makes_something_else():
    def start(estimator, family, state, history):
        state.fit.b[:] = 0.0

    return estimating((remake, start))


def is_far_too_sure():
    return variant(DelayedOFUGLM, [(radius, lambda policy, state: 1e-9)])


def has_no_widths():
    return variant(DelayedOFUGLM, [(dual_norm, lambda policy, state, x: 0.0)])


def ignores_rewards():
    return estimating((take_in, lambda estimator, family, state, x, y: None))


def forgets_what_it_knew():
    """From round 150 on it alternates."""
    return choosing(
        lambda row, state, rows: row if state.counts[DECIDED] < 150 else state.counts[DECIDED] % 2
    )


BROKEN_POLICIES = {
    undocumented: ("parameters_are_documented", "does not document lam: give"),
    restless: ("parameters_are_documented", "may derive only what is still None"),
    draws_without_a_seed: ("same_seed_same_run", "draw random numbers from the rng"),
    changes_theta_in_choose: ("choosing_changes_nothing", "state.work and actions.work only"),
    says_what_it_does_not_play: ("probabilities_are_frequencies", "follow what choose draws"),
    says_too_little: ("probabilities_are_frequencies", "add up to 0.5: fill in all"),
    says_less_than_nothing: ("probabilities_are_frequencies", "a probability is -0.1"),
    counts_what_it_says: ("probabilities_are_frequencies", "score_law changed the state"),
    counts_rewards_twice: ("matrices_match_their_definitions", "W is not lam I .* returned rounds"),
    changes_theta_in_radius: ("zero_delay_is_undelayed", "radius and set_norm"),
    weighs_by_the_clock: ("constant_delay_uses_rows_before", "not the number or time of decisions"),
    grows_W_when_it_decides: ("infinite_delay_never_crashes", "grows when a reward returns"),
    reads_a_history_it_disclaims: ("lane_plays_like_a_bandit", "must not declare looks_back"),
    depends_on_the_order_in_silence: ("order_within_a_round_is_irrelevant", "order_matters = True"),
    likes_the_first_coordinate: ("rotation_is_irrelevant", "not single coordinates"),
    counts_outside_the_state: ("save_and_load_go_on", "saved and loaded decides otherwise"),
    takes_the_wrong_reward_out: ("revision_is_exchange", "take the old reward out"),
    makes_something_else: ("remaking_changes_nothing", "times weight_of its row"),
    is_far_too_sure: ("set_holds_the_truth", "in 10 of 10 runs, at most 3 allowed"),
    has_no_widths: ("widths_follow_from_the_set", "dual_norm is 0, but the largest"),
    climbs_the_loss: ("learns_from_rewards", "% of that of uniform play.* a reversed sign"),
    ignores_rewards: ("learns_from_rewards", "% of that of uniform play.* dropped"),
    forgets_what_it_knew: ("learns_from_rewards", "regret does not fall"),
}


class Careless(Bandit):
    def decide(self, actions, **asked):
        return super().decide(np.nan_to_num(actions) if np.ndim(actions) == 2 else actions, **asked)


def play_without_delay(player, world, delay, **options):
    return play(player, world, Constant(0.0), **options)


BROKEN_MACHINES = {
    "no_peeking": (policies, "play", play_without_delay, "learn from what take_in"),
    "bad_input_changes_nothing": (trial_runs, "Bandit", Careless, "actions with NaN: accepted"),
}


def named(checks, name):
    return next(check for check in checks if check.__name__ == f"check_{name}")


@pytest.mark.parametrize("family", [Gaussian(sd=0.3), Bernoulli()], ids=repr)
def test_the_toy_passes(family):
    check_policy(Toy(), family)


@pytest.mark.parametrize("make", BROKEN_POLICIES, ids=lambda make: make.__name__)
def test_broken_policy(make):
    name, message = BROKEN_POLICIES[make]
    with pytest.raises(AssertionError, match=message):
        named(POLICY_CHECKS, name)(make(), Gaussian(sd=0.3))


@pytest.mark.parametrize("name", BROKEN_MACHINES)
def test_broken_machine(name, monkeypatch):
    module, attribute, replacement, message = BROKEN_MACHINES[name]
    monkeypatch.setattr(module, attribute, replacement)
    with pytest.raises(AssertionError, match=message):
        named(POLICY_CHECKS, name)(Toy(), Gaussian(sd=0.3))


@pytest.mark.parametrize("family", [Gaussian(), Bernoulli()], ids=repr)
def test_a_reversed_gradient_passes_all_but_one_check(family):
    reason = {"check_learns_from_rewards": "its gradient has the wrong sign"}
    check_policy(climbs_the_loss(), family, except_for=reason)
    with pytest.raises(AssertionError, match="a reversed sign"):
        check_learns_from_rewards(climbs_the_loss(), family)


def test_a_policy_in_plain_python_must_learn():
    class Stubborn:
        def choose(self, actions, t):
            return 0

        def observe(self, x, y):
            pass

    with pytest.raises(AssertionError, match="100% of that of uniform play"):
        check_learns_from_rewards(Stubborn(), Gaussian())


def test_a_check_is_left_out_by_name_and_with_a_reason():
    for left_out in ({"check_learning": "a toy"}, {"check_learns_from_rewards": ""}):
        with pytest.raises(ValueError, match=r"except_for = .* expected a reason for each of some"):
            check_policy(Toy(), Gaussian(), except_for=left_out)


# ---------------------------------------------------------------- families, delays, environments


def bent_the_wrong_way(family, z):
    mu, slope, bend = derivatives(Bernoulli(), z)
    return mu, slope, -bend


BROKEN_FAMILIES = {
    "derivatives_are_derivatives": (
        variant(Bernoulli, [(derivatives, bent_the_wrong_way)]),
        r"mu'' = .* but the slope of mu'",
    ),
    "bounds_are_the_extremes": (
        variant(Bernoulli, kappa=lambda self, bound: 0.01),
        r"kappa\(2.0\) is 0.01, .* not a bound on it",
    ),
    "self_concordance": (
        variant(Bernoulli, [(self_concordance, lambda family, bound: 0.5)]),
        "return a larger M",
    ),
    "rewards_have_their_mean": (
        variant(
            Bernoulli,
            [(reward_quantile, lambda f, z, u: 1.0 - reward_quantile(Bernoulli(), z, u))],
        ),
        "not at 1 - u",
    ),
    "luck_is_the_same_law": (
        variant(Bernoulli, [(luck, lambda family, u: 0.9 * u)]),
        "does not depend on z",
    ),
    "silence_follows_from_the_law": (
        variant(Bernoulli, [(silence_derivatives, lambda family, z, F: (-0.3 * F, 0.1))]),
        "the first of silence_derivatives is -0.03",
    ),
    "noise_is_subgaussian": (variant(Bernoulli, R=0.1), "but R is 0.1: return a larger R"),
}
BROKEN_DELAYS = {
    "quantiles_are_delays": (
        variant(Exponential, [(delay_quantile, lambda delay, u, y: -np.log(u))], 9.0),
        r"not of P\(delay > t\)",
    ),
    "survival_matches_quantiles": (
        variant(Exponential, (), 9.0, survival=lambda self, t: np.exp(-max(t, 0.0) / 8.0)),
        "agree with it",
    ),
    "mean_is_the_integral_of_survival": (
        variant(Exponential, (), 9.0, mean=8.0),
        "mean is 8.0, but survival integrates to",
    ),
}


@pytest.mark.parametrize("name", BROKEN_FAMILIES)
def test_broken_family(name):
    family, message = BROKEN_FAMILIES[name]
    with pytest.raises(AssertionError, match=message):
        named(FAMILY_CHECKS, name)(family)


@pytest.mark.parametrize("name", BROKEN_DELAYS)
def test_broken_delay(name):
    delay, message = BROKEN_DELAYS[name]
    with pytest.raises(AssertionError, match=message):
        named(DELAY_CHECKS, name)(delay)


def half_a_set(environment, actions, rng):
    draw_actions(UnitBall(), actions[::2], rng)


BROKEN_ENVIRONMENTS = {
    "actions_are_drawn": (
        variant(UnitBall, [(draw_actions, half_a_set)], 4),
        "must write every entry of actions",
    ),
    "moments_match_the_draws": (
        variant(UnitBall, (), 4, norm_quantile=lambda self, dim, u: u),
        "return the inverse distribution function",
    ),
}


@pytest.mark.parametrize("name", BROKEN_ENVIRONMENTS)
def test_broken_environment(name):
    environment, message = BROKEN_ENVIRONMENTS[name]
    with pytest.raises(AssertionError, match=message):
        named(ENVIRONMENT_CHECKS, name)(environment, 3)


# ------------------------------------------------------------------------------------ of them all


def test_every_check_is_listed_and_has_something_broken_to_catch():
    caught = {name for name, _ in BROKEN_POLICIES.values()} | {*BROKEN_MACHINES}
    for listed, broken in (
        (POLICY_CHECKS, caught),
        (FAMILY_CHECKS, BROKEN_FAMILIES),
        (DELAY_CHECKS, BROKEN_DELAYS),
        (ENVIRONMENT_CHECKS, BROKEN_ENVIRONMENTS),
    ):
        names = {check.__name__ for check in listed}
        module = sys.modules[listed[0].__module__]
        written = {name for name in vars(module) if name.startswith("check_")}
        assert names == {f"check_{name}" for name in broken}
        assert len(written - names) == 1, "check_policy and its siblings run the others"
    assert set(OWN_POLICY_CHECKS) <= set(POLICY_CHECKS)


def test_no_assertion_is_without_a_word():
    folders = [Path(module.__file__).parent for module in (policies, ledger_checks)]
    for path in (path for folder in folders for path in folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.Assert) or node.msg, f"{path.name}:{node.lineno}"
