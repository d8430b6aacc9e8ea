"""Deciding elsewhere: the law is the bandit's, and each decision reaches the log once."""

import json
import re
import subprocess
import sys
from collections import Counter

import msgspec
import numpy as np
import pytest

from belated.client import Client
from belated.commands.score import score
from belated.core.events import Status
from belated.edge import Edge, Scorer
from belated.edge.scoring import content_of
from belated.edge.spool import Spool
from belated.estimators.laplace.fit import WAITING
from belated.learner.rows import rows_between
from belated.ledger.ids import Ids, to_text
from belated.ledger.tools.model_documents import (
    document_of,
    fold_of,
    read_document,
    refuse_unscorable,
)
from belated.wire import MadeDecision
from support.running_service import Flaky, served
from support.service_client import SECOND
from support.service_client import Client as InProcess
from support.serving import until

FEATURES = {
    "categorical": {"banner": ["a", "b", "c"], "device": ["phone", "desk"]},
    "numeric": {"hour": [0, 24]},
    "interactions": [["banner", "device"]],
}
BANNERS = {name: {"banner": name} for name in "abc"}
CONTEXTS = [{"device": d, "hour": h} for d in ("phone", "desk") for h in (3, 20)]
RATES = {"a": 0.2, "b": 0.5, "c": 0.35}


def shop(rounds=20, **settings):
    """A service whose bandit has learnt something."""
    client = InProcess()
    settings = {"policy": None, "dim": None, "features": FEATURES} | settings
    client.bandit(**settings)
    client("PATCH", "/v1/bandits/shop/actions", {"put": BANNERS})
    rng = np.random.default_rng(1)
    for k in range(rounds):
        made = client.decide(context=CONTEXTS[k % 4])
        client.reward((made["decision_id"], float(rng.random() < RATES[made["action"]])))
    return client


def document(client, **params):
    return msgspec.json.encode(client("GET", "/v1/bandits/shop/model", **params))


def posted(client, *made, status=200):
    bodies = [msgspec.to_builtins(one) | {} for one in made]
    return client("POST", "/v1/bandits/shop/decisions/made", {"decisions": bodies}, status)


@pytest.mark.parametrize(
    "settings",
    [{}, {"exploration": 0.2}, {"policy": "adaptive-thompson:scale=0"}, {"policy": "greedy"}],
    ids=str,
)
def test_the_document_has_the_law_of_the_bandit(settings):
    """Frequencies of 400 decisions elsewhere are the probabilities of the bandit."""
    client = shop(**settings)
    scorer, fold = Scorer(document(client), seed=3), client.service.fold("shop")
    for context in CONTEXTS[1:2]:
        actions = fold.actions.matrix(None, context, fold.learner.is_sparse)
        choice = fold.learner.choose(actions, np.random.default_rng(0), weighed=True)
        share = settings.get("exploration", 0.0)
        expected = share / 3 + (1 - share) * choice.probabilities
        made = [scorer.decide(context)[0] for _ in range(400)]
        counts = Counter(decision.index for decision in made)
        for k in range(3):  # 4 standard errors, and the error of the probabilities themselves
            room = 4 * np.sqrt(expected[k] * (1 - expected[k]) / 400) + 0.013
            assert abs(counts[k] / 400 - expected[k]) <= room
        one = made[0]
        assert one.propensity == pytest.approx(expected[one.index], abs=0.002)


@pytest.mark.parametrize("rounds", [0, 40])
def test_a_conversion_loop_that_has_learnt_nothing_draws_uniformly(rounds):
    client = shop(rounds, loop="conversion", window=600.0, default_reward=0.0, open="hold")
    scorer = Scorer(document(client), seed=3)
    counts = Counter(scorer.decide(CONTEXTS[0])[0].action for _ in range(300))
    assert min(counts[name] for name in "abc") > 65
    decision, made = scorer.decide(CONTEXTS[0])
    assert decision.propensity == pytest.approx(1 / 3)
    spooled = msgspec.json.decode(msgspec.json.encode(made), type=MadeDecision)
    assert spooled.score is None  # nobody scored what was drawn uniformly
    client.now = scorer._ids._clock() + SECOND
    assert posted(client, spooled)["statuses"] == ["accepted"]


def test_terms_that_wait_are_in_the_covariance():
    """From 257 features on the terms of rewards wait in blocks; the document has them all."""
    client = InProcess()
    client.bandit(policy=None, dim=260)
    rng = np.random.default_rng(2)
    rows = {name: (rng.normal(size=260) * (rng.random(260) < 0.05)).tolist() for name in "abc"}
    client("PATCH", "/v1/bandits/shop/actions", {"put": rows})
    fold = client.service.fold("shop")
    fit = fold.learner.state.fit
    fit.terms[:5], fit.scales[:5] = rng.normal(size=(5, 260)) / 10, 0.05
    fit.scalars[WAITING] = 5
    copy = fold_of(document_of(fold, 0).model)
    X = fold.actions.matrix(None, None, sparse=True)
    ours, theirs = (one.learner.choose(X, np.random.default_rng(5)) for one in (fold, copy))
    assert theirs.index == ours.index
    assert theirs.score == pytest.approx(ours.score, rel=1e-9)
    fit.scalars[WAITING] = 0
    without = fold.learner.choose(X, np.random.default_rng(5))
    assert abs(without.score - ours.score) > 1e-3


# ------------------------------------------------------------------------------- documents


def test_the_digest_is_that_of_the_bytes():
    client = shop(5)
    content = document(client)
    digest, model = read_document(content)
    assert (model.bandit, model.format, model.version) == (
        "shop",
        2,
        client.service.fold("shop").version,
    )
    assert Scorer(content).digest == digest
    changed = content.replace(b'"version":', b'"version": ', 1)
    with pytest.raises(ValueError, match=r"digest = 'sha256:.*: expected sha256:.*it was changed"):
        Scorer(changed)
    for wrong in (b"", b"{}", b'{"digest":"x","model":{}}', b"\xff"):
        with pytest.raises(ValueError, match="is not a model of belated"):
            Scorer(wrong)


def test_a_document_that_is_refused_changes_nothing():
    client = shop(5)
    scorer = Scorer(document(client))
    before = scorer.digest
    with pytest.raises(ValueError, match="not a model"):
        scorer.renew(b"{}")
    assert scorer.digest == before
    client.decide(context=CONTEXTS[0])
    scorer.renew(document(client))
    assert scorer.digest != before


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"policy": "delayed-ofu-glm"},
            "policy = 'delayed-ofu-glm': expected adaptive-thompson or",
        ),
        ({"policy": "thompson"}, "policy = 'thompson': expected adaptive-thompson or greedy"),
        ({"mode": "shadow", "baseline": "a"}, "mode = 'shadow': expected 'live'"),
        ({"holdout": 0.1, "baseline": "a"}, "holdout = 0.1: expected 0"),
    ],
)
def test_what_cannot_decide_elsewhere_is_refused_in_a_line(settings, said):
    client = InProcess()
    settings = {"policy": None, "dim": None, "features": FEATURES} | settings
    client.bandit(**settings)
    problem = client("GET", "/v1/bandits/shop/model", status=409)
    assert problem["type"] == "/problems/not-scorable"
    assert problem["detail"].startswith(said)


def test_a_model_that_is_too_wide_is_refused():
    spec = shop(0).service.fold("shop").spec
    with pytest.raises(ValueError, match="dim = 1025: expected 1024 at most, to decide elsewhere"):
        refuse_unscorable(msgspec.structs.replace(spec, dim=1_025))


# --------------------------------------------------------------------- decisions made elsewhere


def test_decisions_reach_the_log_once_and_learn():
    """A decision made elsewhere is as one made here: the same vector, story and reward."""
    client = shop(20)
    scorer = Scorer(document(client), seed=1)
    now = scorer._ids._clock()
    client.now = now + SECOND
    pairs = [scorer.decide(CONTEXTS[k % 4], subject="s1") for k in range(6)]
    fold = client.service.fold("shop")
    before, version = fold.learner.n_observed, fold.version
    assert posted(client, *(made for _, made in pairs))["statuses"] == ["accepted"] * 6
    assert posted(client, *(made for _, made in pairs))["statuses"] == ["duplicate"] * 6
    decision, _ = pairs[0]
    story = client("GET", f"/v1/decisions/{decision.id}", explain=True)
    assert (story["action"], story["propensity"]) == (decision.action, decision.propensity)
    assert story["model_version"] == scorer.model.version == version
    assert story["context"] == CONTEXTS[0]
    assert story["explanation"]["theta"] == pytest.approx(scorer._fold.learner.state.theta.tolist())
    row = fold.actions.matrix([decision.action], CONTEXTS[0])[0]
    assert story["features"] == row.tolist()
    assert client.reward((decision.id, 1.0)) == ["accepted"]
    assert fold.learner.n_observed == before + 1
    assert client("DELETE", "/v1/bandits/shop/subjects/s1")["decisions"] == 6


def test_a_log_with_decisions_from_elsewhere_replays_alike():
    """Also in a loop that hears silence and forgets, with decisions that come an hour late."""
    client = shop(
        30, loop="conversion", window=7_200.0, default_reward=0.0, open="silence",
        half_life=3_600.0, half_life_unit="seconds",
    )  # fmt: skip
    scorer = Scorer(document(client), seed=1)
    ids = Ids(lambda: client.now - 3_600 * SECOND, 5)
    late = []
    for k in range(8):
        _, made = scorer.decide(CONTEXTS[k % 4])
        late.append(msgspec.structs.replace(made, decision_id=to_text(ids())))
    client.now += 60 * SECOND
    client.decide(context=CONTEXTS[0])
    assert posted(client, *late)["statuses"] == ["accepted"] * 8
    assert client.reward((late[0].decision_id, 1.0)) == ["accepted"]
    client.now += 600 * SECOND
    client.decide(context=CONTEXTS[0])
    replica = client.service.replica
    again = replica.replayed("shop", replica.position)
    assert again.digest() == replica.folds["shop"].digest()


def test_features_may_have_grown_since():
    client = shop(10)
    scorer = Scorer(document(client), seed=1)
    _, made = scorer.decide(CONTEXTS[0])
    client.now = scorer._ids._clock()
    more = json.loads(json.dumps(FEATURES))
    more["categorical"]["banner"].append("d")
    client("PUT", "/v1/bandits/shop", {"family": "bernoulli", "features": more})
    assert posted(client, made)["statuses"] == ["accepted"]
    fold = client.service.fold("shop")
    story = client("GET", f"/v1/decisions/{made.decision_id}")
    assert len(story["features"]) == made.dim < fold.spec.dim
    x = np.asarray(fold.actions.matrix([made.action], CONTEXTS[0]))[0]
    rows = fold.learner.history
    last = fold.learner.n_decided - 1
    kept = rows_between(rows, last, last + 1)
    vector = np.zeros(fold.spec.dim)
    np.add.at(vector, kept.columns[0], kept.values[0])
    np.testing.assert_array_equal(vector, x)


def test_the_age_of_the_model_is_a_metric():
    client = shop(5)
    scorer = Scorer(document(client), seed=1)
    ids = Ids(lambda: client.now, 5)
    client.now += 300 * SECOND
    _, made = scorer.decide(CONTEXTS[0])
    posted(client, msgspec.structs.replace(made, decision_id=to_text(ids())))
    posted(client, msgspec.structs.replace(made, decision_id=to_text(ids())))
    ages = client.service.tally.model_ages["shop"]
    assert ages.sum == pytest.approx(600.0, abs=0.01)
    assert dict(ages.buckets()) | {"60.0": 0.0, "600.0": 2.0} == dict(ages.buckets())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"decision_id": "1"}, "decision_id = '1': expected a UUID of version 7"),
        ({"decision_id": "00010203-0405-4607-8809-0a0b0c0d0e0f"}, "decision_id = .* version 7"),
        ({"decision_id": "ffffffff-ffff-7607-8809-0a0b0c0d0e0f"}, "decision_id = .* after now"),
        ({"index": 3}, "index = 3: expected less than n_actions = 3"),
        ({"n_actions": 4}, "n_actions = 4: expected 3, the actions to choose from"),
        ({"eligible": ["b", "c", "a"]}, "index = .: expected the place of '.': that is '.'"),
        ({"eligible": ["a"], "n_actions": 3}, "n_actions = 3: expected 1"),
        ({"dim": 4}, "dim = 4: expected 13, the number of features"),
        ({"columns": [3, 1], "values": [1.0, 1.0]}, r"columns = \[3, 1\]: expected ascending"),
        ({"columns": [13], "values": [1.0]}, r"columns = \[13\]: expected ascending"),
        ({"columns": [1], "values": [1.0, 2.0]}, r"columns = \[1\]: .* one for each"),
        ({"columns": [1], "values": [1e9]}, r"values = \[1000000000.0\]: expected"),
        ({"model_time": "soon"}, "model_time = 'soon': expected"),
    ],
)
def test_bad_decisions_are_named_and_the_others_taken_in(change, said):
    client = shop(3)
    scorer = Scorer(document(client), seed=1)
    (_, good), (_, bad) = scorer.decide(CONTEXTS[0]), scorer.decide(CONTEXTS[0])
    client.now = scorer._ids._clock()
    answer = posted(client, good, msgspec.structs.replace(bad, **change))
    assert answer["statuses"] == ["accepted", "invalid"]
    assert answer["reasons"][0] == ""
    assert re.match(said, answer["reasons"][1])


def test_an_index_belongs_to_its_action():
    """Names like integers keep their order, and the actions may have changed since the model."""
    client = shop(3)
    more = {name: {"banner": "a"} for name in ("10", "2")}
    client("PATCH", "/v1/bandits/shop/actions", {"put": more})
    scorer = Scorer(document(client), seed=1)
    names = ["a", "b", "c", "10", "2"]
    assert [name for name, _ in scorer.model.actions] == names
    client.now = scorer._ids._clock()
    _, made = scorer.decide(CONTEXTS[0])
    assert names[made.index] == made.action
    other = msgspec.structs.replace(made, index=(made.index + 1) % 5)
    (reason,) = posted(client, other)["reasons"]
    assert reason == (
        f"index = {other.index}: expected the place of {made.action!r}: that is "
        f"{names[other.index]!r}"
    )
    client("PATCH", "/v1/bandits/shop/actions", {"drop": ["a"]})
    assert posted(client, made)["statuses"] == ["accepted"]


def test_long_vectors_are_refused_where_a_bound_matters():
    client = shop(policy="greedy", log_actions=True)
    scorer = Scorer(document(client), seed=1)
    _, made = scorer.decide(CONTEXTS[0])
    client.now = scorer._ids._clock()
    long = msgspec.structs.replace(made, values=[9.0 for _ in made.values])
    assert posted(client, long)["reasons"][0].startswith("values = ")
    assert posted(client, made)["statuses"] == ["accepted"]


def test_what_the_model_does_not_know_is_refused():
    scorer = Scorer(document(shop(3)), seed=1)
    with pytest.raises(ValueError, match="eligible = 'z': expected a registered action"):
        scorer.decide(CONTEXTS[0], eligible=["z"])
    assert scorer.decide(CONTEXTS[0], eligible=["b"])[0].propensity == 1.0
    with pytest.raises(ValueError, match="hour"):
        scorer.decide({"hour": "late", "device": "phone"})


# ------------------------------------------------------------------------- spool and posting


def live(url):
    client = Client(url)
    client.put_bandit("shop", {"family": "bernoulli", "features": FEATURES})
    client.change_actions("shop", BANNERS)
    return client


def test_decisions_wait_on_disk_and_are_posted_once(tmp_path):
    """Through an outage, a lost answer and a restart: each is in the log once."""
    with served() as (url, _), live(url) as client:
        content, spool = client.model("shop"), tmp_path / "made.jsonl"
        away = Client(url, transport=Flaky(OSError("away"), OSError("away")), retries=0)
        edge = Edge(away, "shop", spool, every=None, document=content)
        ids = [edge.decide(CONTEXTS[k % 4]).id for k in range(130)]
        with pytest.raises(OSError, match="away"):
            edge.post()
        edge.close()  # it says so in the log, and goes
        with spool.open("ab") as file:
            file.write(b'{"decision_id": "cut sh')
        losing = Client(url, transport=Flaky("lose"), retries=0)
        again = Edge(losing, "shop", spool, every=None, document=content)
        ids.append(again.decide(CONTEXTS[0]).id)
        with pytest.raises(ConnectionError):
            again.post()
        assert again.post() == {Status.DUPLICATE: 100, Status.ACCEPTED: 31}
        assert spool.stat().st_size == 0
        assert again.post() == {}
        ids.append(again.decide(CONTEXTS[0]).id)
        again.close()
        assert {client.story(id).decision_id for id in ids} == set(ids)
        assert client.bandit("shop").n_decided == 132
        assert client.rewards([(id, 1.0) for id in ids]) == [Status.ACCEPTED] * 132


def test_decisions_that_are_too_many_for_a_body_are_posted_in_parts(tmp_path):
    with served(max_body=10_000) as (url, _), live(url) as client:
        edge = Edge(client, "shop", tmp_path / "made.jsonl", every=None)
        for k in range(60):
            edge.decide(CONTEXTS[k % 4])
        assert edge.post() == {Status.ACCEPTED: 60}
        edge.decide(CONTEXTS[0] | {"essay": "x" * 20_000})
        edge.decide(CONTEXTS[0])
        assert edge.post() == {Status.INVALID: 1, Status.ACCEPTED: 1}
        assert "A body may have 10000 bytes" in (tmp_path / "made.jsonl.bad").read_text()
        edge.close()


def test_a_thread_posts_and_renews(tmp_path):
    path = tmp_path / "made.jsonl"
    with served() as (url, _), live(url) as client, Edge(client, "shop", path, every=0.05) as edge:
        first = edge.scorer.digest
        id = edge.decide(CONTEXTS[0]).id
        until(lambda: edge.scorer.model.version == 3, seconds=10.0)  # settings, actions, decision
        assert client.story(id).decision_id == id
        assert edge.scorer.digest != first


def test_refused_decisions_are_put_aside_with_the_reason(tmp_path):
    with served() as (url, _), live(url) as client:
        edge = Edge(client, "shop", tmp_path / "made.jsonl", every=None)
        _, made = edge.scorer.decide(CONTEXTS[0])
        edge._spool.add(msgspec.structs.replace(made, dim=4, columns=[], values=[]))
        edge.decide(CONTEXTS[0])
        assert edge.post() == {Status.INVALID: 1, Status.ACCEPTED: 1}
        (line,) = (tmp_path / "made.jsonl.bad").read_text().splitlines()
        assert json.loads(line)["reason"].startswith("dim = 4: expected")
        edge.close()


def test_a_mark_that_outlived_its_spool_loses_nothing(tmp_path):
    """The mark goes back to 0 before the file is emptied: a crash in between posts twice."""
    scorer = Scorer(document(shop(3)), seed=1)
    path = tmp_path / "made.jsonl"
    spool = Spool(path)
    for _ in range(3):
        spool.add(scorer.decide(CONTEXTS[0])[1])
    content = path.read_bytes()
    made, place = spool.next(10)
    spool.posted(place)
    spool.close()
    path.write_bytes(content)  # as if the crash came before the file was emptied
    again = Spool(path)
    assert again.next(10)[0] == made
    assert len(made) == 3
    again.close()


# ------------------------------------------------------------------------------ belated score


def scored(*args, lines):
    command = [sys.executable, "-m", "belated", "score", *map(str, args)]
    return subprocess.run(command, input=lines, capture_output=True, text=True)


def test_contexts_in_decisions_out(tmp_path):
    """From a file and from the service itself; bad lines are named, and the rest is decided."""
    with served() as (url, _), live(url) as client:
        file, spool = tmp_path / "model.json", tmp_path / "made.jsonl"
        file.write_bytes(client.model("shop"))
        lines = '{"device": "phone", "hour": 3}\n[1]\n{"device": "desk", "hour": 20}\n'
        done = scored(file, "--spool", spool, "--url", url, lines=lines)
        first, bad, last = map(json.loads, done.stdout.splitlines())
        assert done.returncode == 1
        assert bad["line"] == 2
        assert "belated: line 2: " in done.stderr
        assert "posted: 2 accepted" in done.stderr
        assert first["digest"] == last["digest"] == read_document(file.read_bytes())[0]
        assert client.story(first["id"]).action == first["action"]
        assert client.reward(last["id"], 1.0) is Status.ACCEPTED
        present = Scorer(content_of(f"{url}/v1/bandits/shop/model"))
        assert present.digest != first["digest"]
        assert present.decide(CONTEXTS[0])[0].action in "abc"


def test_wrong_options_of_score(tmp_path):
    with pytest.raises(FileNotFoundError):
        score(str(tmp_path / "none.json"))
    with pytest.raises(ConnectionError, match=r"http://127.0.0.1:9/model: "):
        score("http://127.0.0.1:9/model")
    with pytest.raises(ValueError, match="--spool = None: expected a file"):
        score("model.json", url="http://127.0.0.1:9")
    with served() as (url, _), pytest.raises(OSError, match=r"404 .*There is no bandit 'shop'"):
        score(f"{url}/v1/bandits/shop/model")
