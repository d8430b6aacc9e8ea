"""A conversion loop that learns from silence, as a fold over its log."""

from itertools import pairwise

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.core.sparse import dense
from belated.learner.action_intervals import intervals
from belated.learner.heard_law import HeardLaw
from belated.learner.learner import Learner
from belated.learner.rows import rows_between
from belated.ledger import snapshots
from belated.ledger.events import START, Draft, Kind
from belated.ledger.fold import Fold
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.tools.retraining import draft_of
from belated.model.state import ERROR
from belated.monitoring import delay_doubts
from belated.policies import AdaptiveThompson, Thompson
from belated.service.retrain_settings import retrained_view
from support.replicas import DIM, HOUR, SECOND, decide, new_replica, replayed, same

POLICY = AdaptiveThompson(strength=1e12)  # a prior that is learnt depends on when it was learnt
SETTINGS = {"loop": "conversion", "window": 3600.0}


def silent(open="silence", policy=POLICY, family=None, **more):
    return Spec.of(DIM, family or Bernoulli(), policy, **SETTINGS, open=open, **more)


def lived(spec, n=60):
    replica = new_replica(spec)
    live(replica, n)
    return replica


def live(replica, n, seed=1, minutes=3):
    """Let a replica decide every few minutes; every fourth decision converts, soon."""
    rng, to_come = np.random.default_rng(seed), []
    for k in range(n):
        replica.clock.now += minutes * 60 * SECOND
        now = replica.clock.now
        replica.expire()
        due = [id for time, id in to_come if time <= now]
        to_come = [(time, id) for time, id in to_come if time > now]
        if due:
            replica.reward([(id, 1.0) for id in due])
        id = decide(replica, rng)
        if k % 4 == 0:
            to_come.append((now + int(rng.exponential(600)) * SECOND, id))


def resumed_from_a_snapshot(replica, folder):
    snapshots.save(replica, folder)
    resumed = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(resumed, folder) == replica.position
    return resumed


def test_learns_before_the_first_window_closes():
    replica = lived(silent(), n=15)
    fold = replica.folds["shop"]
    assert fold.counts.expired == 0
    y, silence = fold.learner.history.y[:15], fold.learner.history.silence[:15]
    assert (y == 1.0).any()
    open_rows = np.isnan(y[:14])
    assert (silence[:14][open_rows] > 0.0).all()  # the last one was just made
    held = lived(silent(open="hold"), n=15).folds["shop"]
    assert held.learner.n_observed == 0
    assert same(replica, replayed(replica))


@pytest.mark.parametrize("window", [1800.0, 7200.0])
def test_another_window_is_promoted_and_live_is_replay_bit_for_bit(window, tmp_path):
    replica = lived(silent(), n=40)
    view, promotion = retrained_view(replica.ledger, "shop", {"window": window})
    assert view.against == []
    replica.commit([draft_of(view, promotion, replica.clock())])
    live(replica, 40, seed=2)
    fold = replica.folds["shop"]
    assert fold.hearing.window == window * SECOND
    assert fold.hearing.windows == [(0, HOUR), (40, window * SECOND)]
    assert fold.hearing.n_open > 0
    assert same(replica, replayed(replica))
    assert same(replica, resumed_from_a_snapshot(replica, tmp_path))
    view, promotion = retrained_view(replica.ledger, "shop", {"back": True})
    replica.commit([draft_of(view, promotion, replica.clock())])
    live(replica, 5, seed=3)
    windows = replica.folds["shop"].hearing.windows
    assert windows == [(40, window * SECOND), (80, HOUR)]
    assert same(replica, replayed(replica))


def test_live_is_replay_bit_for_bit_in_batches_of_any_size():
    replica = lived(silent())
    fold, (events, _) = replica.folds["shop"], replica.ledger.follow(START)
    assert same(replica, replayed(replica))
    for size in (1, 7, 1000):
        again = Fold("shop", silent())
        mine = [event for event in events if event.bandit == "shop"]
        start = 0
        while start < len(mine):
            end = min(start + size, len(mine))
            while end < len(mine) and mine[end].tx == mine[end - 1].tx:
                end += 1  # whole transactions
            again.apply(mine[start:end])
            start = end
        assert again.digest() == fold.digest()


@pytest.mark.parametrize("more", [{}, {"late": "revise", "half_life": 20.0}, {"combine": "max"}])
def test_a_snapshot_goes_on_bit_for_bit(tmp_path, more):
    replica = lived(silent(**more), n=40)
    fold = replica.folds["shop"]
    replica.reward([(decide(replica, np.random.default_rng(2)), 1.0)])
    assert fold.hearing.rewards  # not learnt before the next tick
    resumed = resumed_from_a_snapshot(replica, tmp_path)
    n_learnt = fold.learner.n_observed
    live(replica, n=40, seed=2)
    assert fold.learner.n_observed > n_learnt + 20
    resumed.catch_up()
    assert same(replica, resumed)


def test_intervals_have_the_error_of_the_law_live_replayed_and_from_a_snapshot(tmp_path):
    replica, X = lived(silent(), n=40), np.eye(DIM)
    replica.reward([(decide(replica, np.random.default_rng(2)), 1.0)])  # after the last tick
    learner = replica.folds["shop"].learner
    known = intervals(learner, X)
    for other in (replayed(replica), resumed_from_a_snapshot(replica, tmp_path)):
        assert intervals(other.folds["shop"].learner, X) == known
    learner.law = HeardLaw()
    for (mean, low, high), (same_mean, lower, higher) in zip(
        intervals(learner, X), known, strict=True
    ):
        assert mean == same_mean
        assert lower < low < high < higher


def test_once_all_windows_are_closed_a_learnt_prior_is_all_that_is_left_of_silence():
    """The default policy learnt it when silence counted; the rest is the ordinary posterior."""
    replica = lived(silent(policy=AdaptiveThompson()), n=50)
    replica.clock.now += HOUR + SECOND
    replica.expire()
    learner = replica.folds["shop"].learner
    theta, fit = learner.exact_theta(), learner.state.fit
    x = dense(rows_between(learner.history, 0, 50), DIM)
    residuals = 1.0 / (1.0 + np.exp(-x @ theta)) - learner.history.y[:50]
    gradient = x.T @ residuals + fit.precision[fit.group] * theta
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)


def test_once_all_windows_are_closed_the_estimate_is_the_ordinary_one():
    replica = lived(silent(), n=50)
    replica.clock.now += HOUR + SECOND
    replica.expire()  # which begins a tick: nothing is open any more
    learner = replica.folds["shop"].learner
    assert learner.n_observed == 50
    ordinary = Learner(DIM, Bernoulli(), POLICY, 1.0)
    for row in dense(rows_between(learner.history, 0, 50), DIM):
        ordinary.decide(row[np.newaxis], np.random.default_rng(0))
    ordinary.learn(dict(enumerate(learner.history.y[:50].tolist())))
    np.testing.assert_allclose(learner.exact_theta(), ordinary.exact_theta(), atol=1e-9)
    assert learner.state.scalars[ERROR] <= POLICY.tol
    assert same(replica, replayed(replica))


def test_what_comes_after_the_last_decision_is_learnt(tmp_path):
    """A campaign decides once, and the next one asks what came of it."""
    replica, rng = new_replica(silent()), np.random.default_rng(1)
    ids = [decide(replica, rng) for _ in range(40)]
    fold, learnt = replica.folds["shop"], []

    for id in ids[:3]:
        replica.reward([(id, 1.0)])  # as long as decisions are expected, they begin the ticks
        learnt.append(fold.learner.n_observed)
    replica.clock.now += 300 * SECOND
    for id in ids[3:28]:
        replica.reward([(id, 1.0)])
        learnt.append(fold.learner.n_observed)
        if id == ids[25]:
            resumed = resumed_from_a_snapshot(replica, tmp_path)
    assert learnt == [0, 0, 0, *range(4, 17), 16, 18, 18, 20, 20, 22, 22, 24, 24, 26, 26, 28]
    assert np.all(fold.learner.history.silence[28:40] > 0.0)
    assert fold.hearing.failures == pytest.approx(fold.learner.history.silence[:40].sum())
    resumed.catch_up()
    assert same(replica, resumed)
    replica.clock.now += HOUR
    replica.expire()
    assert fold.learner.n_observed == 40
    assert fold.heard_words().endswith(
        "40 decisions whose reward is known; 0 silent ones count for nothing"
    )
    assert same(replica, replayed(replica))


def test_time_passes_for_open_decisions_where_nobody_decides():
    """Nothing happens in the night: what the silence says in the morning has to be in the log."""
    replica, rng = new_replica(silent()), np.random.default_rng(1)
    ids = [decide(replica, rng) for _ in range(40)]
    replica.clock.now += 300 * SECOND
    replica.reward([(id, 1.0) for id in ids[:10]])
    failures, ages = [], []
    for minute in range(6, 60):
        replica.clock.now += 60 * SECOND
        replica.expire()
        if replica.folds["shop"].hearing.failures not in failures:
            failures.append(replica.folds["shop"].hearing.failures)
            ages.append(minute)
    assert failures == sorted(failures)
    assert all(later > 1.6 * age for age, later in pairwise(ages))  # about twice as old
    events = replica.ledger.follow(START)[0]
    assert 2 <= sum(event.kind == Kind.QUIET for event in events) <= 4
    replica.clock.now += HOUR
    replica.expire()
    replica.expire()
    assert len(replica.ledger.follow(START)[0]) == len(events) + 40  # and no more: none is open
    assert same(replica, replayed(replica))


def test_decisions_that_were_cancelled_are_no_failures_when_all_windows_are_closed():
    replica, rng = new_replica(silent()), np.random.default_rng(1)
    ids = [decide(replica, rng) for _ in range(40)]
    fold = replica.folds["shop"]
    replica.clock.now += HOUR // 2
    replica.reward([(id, 1.0) for id in ids[:20]])
    assert fold.hearing.n_open == 20
    replica.commit([Draft(Kind.CANCELLED, "", id, replica.clock()) for id in ids[20:]])
    replica.clock.now += HOUR
    replica.expire()
    assert (len(fold.pending), fold.hearing.n_open, fold.hearing.failures) == (0, 0, 0.0)
    assert not fold.learner.history.silence[:40].any()
    assert same(replica, replayed(replica))


def test_live_is_replay_where_rewards_are_forgotten():
    replica = lived(silent(half_life=20.0), n=30)
    learner = replica.folds["shop"].learner
    assert learner.history.silence.any()
    assert learner.history.weight[0] < 0.5
    assert same(replica, replayed(replica))


def test_live_is_replay_where_delays_are_doubted(monkeypatch, tmp_path):
    monkeypatch.setattr(delay_doubts, "LEAST", 3)
    monkeypatch.setattr(delay_doubts, "FACTOR", 1.0)
    monkeypatch.setattr(delay_doubts, "IMPROBABLE", 0.9)  # chance is enough
    replica, held = new_replica(silent()), set()
    rng = np.random.default_rng(5)
    for k in range(120):
        replica.clock.now += 180 * SECOND
        replica.expire()
        id = decide(replica, rng)
        if k % 3 == 0:
            replica.clock.now += int(rng.exponential(60 if k < 60 else 600)) * SECOND
            replica.reward([(id, 1.0)])
        fold = replica.folds["shop"]
        if fold.hearing.doubts.hold and not held & {("delay-drift",)}:
            resumed = resumed_from_a_snapshot(replica, tmp_path)
            assert same(replica, resumed)
            assert resumed.folds["shop"].broken_assumptions() == fold.broken_assumptions()
        held.add(tuple(fold.broken_assumptions()))
    assert held == {(), ("delay-drift",)}
    resumed.catch_up()
    assert same(replica, resumed)
    assert same(replica, replayed(replica))


def test_cancelled_and_revised_decisions():
    replica = lived(silent(late="revise"), n=20)
    fold, rng = replica.folds["shop"], np.random.default_rng(3)
    one, two = decide(replica, rng), decide(replica, rng)
    row = fold.pending.get(one).row
    replica.commit([Draft(Kind.CANCELLED, "", one, replica.clock())])
    replica.reward([(two, 1.0)])
    replica.clock.now += 300 * SECOND
    decide(replica, rng)
    assert fold.learner.history.silence[row] == 0.0
    assert np.isnan(fold.learner.history.y[row])
    assert fold.learner.history.y[row + 1] == 1.0
    replica.clock.now += HOUR + SECOND
    replica.expire()
    replica.commit([Draft(Kind.REVISED, "", two, replica.clock(), 0.0)])
    decide(replica, rng)
    assert fold.learner.history.y[row + 1] == 0.0
    assert same(replica, replayed(replica))


@pytest.mark.parametrize(
    ("combine", "after_one", "after_both"),
    [("first", 2.0, 2.0), ("last", 2.0, 1.0), ("sum", 2.0, 3.0), ("max", 2.0, 2.0)],
)
def test_several_rewards_are_learnt_as_they_come(combine, after_one, after_both):
    """The first one above zero ends the silence; what it amounts to is revised."""
    replica = new_replica(silent(family=Poisson(), combine=combine))
    rng, start = np.random.default_rng(4), replica.clock()
    id, fold = decide(replica, rng), replica.folds["shop"]

    def hand_in(name, value, minutes):
        replica.clock.now = start + minutes * 60 * SECOND
        replica.reward([(id, value, None, name)])
        decide(replica, rng)  # begins a tick
        return fold.learner.history.y[0], fold.hearing.codes[0]

    assert hand_in("zero", 0.0, 2) == (0.0, 0)
    value, code = hand_in("a", 2.0, 15)
    assert (value, code) == (0.0 if combine == "first" else after_one, 32 * (combine != "first"))
    value, again = hand_in("b", 1.0, 30)
    assert value == (0.0 if combine == "first" else after_both)
    assert again == code  # the delay is that of the first
    assert same(replica, replayed(replica))
    replica.clock.now += HOUR
    replica.expire()
    decide(replica, rng)
    assert fold.learner.history.y[0] == value
    assert same(replica, replayed(replica))


def test_words_say_what_open_decisions_count_for():
    replica = lived(silent(), n=15)
    fold = replica.folds["shop"]
    silence = fold.learner.history.silence[: fold.n_rows]
    assert fold.hearing.failures == pytest.approx(silence.sum(), rel=1e-12)
    n = fold.learner.n_observed
    assert fold.heard_words().startswith(f"learnt from {n} decision")
    assert f"; {(silence[:14] > 0).sum()} silent ones count for " in fold.heard_words()
    doubted = "rates look too high" in fold.heard_words()
    assert doubted == (fold.counts.expired == 0)
    for id, pending in fold.pending.items():
        known = pending.held is not None
        assert fold.silence_of(id) == (None if known else silence[pending.row])
    held = lived(silent(open="hold"), n=5).folds["shop"]
    assert (held.heard_words(), held.silence_of(next(held.pending.items())[0])) == ("", None)


def test_nothing_learnt_yet_in_words():
    replica = new_replica(silent())
    id = decide(replica, np.random.default_rng(1))
    replica.reward([(id, 1.0)])
    said = replica.folds["shop"].waiting_words(replica.clock())
    assert said.startswith("1 reward to take in with the first decision in ")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: silent(policy=Thompson()), "open = 'silence': expected 'hold': Thompson of"),
        (
            lambda: silent(family=Gaussian(sd=1.0)),
            "AdaptiveThompson of Gaussian rewards learns nothing from silence: an amount of 0 has "
            "probability zero",
        ),
        (lambda: silent(default_reward=1.0), "default_reward = 1.0: expected 0 where open"),
        (
            lambda: Spec.of(DIM, Bernoulli(), POLICY, window=60.0, open="silence"),
            "open = 'silence': expected 'hold' in a loop with explicit rewards",
        ),
        (lambda: silent(open="loud"), "open = 'loud': expected 'hold' or 'silence'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make().learner()


def test_the_window_stays():
    with pytest.raises(ValueError, match=r"window = 60.0: expected 3600.0, as the log has it"):
        silent().changed_to(
            Spec.of(DIM, Bernoulli(), POLICY, **SETTINGS | {"window": 60.0}, open="silence")
        )
    with pytest.raises(ValueError, match="open = 'hold': expected 'silence'"):
        silent().changed_to(silent(open="hold"))
