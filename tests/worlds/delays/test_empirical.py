"""Delays from a file that ``belated delays --law`` wrote."""

import json
import re

import numpy as np
import pytest

from belated import registry
from belated.experiments.labels import labelled
from belated.theory.planning import delay_cost
from belated.worlds.delays import Empirical, read_law


def test_a_file_is_named_where_a_delay_is(tmp_path):
    path = tmp_path / "law.json"
    path.write_text(json.dumps({"values": [3.0, 1.0], "never": 1}))
    law = registry.parse(registry.DELAYS, f"empirical:{path}")
    assert law == Empirical([1.0, 3.0, np.inf])
    assert law.survival(1.0) == pytest.approx(2.0 / 3.0)


@pytest.mark.parametrize("content", ["", "[1.0]", '{"values": [1.0]}', '{"values": 1, "never": 0}'])
def test_a_file_that_is_no_law(content, tmp_path):
    path = tmp_path / "law.json"
    path.write_text(content)
    with pytest.raises(
        ValueError, match=r"law.json': expected delays, as numbers, or a file of `bel"
    ):
        Empirical(path)
    with pytest.raises(ValueError, match=r"values = 'nowhere.json': expected delays.*No such"):
        Empirical("nowhere.json")


def test_a_file_with_impossible_delays(tmp_path):
    (tmp_path / "law.json").write_text('{"values": [-1.0], "never": 0}')
    with pytest.raises(ValueError, match="expected one or more delays, 0 or more"):
        Empirical(tmp_path / "law.json")


def test_units_are_those_that_are_asked_for(tmp_path):
    path = tmp_path / "law.json"
    path.write_text(json.dumps({"unit": "hours", "values": [12.0, 48.0], "never": 1}))
    assert read_law(path, "days").values.tolist() == [0.5, 2.0, np.inf]
    assert read_law(path, "rounds", per_day=100.0).values.tolist() == [50.0, 200.0, np.inf]
    said = r"expected delays in rounds, and the file has hours and does not .* --law-unit rounds"
    for read in (Empirical, read_law):
        with pytest.raises(ValueError, match=said):
            read(path)


def test_a_file_that_says_the_traffic_of_its_log_is_taken_in_any_unit(tmp_path):
    """48 decisions a day: two an hour."""
    path = tmp_path / "law.json"
    content = {"unit": "hours", "per_day": 48.0, "values": [12.0, 36.0], "never": 1}
    path.write_text(json.dumps(content))
    law = registry.parse(registry.DELAYS, f"empirical:{path}")
    assert law.values.tolist() == [24.0, 72.0, np.inf]
    assert read_law(path, "rounds", per_day=24.0).values.tolist() == [12.0, 36.0, np.inf]
    path.write_text(json.dumps(content | {"unit": "rounds"}))
    assert read_law(path, "hours").values.tolist() == [6.0, 18.0, np.inf]
    assert read_law(path, "hours", per_day=24.0).values.tolist() == [6.0, 18.0, np.inf]
    path.write_text(json.dumps(content | {"per_day": -1.0}))
    with pytest.raises(ValueError, match=r"per_day = -1\.0: expected"):
        Empirical(path)


def test_a_label_is_not_the_numbers_of_a_long_law():
    few, many = Empirical([1.0, 2.0]), Empirical(np.arange(1_000.0))
    other = Empirical([*np.arange(500.0), 500.5, *np.arange(501.0, 1_000.0)])
    labels = list(labelled("delays", registry.DELAYS, [few, many, other], lambda _: True))
    assert labels[0].startswith("empirical:")
    assert re.fullmatch(r"empirical, median 499\.5 \([0-9a-f]{8}\)", labels[1])
    assert labels[2].startswith("empirical, median 499.8 (")
    again = labelled("delays", registry.DELAYS, [Empirical(np.arange(1_000.0))], lambda _: True)
    assert list(again) == labels[1:2]


def test_what_lateness_costs_does_not_depend_on_the_unit_of_the_file(tmp_path):
    costs = []
    for unit, length in (("hours", 1.0), ("days", 24.0), ("rounds", 24.0 / 50.0)):
        path = tmp_path / f"{unit}.json"
        delays = [6.0 / length, 12.0 / length]
        path.write_text(json.dumps({"unit": unit, "values": delays, "never": 0}))
        found = delay_cost(
            f"empirical:{path}", dim=2, per_day=50, days=2, n_actions=3, runs=2, policy="greedy"
        )
        costs.append(found.cost)
        assert found.hours == pytest.approx(9.0)
    assert costs == pytest.approx([costs[0]] * 3)
