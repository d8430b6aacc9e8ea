"""The state is a fold over the log: replayed, resumed, duplicated, reordered, revised."""

import math
from collections import Counter
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from belated import Bernoulli, Gaussian, Poisson
from belated.core.events import Status
from belated.ledger import StoreUnavailableError
from belated.ledger.events import START, Draft, Kind
from belated.ledger.proposing import NOTHING_SAID, Ask
from belated.ledger.protocol import Importer
from belated.ledger.replica import Replica
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.policies.adaptive_thompson import AdaptiveThompson
from belated.policies.greedy import Greedy
from belated.policies.inverse_gap import InverseGap
from belated.policies.thompson import Thompson
from naive import ledger as naive_ledger
from support.replicas import (
    DIM,
    HOUR,
    SECOND,
    conversion,
    decide,
    explicit,
    new_replica,
    random_actions,
    replayed,
    same,
)
from support.simulation_checks import check_counts, check_estimate


def test_learns_on_arrival_in_an_explicit_loop():
    rng, replica = np.random.default_rng(1), new_replica(explicit(Gaussian(sd=0.1)))
    ids = [decide(replica, rng) for _ in range(5)]
    fold = replica.folds["shop"]
    assert (fold.learner.n_decided, fold.learner.n_observed) == (5, 0)
    assert replica.reward([(ids[3], 0.5), (ids[0], -0.25)]) == ["accepted"] * 2
    assert fold.learner.n_observed == 2
    X, y = fold.learner.history.x[[0, 3]], np.array([-0.25, 0.5])
    W = fold.learner.policy.lam * np.eye(DIM) + X.T @ X
    assert fold.learner.state.theta == pytest.approx(np.linalg.solve(W, X.T @ y), abs=1e-12)
    assert [id for id, _ in fold.pending.items()] == [ids[1], ids[2], ids[4]]


def test_holds_every_conversion_until_its_window_closes():
    rng, replica = np.random.default_rng(1), new_replica(conversion())
    ids = [decide(replica, rng) for _ in range(3)]
    fold = replica.folds["shop"]
    assert replica.reward([(ids[1], 1.0)]) == ["accepted"]
    replica.clock.now += HOUR
    assert replica.expire() == 0  # the window is still open
    assert fold.learner.n_observed == 0
    replica.clock.now += 1
    assert replica.expire() == 3
    assert fold.learner.history.y[:3].tolist() == [0.0, 1.0, 0.0]
    assert not fold.pending
    assert replica.expire() == 0
    assert same(replica, replayed(replica))


def test_learning_conversions_on_arrival_would_be_biased():
    """Why they are held: conversions come before the zeros of their window W.

    After a time L the estimate would be p L / (L - (1 - p) W) instead of p.
    """
    p, window, length = 0.05, 1000, 2000
    rng = np.random.default_rng(3)
    converted = rng.random(length * 20) < p
    made = np.repeat(np.arange(length), 20)
    closed = made + window < length
    naive = converted.sum() / (converted.sum() + (closed & ~converted).sum())
    held = converted[closed].mean()
    assert naive == pytest.approx(p * length / (length - (1 - p) * window), rel=0.1)
    assert held == pytest.approx(p, rel=0.1)


@pytest.mark.parametrize("late", ["keep", "revise"])
def test_late_conversions_are_kept_and_revise_where_wanted(late):
    rng, replica = np.random.default_rng(1), new_replica(conversion(late=late))
    ids = [decide(replica, rng) for _ in range(2)]
    fold = replica.folds["shop"]
    replica.clock.now += HOUR + 1
    # one comes after the window but before its expiry is in the log
    expected = ["accepted" if late == "revise" else "expired"]
    assert replica.reward([(ids[0], 1.0)]) == expected
    assert replica.expire() == 2
    assert replica.reward([(ids[1], 1.0)]) == expected
    y = fold.learner.history.y[:2].tolist()
    assert y == ([1.0, 1.0] if late == "revise" else [0.0, 0.0])
    assert fold.counts.late == 2
    assert same(replica, replayed(replica))
    truth = new_replica(explicit())
    twins = [truth.propose("shop", Ask(matrix=x[None])).draft for x in fold.learner.history.x[:2]]
    truth.commit(twins)
    truth.reward(zip((draft.id for draft in twins), y, strict=True))
    assert fold.learner.exact_theta() == pytest.approx(
        truth.folds["shop"].learner.exact_theta(), abs=1e-9
    )


@pytest.mark.parametrize("family", [Gaussian(sd=0.5), Bernoulli()])
def test_a_revision_is_as_if_the_first_reward_had_never_been(family):
    first, second = (
        new_replica(explicit(family, late="revise", window=60.0), name=n) for n in ("shop", "shop")
    )
    for replica, wrong in ((first, True), (second, False)):
        rng = np.random.default_rng(5)
        ids = [decide(replica, rng) for _ in range(30)]
        truth = (np.arange(30) % 3 == 0).astype(float)
        sent = np.where(np.arange(30) < 10, 1.0 - truth, truth) if wrong else truth
        replica.reward(zip(ids, sent, strict=True))
        if wrong:
            now = replica.clock()
            drafts = [Draft(Kind.REVISED, "", ids[k], now, float(truth[k])) for k in range(10)]
            assert {o.status for o in replica.commit(drafts)} == {Status.ACCEPTED}
    a, b = first.folds["shop"].learner, second.folds["shop"].learner
    assert a.exact_theta() == pytest.approx(b.exact_theta(), abs=1e-9)
    assert np.array_equal(a.history.y[:30], b.history.y[:30])
    assert same(first, replayed(first))


def test_a_revision_of_a_late_reward_is_learnt_before_its_expiry_is_in_the_log_and_after():
    rng, replica = np.random.default_rng(1), new_replica(explicit(window=60.0))
    ids = [decide(replica, rng) for _ in range(3)]
    fold = replica.folds["shop"]
    replica.clock.now += 61 * SECOND
    assert replica.reward([(id, 0.0) for id in ids]) == ["expired"] * 3
    assert fold.learner.n_observed == 0
    first, second, _ = (Draft(Kind.REVISED, "", id, replica.clock(), 1.0) for id in ids)
    assert replica.commit([first])[0].status == Status.ACCEPTED
    assert replica.expire() == 2
    assert replica.commit([second])[0].status == Status.ACCEPTED
    assert fold.learner.history.y[:2].tolist() == [1.0, 1.0]
    assert fold.learner.n_observed == 2
    assert fold.counts.expired == 2
    assert not fold.pending
    assert same(replica, replayed(replica))


def test_expiry_and_cancellation_in_an_explicit_loop():
    rng, replica = np.random.default_rng(1), new_replica(explicit(window=60.0, late="revise"))
    ids = [decide(replica, rng) for _ in range(3)]
    replica.commit([Draft(Kind.CANCELLED, "", ids[0], replica.clock())])
    replica.clock.now += 61 * SECOND
    assert replica.expire() == 2
    fold = replica.folds["shop"]
    assert fold.learner.n_observed == 0
    assert (fold.counts.cancelled, fold.counts.expired) == (1, 2)
    assert replica.reward([(ids[2], 1.0)]) == ["accepted"]
    assert fold.learner.n_observed == 1
    assert replica.reward([(ids[0], 1.0)]) == ["conflict"]
    assert same(replica, replayed(replica))


@pytest.mark.parametrize(
    ("spec", "n"),
    [
        (explicit(), 12),
        (explicit(policy=AdaptiveThompson()), 180),  # the prior is learnt several times
        (explicit(Gaussian(sd=None), AdaptiveThompson()), 180),
    ],
)
def test_a_forgotten_subject_leaves_no_trace_in_the_model(spec, n):
    with_me, without_me = new_replica(spec), new_replica(spec)
    for replica in (with_me, without_me):
        rng = np.random.default_rng(2)
        for k in range(n):
            mine = k % 3 == 0
            actions = random_actions(rng)
            if mine and replica is without_me:
                continue
            subject = "me" if mine else ""
            proposal = replica.propose("shop", Ask(matrix=actions[:1], subject=subject))
            replica.commit([proposal.draft])
            replica.reward([(proposal.draft.id, float(k % 2))])
    assert with_me.ledger.forget("shop", "me", with_me.clock()) == n // 3
    with_me.catch_up()
    a, b = with_me.folds["shop"], without_me.folds["shop"]
    assert a.counts.erased == n // 3
    assert np.array_equal(a.learner.state.theta, b.learner.state.theta)
    assert np.array_equal(a.learner.state.W, b.learner.state.W)
    for part, other in zip(a.learner.state.fit, b.learner.state.fit, strict=True):
        assert np.array_equal(part, other)
    assert same(with_me, replayed(with_me))
    decide(with_me, rng)
    assert same(with_me, replayed(with_me))


class FailsWhenArmed(MemoryLedger):
    """Cannot be read from the start while ``armed``."""

    armed = False

    def follow(self, after, limit=100_000):
        if self.armed and after == START:
            raise StoreUnavailableError("armed")
        return super().follow(after, limit)


def test_a_store_that_fails_while_a_subject_is_forgotten_makes_nothing_count_twice():
    replica = new_replica(explicit(), FailsWhenArmed())
    replica.configure("other", explicit())
    rng = np.random.default_rng(1)
    decide(replica, rng, subject="me")
    replica = replayed(replica)
    decide(replica, rng, "other")
    replica.ledger.forget("shop", "me", replica.clock())
    replica.ledger.armed = True
    with pytest.raises(StoreUnavailableError):
        replica.catch_up()
    replica.ledger.armed = False
    replica.catch_up()
    replica.catch_up()
    assert replica.folds["other"].learner.n_decided == 1
    assert same(replica, replica)


def silent(family=None, **settings):
    policy = AdaptiveThompson()
    return conversion(family=family, policy=policy, open="silence", **settings)


class AnyReplica(RuleBasedStateMachine):
    """Whatever happens, replay equals live, duplicates change nothing, and order hardly matters."""

    ids_made = count()

    @initialize(
        spec=st.sampled_from(
            [
                explicit(),
                explicit(Gaussian(sd=0.5)),
                explicit(window=50.0, late="revise"),
                conversion(),
                conversion(late="revise"),
                conversion(grace=1800.0),
                explicit(window=50.0, grace=500.0, late="revise"),
                explicit(combine="first", window=500.0),
                explicit(Gaussian(sd=0.5), combine="sum"),
                explicit(combine="last", window=50.0, grace=500.0),
                conversion(combine="max", grace=1800.0),
                conversion(combine="last", policy=Greedy()),
                explicit(Gaussian(sd=0.5), Thompson()),
                conversion(policy=Greedy()),
                explicit(half_life=5.0),
                explicit(Gaussian(sd=0.5), window=50.0, late="revise", half_life=2.5),
                conversion(late="revise", half_life=1800.0, half_life_unit="seconds"),
                explicit(policy=AdaptiveThompson()),
                explicit(policy=AdaptiveThompson(), window=50.0, late="revise", half_life=5.0),
                conversion(policy=AdaptiveThompson(), open="hold"),
                explicit(Gaussian(sd=None), AdaptiveThompson()),
                silent(),
                conversion(policy=InverseGap(), open="silence"),
                silent(late="revise", half_life=5.0),
                silent(grace=1800.0, combine="first"),
                silent(grace=1800.0, combine="max"),
                silent(combine="last"),
                silent(Poisson(), combine="sum"),
            ]
        )
    )
    def start(self, spec):
        self.spec, self.replica = spec, new_replica(spec)
        self.rng = np.random.default_rng(7)
        self.ids = []
        self.sent = {}
        self.decide(4)

    @property
    def fold(self):
        return self.replica.folds["shop"]

    @rule(n=st.integers(1, 4))
    def decide(self, n):
        proposals = [
            self.replica.propose("shop", Ask(matrix=random_actions(self.rng))) for _ in range(n)
        ]
        outcomes = self.replica.commit([p.draft for p in proposals])
        assert {o.status for o in outcomes} == {Status.ACCEPTED}
        self.ids += [p.draft.id for p in proposals]

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def reward(self, data):
        chosen = data.draw(st.lists(st.sampled_from(range(len(self.ids))), min_size=1, max_size=5))
        now, ago = self.replica.clock(), st.sampled_from([None, 0, 1, 40, 400, 4000, -70])
        pairs = []
        for k in chosen:
            seconds = data.draw(ago)  # since it happened
            at = None if seconds is None else now - seconds * SECOND
            value, name = float(k % 2), data.draw(st.sampled_from(["", "", "x", "y"]))
            if self.spec.combine is not None and name:
                value = 1.0 - value
            pairs.append((self.ids[k], value, at, name))
        for (id, value, _, name), status in zip(pairs, self.replica.reward(pairs), strict=True):
            assert status in ("accepted", "duplicate", "expired", "conflict", "invalid")
            if status == "accepted":
                self.sent.setdefault((id, name), value)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def send_again(self, data):
        before = self.fold.digest()
        if self.sent:
            id, name = data.draw(st.sampled_from([*self.sent]))
            again = (id, self.sent[id, name], None, name)
            assert self.replica.reward([again] * 2) == ["duplicate"] * 2
        assert self.fold.digest() == before

    @rule(seconds=st.integers(1, 4000))
    def wait(self, seconds):
        self.replica.clock.now += seconds * SECOND

    @rule()
    def close_windows(self):
        self.replica.expire()
        assert self.replica.expire() == 0

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def cancel(self, data):
        id = data.draw(st.sampled_from(self.ids))
        self.replica.commit([Draft(Kind.CANCELLED, "", id, self.replica.clock())])

    @precondition(lambda self: self.ids and self.fold.learner.can_revise)
    @rule(data=st.data(), value=st.sampled_from([0.0, 1.0]))
    def revise(self, data, value):
        id = data.draw(st.sampled_from(self.ids))
        draft = Draft(Kind.REVISED, "", id, self.replica.clock(), value)
        (outcome,) = self.replica.commit([draft])
        assert self.spec.combine is None or outcome.status == Status.INVALID
        if outcome.status == Status.ACCEPTED:
            self.sent = {key: old for key, old in self.sent.items() if key[0] != id}
            self.sent[id, ""] = value

    @invariant()
    def replay_is_live(self):
        if hasattr(self, "replica"):
            assert same(self.replica, replayed(self.replica))

    @invariant()
    def the_rules_are_kept(self):
        """What is pending, learnt and counted is what a slow twin makes of the log."""
        if hasattr(self, "replica"):
            check_counts(self.fold, self.twin())

    def twin(self):
        return naive_ledger.read(self.replica.ledger.follow(START)[0])["shop"]

    def teardown(self):
        if not getattr(self, "ids", None):
            return
        check_estimate(self.fold, self.twin())
        learner = self.fold.learner
        if getattr(learner.estimator, "order_matters", False) or self.fold.hearing is not None:
            return  # where decisions are silent, there may be several modes
        n = learner.n_decided
        X, y = learner.history.x[:n], learner.history.y[:n]
        order = self.rng.permutation(np.flatnonzero(~np.isnan(y)))
        twin, weights = self.spec.learner(), learner.history.weight[:n]
        rows, rewards = np.arange(n), np.zeros(n)
        none = np.zeros(n, np.int64)
        twin.fold(none, X.copy(), rows, rewards, none, weights)
        ones = np.ones(1, np.int64)
        for row in order:  # one by one, in another order
            where = np.array([row])
            twin.fold(ones, np.zeros((0, DIM)), where, y[where], ones)
        ours, theirs = learner.exact_theta(), twin.exact_theta()
        H = getattr(learner.state.fit, "H", learner.state.W)
        difference = ours - theirs
        assert math.sqrt(difference @ H @ difference) <= 1e-10
        certified = learner.state.scalars[1] + twin.state.scalars[1]
        difference = learner.state.theta - twin.state.theta
        assert math.sqrt(difference @ H @ difference) <= 2.0 * certified + 1e-10


TestAnyReplica = pytest.mark.slow(AnyReplica.TestCase)
TestAnyReplica.settings = settings(
    max_examples=1000,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_two_processes_on_one_file_agree(tmp_path):
    """Each writes and reads the log of the other; both folds are those of the log."""
    rng = np.random.default_rng(1)
    first = new_replica(explicit(), SQLiteLedger(tmp_path / "a.db"))
    second = Replica(SQLiteLedger(tmp_path / "a.db"), clock=first.clock, seed=2)
    second.catch_up()
    waiting = []
    for k in range(40):
        replica = (first, second)[int(rng.integers(2))]
        waiting.append(decide(replica, rng))
        if k % 3 == 0:
            other = (first, second)[int(rng.integers(2))]
            id = waiting.pop(int(rng.integers(len(waiting))))
            assert other.reward([(id, 1.0)]) == ["accepted"]
    first.catch_up()
    second.catch_up()
    assert same(first, second)
    assert same(first, replayed(first))


def test_catching_up_goes_to_the_end_though_another_wrote_after_us(tmp_path):
    """What a ledger wrote itself it hands on without reading the log, which may have gone on."""
    rng = np.random.default_rng(1)
    first = new_replica(explicit(), SQLiteLedger(tmp_path / "a.db"))
    second = Replica(SQLiteLedger(tmp_path / "a.db"), clock=first.clock, seed=2)
    second.catch_up()
    proposal = first.propose("shop", Ask(matrix=random_actions(rng)))
    first.ledger.commit([proposal.draft])  # not taken in yet
    decide(second, rng)
    assert first.catch_up() == 2
    assert same(first, second)


@pytest.mark.parametrize("loop_kind", ["explicit", "conversion"])
@pytest.mark.parametrize("late", ["keep", "revise"])
@pytest.mark.parametrize("searched", [0, 16])
def test_what_a_fold_remembers_is_what_the_store_would_find(
    tmp_path, monkeypatch, loop_kind, late, searched
):
    """A store that is told by the fold which decisions are open judges as one that looks."""
    monkeypatch.setattr("belated.ledger.replica.MOST_SEARCHED", searched)
    rng = np.random.default_rng(1)
    spec = explicit(loop=loop_kind, window=5.0, grace=3.0, late=late)
    replica, looking = (
        new_replica(spec, SQLiteLedger(tmp_path / "a.db")),
        SQLiteLedger(tmp_path / "b.db"),
    )
    ids, statuses = [], Counter()
    for _ in range(400):
        drafts = []
        for _ in range(int(rng.integers(1, 4))):
            time = replica.clock() + int(rng.integers(-8, 9)) * SECOND  # clocks disagree
            if rng.random() < 0.3 or not ids:
                drafts.append(replica.propose("shop", Ask(matrix=random_actions(rng))).draft)
                ids.append(drafts[-1].id)
                continue
            kind = Kind(rng.choice([1, 1, 1, 2, 3, 4]))
            value = float(rng.integers(2)) if kind in (Kind.REWARDED, Kind.REVISED) else None
            id = ids[-1 - int(rng.integers(min(9, len(ids))))]
            received = replica.clock() if value is not None and rng.random() < 0.5 else None
            drafts.append(Draft(kind, "", id, time, value, received=received))
        told = replica.commit(drafts)
        assert told == looking.commit(drafts, Importer(replica.accepts))
        pairs = zip(drafts, told, strict=True)
        statuses.update((draft.kind, outcome.status) for draft, outcome in pairs)
        replica.clock.now += int(rng.integers(SECOND))
    assert min(statuses[Kind.REWARDED, status] for status in list(Status)[:3]) > 20
    assert statuses[Kind.REWARDED, Status.EXPIRED] > 20


def test_propensities():
    rng = np.random.default_rng(4)
    replica = new_replica(explicit(exploration=0.2))
    actions = random_actions(rng, 4)
    greedy = replica.folds["shop"].learner.choose(actions, rng).index
    drawn = [replica.propose("shop", Ask(matrix=actions)).body for _ in range(4000)]
    for body in drawn:
        assert body.propensity == pytest.approx(0.85 if body.index == greedy else 0.05)
    share = np.mean([body.index == greedy for body in drawn])
    assert share == pytest.approx(0.85, abs=4 * math.sqrt(0.85 * 0.15 / 4000))
    assert np.mean([1.0 / b.propensity for b in drawn]) == pytest.approx(4.0, rel=0.15)


def test_propensities_of_a_policy_that_draws():
    actions = random_actions(np.random.default_rng(4), 4)
    replica = new_replica(explicit(Gaussian(sd=1.0), Thompson(), exploration=0.2))
    bodies = [
        replica.propose("shop", Ask(matrix=actions, probabilities=k == 0)).body for k in range(2000)
    ]
    said = np.array(bodies[0].probabilities)
    assert said.sum() == pytest.approx(1.0)
    assert said.min() >= 0.05
    assert {body.n_actions for body in bodies} == {4}
    assert {body.probabilities for body in bodies[1:]} == {None}
    for body in bodies:  # the state is the same: the draw that was played counts as one more
        assert body.propensity == pytest.approx(said[body.index], abs=1e-3)
    shares = np.bincount([body.index for body in bodies], minlength=4) / len(bodies)
    assert shares == pytest.approx(said, abs=5 * math.sqrt(0.25 / 2000) + 0.012)


def test_shadow_mode_learns_from_what_was_played():
    rng = np.random.default_rng(4)
    replica = new_replica(explicit(mode="shadow", baseline="b"))
    replica.register("shop", {"a": [0.9, 0.0, 0.0], "b": [0.1, 0.0, 0.0]})
    proposal = replica.propose("shop", Ask())
    assert (proposal.body.action, proposal.body.proposal) == ("b", "a")
    assert proposal.body.propensity is None
    assert np.frombuffer(proposal.body.x).tolist() == [0.1, 0.0, 0.0]
    played = replica.propose("shop", Ask(played="a", propensity=0.25)).body
    assert (played.action, played.proposal, played.propensity) == ("a", "a", 0.25)
    with pytest.raises(ValueError, match="played = 'c'"):
        replica.propose("shop", Ask(played="c"))
    live = new_replica(explicit())
    with pytest.raises(ValueError, match="not in shadow mode"):
        live.propose("shop", Ask(matrix=random_actions(rng), played="0"))


def test_the_same_again_is_what_would_be_decided_anew():
    """The answer that is kept between two commits, and actions that are prepared once."""
    replica = new_replica(explicit())
    replica.register("shop", {"a": [0.9, 0.0, 0.0], "b": [0.0, 0.8, 0.1], "c": [0.1, 0.2, 0.9]})
    rng, fold, chosen = np.random.default_rng(3), replica.folds["shop"], set()
    for k in range(40):
        body = replica.propose("shop", NOTHING_SAID).body
        assert body == replica.propose("shop", NOTHING_SAID).body
        assert body == replica.propose("shop", Ask(eligible=None)).body  # not kept: decided anew
        matrix = fold.actions.matrix(None, None)
        assert fold.learner.choose_from(fold.actions.options(fold.learner), rng) == (
            fold.learner.choose(matrix, rng)
        )
        draft = replica.propose("shop", NOTHING_SAID).draft
        replica.commit([draft])
        replica.reward([(draft.id, float(body.action == "b"))])
        chosen.add(body.action)
        if k == 20:
            replica.register("shop", {"d": [0.0, 0.95, 0.0]}, drop=["c"])
    assert len(chosen) >= 3
