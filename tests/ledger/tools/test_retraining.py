"""``belated retrain``: the comparison, what is refused, and the one step that promotes."""

import json
import math
import sys
from contextlib import closing

import msgspec
import numpy as np
import pytest

from belated import Bernoulli, Gaussian
from belated.commands.main import main
from belated.features import Features
from belated.ledger import LedgerError, open_ledger
from belated.ledger.events import START, Decided, Draft, Kind
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.tools import side_by_side
from belated.ledger.tools.exporting import Selection, export
from belated.ledger.tools.importing import import_file
from belated.ledger.tools.importing_logs import Options
from belated.ledger.tools.joining import joined
from belated.ledger.tools.maintenance import retain
from belated.ledger.tools.retraining import RefusedError, draft_of, retrain
from belated.ledger.tools.verifying import verify
from belated.policies.adaptive_thompson import AdaptiveThompson
from belated.policies.greedy import Greedy
from belated.policies.thompson import Thompson
from belated.service.retrain_settings import retrained_view
from support.replicas import (
    DIM,
    HOUR,
    Clock,
    decide,
    explicit,
    new_replica,
    replayed,
)
from support.shop_ledger import digests, fill, log_of


@pytest.fixture
def belated(monkeypatch, capsys):
    def run(*args):
        monkeypatch.setattr(sys, "argv", ["belated", "retrain", *map(str, args), "--json"])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, json.loads(out) if out else err

    return run


def filled(spec, n=30, rewards=(0.0, 1.0), **ask):
    """A ledger with decisions among vectors that are logged, and rewards that are late."""
    replica, rng = new_replica(spec), np.random.default_rng(3)
    ids = []
    for _ in range(n):
        ids.append(decide(replica, rng, **ask))
        if len(ids) > 5:
            replica.reward([(ids[-6], float(rng.choice(rewards)))])
        replica.clock.now += 1_000_000
    return replica


def change(**parts):
    return lambda spec: msgspec.structs.replace(spec, **parts)


def part(kind, value):
    return explicit(**{kind: value}).__getattribute__(kind)


def test_the_candidate_is_what_the_promotion_makes():
    replica = filled(explicit(Bernoulli(), Greedy(), log_actions=True))
    before = log_of(replica.ledger)
    view, promotion = retrain(replica.ledger, "shop", change(policy=part("policy", Thompson())))
    assert log_of(replica.ledger) == before  # nothing was written
    assert (view.changed, view.against, view.n_decisions, view.n_rewards) == (
        ["policy"],
        [],
        30,
        25,
    )
    replica.commit([draft_of(view, promotion, replica.clock())])
    assert replica.folds["shop"].spec.policy["type"] == "thompson"
    assert replica.folds["shop"].digest() == replayed(replica).folds["shop"].digest()


def test_the_comparison_is_what_two_bandits_would_have_said_at_the_time():
    """A slow twin: two replicas that follow the log event by event."""
    replica = filled(explicit(Bernoulli(), Greedy(), log_actions=True))
    wanted = explicit(Bernoulli(), Thompson(), log_actions=True)
    view, _ = retrain(replica.ledger, "shop", lambda spec: wanted)
    twins = [
        Replica(MemoryLedger()).empty_fold("shop", spec)
        for spec in (replica.folds["shop"].spec, wanted)
    ]
    final = replica.folds["shop"].learner.history.y
    distances, losses, errors = [], [], []
    for event in log_of(replica.ledger):
        if event.kind is Kind.DECIDED:
            body = msgspec.msgpack.decode(event.body, type=Decided)
            x = np.frombuffer(body.matrix).reshape(-1, DIM)
            p, q = (
                t.learner.choose(x, np.random.default_rng(0), True).probabilities for t in twins
            )
            distances.append(0.5 * np.abs(p - q).sum())
            y = final[twins[0].n_rows]
            if not math.isnan(y):
                z = [float(np.frombuffer(body.x) @ t.learner.state.theta) for t in twins]
                means = [1.0 / (1.0 + math.exp(-one)) for one in z]
                losses.append([-math.log(m if y else 1.0 - m) for m in means])
                errors.append([(m - y) ** 2 for m in means])
        for twin in twins:
            twin.apply([event]) if twin.version or event.kind is not Kind.CONFIGURED else None
    assert view.chosen_differently == pytest.approx(np.mean(distances), abs=1e-12)
    assert 0.0 < view.chosen_differently < 1.0
    for found, wanted in ((view.log_loss, losses), (view.squared_error, errors)):
        live, other = np.transpose(wanted)
        gain = live - other
        error = gain.std(ddof=1) / math.sqrt(len(gain))
        expected = live.mean(), other.mean(), gain.mean(), error
        assert (found.live, found.other, found.gain, found.error) == pytest.approx(expected)


def test_only_the_last_are_compared_and_models_are_brought_up_to_date_now_and_then(monkeypatch):
    replica = filled(explicit(Bernoulli(), Greedy(), log_actions=True))
    whole, _ = retrain(replica.ledger, "shop", change(policy=part("policy", Thompson())))
    monkeypatch.setattr(side_by_side, "LAST", 12)
    monkeypatch.setattr(side_by_side, "STEPS", 5)
    monkeypatch.setattr(side_by_side, "AT_ONCE", 7)
    view, _ = retrain(replica.ledger, "shop", change(policy=part("policy", Thompson())))
    assert (view.n_decisions, view.n_rewards) == (12, 12)
    assert view.log_loss.live == pytest.approx(whole.log_loss.live, abs=0.2)


@pytest.mark.parametrize(
    ("families", "compare"),
    [
        ((Bernoulli(), "probit"), True),
        ((Gaussian(sd=0.5), "gaussian:sd=2"), True),
        ((Bernoulli(), "poisson"), False),
        ((Bernoulli(), "gaussian"), False),
    ],
)
def test_likelihoods_are_compared_only_where_they_are_of_one_kind(families, compare):
    replica = filled(explicit(families[0], Greedy()), n=20)
    view, _ = retrained_view(replica.ledger, "shop", {"family": families[1]})
    assert (view.log_loss is not None) is compare
    assert view.squared_error.live > 0.0
    assert view.chosen_differently is None  # the other actions are not in the log
    assert view.n_decisions == 0


def test_what_the_log_speaks_against_is_counted_and_nothing_is_written():
    replica = filled(explicit(Gaussian(sd=1.0), Greedy()), rewards=(0.0, 0.5, 1.0))
    before = log_of(replica.ledger)
    view, promotion = retrained_view(replica.ledger, "shop", {"family": "bernoulli"})
    halves = sum(event.value == 0.5 for event in before)
    said = f"{halves} of 30 decisions have a reward that this family cannot have"
    assert view.against == [said]
    with pytest.raises(RefusedError, match=f"'shop' is not promoted: {said}"):
        draft_of(view, promotion, 0)
    bounded = {"policy": "delayed-ofu-glm", "max_norm": 0.5}
    shorter, _ = retrained_view(replica.ledger, "shop", bounded)
    assert shorter.against == ["actions are up to 1 long: expected max_norm = 1 or more, it is 0.5"]
    features = {"features": {"categorical": {"ad": ["a", "b"]}}}
    view, _ = retrained_view(replica.ledger, "shop", features)
    said = "an action that was not registered then: the log has its vector alone"
    assert view.against == [f"30 of 30 decisions have {said}"]
    assert log_of(replica.ledger) == before


def test_a_policy_that_cannot_revise_is_refused_where_rewards_were_revised():
    replica, rng = new_replica(explicit(Bernoulli(), Greedy())), np.random.default_rng(1)
    ids = [decide(replica, rng) for _ in range(5)]
    replica.reward([(id, 1.0) for id in ids])
    replica.commit([Draft(Kind.REVISED, "", id, replica.clock(), 0.0) for id in ids[:3]])
    assert np.array_equal(replica.folds["shop"].learner.history.y[:5], [0.0, 0.0, 0.0, 1.0, 1.0])
    view, _ = retrained_view(replica.ledger, "shop", {"policy": "ada-ofu-ecolog"})
    said = "3 of 5 decisions have a reward that was revised, which this policy cannot do"
    assert view.against == [said]


def contextual(n=30, ledger=None):
    """A bandit whose registered actions and contexts are in the log; made if there is none."""
    replica, rng = Replica(ledger or MemoryLedger(), clock=Clock()), np.random.default_rng(1)
    replica.catch_up()
    if "shop" not in replica.folds:
        features = Features(categorical=["ad"]).fit([{"ad": "a"}, {"ad": "b"}]).unbounded()
        policy = AdaptiveThompson()
        spec = Spec.of(features.dim, Bernoulli(), policy, features=features.to_dict())
        replica.configure("shop", spec)
        replica.register("shop", {"a": {"ad": "a"}, "b": {"ad": "b"}})
    for k in range(n):
        context = {"hour": "mn"[k % 2]}
        ask = Ask(context=context, context_json=msgspec.json.encode(context))
        draft = replica.propose("shop", ask).draft
        replica.commit([draft])
        replica.reward([(draft.id, float(rng.random() < 0.5))])
        replica.clock.now += HOUR
    return replica


HOURS = {"features": {"categorical": {"ad": ["a", "b"], "hour": ["m", "n"]}}}


def test_new_features_need_the_contexts():
    replica = contextual(15)
    view, _ = retrained_view(replica.ledger, "shop", HOURS)
    assert (view.changed, view.against) == (["features", "dim"], [])
    assert view.n_decisions == 15
    assert replica.ledger.retain(replica.clock() - 10 * HOUR).decisions == 5
    view, _ = retrained_view(replica.ledger, "shop", HOURS)
    said = "no context in the log: none was sent, or retention has taken it"
    assert view.against == [f"5 of 15 decisions have {said}"]


def test_retention_leaves_the_contexts_that_other_features_need(tmp_path):
    url = f"sqlite:///{tmp_path}/shop.db"
    ledger = open_ledger(url)
    replica = contextual(4, ledger)
    view, promotion = retrained_view(ledger, "shop", HOURS)
    replica.commit([draft_of(view, promotion, replica.clock())])
    for dry_run in (True, False):
        with pytest.raises(LedgerError, match="4 decisions of 'shop' were made with other feat"):
            retain(url, "1d", dry_run=dry_run)
    view, promotion = retrained_view(ledger, "shop", {"back": True})
    replica.commit([draft_of(view, promotion, replica.clock())])
    assert retain(url, "1d", dry_run=False)["decisions"] == 4


def test_a_promoted_ledger_is_sound_and_survives_an_export(tmp_path):
    url, out = f"sqlite:///{tmp_path}/shop.db", tmp_path / "events.jsonl"
    ledger = open_ledger(url)
    replica = contextual(6, ledger)
    for given in (HOURS, {"policy": "greedy", "max_norm": 2.0}, {"back": True}):
        view, promotion = retrained_view(ledger, "shop", given)
        replica.commit([draft_of(view, promotion, replica.clock())])
        contextual(3, ledger)
    assert verify(ledger, None)["sound"]
    export(ledger, out, Selection(), as_joined=False, dry_run=False)
    copy = f"sqlite:///{tmp_path}/copy.db"
    import_file(copy, out, Options("", "", "", None, None, False, False))
    assert digests(open_ledger(copy)) == digests(ledger)
    rows = list(joined(ledger, lambda event: True, lambda steps: None))
    assert {len(row.x) for row in rows} == {3, 5}  # each by the features of its time


def test_a_window_is_for_later_decisions():
    silent = {"loop": "conversion", "window": 3600.0, "open": "silence"}
    replica = filled(explicit(Bernoulli(), AdaptiveThompson(), **silent), n=20)
    view, promotion = retrained_view(replica.ledger, "shop", {"window": 7200.0, "open": "hold"})
    assert view.against == []
    replica.commit([draft_of(view, promotion, replica.clock())])
    due = {event.due - event.time for event in log_of(replica.ledger) if event.due}
    decide(replica, np.random.default_rng(1))
    (last,) = (e for e in replica.ledger.follow(START)[0][-1:])
    assert (due, last.due - last.time) == ({HOUR}, 2 * HOUR)
    view, _ = retrained_view(replica.ledger, "shop", {"open": "silence"})
    assert view.against == []


def test_requests_that_make_no_sense():
    replica = filled(explicit(Bernoulli(), Greedy()), n=3)
    for given, said in (
        ({}, "nothing to retrain: expected other settings than the bandit has"),
        ({"back": True}, "back = True: expected a bandit that was promoted: 'shop' never was"),
        ({"back": True, "policy": "greedy"}, "back = True: expected no other settings beside it"),
        ({"policy": "best"}, "policy = 'best'"),
        ({"window": -1.0}, "window: Expected"),
        ({"loop": "conversion"}, "unknown field"),
        ({"open": "silence"}, "open = 'silence'"),
    ):
        with pytest.raises(ValueError, match=said):
            retrained_view(replica.ledger, "shop", given)
    for given in ({"policy": "thompson"}, {"back": True}):
        with pytest.raises(ValueError, match="name = 'other': expected one of shop"):
            retrained_view(replica.ledger, "other", given)
    with pytest.raises(ValueError, match="name = 'x': expected a bandit, and there is none yet"):
        retrained_view(MemoryLedger(), "x", {"back": True})


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_the_command(request, belated, tmp_path, store):
    shop = f"sqlite:///{tmp_path}/shop.db"
    if store == "postgres":
        shop = request.getfixturevalue("postgres").new_database("retrained")
    with closing(open_ledger(shop)) as ledger:
        fill(ledger, rounds=20)

    def see():
        ledger = open_ledger(shop)
        found = digests(ledger), len(log_of(ledger))
        ledger.close()
        return found

    before = see()
    code, said = belated("clicks", "--policy", "thompson", "--ledger", shop)
    assert (code, said["changed"], said["promoted"]) == (0, ["policy"], False)
    assert said["n_decisions"] > 0
    assert see() == before
    code, said = belated("clicks", "--policy", "thompson", "--ledger", shop, "--promote")
    assert (code, said["promoted"]) == (0, True)
    promoted = see()
    assert promoted[0]["clicks"] != before[0]["clicks"]
    assert promoted[1] == before[1] + 1
    code, said = belated("clicks", "--back", "--promote", "--ledger", shop)
    assert (code, said["promoted"], said["changed"]) == (0, True, ["policy"])
    table = tmp_path / "features.toml"
    table.write_text('[features.categorical]\nad = ["a", "b"]\n')
    code, said = belated("clicks", "--features", table, "--ledger", shop, "--promote")
    assert (code, said["promoted"]) == (1, False)
    assert "decisions have" in said["against"][0]
    assert see()[1] == before[1] + 2
    table.write_text("numbers = 1")
    code, said = belated("clicks", "--features", table, "--ledger", shop)
    assert code == 2
    assert "numbers: expected a table [features]" in said
    assert belated("nobody", "--back", "--ledger", shop) == (
        2,
        "belated: name = 'nobody': expected one of shop, clicks\n",
    )
