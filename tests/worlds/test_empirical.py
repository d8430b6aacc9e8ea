"""Delays from a file that ``belated delays --law`` wrote."""

import json

import numpy as np
import pytest

from belated import registry
from belated.worlds.delays import Empirical


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
