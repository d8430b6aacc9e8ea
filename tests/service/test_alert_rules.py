"""The alert rules name metrics, labels and values that the service has."""

import re
from pathlib import Path

import httpx2
import pytest
import yaml

from belated.client import Client
from belated.core.events import Status
from support.running_service import served

RULES = Path(__file__).parents[2] / "examples" / "alerts.yml"
NAME = r"belated_\w+"
JOB = 'job="belated"'


@pytest.fixture(scope="module")
def page():
    with served() as (url, _), Client(url) as client:
        client.put_bandit("shop", {"family": "bernoulli", "dim": 1})
        client.change_actions("shop", {"a": [1.0]})
        client.reward(client.decide("shop").decision_id, 1.0)
        return httpx2.get(f"{url}/metrics").text


def test_every_metric_exists(page):
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    declared = set(re.findall(rf"^# TYPE ({NAME}) ", page, re.M))
    sampled = set(re.findall(rf"^({NAME})", page, re.M))
    labels = {
        name: set(re.findall(r"(\w+)=", text))
        for name, text in re.findall(rf"^({NAME}){{(.*?)}} ", page, re.M)
    }
    used = set()
    for rule in group["rules"]:
        names = set(re.findall(NAME, rule["expr"].replace(JOB, "")))
        assert names or rule["alert"] == "BelatedDown", rule
        assert names <= declared | sampled, names - declared - sampled
        used |= names
        for name, text in re.findall(rf"({NAME}){{(.*?)}}", rule["expr"]):
            assert set(re.findall(r"(\w+)=", text)) <= labels[name], rule
        assert rule["annotations"]["summary"].endswith(".")
    for metric in (
        "belated_rewards_total",
        "belated_pending",
        "belated_model_staleness_seconds",
        "belated_store_down",
        "belated_commit_seconds_bucket",
        "belated_decisions_not_logged_total",
    ):
        assert metric in used


def test_every_status_exists():
    statuses = re.findall(r'status=~?"([\w|]+)"', RULES.read_text())
    assert len(statuses) == 2
    for status in "|".join(statuses).split("|"):
        assert Status(status)
