"""Named worlds are what their names and docstrings claim."""

import math
from itertools import islice

import numpy as np
import pytest

from belated import registry
from belated.experiments.league import peers
from belated.features import Features
from belated.worlds.shops.changing import Drift, NewBanners
from belated.worlds.shops.lateness import Conversions, SlowBanners
from belated.worlds.shops.revenue import Revenue
from belated.worlds.shops.shop import DAY, Shop


def world_named(name, seed=1):
    return registry.load(registry.WORLDS, name)(seed)


def visits(world, count):
    return list(islice(world.visits(), count))


# Name: base rate, actions on offer, features, mean delay in decisions.
CLAIMED = {
    "shop": (0.02, 20, 89, 2500),
    "rare": (0.005, 20, 89, 2500),
    "frequent": (0.3, 20, 89, 2500),
    "few-banners": (0.02, 5, 24, 2500),
    "many-products": (0.05, 500, 94, 5000 / 24),
    "wide": (0.1, 20, 1008, 2500),
    "new-banners": (0.05, 12, 70, 2500),
    "drift": (0.05, 20, 89, 2500),
    "hours": (0.05, 20, 89, 5000 / 24),
    "days": (0.05, 20, 89, 5000),
    "slow-banners": (0.05, 20, 89, None),
    "conversions": (0.05, 20, 89, None),
    "revenue": (None, 20, 89, 2500),
}


def test_every_world_is_claimed_about():
    assert list(CLAIMED) == list(registry.WORLDS)


@pytest.mark.parametrize("name", CLAIMED)
def test_rate_size_and_delay(name):
    rate, actions, dim, delay = CLAIMED[name]
    world = world_named(name)
    assert world.dim == dim
    seen = visits(world, 3000)
    assert {len(visit.actions) for visit in seen} == {actions}
    if rate is not None:
        assert 1.0 / (1.0 + math.exp(-world.theta[-1])) == pytest.approx(rate)
    if delay is not None:
        waits = [world.outcome(visit, 0).wait for visit in seen]
        assert np.mean(waits) == pytest.approx(delay, rel=4.0 / math.sqrt(len(seen)))


@pytest.mark.parametrize("name", [name for name, claim in CLAIMED.items() if claim[0]])
def test_rewards_have_the_expected_mean(name):
    """Rewards of the same action, drawn, against the chances that lift is computed from."""
    world = world_named(name)
    seen = visits(world, 3000)
    chances = np.array([visit.expected[-1] for visit in seen])
    rewards = np.array([world.outcome(visit, -1).reward for visit in seen])
    assert set(rewards) <= {0.0, 1.0}
    error = math.sqrt((chances * (1.0 - chances)).sum())
    assert abs(rewards.sum() - chances.sum()) < 4.0 * error


@pytest.mark.parametrize("name", CLAIMED)
def test_features_of_a_bandit_are_those_of_the_truth(name):
    """The same columns in the same order: a bandit can learn theta itself."""
    world = world_named(name)
    features = Features(categorical=world.categorical(), interactions=world.interactions())
    features.fit(world.rows())
    assert features.dim == world.dim
    for visit in visits(world, 30):
        rows = features.transform(visit.actions, visit.context)
        ones = np.zeros_like(rows)
        ones[np.arange(len(ones))[:, None], visit.places] = 1.0
        assert ((rows != 0.0) == (ones != 0.0)).all()
    assert not features.unmatched.counts


@pytest.mark.parametrize("name", CLAIMED)
def test_luck_and_visitors_do_not_depend_on_what_is_played(name):
    one, other = world_named(name), world_named(name)
    for t, (mine, yours) in enumerate(zip(visits(one, 200), visits(other, 200), strict=True)):
        one.outcome(mine, 0)
        other.outcome(yours, t % len(yours.actions))
        assert mine.luck == yours.luck
        assert mine.context == yours.context
        assert (mine.expected == yours.expected).all()
    assert visits(world_named(name, seed=2), 1)[0].luck != visits(one, 1)[0].luck


def test_a_better_action_never_has_less_luck():
    world = Shop(1)
    for visit in visits(world, 500):
        order = np.argsort(visit.expected)
        rewards = [world.outcome(visit, i).reward for i in order]
        assert rewards == sorted(rewards)


def test_effects_have_the_stated_size():
    """Standard deviations of the groups over many worlds, and where their effects stand."""
    thetas = np.array([Shop(seed).theta for seed in range(400)])
    for group, (start, end, sd) in {
        "banner": (0, 20, 0.5),
        "device": (20, 23, 0.2),
        "country": (23, 28, 0.3),
        "banner x device": (28, 88, 0.4),
    }.items():
        part = thetas[:, start:end]
        assert part.std() == pytest.approx(sd, rel=4.0 / math.sqrt(2 * part.size)), group
    assert (thetas[:, 88] == math.log(0.02 / 0.98)).all()


def test_expected_rewards_by_hand():
    world = Shop(3)
    visit = visits(world, 1)[0]
    device, country = (int(visit.context[c][-1]) for c in ("device", "country"))
    theta, k = world.theta, 7
    score = theta[k] + theta[20 + device] + theta[23 + country] + theta[28 + 3 * k + device]
    assert visit.actions[k] == {"banner": "banner-7"}
    assert visit.expected[k] == pytest.approx(1.0 / (1.0 + math.exp(-score - theta[88])))


def test_slow_banners_are_slow_whether_good_or_not():
    world = SlowBanners(1)
    assert sorted(world.mean_waits)[:: world.items - 1] == pytest.approx([0.2 * DAY, 3 * DAY])
    seen = visits(world, 3000)
    for k in (0, 5):
        waits = [world.outcome(visit, k).wait for visit in seen]
        assert np.mean(waits) == pytest.approx(world.mean_waits[k], rel=0.08)
    related = [
        np.corrcoef(other.mean_waits, other.theta[:20])[0, 1]
        for other in map(SlowBanners, range(60))
    ]
    assert abs(np.mean(related)) < 4.0 / math.sqrt(60 * 20)


def test_only_buyers_report_and_none_after_the_window():
    world = Conversions(1)
    ever = Shop.expected(world, np.array([0.0, 1.0]))
    assert world.expected(np.array([0.0, 1.0])) / ever == pytest.approx(1.0 - math.exp(-4.0))
    outcomes = [world.outcome(visit, 0) for visit in visits(world, 40_000)]
    waits = np.array([outcome.wait for outcome in outcomes if outcome.reward == 1.0])
    assert {outcome.wait for outcome in outcomes if outcome.reward == 0.0} == {math.inf}
    within = -math.expm1(-4.0)  # the law of a delay given that it is within the window
    expected = [-math.expm1(-4.0 * share) / within for share in (0.1, 0.25, 0.5, 1.0)]
    shares = [(waits <= share * world.window).mean() for share in (0.1, 0.25, 0.5, 1.0)]
    assert shares == pytest.approx(expected, abs=4.0 * 0.5 / math.sqrt(len(waits)))


def test_new_banners_replace_the_oldest():
    world = NewBanners(1)
    first, later = world.offered(0), world.offered(400)
    assert (world.offered(399) == first).all()
    assert set(first) - set(later) == {first[0]}
    assert set(later) - set(first) == {first[-1] + 1}
    assert (
        len(set(np.concatenate([world.offered(t) for t in range(world.decisions)])))
        == world.items - 1
    )


def test_drift_leaves_nothing_of_the_start_but_the_rate():
    worlds = [Drift(seed) for seed in range(200)]
    start, middle, end = (
        np.array([world.theta_at(t)[:88] for world in worlds]) for t in (0, 5_000, 10_000)
    )
    assert np.corrcoef(start.ravel(), end.ravel())[0, 1] == pytest.approx(0.0, abs=0.04)
    assert middle.std() == pytest.approx(start.std(), rel=0.04)
    assert worlds[0].theta_at(10_000)[-1] == worlds[0].theta_at(0)[-1]


def test_noise_of_revenue_is_shared_and_normal():
    world = Revenue(1)
    seen = visits(world, 3000)
    noise = np.array([world.outcome(visit, 3).reward - visit.expected[3] for visit in seen])
    other = np.array([world.outcome(visit, 8).reward - visit.expected[8] for visit in seen])
    assert noise == pytest.approx(other)
    assert noise.std() == pytest.approx(2.0, rel=0.06)
    assert noise.mean() == pytest.approx(0.0, abs=0.15)


def test_ours_are_not_told_the_noise_of_revenue_and_peers_are():
    world = Revenue(1)
    assert registry.parse(registry.FAMILIES, world.family).learns_sd
    assert peers.noise(world) == world.noise == 2.0
