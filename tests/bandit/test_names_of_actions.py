"""Names of actions in the log: given, made of their features, or row numbers that tell nothing."""

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli, Features
from belated.ledger.events import BY_FEATURES, BY_PLACE, START, Decided, Kind
from belated.ledger.hearing import UNNAMED
from belated.ledger.stores.memory import MemoryLedger
from belated.monitoring.delay_doubts import NAME_THEM
from support.replicas import replayed, same

HOUR = 3600.0
BANNERS = [{"banner": name} for name in ("boots", "tent", "map")]


class Shop:
    """A bandit over a log in memory, with a clock that is set by hand."""

    def __init__(self, features=None, **more):
        self.now, self.ledger = 0.0, MemoryLedger()
        settings = {"window": HOUR, "default_reward": 0.0, **more}
        self.bandit = Bandit(
            *(() if features else (3,)),
            features=features,
            family=Bernoulli(),
            seed=1,
            ledger=self.ledger,
            clock=lambda: self.now,
            **settings,
        )

    @property
    def replica(self):
        return self.bandit._backend._replica

    def logged(self):
        events, _ = self.ledger.follow(START)
        bodies = [event.body for event in events if event.kind is Kind.DECIDED]
        return [msgspec.msgpack.decode(body, type=Decided) for body in bodies]

    def groups(self):
        return list(self.replica.folds["bandit"].hearing.actions)


def of_banners():
    return Features(categorical=["banner"]).fit(BANNERS)


def test_shuffled_banners_have_their_names_in_the_log():
    shop, rng = Shop(of_banners()), np.random.default_rng(1)
    for _ in range(30):
        rows = [BANNERS[k] for k in rng.permutation(3)]
        decision = shop.bandit.decide(rows)
        body = shop.logged()[-1]
        assert body.action == rows[decision.index]["banner"]
        assert (body.index, body.naming, body.names) == (decision.index, BY_FEATURES, None)
        assert not body.of_registered
    assert sorted(shop.groups()) == ["boots", "map", "tent"]
    assert same(shop.replica, replayed(shop.replica))


@pytest.mark.parametrize(
    ("columns", "actions", "names"),
    [
        (
            {"categorical": ["banner", "colour"], "numeric": ["price"]},
            [{"banner": "boots", "colour": c, "price": 1.0} for c in ("red", 7)],
            ["boots, red", "boots, 7"],
        ),
        (
            {"hashed": {"product": 8}},
            [{"product": 17}, {"product": "x\ud800"}],
            ["17", '"x\\ud800"'],
        ),
        ({"categorical": ["banner"]}, [{"banner": "a"}, {"banner": "a"}], None),  # not told apart
        ({"categorical": ["banner"], "optional": ["banner"]}, [{"banner": "a"}, {}], None),
        ({"categorical": ["banner"]}, [{"banner": "a" * 201}, {"banner": "b"}], None),
        ({"numeric": ["price"]}, [{"price": 1.0}, {"price": 2.0}], None),
    ],
)
def test_names_are_made_of_categories(columns, actions, names):
    shop = Shop(Features(**columns).fit(actions))
    for given in (actions, iter(actions)):
        decision = shop.bandit.decide(given)
        body = shop.logged()[-1]
        expected = str(decision.index) if names is None else names[decision.index]
        assert (body.action, body.naming) == (expected, BY_FEATURES if names else BY_PLACE)
    assert [row.name for row in shop.bandit.ranking(iter(actions))] == [
        str(row.index) if names is None else names[row.index]
        for row in shop.bandit.ranking(actions)
    ]


def test_values_of_the_context_are_no_part_of_a_name():
    features = Features(categorical=["banner", "device"])
    shop = Shop(features.fit(BANNERS, {"device": "phone"}))
    decision = shop.bandit.decide(BANNERS, {"device": "phone"})
    assert shop.logged()[-1].action == BANNERS[decision.index]["banner"]


def test_names_that_are_given_count():
    shop, rows, names = Shop(), np.eye(3), ["boots", "tent", "7"]
    decisions = [shop.bandit.decide(rows, names=names)]
    decisions += shop.bandit.decide_many([rows, rows], names=[names, np.array(names)])
    decisions += shop.bandit.decide_many([rows] * 2, names=names)
    decisions += shop.bandit.decide_top(rows, top=3, names=names)
    bodies = shop.logged()
    assert [body.action for body in bodies] == [names[d.index] for d in decisions]
    assert {body.naming for body in bodies} == {""}
    assert bodies[0].names == tuple(names)
    assert set(shop.groups()) <= set(names)
    assert {row.name for row in shop.bandit.ranking(rows, names=names)} == set(names)
    assert same(shop.replica, replayed(shop.replica))


def test_row_numbers_are_one_group():
    shop = Shop()
    for _ in range(5):
        shop.bandit.decide(np.eye(3))
    shop.bandit.decide_top(np.eye(3), top=3)
    bodies = shop.logged()
    assert {body.naming for body in bodies} == {BY_PLACE}
    assert sorted(body.action for body in bodies[-3:]) == ["0", "1", "2"]
    assert shop.groups() == [UNNAMED]


def test_a_log_that_does_not_say_how_actions_got_their_names_is_read_as_before():
    before = msgspec.msgpack.encode(
        msgspec.structs.astuple(Decided(b"", "1", 1, None, 0, "p", 0.0, 0.0, 0.0))[:-1]
    )
    body = msgspec.msgpack.decode(before, type=Decided)
    assert (body.action, body.naming, body.of_registered) == ("1", "", True)


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["a", "b"], ValueError),
        (["a", "b", "b"], ValueError),
        (["a", "b", ""], ValueError),
        (["a", "b", 3], ValueError),
        (["a", "b", "c" * 201], ValueError),
        ("abc", TypeError),
        (3, TypeError),
    ],
)
def test_names_that_do_not_fit_are_refused(names, error):
    expected = "expected 3 different texts of 1 to 200 characters, one per action"
    for bandit in (Shop().bandit, Bandit(3, family=Bernoulli())):
        with pytest.raises(error, match=f"names = .*: {expected}"):
            bandit.decide(np.eye(3), names=names)
        assert bandit.n_decided == 0
    with pytest.raises(ValueError, match=r"expected 2 lists of names, one per decision"):
        bandit.decide_many([np.eye(3)] * 2, names=[["a", "b", "c"]])


def shifting(decide, hours=30, each=20, seed=3):
    """Decisions that all convert, soon or slowly by banner; the slow banner is played later on."""
    rng, to_come = np.random.default_rng(seed), []
    for k in range(hours * each):
        now = k * HOUR / each
        slow = rng.random() < (0.1 if k < hours * each / 2 else 0.9)
        mean = (0.75 if slow else 0.07) * HOUR
        delay = -mean * np.log1p(rng.random() * np.expm1(-HOUR / mean))
        due = [id for time, id in to_come if time <= now]
        to_come = [(time, id) for time, id in to_come if time > now]
        id = decide(now, due, int(slow))
        to_come.append((now + delay, id))


@pytest.mark.filterwarnings("ignore::belated.AssumptionWarning")
def test_a_slow_banner_that_is_played_more_is_a_drift_only_without_names():
    named, unnamed, found = Shop(of_banners()), Shop(), {}

    def decide(shop, actions):
        def one(now, due, slow):
            shop.now = now
            if due:
                shop.bandit.learn([(id, 1.0) for id in due])
            id = shop.bandit.decide(actions[slow]).id
            for broken in shop.bandit.broken_assumptions:
                found.setdefault(id, (shop, broken))
            return id

        return one

    shifting(decide(named, [[BANNERS[0]], [BANNERS[1]]]))
    assert sorted(named.groups()) == ["boots", "tent"]
    assert not found
    shifting(decide(unnamed, [np.eye(3)[:1], np.eye(3)[1:2]]))
    assert {broken.name for _, broken in found.values()} == {"delay-drift"}
    assert all(broken.change.endswith(NAME_THEM) for _, broken in found.values())
    assert same(unnamed.replica, replayed(unnamed.replica))
