"""Nothing becomes zeros without a word: in Python, in the service, in its metrics and alarms."""

import asyncio
import json
import pickle
import warnings

import httpx2
import pytest

from belated import Bandit, Bernoulli, Features
from belated.features import Unmatched, UnmatchedFeaturesWarning
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.monitoring.alarms import features_unmatched
from belated.policies import AdaptiveThompson
from support.service_client import SECOND, Client, alarms

ROWS = [{"banner": "summer", "country": "France"}, {"banner": "winter", "country": "Norway"}]
BANNERS = [{"banner": "summer"}, {"banner": "winter"}]


def bandit(ledger=None, **options):
    features = Features(categorical=["banner", "country"], **options).fit(ROWS)
    return Bandit(family=Bernoulli(), features=features, ledger=ledger)


# -------------------------------------------------------------------------------------- in Python


@pytest.mark.parametrize("durable", [False, True])
def test_a_bandit_warns_once_and_counts_always(durable):
    shop = bandit(MemoryLedger() if durable else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            shop.decide(BANNERS, {"country": "Frnace"})
        shop.decide(BANNERS, {"contry": "France"})
        shop.decide(BANNERS)
    assert [str(warning.message).partition(":")[0] for warning in caught] == [
        "country = 'Frnace' is not a known category",
        "the column 'country' is missing",
        "no column uses the key 'contry'",
    ]
    assert {warning.filename for warning in caught} == {__file__}  # where decide was called
    assert shop.unmatched == {
        Unmatched("category", "country", "'Frnace'"): 3,
        Unmatched("missing", "country"): 2,
        Unmatched("key", "contry"): 1,
    }


def test_a_strict_bandit_raises_and_decides_nothing():
    shop = bandit(strict=True)
    with pytest.raises(ValueError, match=r"'country' = 'Frnace': .* did you mean 'France'\?"):
        shop.decide(BANNERS, {"country": "Frnace"})
    assert shop.n_decided == 0
    assert shop.unmatched == {}


def test_warnings_have_an_end():
    shop = bandit()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(50):
            shop.decide(BANNERS, {"country": f"land {k}"})
    assert len(caught) == 20
    assert sum(shop.unmatched.values()) == 50


def test_a_bandit_that_counts_can_be_copied_and_pickled():
    shop = bandit()
    with pytest.warns(UnmatchedFeaturesWarning):
        shop.decide(BANNERS, {"country": "Frnace"})
    assert pickle.loads(pickle.dumps(shop)).unmatched == shop.unmatched


def test_an_interval_warns_as_well():
    with pytest.warns(UnmatchedFeaturesWarning, match="'Frnace'"):
        bandit().interval(BANNERS[0], {"country": "Frnace"})


# --------------------------------------------------------------------------------------- imports


def imported(tmp_path, ask, rows, **options):
    """Rows into a bandit with two banners; what the import says."""
    features = Features(categorical=["banner", "country"], **options).fit(ROWS).unbounded()
    ledger = SQLiteLedger(tmp_path / "a.db")
    replica = Replica(ledger)
    spec = Spec.of(features.dim, Bernoulli(), AdaptiveThompson(), features=features.to_dict())
    replica.configure("shop", spec)
    replica.register("shop", {"s": {"banner": "summer"}, "w": {"banner": "winter"}})
    file = tmp_path / "log.jsonl"
    start = {"time": 1_700_000_000, "reward": 1.0}
    lines = [json.dumps({"id": f"d{k}", **start, **row}) for k, row in enumerate(rows)]
    file.write_text("\n".join(lines))
    return ask("import", f"sqlite:///{tmp_path}/a.db", file)


LOG = [
    *([{"action": "s", "country": "France"}] * 5),
    *([{"action": "s", "country": "Frnace"}] * 4),
    *([{"action": "w", "contry": "Norway"}] * 3),
    *([{"action": "old", "country": "Norway"}] * 2),
]


def test_an_import_counts_and_names_what_becomes_zeros(tmp_path, ask):
    code, said = imported(tmp_path, ask, LOG)
    assert (code, said["rows_ok"], said["decisions"]) == (0, 14, {"accepted": 14})
    assert said["became_zeros"] == [
        {"what": "country = 'Frnace' is not a known category", "rows": 4},
        {"what": "the column 'country' is missing", "rows": 3},
        {"what": "the column 'banner' is missing", "rows": 2},
    ]
    assert said["actions_not_registered"] == [{"action": "old", "rows": 2}]
    assert said["columns_not_used"] == [{"column": "contry"}]


def test_an_import_into_a_strict_bandit_refuses_such_rows(tmp_path, ask):
    code, said = imported(tmp_path, ask, LOG, strict=True)
    assert (code, said["rows_ok"], said["rows_bad"], said["written"]) == (1, 5, 9, False)
    assert "did you mean 'France'?" in said["bad_rows"][0]["reason"]
    assert said["became_zeros"] == []


def test_an_import_shows_it_to_people_too(tmp_path, ask, belated):
    imported(tmp_path, ask, LOG)
    args = (f"sqlite:///{tmp_path}/a.db", tmp_path / "log.jsonl", "--dry-run")
    code, out, _ = belated("import", *args)
    assert code == 0
    assert "became zeros" in out
    assert "country = 'Frnace' is not a known category" in out


def test_an_import_without_surprises_is_quiet(tmp_path, ask, belated):
    _, said = imported(tmp_path, ask, LOG[:5])
    assert (said["became_zeros"], said["actions_not_registered"]) == ([], [])
    assert said["columns_not_used"] == []


# --------------------------------------------------------------------------------- in the service

FEATURES = {"categorical": {"banner": ["summer", "winter"], "country": ["France", "Norway"]}}


def served(**features):
    client = Client()
    client.bandit(dim=None, policy=None, features=FEATURES | features)  # the default policy
    put = {"s": {"banner": "summer"}, "w": {"banner": "winter"}}
    client("PATCH", "/v1/bandits/shop/actions", {"put": put})
    return client


def scraped(client, name):
    async def get():
        async with httpx2.AsyncClient(transport=client._transport, base_url="http://test") as http:
            return (await http.get("/metrics")).text

    lines = asyncio.run(get()).splitlines()
    return [line for line in lines if line.startswith(name)]


def test_the_service_counts_names_and_says_what_to_do():
    client = served()
    client.decide(context={"country": "France"})
    assert "features-unmatched" not in alarms(client)
    for _ in range(12):
        client.decide(context={"country": "Frnace"})
    client.decide(context={"contry": "France"})
    assert alarms(client)["features-unmatched"] == (
        "Features became zeros in the last hour: country = 'Frnace' is not a known category (12 "
        "decisions); the column 'country' is missing (1 decision); no column uses the key 'contry' "
        "(1 decision). Correct what is sent, add the category to the bandit's features, or list "
        "the key in ignore or the column in optional."
    )
    assert scraped(client, "belated_unmatched_features_total") == [
        'belated_unmatched_features_total{bandit="shop",column="country",kind="category"} 12.0',
        'belated_unmatched_features_total{bandit="shop",column="country",kind="missing"} 1.0',
        'belated_unmatched_features_total{bandit="shop",column="contry",kind="key"} 1.0',
    ]
    client.now += 3700 * SECOND
    assert "features-unmatched" not in alarms(client)


def test_a_decision_without_any_context_counts_every_time():
    client = served()
    for _ in range(5):
        client.decide()  # the same every time: it could be worked out once for all
    assert "the column 'country' is missing (5 decisions)" in alarms(client)["features-unmatched"]


def test_an_action_that_no_feature_stands_for_counts_in_every_decision():
    client = served()
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"n": {"banner": "spring"}}})
    for _ in range(3):
        client.decide(context={"country": "Norway"})
    said = alarms(client)["features-unmatched"]
    assert "banner = 'spring' is not a known category (3 decisions)" in said


def test_counts_survive_an_erasure():
    client = served()
    client.decide(context={"country": "Frnace"}, subject="me")
    client("DELETE", "/v1/bandits/shop/subjects/me")
    client.decide(context={"country": "Frnace"})
    assert "'Frnace' is not a known category (2 decisions)" in alarms(client)["features-unmatched"]


def test_a_strict_bandit_refuses_requests_and_actions():
    client = served(strict=True, ignore=["session"], optional=["country"])
    client.decide(context={"country": "France", "session": 7})
    client.decide()
    said = client.decide(status=422, context={"country": "Frnace"})["detail"]
    assert "column 'country' = 'Frnace': expected a known category" in said
    assert "key 'contry'" in client.decide(status=422, context={"contry": "France"})["detail"]
    new = {"put": {"n": {"banner": "spring"}}}
    said = client("PATCH", "/v1/bandits/shop/actions", new, 422)["detail"]
    assert "action 'n': column 'banner' = 'spring': expected a known category" in said
    assert client("GET", "/v1/bandits/shop")["n_decided"] == 2


def test_strictness_may_change_at_any_time():
    client = served()
    decided = client.decide(context={"country": "Frnace"})["decision_id"]
    settings = {"family": "bernoulli", "features": FEATURES | {"strict": True}}
    client("PUT", "/v1/bandits/shop", settings)
    client.decide(status=422, context={"country": "Frnace"})
    client("PUT", "/v1/bandits/shop", {"family": "bernoulli", "features": FEATURES})
    client.decide(context={"country": "Frnace"})
    assert client.reward((decided, 1.0)) == ["accepted"]


def test_settings_that_name_a_retired_action_are_an_alarm():
    client = served()
    settings = {"family": "bernoulli", "features": FEATURES, "fallback": "s", "baseline": "w"}
    client("PUT", "/v1/bandits/shop", settings)
    assert "action-not-registered" not in alarms(client)
    client("PATCH", "/v1/bandits/shop/actions", {"drop": ["s"]})
    assert alarms(client)["action-not-registered"] == (
        "fallback = 's': no action of this name is registered. Register it, or change the setting."
    )
    said = client.decide(status=422, eligible=["s"], context={"country": "France"})["detail"]
    assert "eligible = 's': expected a registered action" in said


def test_many_findings_are_summed_up():
    alarm = features_unmatched({f"finding {k}": 9 - k for k in range(9)}, 1000)
    assert alarm.severity == "warn"
    assert "finding 2 (7 decisions); and 6 more." in alarm.sentence
    assert features_unmatched({"finding": 300}, 1000).severity == "bad"
