"""Features grow: new categories get columns of their own, what was learnt stays."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belated import Bandit, Bernoulli, DelayedOFUGLM, Features, Gaussian
from belated.features import fitting
from belated.features.growing import grown, places_in
from belated.learner.rows import rows_between
from belated.ledger import open_ledger, snapshots
from belated.ledger.events import START, Decided, Kind
from belated.ledger.ids import to_text
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools.compacting import compacted
from belated.ledger.tools.reading import bandits_of
from belated.ledger.tools.verifying import verify
from belated.model.steps import DECIDE, LEARN
from belated.policies.adaptive_thompson import AdaptiveThompson
from belated.policies.glb_omd import GLBOMD
from belated.policies.inverse_gap import InverseGap
from belated.policies.lin_ts import LinTS
from belated.policies.thompson import Thompson
from support.replicas import SECOND, Clock, replayed, same
from support.service_client import Client

OLD, NEW = ["summer", "winter"], ["summer", "winter", "spring"]
COUNTRIES = ["NO", "UK"]
NORMAL, OPTIMIST = Gaussian(sd=1.0), DelayedOFUGLM()


def shop_features(banners, countries=tuple(COUNTRIES), **options):
    features = Features(
        numeric=["price"],
        categorical=["banner", "country"],
        hashed={"user": 2},
        interactions=[("banner", "country"), ("price", "banner")],
        **options,
    )
    rows = [
        {"price": 20.0 * (k % 2), "banner": banner, "country": country, "user": 1}
        for k, (banner, country) in enumerate((b, c) for b in banners for c in countries)
    ]
    return features.fit(rows)


def shop_spec(features, family=NORMAL, policy=OPTIMIST, **options):
    features = fitting(features, policy)
    options = {"open": None} | options  # as of a new bandit: conversion loops learn from silence
    return Spec.of(features.dim, family, policy, features=features.to_dict(), **options)


def actions(banners):
    return {banner: {"banner": banner, "price": 3.0 * k} for k, banner in enumerate(banners)}


def decided(replica, rng, name="shop"):
    context = {"country": COUNTRIES[rng.integers(2)], "user": int(rng.integers(9))}
    asked = Ask(context=context, context_json=json.dumps(context).encode())
    draft = replica.propose(name, asked).draft
    replica.commit([draft])
    return draft.id


def play(replica, rng, rounds, waiting):
    """Decisions, and rewards for some of those that wait."""
    for _ in range(rounds):
        waiting.append(decided(replica, rng))
        replica.clock.now += 600 * SECOND
        if rng.random() < 0.7:
            id = waiting.pop(int(rng.integers(len(waiting))))
            replica.reward([(id, float(rng.integers(2)))])
        replica.expire()


def new_shop(features, ledger=None, banners=OLD, **options):
    replica = Replica(ledger or MemoryLedger(), clock=Clock(), seed=1)
    replica.configure("shop", shop_spec(features, **options))
    replica.register("shop", actions(banners))
    return replica


# --------------------------------------------------------------------------------- the features


@given(st.data())
@settings(max_examples=30)
def test_old_features_keep_their_values_in_their_new_places(data):
    countries = data.draw(st.lists(st.sampled_from(["NO", "UK", "SE", 1, True, None]), min_size=2))
    old = shop_features(OLD)
    new = old.with_categories({"banner": ["spring", "winter"], "country": countries})
    row = {
        "price": data.draw(st.floats(-5, 30)),
        "banner": data.draw(st.sampled_from(OLD)),
        "country": data.draw(st.sampled_from(COUNTRIES)),
        "user": data.draw(st.integers(0, 9)),
    }
    x = np.zeros(new.dim)
    x[places_in(old, new)] = old.transform([row])[0]
    assert x.tobytes() == new.transform([row])[0].tobytes()
    assert [new.names[place] for place in places_in(old, new)] == old.names
    assert grown(old, new).to_dict() == new.to_dict()


def test_the_order_of_the_categories_does_not_matter():
    old, new = shop_features(OLD), shop_features(["spring", "winter", "summer"])
    assert grown(old, new).to_dict() == old.with_categories({"banner": ["spring"]}).to_dict()
    assert grown(old, shop_features(["winter", "summer"])).to_dict() == old.to_dict()


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (shop_features(["winter", "spring"]), "column 'banner' lacks the category 'summer'"),
        (shop_features(NEW, intercept=False), "features: intercept = False: expected True"),
        (Features(categorical=["banner"]).fit([{"banner": "a"}]), "features: numeric = "),
        (shop_features(NEW, max_norm=2.0), "max_norm = 2.0: expected 1.0"),
    ],
)
def test_what_is_no_growth_is_refused(new, said):
    with pytest.raises(ValueError, match=said):
        grown(shop_features(OLD), new)
    replica = new_shop(shop_features(OLD))
    before = replica.fold("shop").digest()
    with pytest.raises(ValueError, match=said) as error:
        replica.configure("shop", shop_spec(new))
    assert "Make a bandit of another name" in str(error.value)
    assert replica.fold("shop").digest() == before


def test_a_column_without_categories_cannot_get_any():
    with pytest.raises(ValueError, match=r"column = 'price': expected one of the categorical"):
        shop_features(OLD).with_categories({"price": [1]})


# ------------------------------------------------------------------------------- live is replay


@pytest.mark.parametrize(
    ("family", "policy", "loop_kind"),
    [
        (Gaussian(sd=1.0), DelayedOFUGLM(), "explicit"),
        (Bernoulli(), AdaptiveThompson(), "explicit"),
        (Bernoulli(), AdaptiveThompson(), "conversion"),
        (Bernoulli(), InverseGap(), "conversion"),
        (Bernoulli(), DelayedOFUGLM(), "conversion"),  # which holds
        (Bernoulli(), Thompson(), "explicit"),
        (Bernoulli(), GLBOMD(), "explicit"),
        (Gaussian(sd=1.0), LinTS(), "explicit"),
    ],
)
def test_live_equals_replay_across_growths(tmp_path, family, policy, loop_kind):
    ledger = SQLiteLedger(tmp_path / "shop.db")
    options = {"family": family, "policy": policy, "loop": loop_kind, "window": 7200.0}
    replica = new_shop(shop_features(OLD), ledger, **options)
    rng, waiting = np.random.default_rng(1), []
    play(replica, rng, 25, waiting)
    snapshots.save(replica, tmp_path / "before")
    replica.configure("shop", shop_spec(shop_features(NEW), **options))
    replica.register("shop", actions(NEW))
    play(replica, rng, 25, waiting)
    snapshots.save(replica, tmp_path / "between")
    more = shop_features([*NEW, "autumn"], ["SE", *COUNTRIES])  # another order
    replica.configure("shop", shop_spec(more, **options))
    replica.register("shop", actions([*NEW, "autumn"]))
    play(replica, rng, 25, waiting)
    snapshots.save(replica, tmp_path / "after")
    assert replica.fold("shop").learner.dim == more.dim
    assert same(replica, replayed(replica))
    for folder in ("before", "between", "after"):
        restored = Replica(ledger, clock=replica.clock)
        assert snapshots.load(restored, tmp_path / folder).seq > 0
        restored.catch_up()
        assert same(replica, restored)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "family": Bernoulli(),
            "policy": AdaptiveThompson(),
            "loop": "conversion",
            "window": 3600.0,
        },
    ],
)
def test_growth_before_and_after_the_log_was_compacted(options):
    rng, waiting = np.random.default_rng(4), []
    replica = new_shop(shop_features(OLD), **options)
    play(replica, rng, 8, waiting)
    compacted(replica.ledger, replica.clock() + 1)
    replica.configure("shop", shop_spec(shop_features(NEW), **options))
    play(replica, rng, 4, waiting)
    assert same(replica, replayed(replica))
    compacted(replica.ledger, replica.clock() + 1)
    play(replica, rng, 4, waiting)
    assert same(replica, replayed(replica))
    assert verify(replica.ledger, None)["sound"]
    assert bandits_of(replica.ledger)["shop"].earlier.lengths


@given(st.integers(0, 2**32), st.sampled_from([Gaussian(sd=1.0), Bernoulli()]), st.integers(0, 25))
@settings(max_examples=10)
def test_grown_equals_a_bandit_that_knew_all_from_the_start(seed, family, rounds):
    """Same decisions and rewards; the exact estimates agree."""
    old, new = shop_features(OLD), shop_features(NEW)
    replica, rng = new_shop(old, family=family), np.random.default_rng(seed)
    play(replica, rng, rounds, [])
    replica.configure("shop", shop_spec(new, family=family))
    replica.register("shop", actions(NEW))
    play(replica, rng, 10, [])
    fold = replica.fold("shop")
    learner = fold.learner
    whole = Bandit(family=family, policy=DelayedOFUGLM(), features=new)
    for x in learner.history.x[: learner.n_decided]:
        whole._learner.fold(
            *(np.zeros(1, np.int64), x[None], np.zeros(1, np.int64), np.zeros(1)),
            np.zeros(1, np.int64),
        )
    y = learner.history.y[: learner.n_decided]
    whole.learn([(int(k) + 1, y[k]) for k in np.flatnonzero(~np.isnan(y))])
    np.testing.assert_allclose(learner.exact_theta(), whole._learner.exact_theta(), atol=1e-9)
    np.testing.assert_allclose(learner.state.W, whole.W, atol=1e-12)
    assert learner.n_observed == whole.n_observed


@pytest.mark.parametrize("loop", ["explicit", "conversion"])
def test_the_default_with_a_fixed_prior_grows_to_the_estimate_of_all_from_the_start(loop):
    """A prior that is learnt depends on when it was: after a growth it is learnt anew."""
    options = {"family": Bernoulli(), "policy": AdaptiveThompson(strength=1e12), "window": 7200.0}
    options["loop"] = loop
    replica, rng, waiting = new_shop(shop_features(OLD), **options), np.random.default_rng(8), []
    play(replica, rng, 40, waiting)
    new = shop_spec(shop_features(NEW), **options)
    replica.configure("shop", new)
    replica.register("shop", actions(NEW))
    play(replica, rng, 20, waiting)
    learner, whole = replica.fold("shop").learner, new.learner()
    assert learner.n_observed > 20
    one, zero, nothing = np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros((0, whole.dim))
    for row in range(learner.n_decided):
        x = rows_between(learner.history, row, row + 1)
        whole.fold(DECIDE * one, x, zero, np.zeros(1), zero)
    y = learner.history.y[: learner.n_decided]
    for row in np.flatnonzero(~np.isnan(y)):
        whole.fold(LEARN * one, nothing, row * one, y[row] * np.ones(1), one)
    if loop == "conversion":
        silence = learner.history.silence[: learner.n_decided]
        assert silence.any()
        whole.hear(np.flatnonzero(silence), silence[silence > 0.0])
    np.testing.assert_allclose(learner.exact_theta(), whole.exact_theta(), atol=1e-9)
    assert np.abs(whole.exact_theta()).max() > 0.1


def test_what_was_learnt_stays_and_the_new_banner_starts_at_zero():
    check_growth_keeps_the_estimate({})


def test_a_growth_goes_on_hearing_the_silence_of_open_decisions():
    policy = AdaptiveThompson(strength=1e12)
    options = {"family": Bernoulli(), "policy": policy, "loop": "conversion", "window": 7200.0}
    before, after = check_growth_keeps_the_estimate(options)
    n = before.n_decided
    assert before.history.silence[:n].any()
    assert np.array_equal(after.history.silence[:n], before.history.silence[:n])


def check_growth_keeps_the_estimate(options):
    """Returns the learners before and after."""
    replica = new_shop(shop_features(OLD), **options)
    play(replica, np.random.default_rng(2), 40, [])
    fold = replica.fold("shop")
    names, before = fold.actions.features.names, fold.learner
    replica.configure("shop", shop_spec(shop_features(NEW), **options))
    exact = fold.learner.exact_theta()
    after = dict(zip(fold.actions.features.names, exact, strict=True))
    kept = [after[name] for name in names]
    np.testing.assert_allclose(kept, before.exact_theta(), atol=1e-9)
    assert {after[name] for name in after if "spring" in name} == {0.0}
    return before, fold.learner


def test_a_decision_drawn_up_before_the_growth_is_padded():
    replica = new_shop(shop_features(OLD))
    rng = np.random.default_rng(3)
    play(replica, rng, 5, [])
    behind = replayed(replica)
    behind.rng = np.random.default_rng(1)
    context = {"country": "NO", "user": 3}
    draft = behind.propose("shop", Ask(context=context)).draft  # it knows two banners
    replica.configure("shop", shop_spec(shop_features(NEW)))
    replica.configure("shop", shop_spec(shop_features([*NEW, "autumn"])))
    replica.commit([draft])
    replica.reward([(draft.id, 1.0)])
    body = msgspec.msgpack.decode(draft.body, type=Decided)
    fold = replica.fold("shop")
    x = fold.actions.features.transform([actions(OLD)[body.action]], context)
    assert fold.learner.history.x[fold.n_rows - 1].tobytes() == x.tobytes()
    assert len(body.x) < 8 * fold.learner.dim
    assert same(replica, replayed(replica))


def test_two_that_grow_at_once_are_one_after_the_other():
    ledger = MemoryLedger()
    one = new_shop(shop_features(OLD), ledger)
    two = Replica(ledger, clock=one.clock)
    two.catch_up()
    autumn = shop_features([*OLD, "autumn", "yule"])
    late = two.settings_draft("shop", shop_spec(autumn))
    one.configure("shop", shop_spec(shop_features(NEW)))
    two.commit([late])
    one.catch_up()
    assert same(one, two)
    assert same(one, replayed(one))
    assert "banner=spring" in one.fold("shop").actions.features.names  # the first one counts


def test_growth_survives_an_erasure():
    replica = new_shop(shop_features(OLD))
    context = {"country": "NO", "user": 3}
    rng = np.random.default_rng(4)
    replica.commit([replica.propose("shop", Ask(context=context, subject="me")).draft])
    play(replica, rng, 5, [])
    replica.configure("shop", shop_spec(shop_features(NEW)))
    play(replica, rng, 5, [])
    replica.ledger.forget("shop", "me", replica.clock())
    replica.catch_up()
    assert replica.fold("shop").n_rows == 10
    assert same(replica, replayed(replica))


# -------------------------------------------------------------------------------------- in Python


def banner_bandit(ledger=None, banners=OLD, **options):
    features = shop_features(banners, **options)
    return Bandit(
        family=Bernoulli(), policy=DelayedOFUGLM(), features=features, ledger=ledger, seed=1
    )


CONTEXT = {"country": "NO", "user": 1}


@pytest.mark.parametrize("durable", [False, True])
def test_a_bandit_grows(durable, tmp_path):
    ledger = MemoryLedger() if durable else None
    bandit, whole = banner_bandit(ledger), banner_bandit(banners=NEW)
    rows = [*actions(OLD).values()]
    for k in range(8):
        first, second = bandit.decide(rows, CONTEXT), whole.decide(rows, CONTEXT)
        assert first.index == second.index
        bandit.learn(first.id, k % 2)
        whole.learn(second.id, k % 2)
    bandit.grow(bandit.features.with_categories({"banner": ["spring"]}))
    assert (bandit.dim, bandit.n_decided, bandit.n_observed) == (whole.dim, 8, 8)
    np.testing.assert_allclose(bandit.theta, whole.theta, atol=1e-3)  # to their certificates
    exact = bandit._learner.exact_theta()
    np.testing.assert_allclose(exact, whole._learner.exact_theta(), atol=1e-9)
    rows = [*actions(NEW).values()]
    assert bandit.decide(rows, CONTEXT).index == whole.decide(rows, CONTEXT).index
    assert bandit.unmatched == {}
    bandit.save(tmp_path / "bandit")
    assert Bandit.load(tmp_path / "bandit").fingerprint() == bandit.fingerprint()
    with pytest.raises(ValueError, match="lacks the category 'spring'"):
        bandit.grow(shop_features(OLD))


def test_bandits_of_one_ledger_grow_together():
    ledger = MemoryLedger()
    first, second = banner_bandit(ledger), banner_bandit(ledger)
    decision = second.decide([*actions(OLD).values()], CONTEXT)
    first.grow(first.features.with_categories({"banner": ["spring"]}))
    assert second.decide([*actions(NEW).values()], CONTEXT).index in (0, 1, 2)
    assert second.unmatched == {}
    second.learn(decision.id, 1.0)
    assert first.fingerprint() == second.fingerprint()
    low, high = second.interval(actions(NEW)["spring"], CONTEXT)
    assert 0.0 <= low <= high <= 1.0


def test_a_program_that_knows_the_old_categories_opens_the_ledger_again():
    ledger = MemoryLedger()
    banner_bandit(ledger).grow(shop_features(NEW))
    again = banner_bandit(ledger)
    assert again.features.names == shop_features(NEW).names
    assert banner_bandit(ledger, [*NEW, "autumn"]).dim > again.dim  # and one that knows more, too
    with pytest.raises(ValueError, match="lacks the category"):
        banner_bandit(ledger, ["yule"])


def test_only_features_that_the_log_can_hold_grow():
    bandit = Bandit(2, family=Bernoulli(), policy=DelayedOFUGLM())
    with pytest.raises(TypeError, match=r"expected Features\(\.\.\.\) from the start"):
        bandit.grow(shop_features(NEW))
    with pytest.raises(TypeError, match="features = 3: expected Features"):
        banner_bandit().grow(3)


# --------------------------------------------------------------------- in the service and commands


def test_features_are_put_with_more_categories():
    client = Client()
    features = {"categorical": {"banner": OLD, "country": COUNTRIES}}
    client.bandit(dim=None, features=features)
    put = {name: {"banner": name} for name in OLD}
    client("PATCH", "/v1/bandits/shop/actions", {"put": put})
    early = [client.decide(context={"country": "NO"}) for _ in range(5)]
    client.reward((early[0]["decision_id"], 1.0))
    features["categorical"]["banner"] = ["spring", *OLD]
    state = client("PUT", "/v1/bandits/shop", {"family": "bernoulli", "features": features})
    assert (state["n_decided"], state["n_observed"], len(state["theta"])) == (5, 1, 6)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"spring": {"banner": "spring"}}})
    later = client.decide(context={"country": "NO"})
    assert client.service.replica.unmatched["shop"].counts == {}
    client.reward((early[1]["decision_id"], 0.0), (later["decision_id"], 1.0))
    for decision, n in ((early[2], 5), (later, 6)):
        story = client("GET", f"/v1/decisions/{decision['decision_id']}", explain=True)
        assert len(story["features"]) == len(story["explanation"]["theta"]) == n
        assert len(story["explanation"]["actions"]) == n - 3
    again = client("PUT", "/v1/bandits/shop", {"family": "bernoulli", "features": features})
    assert again["model_version"] == client.service.fold("shop").version
    features["categorical"]["banner"] = ["spring"]
    body = {"family": "bernoulli", "features": features}
    said = client("PUT", "/v1/bandits/shop", body, 409)["detail"]
    assert "column 'banner' lacks the category 'summer'" in said


def test_commands_work_across_a_growth(tmp_path, ask):
    url = f"sqlite:///{tmp_path}/shop.db"
    ledger = SQLiteLedger(tmp_path / "shop.db")
    replica = new_shop(shop_features(OLD), ledger)
    rng, waiting = np.random.default_rng(5), []
    play(replica, rng, 10, waiting)
    behind = replayed(replica).propose("shop", Ask(context={"country": "NO", "user": 3})).draft
    snapshots.save(replica, snapshots.default_folder(url))
    replica.configure("shop", shop_spec(shop_features(NEW)))
    replica.register("shop", actions(NEW))
    replica.commit([behind])
    play(replica, rng, 10, waiting)
    digest = replica.fold("shop").digest()
    code, said = ask("verify", url)
    assert (code, said["sound"], said["violations"]) == (0, True, [])
    code, said = ask("replay", url)
    assert said["bandits"][0]["digest"] == digest
    code, said = ask("replay", url, "--policy", "greedy")
    assert (code, said["compared"]) == (0, 21)
    assert ask("export", url, "--out", tmp_path / "log.jsonl")[0] == 0
    copy = f"sqlite:///{tmp_path}/copy.db"
    assert ask("import", copy, tmp_path / "log.jsonl")[0] == 0
    copied = Replica(open_ledger(copy))
    copied.catch_up()
    assert copied.fold("shop").digest() == digest
    assert ask("export", url, "--joined", "--out", tmp_path / "rows.jsonl")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    history = replica.fold("shop").learner.history.x[:21]
    assert np.array_equal([row["x"] for row in rows], history)
    assert ask("retain", url, "--older-than", "0d")[0] == 0
    assert ask("verify", url)[1]["sound"]
    assert replayed(replica).fold("shop").digest() == digest


def test_imports_know_the_grown_features(tmp_path, ask):
    url = f"sqlite:///{tmp_path}/shop.db"
    ledger = SQLiteLedger(tmp_path / "shop.db")
    replica = new_shop(shop_features(OLD), ledger)
    replica.configure("shop", shop_spec(shop_features(NEW)))
    replica.register("shop", actions(NEW))
    file = tmp_path / "log.jsonl"
    row = {"id": "1", "time": 1_700_000_000, "action": "spring", "country": "NO", "user": 1}
    file.write_text(json.dumps(row | {"reward": 1.0}) + "\n")
    assert ask("import", url, file)[1]["decisions"] == {"accepted": 1}
    replica.catch_up()
    fold = replica.fold("shop")
    x = fold.actions.features.transform([actions(NEW)["spring"]], {"country": "NO", "user": 1})
    assert np.array_equal(fold.learner.history.x[:1], x)
    client = Client(ledger)  # no model had a part in the decision: it is explained without one
    (id,) = [e.id for e in ledger.follow(START)[0] if e.kind == Kind.DECIDED]
    story = client("GET", f"/v1/decisions/{to_text(id)}", explain=True)
    assert story["explanation"]["actions"][0]["features"] == x[0].tolist()


def test_one_text_is_no_list_of_categories():
    known = Features(categorical=["country"]).fit([{"country": "NO"}])
    with pytest.raises(TypeError, match="column 'country' = 'FI': expected a list of categories"):
        known.with_categories({"country": "FI"})
