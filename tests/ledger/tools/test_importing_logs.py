"""`belated ledger import` of somebody else's log."""

import csv
import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from belated import DelayedOFUGLM, Features, Gaussian
from belated.ledger import open_ledger
from belated.ledger.events import Decided, Draft, Kind
from belated.ledger.ids import Ids, from_text, time_of, to_text
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools import importing_logs
from belated.ledger.tools.importing_logs import in_time_order
from belated.ledger.tools.mapping import Imported, Translator, decision_id
from support.shop_ledger import (
    BEGIN,
    HOUR,
    SECOND,
    content,
    contents,
    log_of,
    make_bandit,
    rebuilt,
)

CHILD = """
import sys, os, signal
from belated.ledger.tools import importing_logs
from belated.ledger.stores.sqlite import SQLiteLedger
importing_logs.BATCH = 100
commit, n = SQLiteLedger.commit, 0
def dying(self, drafts, accepts=None):
    global n
    n += 1
    if n == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(self, drafts, accepts)
SQLiteLedger.commit = dying
from belated.commands.main import main
main()
"""


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def sample_rows(n=300):
    rng = np.random.default_rng(5)
    rows = []
    for k in range(n):
        at = BEGIN // SECOND + 60 * k
        rewarded = k % 3 != 0
        rows.append(
            {
                "order": f"{k:04}",
                "at": datetime.fromtimestamp(at, UTC).isoformat(),
                "shown": "abc"[k % 3],
                "bought": int(rng.random() < 0.5) if rewarded else "",
                "paid_at": at + 600 * (1 + k % 12) if rewarded else "",
                "p": 0.25,
                "who": f"user {k % 7}",
                "x0": round(rng.uniform(-0.7, 0.7), 3),
                "x1": round(rng.uniform(-0.7, 0.7), 3),
            }
        )
    return rows


def seconds_of(row):
    return datetime.fromisoformat(row["at"]).timestamp()


MAP = "id=order,time=at,action=shown,reward=bought,reward-time=paid_at,propensity=p,subject=who"


def options(vector="x0,x1"):
    return ("--map", MAP, "--vector", vector)


@pytest.mark.parametrize("loop", ["explicit", "conversion"])
def test_a_log_of_somebody_else(tmp_path, ask, loop):
    url, rows = f"sqlite:///{tmp_path}/a.db", sample_rows()
    make_bandit(url, window=3600.0, loop=loop)
    file = write_csv(tmp_path / "log.csv", rows)
    before = content(tmp_path)
    code, said = ask("import", url, file, *options(), "--dry-run")
    assert (code, said["rows_ok"], said["rows_bad"], said["written"]) == (0, 300, 0, False)
    assert content(tmp_path) == before
    code, said = ask("import", url, file, *options())
    rewarded = [row for row in rows if row["bought"] != ""]
    late = [row for row in rewarded if row["paid_at"] > seconds_of(row) + 3600]
    assert code == 0
    assert said["decisions"] == {"accepted": 300}
    assert said["rewards"] == {"accepted": len(rewarded) - len(late), "late": len(late)}
    ledger = open_ledger(url)
    log = log_of(ledger)
    assert [e.time for e in log[1:]] == sorted(e.time for e in log[1:])  # as it happened
    fold = rebuilt(ledger).folds["shop"]
    assert not fold.pending
    in_time = {row["order"] for row in rewarded} - {row["order"] for row in late}
    y = [
        float(row["bought"])
        if row["order"] in in_time
        else (0.0 if loop == "conversion" else np.nan)
        for row in rows
    ]
    assert np.array_equal(fold.learner.history.y[:300], y, equal_nan=True)
    assert fold.learner.history.x[:300].tolist() == [[r["x0"], r["x1"]] for r in rows]
    body = msgspec.msgpack.decode(log[1].body, type=Decided)
    assert (body.action, body.propensity, body.request) == ("a", 0.25, "0000")
    assert ledger.subject("shop", "user 3") == sorted(
        decision_id("shop", row["order"], round(seconds_of(row) * SECOND))
        for row in rows
        if row["who"] == "user 3"
    )
    # the same once more changes nothing
    code, said = ask("import", url, file, *options())
    assert set(said["decisions"]) == set(said["rewards"]) == {"duplicate"}
    assert log_of(ledger) == log
    assert ask("verify", url)[0] == 0


def test_other_formats_give_the_same_log(tmp_path, ask):
    rows = sample_rows(50)
    for row in rows:
        row["bought"] = None if row["bought"] == "" else row["bought"]
        row["paid_at"] = None if row["paid_at"] == "" else row["paid_at"] * 1000  # milliseconds
        row["x"] = [row.pop("x0"), row.pop("x1")]
    import pyarrow as pa

    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_csv(tmp_path / "log.csv", rows)
    logs = []
    for suffix in ("csv", "jsonl", "parquet"):
        url = f"sqlite:///{tmp_path}/{suffix}.db"
        make_bandit(url)
        code, said = ask("import", url, tmp_path / f"log.{suffix}", *options("x"))
        assert (code, said["rows_ok"]) == (0, 50)
        logs.append(contents(log_of(open_ledger(url))[1:]))
    assert logs[0] == logs[1] == logs[2]


def test_bad_rows_are_named(tmp_path, ask, belated):
    url, rows = f"sqlite:///{tmp_path}/a.db", sample_rows(40)
    make_bandit(url)
    rows[3]["bought"] = 7
    rows[4]["at"] = "yesterday"
    rows[5]["x1"] = 3.0
    rows[6]["x0"] = "nan"
    rows[7]["p"] = 1.5
    rows[8]["paid_at"] = BEGIN // SECOND - 10
    rows[9]["order"] = ""
    rows[10]["at"] = "1812-01-01"
    rows[13] = rows[11] | {"bought": 1 - rows[11]["bought"]}
    file = write_csv(tmp_path / "log.csv", rows)
    with file.open("a") as end:
        end.write("a,b\n")
    before = content(tmp_path)
    code, said = ask("import", url, file, *options())
    assert (code, said["written"], said["rows_ok"], said["rows_bad"]) == (1, False, 31, 10)
    assert content(tmp_path) == before
    reasons = {row["line"]: row["reason"] for row in said["bad_rows"]}
    assert sorted(reasons) == [5, 6, 7, 8, 9, 10, 11, 12, 15, 42]
    for line, expected in {
        5: "reward = 7: expected a whole number from 0 to 1",
        6: "time = 'yesterday': expected an ISO time",
        7: "norm 1 at most",
        8: "finite numbers",
        9: "propensity = 1.5: expected a number above 0, 1 at most",
        10: "a time after the decision",
        11: "id = '': expected a name",
        12: "a time from 2000",
        15: "another row has another reward",
        42: "2 cells: expected 9",
    }.items():
        assert expected in reasons[line], reasons[line]
    code, said = ask("import", url, file, *options(), "--skip-bad")
    assert (code, said["decisions"]) == (0, {"accepted": 31})
    many = write_csv(tmp_path / "many.csv", [row | {"p": 2} for row in sample_rows(60)])
    code, said = ask("import", url, many, *options())
    assert (code, said["rows_bad"], len(said["bad_rows"])) == (1, 60, 20)
    code, out, _ = belated("import", url, many, *options())
    assert "rows bad: 60" in out
    assert "and 40 more" in out


def test_a_contradiction_with_the_ledger_is_counted(tmp_path, ask):
    url, rows = f"sqlite:///{tmp_path}/a.db", sample_rows(20)
    make_bandit(url)
    file = write_csv(tmp_path / "log.csv", rows)
    ask("import", url, file, *options())
    log = log_of(open_ledger(url))
    rows[1]["bought"] = 1 - rows[1]["bought"]
    rows[3]["bought"], rows[3]["paid_at"] = 1, rows[2]["paid_at"] + 600  # has come since
    code, said = ask("import", url, write_csv(file, rows), *options())
    assert code == 1
    assert said["rewards"] == {"duplicate": 12, "conflict": 1, "accepted": 1}
    assert log_of(open_ledger(url))[:-1] == log


def test_a_log_import_that_is_killed_goes_on(tmp_path, ask):
    whole, part = (f"sqlite:///{tmp_path}/{name}.db" for name in ("whole", "part"))
    file = write_csv(tmp_path / "log.csv", sample_rows())
    for url in (whole, part):
        make_bandit(url, window=3600.0)
    ask("import", whole, file, *options())
    child = subprocess.run(
        [sys.executable, "-c", CHILD, "ledger", "import", part, str(file), *options()],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        check=False,
    )
    assert child.returncode == -9, child.stderr
    assert len(log_of(open_ledger(part))) == 301
    assert ask("import", part, file, *options())[0] == 0
    first, second = (log_of(open_ledger(url))[1:] for url in (whole, part))
    assert contents(first) == contents(second)


def test_features_from_columns(tmp_path, ask):
    features = Features(numeric=["age"], categorical=["ad", "page"], interactions=[("age", "ad")])
    features.fit([{"age": 20, "ad": "a", "page": "x"}, {"age": 60.0, "ad": "b", "page": "y"}])
    ledger = SQLiteLedger(tmp_path / "a.db")
    replica = Replica(ledger)
    spec = Spec.of(features.dim, Gaussian(sd=1.0), DelayedOFUGLM(), features=features.to_dict())
    replica.configure("ads", spec)
    replica.register("ads", {"first": {"ad": "a"}, "second": {"ad": "b"}})
    rows = [
        {"id": k, "time": BEGIN // SECOND + k, "action": a, "age": 20 + k, "page": "xy"[k % 2]}
        | {"reward": k / 10, "ad": ad}
        for k, (a, ad) in enumerate([("first", None), ("second", None), ("third", "b")])
    ]
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, said = ask("import", f"sqlite:///{tmp_path}/a.db", file)
    assert (code, said["decisions"]) == (0, {"accepted": 3})
    expected = [
        features.transform([{"ad": ad}], {"age": 20 + k, "page": "xy"[k % 2]})[0]
        for k, ad in enumerate("abb")
    ]
    fold = rebuilt(ledger).folds["ads"]
    assert np.array_equal(fold.learner.history.x[:3], expected)
    assert fold.learner.history.y[:3].tolist() == [0.0, 0.1, 0.2]
    bodies = [
        msgspec.msgpack.decode(e.body, type=Decided)
        for e in log_of(ledger)
        if e.kind == Kind.DECIDED
    ]
    assert [json.loads(body.context) for body in bodies] == [
        {"age": 20, "page": "x"},
        {"age": 21, "page": "y"},
        {"age": 22, "page": "x", "ad": "b"},
    ]
    assert [(body.index, body.names) for body in bodies] == [(0, None), (1, None), (0, ("third",))]
    rows[1]["age"] = None  # one bad row among good ones
    file.write_text("".join(json.dumps(row | {"id": f"new {row['id']}"}) + "\n" for row in rows))
    code, said = ask("import", f"sqlite:///{tmp_path}/a.db", file)
    assert (code, [row["line"] for row in said["bad_rows"]]) == (1, [2])
    assert "column 'age' = None: expected" in said["bad_rows"][0]["reason"]


DSJSON = {
    "_label_cost": -1,
    "_label_probability": 0.8,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2023-11-14T22:13:20.1234560Z",
    "Version": "1",
    "EventId": "5f2a",
    "a": [2, 1],
    "p": [0.8, 0.2],
    "c": {
        "User": {"age": 0.5, "_age2": 3},
        "_multi": [{"Ad": {"price": 0.1}}, {"Ad": {"price": 0.3}, "_tag": "blue"}],
    },
}


def test_dsjson(tmp_path, ask):
    url = f"sqlite:///{tmp_path}/a.db"
    make_bandit(url)
    events = [
        DSJSON,
        DSJSON | {"EventId": "5f2b", "_labelIndex": 0, "_label_cost": 0},
        DSJSON | {"EventId": "5f2c", "_labelIndex": 2},
        DSJSON | {"EventId": "5f2d", "_skipLearn": True},
        {"RewardValue": 1.0, "EventId": "5f2a"},
    ]
    file = tmp_path / "log.json"
    file.write_text("\n".join(map(json.dumps, events)) + "\nnonsense\n")
    args = ("import", url, file, "--format", "dsjson", "--vector", "User.age,Ad.price")
    code, said = ask(*args)
    assert (code, said["rows_ok"]) == (1, 2)
    assert [row["line"] for row in said["bad_rows"]] == [3, 4, 5, 6]
    assert "_labelIndex = 2: expected one of 2 actions" in said["bad_rows"][0]["reason"]
    assert ask(*args, "--skip-bad")[0] == 0
    log = log_of(open_ledger(url))
    decisions = [e for e in log if e.kind == Kind.DECIDED]
    assert decisions[0].time == BEGIN + 123_456
    first, second = (msgspec.msgpack.decode(e.body, type=Decided) for e in decisions)
    assert (first.action, first.propensity, first.request) == ("blue", 0.8, "5f2a")
    assert (second.action, np.frombuffer(second.x).tolist()) == ("0", [0.5, 0.1])
    assert [e.value for e in log if e.kind == Kind.REWARDED] == [1.0, 0.0]


def test_ids_of_imported_decisions():
    """Golden: whoever imports the same log with a later version must find the same ids."""
    id = decision_id("shop", "order 17", BEGIN)
    assert len(id) == 16
    assert time_of(id) == BEGIN
    assert id[6] >> 4 == 8
    assert id[8] >> 6 == 2
    assert id == decision_id("shop", "order 17", BEGIN)
    assert id not in (decision_id("shop", "order 18", BEGIN), decision_id("b", "order 17", BEGIN))
    ours = to_text(Ids(lambda: BEGIN, seed=1)())
    assert decision_id("shop", ours, BEGIN + SECOND) == from_text(ours)
    assert decision_id("shop", ours, BEGIN + 48 * HOUR) != from_text(ours)
    ids = [decision_id("shop", "x", BEGIN + k * 1000) for k in range(10)]
    assert ids == sorted(ids)


def test_rewards_and_windows_come_between_decisions_when_they_came():
    def row(k, reward=None, delay=0, window=None):
        due = None if window is None else 10 * k + window
        return Imported(
            k, Draft(Kind.DECIDED, "b", b"%d" % k, 10 * k, due=due), reward, 10 * k + delay
        )

    def order(rows, **settings):
        return [(d.kind.name[0], d.id, d.time) for d in in_time_order(rows, now=99, **settings)]

    rows = [row(0, 1.0, 15), row(1), row(2, 0.0, 0)]
    assert order(rows, conversion=False) == [
        ("D", b"0", 0),
        ("D", b"1", 10),
        ("R", b"0", 15),
        ("D", b"2", 20),
        ("R", b"2", 20),
    ]
    rows = [row(0, 1.0, 5, 7), row(1, 1.0, 9, 7), row(2, None, 0, 7), row(9, None, 0, 70)]
    explicit = order(rows, conversion=False)
    assert [e for e in explicit if e[0] == "E"] == [("E", b"1", 18), ("E", b"2", 28)]
    assert explicit.index(("E", b"1", 18)) < explicit.index(("R", b"1", 19))
    assert [e[2] for e in order(rows, conversion=True) if e[0] == "E"] == [8, 18, 28]


@pytest.mark.parametrize(("room", "times"), [(importing_logs.ROOM, 1), (30_000, 2)])
def test_a_row_is_translated_once_where_there_is_room(tmp_path, ask, monkeypatch, room, times):
    """Both ways write the same log; also where some rows are bad, or contradict each other."""
    rows = sample_rows()
    rows[7]["p"] = 2.0
    rows.append({**rows[10], "bought": 1 - rows[10]["bought"]})
    file, translated, logs = write_csv(tmp_path / "log.csv", rows), [], []
    translate = Translator.translate
    monkeypatch.setattr(importing_logs, "BATCH", 100)
    monkeypatch.setattr(
        Translator, "translate", lambda self, some: translated.extend(some) or translate(self, some)
    )
    for name, given in (("a", room), ("b", 0)):
        monkeypatch.setattr(importing_logs, "ROOM", given)
        url = f"sqlite:///{tmp_path}/{name}.db"
        make_bandit(url, window=3600.0)
        translated.clear()
        code, said = ask("import", url, file, *options(), "--skip-bad")
        assert (code, said["rows_ok"], said["rows_bad"]) == (0, 299, 2)
        if name == "a":
            assert len(translated) == times * len(rows)
        ledger = open_ledger(url)
        logs.append([(e.kind, e.id, e.time, e.value, e.due, e.body) for e in log_of(ledger)][2:])
        ledger.close()
    assert logs[0] == logs[1]
    assert len(logs[0]) > 450
