"""Tables of commands, as they stand in a terminal of 80 columns."""

import pytest

from belated.ledger.tools.showing import show


@pytest.mark.parametrize(("n", "turned"), [(2, True), (10, False)])
def test_a_wide_table_is_turned_only_where_that_makes_it_narrower(n, turned, capsys, monkeypatch):
    """Ten candidates of six columns would become eleven columns of five letters."""
    monkeypatch.setenv("COLUMNS", "80")
    names = ["candidate", "lift", "earned", "ahead", "interval", "verdict"]
    rows = [dict.fromkeys(names, f"r{k}") | {"candidate": f"candidate-{k}"} for k in range(n)]
    show({"candidates": rows}, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    head = next(line.split() for line in lines if line.strip().startswith("candidate "))
    assert head == (["candidate", "candidate-0", "candidate-1"] if turned else names)
    assert all(len(line) <= 80 for line in lines)
