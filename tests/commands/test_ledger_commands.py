"""belated ledger ...: moving, checking, rebuilding and keeping a log, as a user meets it."""

import csv
import json
import os
import subprocess
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec.structs import astuple, replace

from belated import Bandit, Bernoulli, DelayedOFUGLM, Features, Gaussian, Transformed
from belated.commands.main import main
from belated.ledger import open_ledger, snapshots
from belated.ledger.events import START, Decided, Draft, Kind
from belated.ledger.ids import Ids, from_text, time_of, to_text
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools import importing_events
from belated.ledger.tools.importing_logs import in_time_order
from belated.ledger.tools.invariants import Rules
from belated.ledger.tools.mapping import Imported, decision_id
from belated.policies.greedy import Greedy
from support.postgres_server import postgres as postgres  # a fixture

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
BEGIN = 1_700_000_000 * SECOND
DIM = 3


@pytest.fixture
def belated(monkeypatch, capsys):
    """Runs the command line in this process: exit code, output, errors."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["belated", "ledger", *map(str, args)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return run


@pytest.fixture
def ask(belated):
    """Runs a command with --json; returns exit code and what it says."""

    def run(*args):
        code, out, err = belated(*args, "--json")
        # a slow machine is told how far it is
        assert all(line.endswith(" a second") for line in err.splitlines()), err
        return code, json.loads(out)

    return run


class Clock:
    def __init__(self):
        self.now = BEGIN

    def __call__(self):
        return self.now


def fill(ledger, rounds=60, **settings):
    """A lively log: two bandits, both replica kinds, requests, subjects, erasure, late rewards."""
    rng, replica = np.random.default_rng(1), Replica(ledger, clock=Clock(), seed=1)
    family = Bernoulli()
    replica.configure("shop", Spec.of(DIM, family, DelayedOFUGLM(), window=3600.0, **settings))
    replica.configure(
        "clicks",
        Spec.of(DIM, family, DelayedOFUGLM(), loop="conversion", window=3600.0, exploration=0.2),
    )
    replica.register(
        "clicks", {name: x.tolist() for name, x in zip("abc", np.eye(DIM) * 0.9, strict=True)}
    )
    waiting = []
    for k in range(rounds):
        x = rng.normal(size=(4, DIM))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        asks = [
            ("shop", Ask(matrix=x, request=f"r{k}", digest=b"%d" % k, subject=f"s{k % 5}")),
            ("clicks", Ask(context_json=b"")),
        ]
        drafts = [replica.propose(name, what).draft for name, what in asks]
        replica.commit(drafts)
        waiting += [draft.id for draft in drafts]
        replica.clock.now += HOUR // 8
        for _ in range(int(rng.integers(3))):
            id = waiting.pop(int(rng.integers(len(waiting))))
            replica.reward([(id, float(rng.integers(2)))])
        if k % 10 == 9:
            replica.commit([Draft(Kind.CANCELLED, "", waiting.pop(), replica.clock())])
        if k % 4 == 3:
            replica.expire()
    ledger.forget("shop", "s3", replica.clock())
    replica.catch_up()
    return replica


def digests(ledger):
    replica = Replica(ledger)
    replica.catch_up()
    return {name: fold.digest() for name, fold in replica.folds.items()}


def contents(events):
    """All but the places in the log."""
    return [astuple(event)[2:] for event in events]


def log_of(ledger):
    return ledger.follow(START, 10**9)[0]


@pytest.fixture
def shop(tmp_path):
    """A ledger in a file; its URL."""
    ledger = SQLiteLedger(tmp_path / "shop.db")
    fill(ledger)
    ledger.close()
    return f"sqlite:///{tmp_path}/shop.db"


def content(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------ export and import


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_is_imported_without_loss(shop, tmp_path, ask, suffix):
    file, copy = tmp_path / f"log.{suffix}", f"sqlite:///{tmp_path}/copy.db"
    code, said = ask("export", shop, "--out", file)
    assert code == 0
    assert said["rows"] == len(log_of(open_ledger(shop)))
    assert ask("import", copy, file, "--dry-run")[1]["new"] == said["rows"]
    assert not (tmp_path / "copy.db").exists()
    assert ask("import", copy, file)[1]["new"] == said["rows"]
    first, second = open_ledger(shop), open_ledger(copy)
    assert contents(log_of(first)) == contents(log_of(second))
    assert digests(first) == digests(second)
    assert first.requested("shop", "r7")[1] == second.requested("shop", "r7")[1] == b"7"
    assert first.subject("shop", "s1") == second.subject("shop", "s1") != []
    assert any(fold.counts.erased for fold in _rebuilt(second).folds.values())
    assert ask("import", copy, file)[1] == {
        "events": said["rows"],
        "new": 0,
        "already_there": said["rows"],
        "written": True,
    }
    assert contents(log_of(second)) == contents(log_of(first))
    # and once more round: the same bytes, but for the numbers of transactions
    assert ask("verify", copy)[0] == 0


def _rebuilt(ledger):
    replica = Replica(ledger)
    replica.catch_up()
    return replica


def test_one_bandit_moves_to_a_ledger_of_others(shop, tmp_path, ask, belated):
    file, other = tmp_path / "clicks.jsonl", tmp_path / "other.db"
    ledger = SQLiteLedger(other)
    Replica(ledger).configure("mine", Spec.of(2, Gaussian(sd=1.0), Greedy()))
    ask("export", shop, "--out", file, "--bandit", "clicks")
    assert ask("import", f"sqlite:///{other}", file)[0] == 0
    assert digests(ledger)["clicks"] == digests(open_ledger(shop))["clicks"]
    assert set(digests(ledger)) == {"mine", "clicks"}
    _rebuilt(ledger).register("clicks", {"d": [0.1, 0.0, 0.0]})
    code, _, err = belated("import", f"sqlite:///{other}", file)
    assert code == 2
    assert "the ledger has other events of 'clicks', or more" in err


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_damaged_exports_are_refused_and_nothing_is_written(shop, tmp_path, belated, suffix):
    file = tmp_path / f"log.{suffix}"
    belated("export", shop, "--out", file)
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    damaged = [whole[: len(whole) // 2], whole[:-20]]
    if suffix == "jsonl":
        damaged += [
            bytes([whole[0] ^ 1]) + whole[1:],
            b"".join(lines[:-1]),
            b"".join(lines[:9] + lines[10:]),
            whole.replace(b'"time":17', b'"time":18', 1),
            whole.replace(b'"kind":"rewarded"', b'"kind":"awarded"', 1),
            whole.replace(b'"version":1', b'"version":9', 1),
        ]
    else:
        middle = len(whole) // 3
        damaged.append(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    for content in damaged:
        file.write_bytes(content)
        code, _, err = belated("import", f"sqlite:///{tmp_path}/new.db", file)
        assert code == 2, err
        assert err.startswith("belated: ")
        assert len(err.splitlines()) == 1
        assert not (tmp_path / "new.db").exists()


def test_an_import_that_is_killed_goes_on(shop, tmp_path, ask, belated, monkeypatch):
    file, copy = tmp_path / "log.jsonl", f"sqlite:///{tmp_path}/copy.db"
    ask("export", shop, "--out", file)
    monkeypatch.setattr(importing_events, "BATCH", 50)
    commit_all, calls = SQLiteLedger.commit_all, []

    def dies_in_the_third(self, batches, accepts=None):
        calls.append(len(batches))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return commit_all(self, batches, accepts)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteLedger, "commit_all", dies_in_the_third)
        code, _, _ = belated("import", copy, file)
    assert code != 0
    n = len(log_of(open_ledger(copy)))
    assert 100 <= n < 120
    assert ask("import", copy, file)[1]["already_there"] == n
    assert digests(open_ledger(copy)) == digests(open_ledger(shop))


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


def make_bandit(url, name="shop", **settings):
    ledger = open_ledger(url)
    Replica(ledger).configure(name, Spec.of(2, Bernoulli(), DelayedOFUGLM(), **settings))
    ledger.close()


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
    fold = _rebuilt(ledger).folds["shop"]
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
    fold = _rebuilt(ledger).folds["ads"]
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


# ------------------------------------------------------------------------------------- joined rows


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
    fold = _rebuilt(open_ledger(copy)).folds["c"]
    assert fold.n_rows == 6
    assert from_text(found["c", "late"]["id"]) in bytes(fold.ids)


def test_export_of_a_part(shop, tmp_path, ask):
    ledger, file = open_ledger(shop), tmp_path / "part.jsonl"
    since, until = BEGIN + 2 * HOUR, BEGIN + 4 * HOUR
    _, said = ask(
        *("export", shop, "--out", file, "--bandit", "clicks"),
        *("--since", "2023-11-15T00:13:20Z", "--until", "2023-11-15 02:13:20"),
    )
    assert said["rows"] == sum(
        e.bandit == "clicks" and since <= e.time < until for e in log_of(ledger)
    )
    assert said["rows"] > 0


# ------------------------------------------------------------------------------------------ verify


def test_verify_finds_nothing_wrong_with_a_sound_ledger(shop, tmp_path, ask, belated):
    assert ask("snapshot", shop)[1]["events_since_the_last"] > 100
    code, said = ask("verify", shop)
    assert (code, said["sound"], said["violations"]) == (0, True, [])
    names = [check["check"] for check in said["checks"]]
    assert names[:3] == ["store", "rules of the log", "rebuilt from zero"]
    assert len(names) == 4
    assert said["checks"][1]["looked_at"] == said["events"] == len(log_of(open_ledger(shop)))
    code, out, _ = belated("verify", shop)
    assert code == 0
    assert "rules of the log" in out


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("delete from events where seq = 40", "1 events are missing"),
        ("update events set tx = 12345 where seq = (select max(seq) from events)", "first event"),
        ("update events set body = x'00' where seq = 4", "body that cannot be read"),
        ("update events set time = 0 where seq = 20", "has the time 1970"),
        ("update events set time = time - 172800000000 where seq = 4", "has an id made at"),
        ("update events set time = time + 172800000000, due = null where seq = 9", "an id made at"),
        ("update events set time = time - 172800000000 where kind = 1", "long before its decision"),
        ("update events set bandit = 'clicks' where kind = 1 and bandit = 'shop'", "does not hold"),
        ("update events set value = 0.5 where kind = 1", "is no reward that this bandit can have"),
        ("update events set value = null where kind = 1 and id != x''", "has no reward"),
        ("update events set kind = 1, value = 1.0 where kind = 3 and id != x''", None),
        ("update events set kind = 3, value = null where kind = 1", "contradicts"),
        ("update events set bandit = 'ghost' where seq = 20", "not made before it"),
        ("update requests set id = x'00'", "requests have no decision"),
        ("delete from events where kind = 5", "events are missing"),
        ("update events set due = 0 where kind = 0 and id != x''", "closes before it opens"),
    ],
)
def test_verify_finds_damage(shop, tmp_path, ask, damage, said):
    db = apsw.Connection(f"{tmp_path}/shop.db")
    db.execute(damage)
    assert db.changes() > 0
    db.close()
    code, found = ask("verify", shop)
    if said is None:  # a cancelled decision could as well have been rewarded
        assert code == 0
        return
    assert code == 1
    assert any(said in row["violation"] for row in found["violations"]), found["violations"]


def test_verify_finds_a_damaged_file(shop, tmp_path, ask, belated):
    path = tmp_path / "shop.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + bytes(4096) + whole[12288:])
    code, found = ask("verify", shop)
    assert code == 1
    assert found["violations"]
    path.write_bytes(b"no database" * 1000)
    code, _, err = belated("verify", shop)
    assert code == 2
    assert "no SQLite file" in err


def test_verify_finds_a_snapshot_that_lies(shop, tmp_path, ask):
    path = Path(ask("snapshot", shop)[1]["snapshot"])
    assert path.parent == tmp_path / "shop.db.snapshots"
    x = np.load(path / "0.npy", mmap_mode="r+")
    x[0, 0] += 1e-9
    x.flush()
    code, found = ask("verify", shop)
    assert code == 1
    assert "'shop' is not what the log says; delete it" in found["violations"][0]["violation"]
    (path / "manifest.json").write_text("?")
    code, found = ask("verify", shop)
    assert code == 1
    assert "cannot be read" in found["violations"][0]["violation"]


def test_the_rules_hold_for_every_log_that_the_stores_write():
    """The rulebook of the stores and that of the check are one."""
    ledger = MemoryLedger()
    fill(ledger, rounds=200, late="revise")
    rules = Rules(BEGIN + 400 * HOUR)
    assert [said for e in log_of(ledger) if (said := rules.problem(e))] == []


def jumping_log(erased=False):
    """A clock that is set back by three days, while decisions wait and ids go on."""
    ledger, clock = MemoryLedger(), Clock()
    replica = Replica(ledger, clock=clock, seed=1)
    replica.configure("shop", Spec.of(2, Bernoulli(), DelayedOFUGLM()))

    def decide(subject=""):
        draft = replica.propose("shop", Ask(matrix=np.eye(2), subject=subject)).draft
        replica.commit([draft])
        return draft.id

    clock.now += 4 * DAY
    waiting = [decide("she")] if erased else [decide(), decide()]
    clock.now -= 3 * DAY
    if erased:
        ledger.forget("shop", "she", clock())
        waiting = []
    else:
        replica.reward([(waiting.pop(), 1.0)])  # the first thing that happens then
    waiting.append(decide())
    clock.now += HOUR
    replica.reward([(id, 0.0) for id in waiting])
    return log_of(ledger)


@pytest.mark.parametrize("erased", [False, True])
def test_a_clock_that_is_set_back_is_no_damage(erased):
    log, rules = jumping_log(erased), Rules(BEGIN + 5 * DAY)
    ahead = [time_of(e.id) - e.time for e in log if e.kind == Kind.DECIDED and e.id]
    assert max(ahead) == 3 * DAY  # or this would be no test
    assert [said for event in log if (said := rules.problem(event))] == []


def test_ids_ahead_of_the_clock_need_one_they_went_on_from():
    log = jumping_log()
    first = next(k for k, e in enumerate(log) if e.kind == Kind.DECIDED)
    log[first] = replace(log[first], time=log[first].time - 3 * DAY)  # its id is now the first
    rules = Rules(BEGIN + 5 * DAY)
    found = [said for event in log if (said := rules.problem(event))]
    assert "has an id made at" in found[0]


# ------------------------------------------------------------------------------------------ replay


def test_replay(shop, ask, belated):
    code, said = ask("replay", shop)
    replica = _rebuilt(open_ledger(shop))
    assert code == 0
    assert said["events"] == len(log_of(open_ledger(shop)))
    for row in said["bandits"]:
        fold = replica.folds[row["bandit"]]
        assert row["digest"] == fold.digest()
        assert row["decisions"] == fold.n_rows
        assert row["rewards"] == fold.counts.rewarded
        assert row["pending"] == len(fold.pending)
        assert row["theta"] == pytest.approx(fold.learner.state.theta.tolist(), abs=1e-6)
    assert [row["bandit"] for row in ask("replay", shop, "--bandit", "clicks")[1]["bandits"]] == [
        "clicks"
    ]
    code, out, _ = belated("replay", shop)
    assert "events per second" in out


def test_another_policy_from_the_same_log(shop, tmp_path, ask, belated):
    before = content(tmp_path)
    code, same = ask("replay", shop, "--bandit", "clicks", "--policy", "delayed-ofu-glm")
    live, other = same["bandits"]
    assert code == 0
    assert live["digest"] == other["digest"]  # the same policy makes the same of it
    assert same["compared"] == 60
    # It differs exactly where its choice was not played: by exploration, or because nothing had
    # been learnt and all three were drawn alike. The policy would have played the first then.
    explored = 0
    for e in log_of(open_ledger(shop)):
        if e.kind == Kind.DECIDED and e.bandit == "clicks":
            body = msgspec.msgpack.decode(e.body, type=Decided)
            spread = body.propensity == 1 / 3
            explored += body.index != 0 if spread else body.propensity < 0.5
    assert same["chosen_differently"] == explored > 0
    code, greedy = ask("replay", shop, "--bandit", "clicks", "--policy", "greedy")
    assert greedy["bandits"][1]["policy"] == "greedy"
    assert greedy["chosen_differently"] != explored
    code, wide = ask("replay", shop, "--bandit", "shop", "--policy", "delayed-ofu-glm:delta=0.1")
    assert wide["compared"] == 0  # matrices were not logged
    assert wide["bandits"][0]["digest"] != wide["bandits"][1]["digest"]
    assert wide["bandits"][0]["theta"] == pytest.approx(wide["bandits"][1]["theta"], abs=1e-3)
    code, early = ask("replay", shop, "--bandit", "shop", "--until", "2023-11-15T00:00:00Z")
    assert early["bandits"][1]["events"] < early["bandits"][0]["events"]
    code, bounded = ask("replay", shop, "--bandit", "shop", "--family", "gaussian:0.5")
    assert bounded["bandits"][1]["decisions"] == bounded["bandits"][0]["decisions"]
    code, _, err = belated("replay", shop, "--bandit", "shop", "--policy", "gredy")
    assert (code, "did you mean greedy?" in err) == (2, True)
    code, _, err = belated("replay", shop, "--policy", "greedy")
    assert code == 2
    assert "--bandit = None: expected one of this ledger: shop, clicks" in err
    assert content(tmp_path) == before


def test_logged_matrices_can_be_compared(tmp_path, ask):
    ledger = SQLiteLedger(tmp_path / "a.db")
    replica = Replica(ledger, seed=1)
    replica.configure("shop", Spec.of(DIM, Bernoulli(), DelayedOFUGLM(), log_actions=True))
    rng = np.random.default_rng(2)
    for _ in range(20):
        draft = replica.propose("shop", Ask(matrix=rng.normal(size=(4, DIM)) / 5)).draft
        replica.commit([draft])
        replica.reward([(draft.id, float(rng.integers(2)))])
    _, said = ask("replay", f"sqlite:///{tmp_path}/a.db", "--policy", "delayed-ofu-glm")
    assert (said["compared"], said["chosen_differently"]) == (20, 0)


# -------------------------------------------------------------------- snapshot, backup and retain


def test_snapshots_go_on_from_the_last(shop, tmp_path, ask, belated):
    code, said = ask("snapshot", shop, "--dry-run")
    assert (code, said["snapshot"]) == (0, None)
    assert not (tmp_path / "shop.db.snapshots").exists()
    first = ask("snapshot", shop)[1]
    assert ask("snapshot", shop)[1] == first | {"events_since_the_last": 0}
    _rebuilt(open_ledger(shop)).register("clicks", {"d": [0.1, 0.0, 0.0]})
    second = ask("snapshot", shop, "--folder", tmp_path / "shop.db.snapshots")[1]
    assert second["events_since_the_last"] == 1
    fresh = Replica(open_ledger(shop))
    assert snapshots.load(fresh, tmp_path / "shop.db.snapshots") > START
    assert {n: f.digest() for n, f in fresh.folds.items()} == digests(open_ledger(shop))
    code, _, err = belated("snapshot", "memory://")
    assert code == 2
    assert "--folder = None" in err


def test_backup(shop, tmp_path, ask, belated):
    out = tmp_path / "copy.db"
    assert ask("backup", shop, "--out", out, "--dry-run")[1]["written"] is False
    assert not out.exists()
    ask("snapshot", shop)
    writer = SQLiteLedger(tmp_path / "shop.db")  # in use
    code, said = ask("backup", shop, "--out", out)
    assert (code, said["sound"], said["events"]) == (0, True, len(log_of(writer)))
    copy = SQLiteLedger(out)
    assert log_of(copy) == log_of(writer)
    assert digests(copy) == digests(writer)
    assert copy.identity != writer.identity
    strangers = Replica(
        copy
    )  # its log may go on differently: snapshots of the first are not its own
    assert snapshots.load(strangers, tmp_path / "shop.db.snapshots") == START
    copy.close()
    code, _, err = belated("backup", shop, "--out", out)
    assert code == 2
    assert "the name of a new file" in err
    assert not list(tmp_path.glob(".belated-*"))
    url = "postgresql://me:secret@db.example/shop?password=secret"
    code, _, err = belated("backup", url, "--out", "shop.dump")
    assert code == 2
    assert "--file=shop.dump postgresql://me@db.example/shop" in err
    assert "secret" not in err


def test_a_backup_that_is_not_sound_is_not_kept(shop, tmp_path, ask):
    db = apsw.Connection(f"{tmp_path}/shop.db")
    db.execute("update events set body = x'00' where seq = 4")
    db.close()
    code, said = ask("backup", shop, "--out", tmp_path / "copy.db")
    assert (code, said["written"]) == (1, False)
    assert not (tmp_path / "copy.db").exists()


def test_retention_changes_no_state(shop, tmp_path, ask):
    ledger = open_ledger(shop)
    before, log = digests(ledger), log_of(ledger)
    ledger.close()
    files = content(tmp_path)
    code, said = ask("retain", shop, "--older-than", "90d", "--dry-run")
    assert (code, said["decisions"], said["written"]) == (0, 48, False)
    assert content(tmp_path) == files
    ask("snapshot", shop)
    said = ask("retain", shop, "--older-than", "1h")[1]
    assert (said["decisions"], said["requests"], said["written"]) == (48, 48, True)
    assert ask("retain", shop, "--older-than", "1h")[1]["decisions"] == 0
    after = open_ledger(shop)
    assert digests(after) == before
    assert after.requested("shop", "r7") is None
    assert after.subject("shop", "s1") == []
    changed = [(a, b) for a, b in zip(log, log_of(after), strict=True) if a != b]
    assert len(changed) == 48  # those of "shop" that were not erased
    for a, b in changed:
        assert replace(a, body=b"") == replace(b, body=b"")
        old, new = (msgspec.msgpack.decode(e.body, type=Decided) for e in (a, b))
        assert (new.x, new.action, new.propensity) == (old.x, old.action, old.propensity)
        assert (new.context, new.subject, new.request, new.matrix) == (b"", "", "", b"")
    assert ask("verify", shop)[0] == 0  # the snapshot, too, still leads to the same state


# ------------------------------------------------------------------------------------------- edges


def test_features_that_no_log_holds(tmp_path, ask, belated):
    """A fold needs none: what was played is in the log as a vector."""
    from sklearn.feature_extraction import DictVectorizer

    features = Transformed(DictVectorizer()).fit(
        [{"price": 3.0, "ad": "a"}, {"price": 1.0, "ad": "b"}]
    )
    url = f"sqlite:///{tmp_path}/a.db"
    bandit = Bandit(
        family=Gaussian(sd=1.0), policy=DelayedOFUGLM(), features=features, ledger=url, name="ads"
    )
    decision = bandit.decide([{"price": 2.0, "ad": "a"}, {"price": 1.0, "ad": "b"}])
    bandit.learn(decision.id, 0.3)
    bandit.close()
    assert ask("snapshot", url)[0] == 0
    assert ask("verify", url)[0] == 0
    code, said = ask("replay", url, "--policy", "greedy")
    assert (code, said["compared"]) == (0, 0)
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"id": 1, "time": BEGIN // SECOND, "action": "a"}))
    code, _, err = belated("import", url, file)
    assert code == 2
    assert "--vector" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("verify", "sqlite:///{tmp}/none.db"), "there is no such file"),
        (("verify", "shop.db"), "expected sqlite:///file.db"),
        (("export", "{shop}", "--out", "a.txt"), "--out = 'a.txt': expected a name that ends in"),
        (("export", "{shop}", "--out", "a.csv"), "CSV is for --joined"),
        (("export", "{shop}", "--out", "a.jsonl", "--since", "noon"), "--since = 'noon'"),
        (("export", "{shop}", "--out", "{tmp}/no/a.jsonl"), "No such file"),
        (("import", "{shop}", "{tmp}/none.csv"), "there is none of that name"),
        (("import", "{shop}", "{tmp}/log.csv"), "--bandit = None: expected one of this ledger"),
        (("import", "{shop}", "{tmp}/log.csv", "--bandit", "x"), "--bandit = 'x'"),
        (("import", "{shop}", "{tmp}/log.csv", "--map", "it=a"), "--map = 'it=a'"),
        (("import", "{shop}", "{tmp}/log.csv", "--map", "id=x"), "one of the columns id, time"),
        (("import", "{shop}", "{tmp}/log.csv", "--vector", "z"), "--map = 'z'"),
        (("import", "{shop}", "{tmp}/log.csv", "--format", "xml"), "--format = 'xml'"),
        (("import", "{shop}", "{tmp}/log.bin"), "--format = 'log.bin'"),
        (("retain", "{shop}", "--older-than", "soon"), "--older-than = 'soon'"),
        (("backup", "{shop}", "--out", "{tmp}/no/a.db"), "a folder that exists"),
        (("replay", "{shop}", "--bandit", "x"), "--bandit = 'x': expected one of"),
    ],
)
def test_mistakes_are_named_in_one_line(shop, tmp_path, belated, args, said):
    (tmp_path / "log.csv").write_text("id,time,action\n1,1700000000,a\n")
    (tmp_path / "log.bin").write_text("?")
    before = content(tmp_path)
    code, out, err = belated(*(arg.format(tmp=tmp_path, shop=shop) for arg in args))
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
    assert not out
    assert content(tmp_path) == before


def test_options_that_an_export_does_not_need(shop, tmp_path, belated):
    file = tmp_path / "log.jsonl"
    belated("export", shop, "--out", file)
    for option in (("--map", "id=a"), ("--skip-bad",), ("--bandit", "shop")):
        code, _, err = belated("import", f"sqlite:///{tmp_path}/b.db", file, *option)
        assert code == 2
        assert f"{option[0]} = " in err
        assert "taken as it is" in err


def test_parquet_without_its_library(shop, tmp_path, belated, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = belated("export", shop, "--out", tmp_path / "log.parquet")
    assert code == 2
    assert "pip install 'belated[experiments]'; or use .jsonl" in err
    assert belated("export", shop, "--out", tmp_path / "log.jsonl")[0] == 0


def test_an_interrupted_export_leaves_nothing(shop, tmp_path, belated, monkeypatch):
    def breaks(self, after, limit=0):
        if after > START:
            raise OSError("the disk is gone")
        return follow(self, after, 50)

    follow = SQLiteLedger.follow
    monkeypatch.setattr(SQLiteLedger, "follow", breaks)
    before = content(tmp_path)
    for suffix in ("jsonl", "parquet"):
        code, _, err = belated("export", shop, "--out", tmp_path / f"log.{suffix}")
        assert (code, err) == (2, "belated: the disk is gone\n")
    assert content(tmp_path) == before


def test_the_same_on_postgresql(shop, postgres, tmp_path, ask, belated):
    url, file, back = postgres.new_database("moved"), tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    ask("export", shop, "--out", file)
    n = ask("import", url, file)[1]["new"]
    assert ask("import", url, file)[1] == {
        "events": n,
        "new": 0,
        "already_there": n,
        "written": True,
    }
    moved = open_ledger(url)
    assert digests(moved) == digests(open_ledger(shop))
    assert moved.requested("shop", "r7")[1] == b"7"
    assert ask("verify", url)[0] == 0
    assert ask("snapshot", url, "--folder", tmp_path / "s")[1]["events_since_the_last"] == n
    assert ask("retain", url, "--older-than", "90d")[1]["requests"] == 48
    assert ask("verify", url, "--folder", tmp_path / "s")[0] == 0
    assert digests(moved) == digests(open_ledger(shop))
    ask("export", url, "--out", back)
    assert ask("import", f"sqlite:///{tmp_path}/back.db", back)[1]["new"] == n
    assert digests(SQLiteLedger(tmp_path / "back.db")) == digests(open_ledger(shop))
    code, _, err = belated("snapshot", url)
    assert code == 2
    assert "--folder = None" in err
    moved.close()
