"""`belated ledger export` of joined rows, and of a part of the log."""

import csv
import json
from datetime import UTC, datetime

import numpy as np
import pyarrow.parquet as pq
import pytest

from belated import Bernoulli, DelayedOFUGLM, Gaussian
from belated.ledger import open_ledger
from belated.ledger.events import Draft, Kind
from belated.ledger.ids import from_text, to_text
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.policies import Thompson
from support.shop_ledger import BEGIN, HOUR, Clock, log_of, make_bandit, rebuilt


def test_joined_rows_tell_what_became_of_decisions(tmp_path, ask):
    ledger, clock = SQLiteLedger(tmp_path / "a.db"), Clock()
    replica = Replica(ledger, clock=clock, seed=1)
    replica.configure(
        "e", Spec.of(2, Gaussian(sd=1.0), DelayedOFUGLM(), window=3600.0, late="revise")
    )
    replica.configure(
        "c", Spec.of(2, Bernoulli(), DelayedOFUGLM(), window=3600.0, loop="conversion")
    )
    names, ids = ("pending", "rewarded", "late", "expired", "cancelled", "revised"), {}
    for bandit in "ec":
        for name in names:
            if name == "pending":
                continue
            matrix = np.array([[0.5, 0.25]])
            draft = replica.propose(bandit, Ask(matrix=matrix, names=[name])).draft
            replica.commit([draft])
            ids[bandit, name] = draft.id
    clock.now += HOUR // 2
    for bandit in "ec":
        replica.reward([(ids[bandit, "rewarded"], 1.0), (ids[bandit, "revised"], 0.0)])
        replica.commit([Draft(Kind.CANCELLED, "", ids[bandit, "cancelled"], clock())])
        replica.commit([Draft(Kind.REVISED, "", ids[bandit, "revised"], clock() + 5, 1.0)])
    clock.now += HOUR
    replica.expire()
    clock.now += HOUR
    for bandit in "ec":
        replica.reward([(ids[bandit, "late"], 1.0)])
        replica.commit([replica.propose(bandit, Ask(matrix=matrix, names=["pending"])).draft])
    rows = {}
    for suffix in ("jsonl", "parquet", "csv"):
        file = tmp_path / f"joined.{suffix}"
        url = f"sqlite:///{tmp_path}/a.db"
        code, said = ask("export", url, "--out", file, "--joined", "--dry-run")
        assert (code, said["rows"], file.exists()) == (0, 12, False)
        code, said = ask("export", url, "--out", file, "--joined")
        assert (code, said["rows"], said["kind"]) == (0, 12, "decisions")
    rows = [json.loads(line) for line in (tmp_path / "joined.jsonl").read_text().splitlines()]
    found = {(row["bandit"], row["action"]): row for row in rows}
    for bandit in "ec":
        for name in names:
            expected = "rewarded" if name == "revised" else name
            assert found[bandit, name]["status"] == expected, name
            assert found[bandit, name]["x"] == [0.5, 0.25]
    assert found["e", "rewarded"]["delay_seconds"] == 1800.0
    assert found["e", "late"]["delay_seconds"] == 2.5 * 3600
    assert found["e", "revised"]["reward"] == 1.0
    assert found["e", "revised"]["delay_seconds"] == 1800.0
    assert found["e", "expired"]["reward"] is None
    assert found["c", "expired"]["reward"] == 0.0  # that is what no conversion means
    assert found["c", "cancelled"]["reward"] is None
    assert found["e", "rewarded"]["time"] == "2023-11-14T22:13:20.000000Z"
    assert found["e", "rewarded"]["id"] == to_text(ids["e", "rewarded"])
    table = pq.read_table(tmp_path / "joined.parquet").to_pylist()
    assert [row["status"] for row in table] == [row["status"] for row in rows]
    assert [row["x"] for row in table] == [row["x"] for row in rows]
    assert table[0]["time"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    with (tmp_path / "joined.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [row["status"] for row in cells] == [row["status"] for row in rows]
    assert [row["reward"] for row in cells] == [
        "" if row["reward"] is None else str(row["reward"]) for row in rows
    ]
    # a joined file is a log like any other
    copy = f"sqlite:///{tmp_path}/copy.db"
    make_bandit(copy, name="c", window=3600.0)
    for suffix in ("jsonl", "parquet", "csv"):
        one = tmp_path / f"c.{suffix}"
        ask("export", url, "--out", one, "--joined", "--bandit", "c")
        code, said = ask("import", copy, one, "--vector", "x")
        assert (code, said["rows_ok"]) == (0, 6)
    fold = rebuilt(open_ledger(copy)).folds["c"]
    assert fold.n_rows == 6
    assert from_text(found["c", "late"]["id"]) in bytes(fold.ids)


@pytest.mark.parametrize(
    "times", [("2023-11-15T00:13:20Z", "2023-11-15 02:13:20"), ("1700007200", "1700014400.0")]
)
def test_export_of_a_part(shop, tmp_path, ask, times):
    ledger, file = open_ledger(shop), tmp_path / "part.jsonl"
    since, until = BEGIN + 2 * HOUR, BEGIN + 4 * HOUR
    _, said = ask(
        *("export", shop, "--out", file, "--bandit", "clicks"),
        *("--since", times[0], "--until", times[1]),
    )
    assert said["rows"] == sum(
        e.bandit == "clicks" and since <= e.time < until for e in log_of(ledger)
    )
    assert said["rows"] > 0


def test_propensities_of_a_policy_that_draws_are_exported(tmp_path, ask):
    url = f"sqlite:///{tmp_path}/a.db"
    replica = Replica(open_ledger(url), clock=Clock(), seed=1)
    replica.configure("e", Spec.of(2, Bernoulli(), Thompson()))
    for k in range(6):
        asked = Ask(matrix=np.eye(2), probabilities=k == 0)
        replica.commit([replica.propose("e", asked).draft])
    tables = {}
    for suffix in ("jsonl", "parquet", "csv"):
        file = tmp_path / f"joined.{suffix}"
        ask("export", url, "--out", file, "--joined")
        tables[suffix] = file
    rows = [json.loads(line) for line in tables["jsonl"].read_text().splitlines()]
    for row in rows:
        assert (0.0 < row["propensity"] < 1.0, row["n_actions"]) == (True, 2)
    assert rows[0]["probabilities"][int(rows[0]["action"])] == rows[0]["propensity"]
    assert [row["probabilities"] for row in rows[1:]] == [None] * 5
    columns = ("propensity", "n_actions", "probabilities")
    for row, other in zip(rows, pq.read_table(tables["parquet"]).to_pylist(), strict=True):
        assert [row[name] for name in columns] == [other[name] for name in columns]
    with tables["csv"].open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert json.loads(cells[0]["probabilities"]) == rows[0]["probabilities"]
    assert [float(row["propensity"]) for row in cells] == [row["propensity"] for row in rows]
