"""What lateness will cost: identical runs cost nothing, units, batches against a slow twin."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import naive.one_pass
from belated import Bernoulli, DelayedOFUGLM, Gaussian, Tanh
from belated.engine.lanes import RECORD, Batched, rounds_late
from belated.engine.worlds import Lane, WorldSettings, play_world
from belated.model.protocols import mean
from belated.theory import delay_cost
from belated.theory.planning import _arms, _near_from
from belated.worlds.delays import Constant, Empirical, Exponential, Informative, Never, Scaled
from belated.worlds.environments import UnitBall

SMALL = {"dim": 2, "per_day": 50, "days": 2, "n_actions": 4, "runs": 3, "seed": 5}
SMALL["family"] = "gaussian"
MINUTES = 24 * 60 / 50  # between two decisions
ANY = np.zeros(2)  # an action: the delays here do not depend on it


# --------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("every", ["1/4", "9/10", "1", "5/2", "3", "43/4", "125/3", "1000"])
def test_batches_match_their_definition(every):
    exact, T = Fraction(every), 400
    for t in range(0, 60, 7):
        for late in range(40):
            waits = naive.one_pass.rounds_until_batch_end(t + 1 + late, exact)
            found = rounds_late(Batched(Constant(late), float(exact)), 0, t, ANY, 0.5, 1.0, T)
            assert found == min(late + waits, T + 1)


def test_batches_of_odd_lengths_never_come_early():
    """However the quotient is rounded, a reward is not used before it returns."""
    rng = np.random.default_rng(1)
    for every in rng.uniform(1e-3, 1.0, 300):
        t, late = (int(n) for n in rng.integers(0, 10**6, 2))
        assert rounds_late(Batched(Constant(late), every), 0, t, ANY, 0.5, 1.0, 10**7) == late


def test_batches_of_what_never_returns():
    assert rounds_late(Batched(Never(), 3.0), 0, 5, ANY, 0.5, 1.0, 100) == 101
    assert rounds_late(Batched(Constant(0.0), 1e300), 0, 5, ANY, 0.5, 1.0, 100) == 101
    assert rounds_late(Batched(Empirical([2.0]), 4.0), 0, 0, ANY, 0.5, 1.0, 100) == 3
    with pytest.raises(ValueError, match=r"every = 0: expected a finite number above 0"):
        Batched(Constant(0.0), 0)


class LastBest:
    """Plays the row most like the last action that was rewarded."""

    def start(self, dim, rng):
        self.x = np.ones(dim)

    def choose(self, actions, t):
        return np.argmax(actions @ self.x)

    def observe(self, x, y):
        self.x = x if y > 0.5 else self.x


def batches_are_delays(policy, law):
    """Batches of a round change nothing, longer ones do, also where delays look at the reward."""
    delays = [law, Batched(law, 1.0), Scaled(law), Batched(Scaled(law), 20.0)]
    lanes = tuple(Lane(policy, Bernoulli(), delay) for delay in delays)
    plain, single, scaled, batched = play_world(
        WorldSettings(UnitBall(5), 2, 90, 0, 3, np.arange(1, 91), lanes)
    )
    np.testing.assert_array_equal(plain, single)
    np.testing.assert_array_equal(plain, scaled)
    observed = batched[:, RECORD.index("observed")]
    changes = np.flatnonzero(np.diff(observed, prepend=0.0)) + 1
    assert changes.tolist() == [20, 40, 60, 80]
    assert (observed[changes - 1] >= plain[changes - 1, RECORD.index("observed")]).all()


LAWS = [Exponential(6.0), Informative(below=Constant(3.0))]


@pytest.mark.parametrize("policy", [DelayedOFUGLM(), LastBest()], ids=["compiled", "own"])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_batches_are_delays_to_all_lanes(policy, law):
    batches_are_delays(policy, law)


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_compiled_batches(law):
    batches_are_delays(DelayedOFUGLM(), law)


# ----------------------------------------------------------------------------------------- costs


@pytest.mark.parametrize("policy", ["delayed-ofu-glm", "thompson"])
@pytest.mark.parametrize("gap", [None, 0.3])
def test_no_delay_costs_nothing(policy, gap):
    found = delay_cost(
        "constant:0", policy=policy, gap=gap, batch_minutes=MINUTES, replica_seconds=0, **SMALL
    )
    assert found.cost == found.error == 0.0
    for way in found.ways[1:]:
        np.testing.assert_array_equal(way.regret, found.ways[0].regret)
        assert way.decisions == found.ways[0].decisions


def test_what_changes_nothing():
    """Batches as long as a round, a replica that is not behind: the late runs again."""
    found = delay_cost("exponential:8", batch_minutes=MINUTES, replica_seconds=0, **SMALL)
    at_once, late, batched, behind = found.ways
    assert (late.regret != at_once.regret).any()
    np.testing.assert_array_equal(late.regret, batched.regret)
    np.testing.assert_array_equal(late.regret, behind.regret)


def test_cost_grows_with_lateness():
    """Little noise: what is lost is lost while waiting."""
    clear = {"dim": 2, "per_day": 100, "days": 1.5, "n_actions": 5, "runs": 6}
    found = [
        delay_cost(
            f"constant:{hours}",
            family="gaussian:0.1",
            within=20,
            batch_minutes=720,
            replica_seconds=7200,
            **clear,
        )
        for hours in (0.5, 4, 12)
    ]
    for less, more in pairwise(found):
        extra = more.ways[1].regret[:, -1] - less.ways[1].regret[:, -1]
        assert extra.mean() > 3.0 * extra.std(ddof=1) / np.sqrt(6)
        assert more.ways[1].days > less.ways[1].days
    for result in found:
        at_once, late, batched, behind = result.ways
        assert at_once.cost < late.cost < behind.cost
        assert late.cost < batched.cost
        assert at_once.days < late.days < batched.days


def test_hours_minutes_and_seconds_become_rounds():
    """At 120 decisions a day an hour is five rounds."""
    world = {"dim": 3, "n_actions": 4, "runs": 2, "seed": 2, "family": "gaussian"}
    hours = delay_cost(
        "constant:2", per_day=120, days=1, batch_minutes=60, replica_seconds=3600, **world
    )
    lanes = tuple(
        Lane(DelayedOFUGLM(), Gaussian(), Batched(Constant(late), every))
        for late, every in ((0.0, 1.0), (10.0, 1.0), (10.0, 5.0), (15.0, 1.0))
    )
    checkpoints = np.arange(1, 121)
    np.testing.assert_array_equal(hours.t, checkpoints)
    for run in range(2):
        settings = WorldSettings(UnitBall(4), 3, 120, run, 2, checkpoints, lanes)
        record = play_world(settings._replace(theta_star=np.eye(3)[0]))
        for way, lane in zip(hours.ways, record, strict=True):
            np.testing.assert_array_equal(way.regret[run], lane[:, RECORD.index("regret")])
    twice = delay_cost("constant:1", per_day=240, days=0.5, **world)
    np.testing.assert_array_equal(twice.ways[1].regret, hours.ways[1].regret)
    assert twice.ways[1].days == hours.ways[1].days / 2


def test_cost_is_the_paired_difference():
    found = delay_cost("exponential:8", **SMALL)
    lost = found.ways[1].regret[:, -1] - found.ways[0].regret[:, -1]
    assert found.cost == pytest.approx(lost.mean())
    assert found.error == pytest.approx(np.sqrt(((lost - lost.mean()) ** 2).sum() / 2 / 3))
    expected = stats.ttest_1samp(lost, 0.0).confidence_interval(0.95)
    assert found.interval == pytest.approx((expected.low, expected.high))


def test_an_hour_has_a_cost_where_the_delay_has_one():
    """As in the answer of ``belated plan``: not where nothing can be told."""
    found = delay_cost("exponential:8", **SMALL)
    low, high = found.interval
    late = found.ways[1]
    for ends, per_hour in (((0.5, 2.0), found.cost / 8.0), ((-0.5, 2.0), None)):
        ways = found.ways[0], replace(late, interval=ends)
        other = replace(found, ways=ways)
        assert other.per_hour == per_hour
        assert (" for every hour, " in other.sentence) == (per_hour is not None)
        assert f"({ends[0]:.3g} to {ends[1]:.3g} with 95% confidence)" in other.sentence
    assert low < found.cost < high
    assert replace(found, hours=np.inf).per_hour is None


@pytest.mark.parametrize(
    ("rates", "decisions"),
    [
        ([0.5, 0.3, 0.1, 0.1], 20.0),
        ([0.5, 0.1, 0.3, 0.1], 30.0),  # once is not for good
        ([0.1, 0.1, 0.2, 0.2], 0.0),
        ([0.1, 0.1, 0.1, 0.5], np.inf),
    ],
)
def test_near_the_best_from_when_on(rates, decisions):
    t, regret = np.arange(0, 50, 10), np.cumsum([0.0, *rates]) * 10.0
    assert _near_from(t, regret, 0.21) == decisions


def test_luck_in_a_few_decisions_is_not_nearness():
    """One decision in three is wrong, for ever, and the last ones are not."""
    t = np.arange(201)
    assert _near_from(t, np.cumsum(t % 3 == 0).astype(float), 0.2) == np.inf
    good_from_90 = np.cumsum((t % 3 == 1) & (t < 90)).astype(float)
    assert 80.0 <= _near_from(t, good_from_90, 0.2) <= 90.0
    good_from_3 = np.minimum(t, 3).astype(float)
    assert _near_from(t, good_from_3, 0.2) == 3.0


@pytest.mark.parametrize("family", [Gaussian(), Bernoulli(), Tanh()], ids=repr)
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_gap_is_the_gap(family, dim):
    world = WorldSettings(UnitBall(6), dim, 10, 3, 4, np.array([10]), ())
    arms = _arms(world, family, 0.8, 0.2).arms
    values = np.sort([mean(family, 0.8 * x[0]) for x in arms])
    np.testing.assert_allclose(values[-1] - values[:-1], 0.2, rtol=1e-12)
    assert np.linalg.norm(arms, axis=1).max() <= 1.0 + 1e-12
    rows = {
        int(_arms(world._replace(run=r), family, 0.8, 0.2).arms[:, 0].argmax()) for r in range(9)
    }
    assert len(rows) > 1, "a tie must not always go to the best"


def test_best_action():
    """Against 50,000 draws of the largest of four first coordinates; and known with a gap."""
    rng = np.random.default_rng(3)
    g = rng.standard_normal((50_000, 4, 2))
    x = g[:, :, 0] / np.sqrt((g**2).sum(2) + 2.0 * rng.standard_exponential((50_000, 4)))
    logistic = {**SMALL, "family": "bernoulli", "days": 0.2, "runs": 2}
    found = delay_cost("constant:0", **logistic)
    assert found.best == pytest.approx((1.0 / (1.0 + np.exp(-x.max(1)))).mean(), abs=0.01)
    known = delay_cost("constant:0", gap=0.1, norm=0.5, **logistic)
    assert known.best == pytest.approx(1.0 / (1.0 + np.exp(-0.5)))


def test_sentence_and_picture(tmp_path):
    found = delay_cost(
        "exponential:8", batch_minutes=[60, 600], replica_seconds=30, within=50, **SMALL
    )
    for words in (
        "In 2 days of 50 decisions",
        "8 hours late",
        "within 50% of the best",
        "from day",
    ):
        assert words in found.sentence
    assert "batches every 60 min" in found.sentence
    assert found.sentence.count(". ") == 0
    figure = found.plot(tmp_path / "cost.png")
    assert (tmp_path / "cost.png").read_bytes()[:4] == b"\x89PNG"
    left, right = figure.axes
    assert left.get_xlabel() == right.get_xlabel() == "days"
    assert left.get_xlim() == (0.0, 2.0)
    assert len(left.collections) == 5  # bands
    assert len(right.collections) == 4
    never = delay_cost("never", within=0.1, **SMALL)
    assert "rewards that return late cost" in never.sentence
    assert "not in that time" in never.sentence


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delay": 24}, "delay = 24: expected a delay or its name"),
        ({"delay": "expnential:24"}, "did you mean exponential"),
        ({"family": Constant(1.0)}, "family = Constant.*expected a family"),
        ({"policy": 3}, "policy = 3: expected a policy"),
        ({"per_day": 0}, "per_day = 0: expected a finite number above 0"),
        ({"days": 1e-9}, r"days \* per_day = 0: expected a whole number, 1 or more"),
        ({"days": 1e9}, r"days \* per_day = .*at most \d+ decisions"),
        ({"norm": 2.0}, "norm = 2.0: expected at most 1, the m1 of the policy"),
        ({"gap": 0.9, "family": "bernoulli"}, r"gap = 0.9: expected at most 0.4621"),
        ({"gap": -1}, "gap = -1: expected"),
        ({"within": 100}, "within = 100: expected per cent, below 100"),
        ({"n_actions": 1}, "n_actions = 1: expected a whole number, 2 or more"),
        ({"runs": 1}, "runs = 1: expected a whole number, 2 or more"),
        ({"batch_minutes": 0}, "batch_minutes = 0: expected"),
        ({"replica_seconds": [5, -1]}, "replica_seconds = -1: expected"),
    ],
    ids=str,
)
def test_bad_arguments(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        delay_cost(**{"delay": "exponential:24", **SMALL, **wrong})


def test_scaled_refuses_what_is_not_a_law():
    with pytest.raises(TypeError, match=r"law = 3\.0: expected a delay"):
        Scaled(3.0)
    with pytest.raises(ValueError, match=r"factor = 0: expected"):
        Scaled(Constant(1.0), 0)
