"""The default earns: a few small shops, on which a default that is broken is seen to be."""

from typing import ClassVar

import numpy as np
import pytest

from belated import registry
from belated.experiments.league.players import Ours
from belated.experiments.league.playing import play
from belated.worlds.shops.shop import Groups, Shop

pytestmark = [pytest.mark.slow, pytest.mark.compiled]

SEEDS, DECISIONS = range(5), np.array([5_000])
BEHIND = {"uniform": 0.35, "delayed-ofu-glm": 0.35, "greedy": 0.15}  # by so much, on average


class Busy(Shop):
    """The shop at 5 per cent: in few decisions there is enough to learn from."""

    rate = 0.05


class BannersAlone(Shop):
    """A shop where the banner is all that matters, and much."""

    rate = 0.2
    groups: ClassVar[Groups] = {group: 1.5 * (group == ("banner",)) for group in Shop.groups}


class Blind(Ours):
    """The default with draws that do not get narrower as rewards come."""

    def decide(self, shown):
        actions, context = shown
        learner, features = self.bandit._learner, self.bandit.features
        law = learner.law_of(learner.options(features.sparse_rows(actions, context)))
        rng = np.random.default_rng(len(self.ids))
        index = int(np.argmax(law.mean + rng.standard_normal(len(law.mean))))
        super().decide(([actions[index]], context))
        return index


def lift(policy, seed, player=Ours):
    world = Busy(seed)
    sums = play(world, player(policy, world), DECISIONS)
    earned, uniform, best = (sums[name][0] for name in ("earned", "uniform", "best"))
    return (earned - uniform) / (best - uniform)


@pytest.fixture(scope="module")
def others():
    """The lifts of policies that earn less, seed by seed."""
    return {name: np.array([lift(name, seed) for seed in SEEDS]) for name in BEHIND}


def check_that_it_earns(others, policy=registry.DEFAULT_POLICY, player=Ours):
    lifts = np.array([lift(policy, seed, player) for seed in SEEDS])
    assert lifts.mean() > 0.42
    for name, least in BEHIND.items():
        ahead = lifts - others[name]
        assert ahead.min() > 0.0
        assert ahead.mean() > least


def check_that_priors_are_learnt(policy=registry.DEFAULT_POLICY):
    """Where nothing but the banner matters, the default finds that out."""
    world = BannersAlone(0)
    player = Ours(policy, world)
    play(world, player, DECISIONS)
    banner, *others, _ = player.bandit._state.fit.precision**-0.5  # the last is the constant's
    assert banner > 2.0 * max(others)


def test_the_default_earns_in_small_shops(others):
    check_that_it_earns(others)


def test_the_default_learns_its_priors():
    check_that_priors_are_learnt()


@pytest.mark.parametrize(
    ("policy", "player"),
    [("adaptive-thompson:scale=0", Ours), (registry.DEFAULT_POLICY, Blind)],
    ids=["no draws", "draws that ignore the covariance"],
)
def test_a_default_that_explores_wrongly_is_seen(policy, player, others):
    with pytest.raises(AssertionError):
        check_that_it_earns(others, policy, player)


def test_a_prior_that_is_never_learnt_is_seen():
    with pytest.raises(AssertionError):
        check_that_priors_are_learnt("adaptive-thompson:strength=1e12")
