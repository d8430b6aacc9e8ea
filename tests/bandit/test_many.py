"""decide_many and decide_top: many decisions in one call, in memory and with a ledger."""

import warnings

import numpy as np
import pandas as pd
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM
from belated.features import Features, UnmatchedFeaturesWarning
from belated.ledger.events import START, Kind
from belated.ledger.stores.memory import MemoryLedger
from belated.policies import AdaptiveThompson, InverseGap, Thompson

OFFERS = [{"offer": name} for name in "abcd"]
CUSTOMERS = [{"age": age} for age in (20, 30, 40, 50, 60)]
POLICIES = [AdaptiveThompson(), DelayedOFUGLM(), Thompson(), InverseGap()]


def features():
    made = Features(categorical=["offer"], numeric=["age"], interactions=[("offer", "age")])
    return made.fit([{**offer, **one} for offer in OFFERS for one in CUSTOMERS])


def made(policy, **options):
    """A bandit that has learnt something."""
    bandit = Bandit(family=Bernoulli(), policy=policy, features=features(), seed=1, **options)
    for k in range(6):
        bandit.learn(bandit.decide(OFFERS, CUSTOMERS[k % 5]).id, float(k % 2))
    return bandit


def facts(decision):
    return decision.index, decision.score, decision.estimate, decision.width, decision.propensity


class Counting(MemoryLedger):
    """Counts its commits."""

    commits = 0

    def commit(self, drafts, follower):
        self.commits += 1
        return super().commit(drafts, follower)


def decided(ledger):
    events, _ = ledger.follow(START, 10_000)
    return [event for event in events if event.kind is Kind.DECIDED]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("durable", [False, True])
def test_many_are_what_decide_gives_in_a_loop(policy, durable):
    def fresh():
        return made(policy, ledger=MemoryLedger()) if durable else made(policy)

    many, loop = fresh(), fresh()
    at_once = many.decide_many(OFFERS, CUSTOMERS, probabilities=True)
    in_turn = [loop.decide(OFFERS, customer, probabilities=True) for customer in CUSTOMERS]
    assert list(map(facts, at_once)) == list(map(facts, in_turn))
    for one, other in zip(at_once, in_turn, strict=True):
        np.testing.assert_array_equal(one.probabilities, other.probabilities)
    pairs = [(d.id, 1.0) for d in at_once]
    assert many.learn(pairs) == loop.learn([(d.id, 1.0) for d in in_turn]) == 5
    np.testing.assert_array_equal(many.theta, loop.theta)
    assert facts(many.decide(OFFERS, CUSTOMERS[0])) == facts(loop.decide(OFFERS, CUSTOMERS[0]))


def test_every_form_of_sets_and_contexts_is_the_same():
    forms = [
        (OFFERS, CUSTOMERS),
        ([OFFERS] * 5, CUSTOMERS),
        (pd.DataFrame(OFFERS), pd.DataFrame(CUSTOMERS)),
        ((row for row in OFFERS), (one for one in CUSTOMERS)),
        ([[{**offer, **one} for offer in OFFERS] for one in CUSTOMERS],),
    ]
    results = [list(map(facts, made(AdaptiveThompson()).decide_many(*form))) for form in forms]
    assert all(result == results[0] for result in results)
    assert all(d.probabilities is None for d in made(Thompson()).decide_many(OFFERS, CUSTOMERS))


def test_sets_of_vectors_may_differ_in_size():
    bandit = Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM())
    few, more = [[0.1, 0.2]], [[0.1, 0.2], [0.5, 0.5], [0.0, 0.3]]
    assert [(d.id, d.index) for d in bandit.decide_many([few, more, few])] == [
        (1, 0),
        (2, 1),
        (3, 0),
    ]
    assert [d.index for d in bandit.decide_many(np.array([more, more]))] == [1, 1]


def test_a_ledger_gets_one_transaction_in_order():
    ledger = Counting()
    bandit = made(AdaptiveThompson(), ledger=ledger)
    before, commits = len(decided(ledger)), ledger.commits
    decisions = bandit.decide_many(OFFERS, CUSTOMERS)
    ranked = bandit.decide_top(OFFERS, CUSTOMERS[0], top=3)
    assert ledger.commits == commits + 2
    new = decided(ledger)[before:]
    assert len({event.tx for event in new[:5]}) == len({event.tx for event in new[5:]}) == 1
    ids = [d.id for d in decisions + ranked]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(new) == 8
    again = Bandit(family=Bernoulli(), features=features(), ledger=ledger)
    assert again.learn([(id, 1.0) for id in ids]) == 8


@pytest.mark.parametrize(
    ("sets", "contexts", "message"),
    [
        ([], None, r"action_sets = \[\]: expected one at least"),
        (OFFERS, [], r"contexts = \[\]: expected one at least"),
        ([], CUSTOMERS, r"action_sets = \[\]: expected one at least"),
        (OFFERS, {"age": 3}, "contexts = {'age': 3}: expected a list"),
        (3, None, "action_sets = 3: expected a list"),
        ([OFFERS] * 2, CUSTOMERS, "contexts = .* expected 2 of them"),
        (OFFERS, [*CUSTOMERS[:3], {"age": "old"}], r"^contexts\[3\]: column 'age'"),
        (OFFERS, [*CUSTOMERS[:3], None], r"^contexts\[3\]: "),
        ([OFFERS, []], CUSTOMERS[:2], r"^action_sets\[1\] with contexts\[1\]: actions has no rows"),
        (OFFERS, None, r"^action_sets\[0\]: actions = {'offer': 'a'}: expected a list of dicts"),
    ],
)
@pytest.mark.parametrize("ledger", [None, MemoryLedger])
def test_refused_inputs_leave_no_trace(sets, contexts, message, ledger):
    bandit = made(AdaptiveThompson(), ledger=ledger and ledger())
    twin = made(AdaptiveThompson(), ledger=ledger and ledger())
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        bandit.decide_many(sets, contexts)
    assert "\n" not in str(caught.value)
    assert bandit.n_decided == twin.n_decided
    assert facts(bandit.decide(OFFERS, CUSTOMERS[0])) == facts(twin.decide(OFFERS, CUSTOMERS[0]))


def test_a_vector_that_is_too_long_is_named_before_anything_is_recorded():
    bandit = Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM())
    with pytest.raises(ValueError, match=r"^action_sets\[1\]: actions\[1\] has norm 5"):
        bandit.decide_many([[[0.1, 0.2]], [[0.1, 0.2], [3.0, 4.0]]])
    assert bandit.n_decided == 0


def test_warnings_point_at_the_line_of_the_caller():
    bandit = made(Thompson())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bandit.decide_many([[{"offer": "new"}]], [{"age": 20}])
    assert [(w.category, w.filename) for w in caught] == [(UnmatchedFeaturesWarning, __file__)]


# --------------------------------------------------------------------------- without repetition


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("durable", [False, True])
def test_a_ranking_is_a_choice_among_those_left(policy, durable):
    def fresh():
        return made(policy, ledger=MemoryLedger()) if durable else made(policy)

    ranked = fresh().decide_top(OFFERS, CUSTOMERS[0], top=4, probabilities=True)
    assert sorted(d.index for d in ranked) == [0, 1, 2, 3]
    loop, left = fresh(), [0, 1, 2, 3]
    for decision in ranked:
        rows = [OFFERS[k] for k in left]
        alone = loop.decide(rows, CUSTOMERS[0], probabilities=True)
        assert decision.index == left[alone.index]
        assert facts(decision)[1:] == facts(alone)[1:]
        expected = np.zeros(4)
        expected[left] = alone.probabilities
        np.testing.assert_array_equal(decision.probabilities, expected)
        left.remove(decision.index)
    assert ranked[-1].propensity == pytest.approx(1.0)


def test_one_of_a_ranking_is_a_decision():
    (only,) = made(AdaptiveThompson()).decide_top(OFFERS, CUSTOMERS[0], top=1)
    assert only == made(AdaptiveThompson()).decide(OFFERS, CUSTOMERS[0])
    assert only.probabilities is None


@pytest.mark.parametrize("top", [0, -1, 5, 1.5, True, None])
@pytest.mark.parametrize("ledger", [None, MemoryLedger])
def test_a_top_that_cannot_be(top, ledger):
    bandit = made(AdaptiveThompson(), ledger=ledger and ledger())
    with pytest.raises((TypeError, ValueError), match=f"^top = {top}: expected"):
        bandit.decide_top(OFFERS, CUSTOMERS[0], top=top)
    assert bandit.n_decided == 6


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("durable", [False, True])
def test_probabilities_without_a_decision(policy, durable):
    """They are those of the next decision, but for the one draw that the choice itself adds."""
    bandit = made(policy, ledger=MemoryLedger()) if durable else made(policy)
    before = bandit.fingerprint()
    said = bandit.probabilities(OFFERS, CUSTOMERS[0])
    assert bandit.fingerprint() == before
    assert said.sum() == pytest.approx(1.0)
    played = bandit.decide(OFFERS, CUSTOMERS[0], probabilities=True)
    assert said == pytest.approx(played.probabilities, abs=1e-3)
    assert bandit.n_missing == 1


def test_probabilities_before_anything_is_learnt_are_even():
    waiting = Bandit(dim=2, family=Bernoulli(), policy=Thompson(), window=60.0, default_reward=0.0)
    assert waiting.probabilities(np.eye(2)).tolist() == [0.5, 0.5]
