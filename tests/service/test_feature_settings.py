"""Features of a bandit of the service: ranges and categories are given, nothing is fitted."""

import inspect
from typing import get_args, get_type_hints

import numpy as np
import pytest

from belated import Features
from belated.features.kinds import SCALES
from belated.service.bandits_file import apply_config
from belated.wire import FeatureSettings
from support.service_client import Client

REAL = {
    "numeric": {"price": [9, 900], "age": [20, 30, 60]},
    "scale": {"price": "log", "age": "quantile"},
    "missing": ["age"],
    "categorical": {"ad": ["x", "y"], "country": ["NO", "UK"]},
    "tags": {"likes": ["sea", "snow"]},
    "other": ["country"],
}
TOML = """
[bandits.shop]
family = "bernoulli"

[bandits.shop.features]
numeric = {price = [9, 900], age = [20, 30, 60]}
scale = {price = "log", age = "quantile"}
missing = ["age"]
categorical = {ad = ["x", "y"], country = ["NO", "UK"]}
tags = {likes = ["sea", "snow"]}
other = ["country"]

[bandits.shop.actions]
1 = {ad = "x", likes = ["sea"]}
2 = {ad = "y", likes = ["sea", "snow"]}
"""
VISITOR = {"price": 90, "age": None, "country": "DK"}


def test_a_service_knows_every_option_of_features():
    options = set(inspect.signature(Features).parameters)
    assert options == {*FeatureSettings.__struct_fields__, "max_norm"}  # a setting of its own
    assert get_args(get_args(get_type_hints(FeatureSettings)["scale"])[1]) == SCALES


def test_numbers_and_lists_as_they_come():
    client = Client()
    client.bandit(features=REAL, dim=None, policy=None)
    actions = {"1": {"ad": "x", "likes": ["sea"]}, "2": {"ad": "y", "likes": ["sea", "snow"]}}
    client("PATCH", "/v1/bandits/shop/actions", {"put": actions})
    both = [
        client.decide(context={**VISITOR, "age": age}, eligible=[name])
        for name, age in [("1", None), ("2", 45)]
    ]
    rows = [client("GET", f"/v1/decisions/{one['decision_id']}")["features"] for one in both]
    names = client.service.replica.folds["shop"].actions.features.names
    unknown = {"country=(other)": 1.0, "country=NO": 0.0, "country=UK": 0.0, "intercept": 1.0}
    assert dict(zip(names, rows[0], strict=True)) == pytest.approx(
        {"price": 0.0, "age": 0.0, "age=(missing)": 1.0, "ad=x": 1.0, "ad=y": 0.0}
        | {"likes=sea": 1.0, "likes=snow": 0.0}
        | unknown
    )
    assert dict(zip(names, rows[1], strict=True)) == pytest.approx(
        {"price": 0.0, "age": 0.5, "age=(missing)": 0.0, "ad=x": 0.0, "ad=y": 1.0}
        | {"likes=sea": 1.0, "likes=snow": 1.0}
        | unknown
    )


def test_they_are_those_that_fit_learns():
    rows = [
        {"price": 9.0, "age": 20, "ad": "x", "country": "NO", "likes": ["sea", "snow"]},
        {"price": 900.0, "age": 60, "ad": "y", "country": "UK", "likes": []},
        {"price": 90.0, "age": 30, "ad": "y", "country": "UK", "likes": []},
    ]
    options = {name: list(value) for name, value in REAL.items() if name != "scale"}
    fitted = Features(**options, scale=REAL["scale"]).fit(rows)
    quantiles = dict(fitted.to_dict()["fitted"]["quantiles"])
    client = Client()
    given = {**REAL, "numeric": {"price": [9, 900], "age": quantiles["age"]}}
    client.bandit(features=given, dim=None, policy=None)
    served = client.service.replica.folds["shop"].actions.features
    strange = {"price": 30.0, "ad": "x", "country": "DK", "likes": ["snow", "wind"]}
    assert np.array_equal(
        served.transform([*rows, strange]), fitted.unbounded().transform([*rows, strange])
    )


def test_a_config_file_has_them(tmp_path):
    path = tmp_path / "bandits.toml"
    path.write_text(TOML)
    client = Client()
    replica = client.service.replica
    assert apply_config(replica, path)
    assert apply_config(replica, path) == []  # started again, it writes nothing
    other = Client()
    other.bandit(features=REAL, dim=None, policy=None)
    features = [c.service.replica.folds["shop"].spec.features for c in (client, other)]
    assert features[0] == features[1]
    path.write_text(TOML.replace('["sea", "snow"]}\nother', '["wind", "sea", "snow"]}\nother'))
    assert apply_config(replica, path)  # a new tag is a new category
    assert replica.folds["shop"].actions.features.names[-4:-1] == [
        *("likes=sea", "likes=snow", "likes=wind")
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"numeric": {"price": [9, 20, 900], "age": [1, 2]}}, "[lowest, highest]"),
        ({"numeric": {"price": [9, 900], "age": [30, 20, 60]}}, "ascending quantiles"),
        ({"numeric": {"price": [0, 900], "age": [1, 2]}}, "expected above 0"),
        ({"scale": {"price": "cubic"}}, "cubic"),
        ({"scale": {"ad": "log", "age": "quantile"}}, "expected one of the numeric columns"),
        ({"missing": ["ad"]}, "expected one of the numeric columns"),
        ({"other": ["price"]}, "expected one of the categorical and tags columns"),
        ({"tags": {"ad": ["x"]}}, "listed twice"),
        (
            {"hashed": {"user": 5000}},
            "features.hashed['user'] = 5000: expected at most 4096 buckets",
        ),
        (  # interactions multiply
            {"hashed": {"user": 4096}, "interactions": [["user", "ad"]]},
            "at most 4096 features; hash a column into fewer",
        ),
    ],
)
def test_settings_that_do_not_fit(change, said):
    body = {"family": "bernoulli", "features": {**REAL, **change}}
    client = Client()
    assert said in client("PUT", "/v1/bandits/new", body, 422)["detail"]
    assert client("GET", "/v1/bandits")["bandits"] == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dim": 4097}, "dim = 4097: expected at most 4096 features; hash a column into fewer"),
        ({"dim": 0}, ">= 1"),
        ({"dim": 3, "groups": {"ad": 2}}, "groups = {'ad': 2}: expected sizes that sum to 3"),
        ({"dim": 3, "groups": {"ad": 1, "intercept": 2}}, "groups['intercept'] = 2: expected 1"),
        ({"dim": 3, "groups": {"ad": 3, "none": 0}}, "groups['none'] = 0"),
        ({"dim": 3, "groups": {"ad": 3}, "policy": "greedy"}, "Greedy has no prior by groups"),
        ({"features": REAL, "groups": {"ad": 3}}, "expected nothing: the features know"),
        ({"dim": 3, "policy": "adaptive-thompson:prior_sd=0"}, "prior_sd = 0"),
        ({"dim": 3, "policy": "adaptive-thompson:prior_sd=-1"}, "prior_sd = -1"),
    ],
)
def test_sizes_and_priors_that_do_not_fit(settings, said):
    client = Client()
    body = {"family": "bernoulli", **settings}
    assert said in client("PUT", "/v1/bandits/new", body, 422)["detail"]
    assert client("GET", "/v1/bandits")["bandits"] == []


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"ad": ["x"]}, "column 'ad' = ['x']"),
        ({"ad": "x", "likes": "sea"}, "expected a list of categories"),
        ({"price": "cheap"}, "expected a finite number"),
    ],
)
def test_an_action_that_no_decision_could_use_is_not_registered(action, said):
    client = Client()
    client.bandit(features=REAL, dim=None, policy=None)
    put = {"put": {"1": action}}
    assert said in client("PATCH", "/v1/bandits/shop/actions", put, 422)["detail"]
    assert client("GET", "/v1/bandits/shop/actions")["actions"] == {}
