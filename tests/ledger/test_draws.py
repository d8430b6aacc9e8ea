"""Draws depend on the log alone: who folds it up to a decision draws the same action again."""

import msgspec
import numpy as np
import pytest

from belated import Bandit, Bernoulli
from belated.ledger.draws import Draws
from belated.ledger.events import START, Decided, Kind
from belated.ledger.ids import Ids
from belated.ledger.proposing import Ask, decide, others
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.policies import AdaptiveThompson, InverseGap, Thompson

ACTIONS = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.5, 0.5]}
decoded = msgspec.msgpack.Decoder(Decided).decode


def live(policy, **settings):
    """A replica that decides and learns in turn, with batches and rankings among its decisions."""
    now, luck = [10**15], np.random.default_rng(3)
    replica = Replica(MemoryLedger(), clock=lambda: now[0])
    replica.configure("shop", Spec.of(2, Bernoulli(), policy, **settings))
    replica.register("shop", ACTIONS)
    for t in range(30):
        now[0] += 400  # several decisions in a millisecond
        if t % 10 == 7:
            proposals = replica.propose_top("shop", Ask(probabilities=True), 2)
        elif t % 10 == 8:
            proposals = [replica.propose("shop", Ask(probabilities=True)) for _ in range(3)]
        else:
            proposals = [replica.propose("shop", Ask(probabilities=True))]
        replica.commit([draft for draft, _ in proposals])
        replica.reward([(draft.id, float(luck.random() < 0.4)) for draft, _ in proposals[:1]])
    return replica


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        (AdaptiveThompson(), {}),
        (Thompson(), {}),
        (InverseGap(), {}),
        (AdaptiveThompson(), {"exploration": 0.5}),
        (AdaptiveThompson(scale=0.0), {"holdout": 0.5}),
    ],
    ids=["default", "thompson", "inverse-gap", "exploring", "held out"],
)
def test_a_second_fold_draws_every_decision_again(policy, settings):
    replica = live(policy, **settings)
    again, draws, drawn, fold = Replica(MemoryLedger()), Draws(), 0, None
    written, _ = replica.ledger.follow(START)
    transactions = {}
    for event in written:
        transactions.setdefault(event.tx, []).append(event)
    for events in transactions.values():  # decisions of a transaction are made on one state
        for event in events:
            if event.kind is not Kind.DECIDED:
                continue
            body = decoded(event.body)
            ask = Ask(probabilities=True, eligible=body.eligible)
            found = decide(fold, ask, draws.of(event.id), held_out=body.held_out)
            assert msgspec.msgpack.encode(found) == event.body
            drawn += 1
        fold = fold or again.new_fold("shop", events[0], [])
        fold.apply(events)
    assert drawn == 39
    assert len({decoded(e.body).action for e in written if e.kind is Kind.DECIDED}) > 1


def test_the_law_that_is_kept_between_two_commits_draws_what_a_new_one_draws():
    """All registered actions by default, or named one by one: the latter keeps nothing."""
    replica, draws = live(AdaptiveThompson()), Draws()
    for turn in range(3):
        fold = replica.fold("shop")
        for k in range(20):
            id = bytes(14) + bytes([turn, k])
            kept = decide(fold, Ask(probabilities=True), draws.of(id))
            anew = decide(fold, Ask(probabilities=True, eligible=tuple(ACTIONS)), draws.of(id))
            assert kept == msgspec.structs.replace(anew, eligible=None)
        proposal = replica.propose("shop", Ask())
        replica.commit([proposal.draft])
        replica.reward([(proposal.draft.id, 1.0)])


def test_the_second_of_a_ranking_is_drawn_among_the_others():
    replica = live(AdaptiveThompson())
    first, second = replica.propose_top("shop", Ask(), 2)
    left = others(replica.fold("shop"), Ask(), first.body.index)._replace(rank=2)
    found = decide(replica.fold("shop"), left, Draws().of(second.draft.id))
    assert found == second.body


def test_streams_of_decisions_differ_and_are_uniform():
    ids, draws = Ids(lambda: 10**15, seed=1), Draws()
    numbers = np.array([draws.of(ids()).random(3) for _ in range(4000)])
    assert len(np.unique(numbers)) == numbers.size
    assert np.abs(np.corrcoef(numbers.T) - np.eye(3)).max() < 0.06
    counts = np.histogram(numbers, bins=20, range=(0.0, 1.0))[0]
    assert ((counts - 600) ** 2 / 600).sum() < 45.0  # 1 in 1,000 for 19 degrees of freedom: 43.8
    following = np.array([draws.of(bytes(15) + bytes([k])).random() for k in range(256)])
    assert abs(np.corrcoef(following[1:], following[:-1])[0, 1]) < 0.2


def test_a_seed_repeats_the_choices_whenever_it_runs_and_no_ids():
    settings = {"family": Bernoulli(), "window": 60.0, "seed": 5}
    early, late = (lambda: 1e9), (lambda: 2e9)
    runs = [Bandit(2, **settings, clock=clock) for clock in (early, late)]
    one, other = ([bandit.decide(np.eye(2)) for _ in range(20)] for bandit in runs)
    assert [d.score for d in one] == [d.score for d in other]
    assert not {d.id for d in one} & {d.id for d in other}
    same_time = Bandit(2, **settings, clock=early)
    assert not {d.id for d in one} & {same_time.decide(np.eye(2)).id for _ in range(20)}
