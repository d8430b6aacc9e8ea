"""`belated rewards`: files of rewards into a ledger, and over HTTP."""

import csv
import json
import re
import sys
import time
import warnings
from pathlib import Path

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from belated import Bandit, Bernoulli, DelayedOFUGLM, Gaussian
from belated.client import Client
from belated.commands.main import main
from belated.ledger.events import START, Kind
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools import progress, reward_files
from support.running_service import served

MATRIX = [[0.6, 0.0], [0.0, 0.8]]
SETTINGS = {"family": "bernoulli", "dim": 2, "policy": "delayed-ofu-glm", "window": 3600}


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/shop.db"


def decisions(url, n, **settings):
    settings = {"family": Bernoulli(), "policy": DelayedOFUGLM()} | settings
    bandit = Bandit(2, ledger=url, name="shop", **settings)
    ids = [bandit.decide(MATRIX).id for _ in range(n)]
    bandit.close()
    return ids


def events(url, *kinds):
    ledger = SQLiteLedger(url.removeprefix("sqlite:///"))
    found = [event for event in ledger.follow(START)[0] if event.kind in kinds]
    ledger.close()
    return found


@pytest.fixture
def rewards(monkeypatch, capsys):
    """Runs the command in this process: exit code, what it says, and errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["belated", "rewards", *map(str, words), "--json"])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        # a slow machine is told how far it is
        lines = [line for line in err.splitlines() if not line.endswith(" a second")]
        return stopped.value.code or 0, json.loads(out) if out else None, lines

    return run


def write(path, rows):
    """Rows of dicts as the file that the name asks for."""
    names = list(rows[0])
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_goes_in_once(tmp_path, url, rewards, suffix):
    ids, now = decisions(url, 3, window=10.0, grace=3600.0), round(time.time())
    rows = [
        {"decision_id": ids[0], "reward": 1.0, "at": float(now)},
        {"decision_id": ids[1], "reward": 0.0, "at": float(now)},
        {"decision_id": ids[2], "reward": 1.0, "at": float(now + 30)},  # clocks differ a little
    ]
    file = write(tmp_path / f"sales.{suffix}", rows)
    assert rewards(file, "--ledger", url)[:2] == (
        0,
        {
            "bandit": "shop",
            "rows": 3,
            "rewards": {"accepted": 2, "late": 1},
            "rows_bad": 0,
            "bad_rows_are_in": None,
        },
    )
    code, again, _ = rewards(file, "--ledger", url, "--bandit", "shop")
    assert (code, again["rewards"]) == (0, {"duplicate": 3})
    written = events(url, Kind.REWARDED)
    assert [event.value for event in written] == [1.0, 0.0, 1.0]
    assert [event.time for event in written] == [now * 10**6] * 2 + [(now + 30) * 10**6]
    assert all(event.received for event in written)
    assert not (tmp_path / f"sales.{suffix}.bad.csv").exists()


def test_progress_is_shown(tmp_path, url, monkeypatch, capsys):
    rows = [{"decision_id": id, "reward": 1.0} for id in decisions(url, 6)]
    file = write(tmp_path / "sales.csv", rows)
    monkeypatch.setattr(reward_files, "BATCH", 2)
    monkeypatch.setattr(progress, "QUIET", 0.0)  # as if it took long
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(sys, "argv", ["belated", "rewards", str(file), "--ledger", url])
    with pytest.raises(SystemExit):
        main()
    lines = capsys.readouterr().err.splitlines()
    shares = [re.match(r"handing in rewards: (\d+)%, ([246]), .* a second$", x) for x in lines[:3]]
    assert [share[2] for share in shares] == ["2", "4", "6"]
    assert 0 <= int(shares[0][1]) <= int(shares[1][1]) <= int(shares[2][1]) <= 100
    assert re.match(r"handing in rewards: 6 in .* a second$", lines[3])


def test_bad_rows_are_put_aside_with_line_and_reason(tmp_path, url, rewards):
    ids = decisions(url, 4)
    text = (
        "order,visit,amount,sold\n"
        f"a,{ids[0]},1,\n"
        f"b,{ids[0]},0,\n"
        f"c,{ids[1]},3,\n"
        f"d,{ids[1]},much,\n"
        f"e,{ids[1]},1,2001-01-01T00:00:00Z\n"
        f"f,{ids[1]},1,yesterday\n"
        "g,nonsense,1,\n"
        "h,,1,\n"
        f"i,{ids[2]},1\n"
        f"j,{ids[3]},1,\n"
    )
    file = tmp_path / "sales.csv"
    file.write_text(text)
    columns = "decision_id=visit,reward=amount,at=sold,event_id=order"
    code, said, _ = rewards(file, "--ledger", url, "--map", columns)
    assert code == 1
    counts = {"accepted": 2, "conflict": 1, "invalid": 6, "unknown": 1}
    assert (said["rows"], said["rows_bad"], said["rewards"]) == (10, 8, counts)
    with open(said["bad_rows_are_in"], newline="") as aside:
        found = list(csv.DictReader(aside))
    assert [(int(row["line"]), row["status"]) for row in found] == [
        (3, "conflict"),
        (4, "invalid"),
        (5, "invalid"),
        (6, "invalid"),
        (7, "invalid"),
        (8, "unknown"),
        (9, "invalid"),
        (10, "invalid"),
    ]
    reasons = [row["reason"] for row in found]
    assert reasons[0].startswith("event_id = 'b': expected 'a', since combine is None and a")
    assert reasons[1] == "reward = 3.0: expected a whole number from 0 to 1 (bernoulli)"
    assert reasons[2] == "reward = 'much': expected a finite number"
    assert reasons[3].startswith("at = 2001-01-01T00:00:00.000000Z: expected no time before the")
    assert reasons[4].startswith("at = 'yesterday': expected an ISO time")
    assert reasons[5] == "this bandit has no decision of that id"
    assert reasons[6].startswith("visit = None: expected a value; the columns are order, visit")
    assert reasons[7] == "3 cells: expected 4, as in the first line"
    assert [row["order"] for row in found] == list("bcdefghi")
    assert found[3]["sold"] == "2001-01-01T00:00:00Z"
    mended = (tmp_path / "mended.csv").resolve()
    mended.write_text(Path(said["bad_rows_are_in"]).read_text().replace("much", "1"))
    accepted = rewards(mended, "--ledger", url, "--map", columns)[1]["rewards"]["accepted"]
    assert accepted == 2  # "much", and the row that lacked a cell
    file.write_text("\n".join([text.splitlines()[0], *text.splitlines()[-1:]]) + "\n")
    assert rewards(file, "--ledger", url, "--map", columns)[0] == 0
    assert not (tmp_path / "sales.csv.bad.csv").exists()  # of an earlier run


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_rows_that_cannot_be_read_keep_what_they_have(tmp_path, url, rewards, suffix):
    (id,) = decisions(url, 1)
    text = f'{{"decision_id": "{id}", "reward": 7, "new": true, "tags": ["a"]}}\n{{half\n'
    if suffix == "csv":
        text = f'decision_id,reward,new,tags,status\n{id},7,true,"[""a""]",paid\n{id},1,2,3,4,5\n'
    file = tmp_path / f"sales.{suffix}"
    file.write_text(text)
    assert rewards(file, "--ledger", url)[1]["rows_bad"] == 2
    with open(f"{file}.bad.csv", newline="") as aside:
        first, second = csv.DictReader(aside)
    cells = [first[name] for name in ("decision_id", "reward", "new", "tags")]
    assert cells == [id, "7", "true", '["a"]']
    assert (second["text"] if suffix == "jsonl" else second["cell 6"]) in ("{half", "5")
    assert suffix == "jsonl" or first["status"] == "paid"  # the user's column, not ours


def test_bad_rows_of_an_earlier_run_stay_until_the_next_one_ends(tmp_path, url, rewards):
    (id,) = decisions(url, 1)
    file = tmp_path / "sales.csv"
    file.write_text(f"decision_id,reward\n{id},much\n")
    rewards(file, "--ledger", url)
    before = (tmp_path / "sales.csv.bad.csv").read_bytes()

    def stopped(given):
        raise ConnectionError

    file.write_text(f"decision_id,reward\n{id},1\n")
    with pytest.raises(ConnectionError):
        reward_files.hand_in(file, stopped, aside=tmp_path / "sales.csv.bad.csv")
    assert (tmp_path / "sales.csv.bad.csv").read_bytes() == before
    rewards(file, "--ledger", url)
    assert [path.name for path in tmp_path.glob("*.csv")] == ["sales.csv"]


def test_the_side_file_is_not_the_file_itself(tmp_path, url, rewards):
    (id,) = decisions(url, 1)
    file = tmp_path / "sales.csv"
    for reward in ("1", "much"):  # without bad rows it was deleted, with one replaced
        file.write_text(f"decision_id,reward\n{id},{reward}\n")
        before = file.read_bytes()
        code, _, said = rewards(file, "--ledger", url, "--bad", str(file))
        assert code != 0
        assert any(
            "--bad = " in line and "other than the one that is read" in line for line in said
        )
        assert file.read_bytes() == before
    assert not events(url, Kind.REWARDED)


def test_a_run_that_was_stopped_goes_on(tmp_path, url, rewards, monkeypatch):
    monkeypatch.setattr(reward_files, "BATCH", 3)
    ids = decisions(url, 10, family=Gaussian(), combine="sum")
    rows = [
        {"decision_id": id, "reward": 0.5, "event_id": f"order {k}"} for k, id in enumerate(ids)
    ]
    file = write(tmp_path / "sales.jsonl", [*rows, {**rows[0], "event_id": "another"}])
    with pytest.MonkeyPatch.context() as patch:
        commit, calls = SQLiteLedger.commit, []

        def stopped(self, drafts, follower=None):
            calls.append(drafts)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return commit(self, drafts, follower)

        patch.setattr(SQLiteLedger, "commit", stopped)
        ledger = SQLiteLedger(tmp_path / "shop.db")
        _, send = reward_files.into_ledger(ledger, "shop")
        with pytest.raises(KeyboardInterrupt):
            reward_files.hand_in(file, send, aside=tmp_path / "bad.csv")
        ledger.close()
    assert len(events(url, Kind.REWARDED)) == 6
    code, said, _ = rewards(file, "--ledger", url)
    assert (code, said["rewards"]) == (0, {"duplicate": 6, "accepted": 5})
    assert [event.value for event in events(url, Kind.REVISED)] == [1.0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["there.csv"], "--ledger, --url = (None, None): expected one of the two"),
        (["there.csv", "--ledger", "L", "--url", "http://x"], "expected one of the two"),
        (["gone.csv", "--ledger", "L"], "file = 'gone.csv': there is no such file"),
        (["there.csv", "--ledger", "L", "--bandit", "other"], "expected one of this ledger: shop"),
        (["there.csv", "--ledger", "L", "--map", "when=at"], "with a field of decision_id, reward"),
        (["there.csv", "--ledger", "L", "--format", "xml"], "--format = 'xml': expected csv"),
        (["there.csv", "--ledger", "sqlite:///gone.db"], "there is no such file"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, url, rewards, words, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    decisions(url, 1)
    (tmp_path / "there.csv").write_text("decision_id,reward\n")
    code, _, err = rewards(*[url if word == "L" else word for word in words])
    assert code == 2
    assert len(err) == 1
    assert said in err[0]
    assert events(url, Kind.REWARDED) == []


# --------------------------------------------------------------------------------------- over HTTP


@pytest.fixture(scope="module")
def service():
    with served() as (url, _), Client(url) as client:
        client.put_bandit("shop", SETTINGS)
        client.put_bandit("other", SETTINGS)
        for name in ("shop", "other"):
            client.change_actions(name, {"a": MATRIX[0], "b": MATRIX[1]})
        yield url, client


def test_a_file_goes_to_a_service(service, tmp_path, rewards):
    url, client = service
    ids = [client.decide("shop").decision_id for _ in range(3)]
    elsewhere = client.decide("other").decision_id
    rows = [{"decision_id": id, "reward": 1.0, "at": time.time()} for id in (*ids, elsewhere)]
    file = write(tmp_path / "sales.parquet", [*rows, {**rows[0], "reward": 7.0}])
    code, said, _ = rewards(file, "--url", url, "--bandit", "shop")
    assert (code, said["rewards"]) == (1, {"accepted": 3, "unknown": 1, "invalid": 1})
    with open(said["bad_rows_are_in"], newline="") as aside:
        found = [(row["line"], row["status"]) for row in csv.DictReader(aside)]
    assert found == [("4", "unknown"), ("5", "invalid")]
    assert client.bandit("other").n_pending >= 1
    code, said, _ = rewards(file, "--url", url, "--bandit", "shop")
    assert said["rewards"] == {"duplicate": 3, "unknown": 1, "invalid": 1}


def test_a_service_with_several_bandits_has_to_be_told_which(service, tmp_path, rewards):
    file = write(tmp_path / "sales.csv", [{"decision_id": "?", "reward": 1.0}])
    code, _, err = rewards(file, "--url", service[0])
    assert code == 2
    assert "--bandit = None: expected one of this service: " in err[0]


def test_a_body_may_be_a_file(service):
    url, client = service
    ids = [client.decide("shop").decision_id for _ in range(2)]
    content = f"decision_id,reward\n{ids[0]},1\n{ids[1]},x\nnobody,1\n".encode()
    taken = client.reward_file("shop", content)
    assert (taken.rows, taken.statuses) == (3, {"accepted": 1, "invalid": 1, "unknown": 1})
    assert [(bad.line, bad.status) for bad in taken.bad] == [(3, "invalid"), (4, "unknown")]
    line = json.dumps({"decision_id": ids[1], "reward": 0, "event_id": 7}).encode()
    lines = b"\n".join([line, b"{", line])
    taken = client.reward_file("shop", lines, "application/x-ndjson")
    assert taken.statuses == {"accepted": 1, "duplicate": 1, "invalid": 1}
    path = f"{url}/v1/bandits/shop/rewards"
    for sent, media_type, status in (
        (content, "application/json", 415),
        (content, "", 415),
        (b"x" * 1_000_001, "text/csv", 413),
        (b"\xff\xfe\n1\n", "text/csv", 422),
        (b"PAR1", "application/vnd.apache.parquet", 422),
        (b"", "text/csv; charset=utf-8", 200),
    ):
        answer = httpx2.post(path, content=sent, headers={"Content-Type": media_type})
        assert answer.status_code == status, answer.text
        assert ".." not in answer.text
    answer = httpx2.post(
        f"{url}/v1/bandits/nobody/rewards", content=content, headers={"Content-Type": "text/csv"}
    )
    assert answer.status_code == 404
