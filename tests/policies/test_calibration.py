"""Whether posterior intervals of the default hold the truth as often as they say."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "default_policy.py"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.compiled
def test_intervals_of_90_per_cent_hold_the_truth_in_85_to_95():
    """Of 20 shops after 20,000 decisions each, whose rewards the default chose to see."""
    spec = importlib.util.spec_from_file_location("default_policy", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert 0.85 <= script.coverage(worlds=20) <= 0.95
