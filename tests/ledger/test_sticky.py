"""Sticky decisions: what is repeated, for how long, and what the log says of it."""

import msgspec
import numpy as np
import pytest

from belated.ledger import snapshots
from belated.ledger.events import START, Decided
from belated.ledger.holdout import is_held_out
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica, outcome_draft
from belated.ledger.sticky import FEWEST, Begun, Stretches, key_of
from belated.ledger.stores.postgres import PostgresLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.upkeep import blanked
from belated.policies import UniformPlay
from support.replicas import SECOND, explicit, new_replica, replayed, same

ACTIONS = {name: [0.1 * k, 0.1, 0.0] for k, name in enumerate("abcdefgh")}


def sticking(sticky=60.0, ledger=None, **settings):
    replica = new_replica(explicit(policy=UniformPlay(), sticky=sticky, **settings), ledger)
    replica.register("shop", ACTIONS)
    return replica


def decided(replica, subject="ann", **ask):
    """A decision that is in the log, and what it says."""
    draft, body = replica.propose("shop", Ask(subject=subject, **ask))
    replica.commit([draft])
    return draft, body


def test_a_subject_gets_its_action_again_until_the_stretch_is_over():
    replica = sticking()
    first, body = decided(replica, probabilities=True)
    assert (body.repeats, body.propensity) == (b"", 1 / 8)
    assert body.stretch.until == first.time + 60 * SECOND
    for seconds in (0, 10, 49):
        replica.clock.now += seconds * SECOND
        again, repeated = decided(replica, probabilities=True)
        assert again.id != first.id
        assert (repeated.action, repeated.propensity) == (body.action, 1.0)
        assert repeated.probabilities == tuple(float(name == body.action) for name in ACTIONS)
        assert (repeated.repeats, repeated.stretch) == (first.id, None)
        assert np.frombuffer(repeated.x).tolist() == ACTIONS[body.action]
    replica.clock.now += 1 * SECOND  # 60 seconds after the first, and 1 after the last
    last, other = decided(replica)
    assert (other.repeats, other.propensity) == (b"", 1 / 8)
    assert other.stretch.until == last.time + 60 * SECOND
    replica.reward([(again.id, 1.0), (first.id, 0.0)])  # each has a reward of its own
    assert replica.folds["shop"].learner.n_observed == 2
    assert same(replica, replayed(replica))


def test_without_a_subject_or_the_setting_every_decision_is_a_choice():
    for replica, subject in ((sticking(), ""), (sticking(None), "ann")):
        bodies = [decided(replica, subject)[1] for _ in range(40)]
        assert len({body.action for body in bodies}) > 2
        assert {(body.stretch, body.repeats) for body in bodies} == {(None, b"")}
        assert "stretches" not in replica.folds["shop"].header()
    assert "sticky" not in replica.folds["shop"].spec.as_kept()


def test_an_action_that_cannot_be_played_ends_the_stretch():
    replica = sticking()
    _, body = decided(replica)
    rest = [name for name in ACTIONS if name != body.action]
    replica.clock.now += 30 * SECOND
    first, other = decided(replica, eligible=rest)
    assert other.repeats == b""
    replica.clock.now += 40 * SECOND  # after the end of the first stretch, and not of the second
    _, again = decided(replica)
    assert (again.action, again.repeats) == (other.action, first.id)


def test_who_is_held_out_repeats_the_baseline_draw():
    replica = sticking(holdout=0.5)  # no baseline has a name: it is drawn uniformly
    subjects = [f"s{k}" for k in range(20)]
    first = {subject: decided(replica, subject)[1] for subject in subjects}
    for subject in subjects:
        body = decided(replica, subject)[1]
        assert body.held_out == is_held_out("shop", subject.encode(), 0.5)
        assert (body.action, body.propensity) == (first[subject].action, 1.0)


@pytest.mark.parametrize("change", [{"sticky": 90.0}, {"holdout": 0.5}, {"baseline": "b"}])
def test_other_groups_end_all_stretches(change):
    replica = sticking()
    decided(replica)
    replica.configure("shop", explicit(policy=UniformPlay(), sticky=60.0, late="revise"))
    assert replica.propose("shop", Ask(subject="ann")).body.repeats
    replica.configure("shop", explicit(policy=UniformPlay(), **{"sticky": 60.0} | change))
    assert not replica.propose("shop", Ask(subject="ann")).body.repeats
    assert same(replica, replayed(replica))


def test_a_ranking_is_repeated_place_by_place():
    replica = sticking()
    ranked = replica.propose_top("shop", Ask(subject="ann"), 4)
    replica.commit([one.draft for one in ranked])
    again = replica.propose_top("shop", Ask(subject="ann"), 4)
    assert [one.body.action for one in again] == [one.body.action for one in ranked]
    assert [one.body.repeats for one in again] == [one.draft.id for one in ranked]
    assert decided(replica)[1].repeats == ranked[0].draft.id  # alone is the first place
    assert same(replica, replayed(replica))


def test_an_erased_subject_begins_anew():
    replica = sticking()
    for subject in ("ann", "bob"):
        decided(replica, subject)
    replica.ledger.forget("shop", "ann", replica.clock.now)
    replica.catch_up()
    assert not replica.propose("shop", Ask(subject="ann")).body.repeats
    assert replica.propose("shop", Ask(subject="bob")).body.repeats
    assert same(replica, replayed(replica))


def history(tmp_path, n=60):
    """Decisions for seven subjects, some of whose stretches are open at the end."""
    replica = sticking(20.0, SQLiteLedger(tmp_path / "x.db"), holdout=0.3)
    rng, times = np.random.default_rng(1), []
    for k in range(n):
        replica.clock.now += int(rng.integers(-2, 4)) * SECOND  # clocks may be set back
        eligible = None if k % 5 else ["a", "b"]
        times.append(decided(replica, f"s{rng.integers(7)}", eligible=eligible)[0].time)
    return replica, times


def test_retention_changes_no_state_however_much_it_takes(tmp_path):
    """The fold reads subjects, but of open stretches alone: these keep them."""
    replica, times = history(tmp_path)
    open_ = len(replica.folds["shop"].stretches.listed())
    assert 2 < open_ < 7
    for before in (*sorted(times)[::6], max(times) + 1):
        replica.ledger.retain(before)
        assert same(replica, replayed(replica))
    events, _ = replica.ledger.follow(START)
    bodies = [msgspec.msgpack.decode(e.body, type=Decided) for e in events if e.id]
    kept = [body for body in bodies if body.subject]
    assert {body.stretch.until > max(times) for body in kept} == {True}
    assert open_ <= len(kept) < len(bodies) / 2
    replica.clock.now += 100 * SECOND
    decided(replica, "s8")  # all other stretches are over now
    replica.ledger.retain(replica.clock.now)
    events, _ = replica.ledger.follow(START)
    bodies = [msgspec.msgpack.decode(e.body, type=Decided) for e in events if e.id]
    assert [body.subject for body in bodies if body.subject] == ["s8"]
    assert same(replica, replayed(replica))


def test_a_retention_that_took_every_subject_would_be_noticed(tmp_path, monkeypatch):
    replica, _ = history(tmp_path)
    forgetful = "belated.ledger.stores.sqlite_upkeep.blanked"
    monkeypatch.setattr(forgetful, lambda body, latest: blanked(body, 2**62))
    replica.ledger.retain(replica.clock.now + SECOND)
    assert not same(replica, replayed(replica))


def test_a_snapshot_goes_on_with_the_open_stretches_and_names_nobody(tmp_path):
    replica, _ = history(tmp_path)
    path = snapshots.save(replica, tmp_path / "snapshots")
    assert b"stretches" in (path / "manifest.json").read_bytes()
    assert b'"s1"' not in (path / "manifest.json").read_bytes()
    replica.ledger.retain(replica.clock.now - 10 * SECOND)
    fresh = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(fresh, tmp_path / "snapshots") == replica.position
    assert same(replica, fresh)
    replica.clock.now += 5 * SECOND
    for k in range(7):
        decided(replica, f"s{k}")
    fresh.catch_up()
    assert same(replica, fresh)
    assert same(replica, replayed(replica))


def test_stretches_that_are_over_take_no_room():
    stretches = Stretches()
    for k in range(10 * FEWEST):
        stretches.latest = k
        stretches.begin(key_of(str(k), 1), Begun(k + 100, "a", b""))
    assert len(stretches.listed()) == 100
    assert len(stretches._begun) <= 2 * FEWEST


def test_several_writers_and_retention_on_postgresql(postgres):
    ledgers = [PostgresLedger(postgres.url, schema="sticky") for _ in range(2)]
    replicas = [sticking(20.0, ledgers[0], holdout=0.3)]
    clock = replicas[0].clock
    replicas.append(Replica(ledgers[1], clock=clock, seed=2))
    rng, repeats = np.random.default_rng(1), 0
    for k in range(40):
        clock.now += int(rng.integers(3)) * SECOND
        replica = replicas[k % 2]
        replica.catch_up()
        subject = f"s{rng.integers(7)}"
        draft, body = replica.propose("shop", Ask(subject=subject))
        assert body.held_out == is_held_out("shop", subject.encode(), 0.3)
        repeats += body.repeats != b""
        replica.commit([draft])
        if k % 3 == 0:
            replica.commit([outcome_draft("", clock.now, draft.id, "calls", float(k))])
            replica.reward([(draft.id, 1.0)])
    assert repeats > 10
    for before in (clock.now - 15 * SECOND, clock.now + 1):
        assert replicas[0].ledger.retain(before).decisions > 0
        for replica in replicas:
            replica.catch_up()
            assert same(replica, replayed(replica))
    kept = [len(replicas[0].ledger.subject("shop", f"s{k}")) for k in range(7)]
    assert 0 < sum(kept) == len(replicas[0].folds["shop"].stretches.listed())
    assert replicas[0].ledger.problems() == []
    for ledger in ledgers:
        ledger.close()
