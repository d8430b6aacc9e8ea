"""A promotion: all events, from the first on, under other settings; live equals replayed."""

from itertools import count

import msgspec
import numpy as np
import pytest

from belated import Bernoulli, DelayedOFUGLM, Gaussian
from belated.features import Features
from belated.ledger import StoreUnavailableError, open_ledger, snapshots
from belated.ledger.events import START, Decided, Kind
from belated.ledger.promotion import Promotion
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.policies.adaptive_thompson import AdaptiveThompson
from belated.policies.greedy import Greedy
from belated.policies.thompson import Thompson
from support.replicas import DIM, HOUR, decide, explicit, new_replica, replayed, same

POLICIES = (DelayedOFUGLM, Thompson, Greedy, AdaptiveThompson)


def features_of(*columns):
    rows = [
        {"ad": ad, "device": device, "hour": hour}
        for ad in "ab"
        for device in "pd"
        for hour in "mn"
    ]
    return Features(categorical=columns).fit([{c: row[c] for c in columns} for row in rows])


def with_features(columns, **settings):
    features = features_of(*columns)
    return Spec.of(features.dim, Bernoulli(), Greedy(), features=features.to_dict(), **settings)


def promote(replica, spec, regime, layout="", name="shop"):
    replica.promote(name, Promotion(spec, regime, layout))
    replica.catch_up()


def without(fold, n):
    """The digest of a fold, as if so many promotions had not been counted as events."""
    fold.version -= n
    try:
        return fold.digest()
    finally:
        fold.version += n


def play(replicas, rng, n, rewards=(0.0, 1.0)):
    """Lets replicas decide and learn in turn, each behind what the others wrote."""
    for k in range(n):
        replica = replicas[k % len(replicas)]
        id = decide(replica, rng)
        if rng.random() < 0.6:
            replica.reward([(id, float(rng.choice(rewards)))])
        replica.clock.now += HOUR // 7
        replica.expire()


def test_a_promoted_bandit_is_what_it_would_be_had_it_been_made_so():
    """Of explicit rewards, with the same decisions: the promoted one and one made like this."""
    replica, rng = new_replica(explicit(Gaussian(sd=0.5), Greedy())), np.random.default_rng(1)
    play([replica], rng, 40)
    wanted = explicit(Gaussian(sd=0.5), Thompson())
    promote(replica, wanted, "one")
    play([replica], rng, 10)
    twin = new_replica(wanted)
    events = [e for e in replica.ledger.follow(START)[0][1:] if e.kind is not Kind.PROMOTED]
    twin.folds["shop"].apply(events)
    fold = replica.folds["shop"]
    assert fold.spec == wanted
    assert without(fold, 1) == twin.folds["shop"].digest()
    assert same(replica, replayed(replica))


@pytest.mark.parametrize("seed", range(3))
def test_live_equals_replayed_whatever_is_promoted(seed):
    """Several replicas, some behind, with erasures, changes of settings, and promotions."""
    rng = np.random.default_rng(seed)
    loop = (
        {"late": "revise"},
        {"loop": "conversion", "window": 3600.0},
        {"loop": "conversion", "window": 3600.0, "open": None},
    )[seed % 3]

    def make(policy, **settings):
        return Spec.of(DIM, Bernoulli(), policy, **{**loop, **settings})

    first = new_replica(make(AdaptiveThompson()))
    others = [Replica(first.ledger, clock=first.clock, seed=s) for s in (2, 3)]
    replicas, names = [first, *others], count()
    for replica in others:
        replica.catch_up()
    for step in range(12):
        what = rng.integers(6) if step else 0
        replica = replicas[int(rng.integers(3))]
        if what == 0:
            policy = POLICIES[int(rng.integers(4))]()
            spec = replica.fold("shop").spec
            wanted = make(policy, exploration=spec.exploration)
            replica.promote("shop", Promotion(wanted, f"r{next(names)}"))
        elif what == 1:
            replica.catch_up()
            back = replica.fold("shop").told.back()
            if back is not None:
                replica.promote("shop", back)
        elif what == 2:
            replica.catch_up()
            spec = replica.fold("shop").spec
            replica.configure(
                "shop", msgspec.structs.replace(spec, exploration=float(rng.random()))
            )
        elif what == 3:
            decide(replica, rng, subject="me")
            replica.ledger.forget("shop", "me", replica.clock())
        else:
            play(replicas, rng, 4)
        replica.catch_up()
        if step % 4 == 3:
            assert same(replica, replayed(replica))
    for replica in replicas:
        replica.catch_up()
        assert same(replica, first)


@pytest.mark.parametrize("store", ["memory", pytest.param("postgres", marks=pytest.mark.slow)])
def test_the_way_back_is_bit_for_bit_as_if_nothing_had_been_promoted(request, store):
    """But for the two events that were counted."""
    url = "memory://"
    if store == "postgres":
        url = request.getfixturevalue("postgres").new_database("promoted")
    replica = new_replica(explicit(Bernoulli(), AdaptiveThompson()), open_ledger(url))
    rng = np.random.default_rng(1)
    play([replica], rng, 20)
    replica.configure("shop", explicit(Bernoulli(), AdaptiveThompson(), half_life=10.0))
    play([replica], rng, 10)
    twin = replayed(replica)
    before = replica.folds["shop"].spec
    promote(replica, explicit(Bernoulli(), Greedy()), "one")
    play([replica], rng, 10)
    changed = msgspec.structs.replace(replica.folds["shop"].spec, exploration=0.5)
    replica.configure("shop", changed)
    back = replica.folds["shop"].told.back()
    assert back == Promotion(msgspec.structs.replace(before, exploration=0.5), "")
    promote(replica, back.spec, back.regime)
    play([replica], rng, 10)
    fold = replica.folds["shop"]
    assert fold.spec == back.spec
    configured = msgspec.structs.replace(before, exploration=0.5)
    for event in replica.ledger.follow(twin.position)[0]:
        if event.kind is Kind.CONFIGURED:
            event = msgspec.structs.replace(event, body=msgspec.json.encode(configured.as_kept()))
        if event.kind is not Kind.PROMOTED:
            twin.folds["shop"].apply([event])
    assert without(fold, 2) == twin.folds["shop"].digest()
    assert same(replica, replayed(replica))
    again = fold.told.back()
    assert again.regime == "one"  # the way back has a way back
    promote(replica, again.spec, "one")
    assert replica.folds["shop"].spec == msgspec.structs.replace(changed, exploration=0.5)
    assert same(replica, replayed(replica))
    replica.ledger.close()


def test_a_snapshot_from_before_a_promotion_is_not_used(tmp_path):
    replica, rng = new_replica(explicit(Bernoulli(), Greedy())), np.random.default_rng(1)
    play([replica], rng, 10)
    snapshots.save(replica, tmp_path)
    promote(replica, explicit(Bernoulli(), Thompson()), "one")
    fresh = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(fresh, tmp_path) == START
    snapshots.save(replica, tmp_path)
    assert len(snapshots.found(tmp_path)) == 1  # the outdated one was removed
    play([replica], rng, 10)
    fresh = Replica(replica.ledger, clock=replica.clock)
    assert snapshots.load(fresh, tmp_path) > START
    fresh.catch_up()
    assert fresh.folds["shop"].told.regime == "one"
    assert same(replica, fresh)
    promote(fresh, explicit(Bernoulli(), Greedy()), "two")  # a resumed one can be promoted
    replica.catch_up()
    assert same(replica, fresh)
    assert same(replica, replayed(replica))


def ask_for(replica, rng, subject=""):
    context = {"device": "pd"[int(rng.integers(2))], "hour": "mn"[int(rng.integers(2))]}
    ask = Ask(context=context, context_json=msgspec.json.encode(context), subject=subject)
    draft = replica.propose("shop", ask).draft
    replica.commit([draft])
    return draft.id


def test_new_features_are_made_from_the_contexts_in_the_log():
    spec = with_features(["ad", "device"], exploration=0.5)
    replica, rng = new_replica(spec), np.random.default_rng(1)
    replica.register("shop", {"a": {"ad": "a"}, "b": {"ad": "b"}})
    behind = Replica(replica.ledger, clock=replica.clock, seed=5)
    ids = [ask_for(replica, rng) for _ in range(20)]
    replica.reward([(id, float(rng.integers(2))) for id in ids])
    behind.catch_up()
    wanted = with_features(["ad", "hour"], exploration=0.5)
    assert wanted.dim == spec.dim  # the length of a vector does not tell by what it was made
    replica.promote("shop", Promotion(wanted, "one", "one"))
    propose = behind.propose(
        "shop", Ask(context={"device": "p", "hour": "m"}, context_json=b'{"device":"p","hour":"m"}')
    )
    replica.commit([propose.draft])  # by the features of before
    ids = [ask_for(replica, rng) for _ in range(10)]
    replica.reward([(id, 1.0) for id in ids])
    fold = replica.folds["shop"]
    bodies = [
        msgspec.msgpack.decode(e.body, type=Decided)
        for e in replica.ledger.follow(START)[0]
        if e.kind is Kind.DECIDED
    ]
    assert {body.layout for body in bodies} == {"", "one"}
    rows = [
        features_of("ad", "hour").transform(
            [{"ad": body.action}], msgspec.json.decode(body.context)
        )[0]
        for body in bodies
    ]
    assert np.array_equal(fold.learner.history.x[: len(rows)], rows)
    assert not fold.lost
    assert same(replica, replayed(replica))
    back = fold.told.back()
    assert (back.regime, back.layout, back.spec.features) == ("", "", spec.features)
    promote(replica, back.spec, "")
    fold = replica.folds["shop"]
    rows = [
        features_of("ad", "device").transform(
            [{"ad": body.action}], msgspec.json.decode(body.context)
        )[0]
        for body in bodies
    ]
    assert np.array_equal(fold.learner.history.x[: len(rows)], rows)
    behind.catch_up()
    assert same(replica, behind)
    assert same(replica, replayed(replica))


def test_features_that_grow_grow_in_their_own_layout():
    spec = with_features(["ad", "device"])
    replica, rng = new_replica(spec), np.random.default_rng(1)
    replica.register("shop", {"a": {"ad": "a"}, "b": {"ad": "b"}})

    def grow():
        spec = replica.folds["shop"].spec
        more = Features.from_dict(spec.features).with_categories({"ad": ["c", "d"]})
        replica.configure(
            "shop", msgspec.structs.replace(spec, features=more.to_dict(), dim=more.dim)
        )
        replica.register("shop", {"c": {"ad": "c"}, "d": {"ad": "d"}})

    ids = [ask_for(replica, rng) for _ in range(5)]
    promote(replica, with_features(["ad", "hour"]), "one", "one")
    grow()
    ids += [ask_for(replica, rng) for _ in range(5)]
    replica.reward([(id, 1.0) for id in ids])
    back = replica.folds["shop"].told.back()
    assert back.spec == spec  # it did not grow here
    promote(replica, back.spec, "")
    assert replica.folds["shop"].learner.dim == spec.dim
    assert same(replica, replayed(replica))
    grow()
    forth = replica.folds["shop"].told.back()
    assert (forth.regime, forth.spec.dim) == ("one", spec.dim + 2)
    replica.promote("shop", forth)
    replica.catch_up()
    ids = [ask_for(replica, rng) for _ in range(5)]
    assert replica.folds["shop"].learner.dim == spec.dim + 2
    assert not replica.folds["shop"].lost
    assert same(replica, replayed(replica))


def test_what_comes_in_at_the_moment_of_a_promotion_harms_nobody():
    """A replica that has not read of it writes what the new settings cannot have."""
    replica, rng = new_replica(explicit(Gaussian(sd=1.0), Greedy())), np.random.default_rng(1)
    behind = Replica(replica.ledger, clock=replica.clock, seed=5)
    behind.catch_up()
    ids = [decide(replica, rng) for _ in range(3)]
    behind.catch_up()
    behind.take_in = lambda events, position: None  # it does not read on
    replica.promote("shop", Promotion(explicit(Bernoulli(), Greedy()), "one"))
    behind.reward([(ids[0], 0.5), (ids[1], 1.0)])
    replica.catch_up()
    fold = replica.folds["shop"]
    assert fold.lost == {"a reward that this family cannot have": 1}
    assert fold.learner.n_observed == 1
    assert same(replica, replayed(replica))


def test_a_live_bandit_decides_on_until_its_successor_is_there():
    """As a service does it: rebuilt beside, caught up, swapped in."""
    replica, rng = new_replica(explicit(Bernoulli(), Greedy())), np.random.default_rng(1)
    other = Replica(replica.ledger, clock=replica.clock, seed=5)
    play([replica], rng, 10)
    replica.rebuilds_beside = True
    promote(replica, explicit(Bernoulli(), Thompson()), "one")
    assert replica.folds["shop"].spec.policy["type"] == "greedy"
    play([replica], rng, 5)
    other.catch_up()
    other.configure("shop", explicit(Bernoulli(), Thompson(), exploration=0.5))
    decide(other, rng)
    replica.catch_up()
    assert replica.folds["shop"].spec.exploration == 0.0  # that is for its successor
    bodies = [
        msgspec.msgpack.decode(event.body, type=Decided)
        for event in replica.ledger.follow(START)[0]
        if event.kind is Kind.DECIDED
    ]
    assert [body.regime for body in bodies] == [""] * 15 + ["one"]
    rebuild = replica.rebuilding["shop"]
    fold = replica.replayed("shop", rebuild.end)
    for events in rebuild.since:
        fold.apply(events)
    replica.swap("shop", fold)
    assert same(replica, replayed(replica))
    assert replica.folds["shop"].spec.exploration == 0.5


def test_a_store_that_fails_at_the_moment_of_a_promotion(monkeypatch):
    replica, rng = new_replica(explicit(Bernoulli(), Greedy())), np.random.default_rng(1)
    play([replica], rng, 10)
    before, follow, asked = replica.folds["shop"].digest(), replica.ledger.follow, count()

    def fails(after, limit=100_000):
        if after == START and next(asked) == 0:  # the first read of the rebuild
            raise StoreUnavailableError("gone")
        return follow(after, limit)

    monkeypatch.setattr(replica.ledger, "follow", fails)
    replica.promote("shop", Promotion(explicit(Bernoulli(), Thompson()), "one"))  # it is written
    assert replica.folds["shop"].digest() == before
    replica.catch_up()
    assert replica.folds["shop"].told.regime == "one"
    assert same(replica, replayed(replica))
