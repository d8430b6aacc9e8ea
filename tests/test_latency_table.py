"""The table of latencies in docs/reliability.md: which of its rows must hold."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def latency(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module("latency")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_the_row_that_is_not_asked_for_says_so_and_may_have_any_ratio(latency, monkeypatch):
    def rows(**seconds):
        """By name, all with a quiet 99th percentile of 2 ms."""
        return [
            latency.Row(
                name, latency.Meanwhile(1.0, [seconds.get(key, 0.002)], [0.001], [0.001]), 2.0
            )
            for key, name in (("snapshot", "snapshot"), ("shifting", latency.SHIFTING))
        ]

    monkeypatch.setattr(latency, "one_run", lambda: rows(shifting=0.07))
    lines, holds = latency.table()
    assert holds
    assert "| 35.0 (not asked) |" in lines[-1]
    assert "| 1.0 |" in lines[-2]
    monkeypatch.setattr(latency, "one_run", lambda: rows(snapshot=0.07))
    assert not latency.table()[1]
