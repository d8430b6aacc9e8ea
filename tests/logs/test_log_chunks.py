"""Logs of all forms, read in chunks, against rows that are read one by one."""

import csv
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from belated.core.times import iso, microseconds
from belated.logs import sources
from belated.logs.bad_rows import BadRows
from belated.logs.chunks import open_log
from belated.logs.hashes import hashed, mixed
from belated.logs.seen_ids import SeenIds
from belated.logs.values import PENDING

BEGIN = 1_750_000_000_000_000
WORDS = ("before the", "finite", "met", "propensity", "mixed")  # of the reasons
HEADER = ["id", "time", "reward", "reward_time", "propensity", "action"]


def rows_of_a_log(n, seed=1):
    """Rows as a person would write them, a tenth of them wrong in one of five ways."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        decided = BEGIN + i * 1_000_000
        returned = decided + int(rng.exponential(3600e6)) if rng.random() < 0.7 else None
        row = {
            "id": f"d{i}",
            "time": iso(decided),
            "reward": None if returned is None else float(rng.integers(2)),
            "reward_time": None if returned is None else iso(returned),
            "propensity": 0.5,
            "action": f"banner {i % 3}",
        }
        kind = rng.integers(50)
        if kind == 0:
            row |= {"reward": 1.0, "reward_time": iso(decided - 1)}
        elif kind == 1 and returned is not None:
            row["reward"] = math.inf
        elif kind == 2 and i:
            row["id"] = "d0"
        elif kind == 3:
            row["propensity"] = 1.5
        elif kind == 4:
            row["time"] = iso(decided).removesuffix("Z")
        rows.append(row)
    return rows


def read_one_by_one(rows):
    """The slow twin: good rows, and numbers of bad ones by a word of the reason."""
    good, bad, seen = [], dict.fromkeys(WORDS, 0), set()
    for row in rows:
        came = row["reward_time"] is not None
        if not row["time"].endswith("Z"):
            bad["mixed"] += 1
        elif came and not math.isfinite(row["reward"]):
            bad["finite"] += 1
        elif came and row["reward_time"] < row["time"]:
            bad["before the"] += 1
        elif not 0.0 < row["propensity"] <= 1.0:
            bad["propensity"] += 1
        elif row["id"] in seen:
            bad["met"] += 1
        else:
            seen.add(row["id"])
            good.append(row)
    return good, bad


def as_csv(rows, folder):
    path = folder / "log.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_lines(rows, folder):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row).replace("Infinity", "1e999") + "\n" for row in rows))
    return path


def as_parquet(rows, folder):
    path = folder / "log.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path


FORMS = {
    "csv": as_csv,
    "jsonl": as_lines,
    "parquet": as_parquet,
    "pandas": lambda rows, folder: pd.DataFrame(rows),
    "polars": lambda rows, folder: pl.DataFrame(rows),
}


@pytest.mark.parametrize("form", FORMS)
def test_as_rows_that_are_read_one_by_one(form, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 7000)
    monkeypatch.setattr(sources, "ROWS", 90)
    monkeypatch.setattr(sources, "OBJECTS", 110)
    rows = rows_of_a_log(1000)
    if form == "jsonl":  # JSON has no infinity, and our decoder refuses numbers beyond the floats
        rows = [row | {"reward": "inf"} if row["reward"] == math.inf else row for row in rows]
    good, counts = read_one_by_one([row | {"reward": float(row["reward"] or 0.0)} for row in rows])
    bad = BadRows(tmp_path / "bad.csv")
    chunks = list(open_log(FORMS[form](rows, tmp_path)).chunks(bad))
    assert len(chunks) > 5
    decided = np.concatenate([chunk.decided for chunk in chunks]).tolist()
    assert decided == [microseconds("time", row["time"]) for row in good]
    returned = np.concatenate([chunk.returned for chunk in chunks]).tolist()
    assert returned == [
        PENDING if r["reward_time"] is None else microseconds("", r["reward_time"]) for r in good
    ]
    came = np.array(returned) != PENDING
    reward = np.concatenate([chunk.reward for chunk in chunks])
    assert np.isnan(reward[~came]).all()
    assert reward[came].tolist() == [row["reward"] for row in good if row["reward_time"]]
    assert np.concatenate([c.action for c in chunks]).tolist() == [r["action"] for r in good]
    assert all(counts.values())
    for word, n in counts.items():
        (reason,) = (reason for reason in bad.counts if word in reason)
        assert bad.counts[reason] == n
    assert bad.total == 1000 - len(good) == sum(counts.values())
    aside = list(csv.DictReader((tmp_path / "bad.csv").read_text().splitlines()))
    assert len(aside) == bad.total
    lines = [int(row["bad_line"]) for row in aside]
    assert lines == sorted(lines)
    first = 2 if form == "csv" else 1  # an editor counts the header
    kept = np.concatenate([chunk.line for chunk in chunks]).tolist()
    assert sorted(kept + lines) == list(range(first, 1000 + first))
    assert [rows[line - first]["id"] for line in kept] == [row["id"] for row in good]
    assert bad.n_good == len(good)
    for row, line in zip(aside, lines, strict=True):  # each is there whole
        for name, cell in rows[line - first].items():
            assert row[name] == ("" if cell is None else str(cell)), (name, line)


def read(text, tmp_path, columns="", loop="explicit", **options):
    path = tmp_path / "log.csv"
    path.write_text(text)
    bad = BadRows()
    chunks = list(open_log(path, columns=columns, **options).chunks(bad, loop=loop))
    return chunks, bad


def test_lines_of_a_csv_file_are_those_of_an_editor(tmp_path):
    text = (
        '"time",reward,reward_time,note\n'
        '2026-01-01 00:00:00,1,2026-01-01 01:00:00,"two\nlines"\n'
        "\n"
        "2026-01-01 00:00:00,1,2026-01-01 01:00:00\n"
        "2026-01-01 00:00:00,x,2026-01-01 01:00:00,fine\n"
        "2026-01-02 00:00:00,,,last"
    )
    (chunk,), bad = read(text, tmp_path)
    assert chunk.line.tolist() == [2, 7]
    found = {(row.line, row.reason, row.value) for row in bad.first}
    assert found == {
        (5, "the row cannot be read", "'3 cells: expected 4, as in the first line'"),
        (6, "the reward is not a finite number", "'x'"),
    }


TIMES = [
    "2026-01-01T12:00:00",
    "2026-01-01 12:00:00.5",
    "2026-01-01",
    "2026-01-01T12:00:00.123456789",
]
ZONED = [
    "2026-01-01T12:00:00Z",
    "2026-01-01T12:00:00+02:00",
    "1767268800",
    "1767268800000",
    "1767268800.25",
]


@pytest.mark.parametrize("several", [TIMES, ZONED], ids=["local", "zoned"])
def test_times_of_many_forms_in_one_column(several, tmp_path):
    text = "time,reward_time\n" + "".join(f"{time},\n" for time in several)
    (chunk,), bad = read(text, tmp_path)
    expected = [microseconds("time", float(t) if t[4] != "-" else t) for t in several]
    assert chunk.decided.tolist() == expected
    assert bad.total == 0
    for one in several:  # and each alone, where the whole column is of one form
        (chunk,), _ = read(f"time,reward_time\n{one},\n{one},\n", tmp_path)
        assert chunk.decided.tolist() == [expected[several.index(one)]] * 2


def test_times_that_cannot_be(tmp_path):
    text = (
        "time,reward_time\n2026-01-01T00:00Z,\n2026-02-31T00:00Z,\nsoon,\n,\n1,\n"
        "2999-01-01T00:00Z,\n2026-01-01T00:00Z,later\n2026-01-01T00:00Z,2026-01-01 01:00\n"
    )
    (chunk,), bad = read(text, tmp_path)
    assert chunk.line.tolist() == [2]
    assert dict(bad.counts) == {
        "the time cannot be read": 2,
        "no time": 1,
        "the time is before 2000 or in the future": 2,
        "the reward-time cannot be read": 1,
        "mixed zones: the first time has a zone": 1,
    }


def test_rewards_and_times_that_do_not_go_together(tmp_path):
    text = (
        "time,reward,reward_time\n2026-01-01,0,\n2026-01-01,1,\n2026-01-01,,2026-01-02\n"
        "2026-01-01,nan,2026-01-02\n2026-01-01,true,2026-01-02\n2026-01-01,inf,\n2026-01-01,nan,\n"
    )
    (chunk,), bad = read(text, tmp_path)
    assert chunk.line.tolist() == [6, 8]
    np.testing.assert_array_equal(chunk.reward, [1.0, np.nan])
    assert list(bad.counts.values()) == [3, 2]
    (chunk,), bad = read(text, tmp_path, loop="conversion")  # the 0 without a time is silence
    assert chunk.line.tolist() == [2, 6, 8]
    np.testing.assert_array_equal(chunk.reward, [np.nan, 1.0, np.nan])


def test_a_log_without_rewards_has_conversions_where_it_has_times(tmp_path):
    (chunk,), _ = read("shown_at,converted_at\n2026-01-01,\n2026-01-01,2026-01-02\n", tmp_path)
    np.testing.assert_array_equal(chunk.reward, [np.nan, 1.0])
    assert (chunk.action, chunk.segment) == (None, None)
    assert np.isnan(chunk.propensity).all()


def test_a_log_without_times_of_rewards(tmp_path):
    """What an evaluation may read: the reward came at once, as in ``ledger import``."""
    text = "action,reward,propensity,age\na,1,0.5,3\n,1,0.5,4\nb,,0.5,5\nb,1,,6\n"
    path = tmp_path / "log.csv"
    path.write_text(text)
    bad = BadRows()
    log = open_log(path, needs=("action", "reward", "propensity"))
    (chunk,) = log.chunks(bad, context=["age"])
    assert chunk.action.tolist() == ["a", "b"]
    assert (chunk.decided.tolist(), chunk.returned.tolist()) == ([0, 0], [0, PENDING])
    assert chunk.context["age"].tolist() == [3.0, 5.0]
    assert dict(bad.counts) == {"no action": 1, "the propensity is not in (0, 1]": 1}


def test_types_of_a_parquet_file(tmp_path):
    frame = pd.DataFrame(
        {
            "time": pd.to_datetime(["2026-01-01", "2026-01-01"], utc=True),
            "reward_time": pd.to_datetime(["2026-01-02", None]),  # without a zone
            "reward": [True, None],
            "id": [7, 7],
            "action": pd.Categorical(["a", "b"]),
        }
    )
    path = tmp_path / "log.parquet"
    frame.to_parquet(path)
    bad = BadRows()
    (chunk,) = open_log(path).chunks(bad)
    assert dict(bad.counts) == {"mixed zones: the first time has a zone": 1}
    assert chunk.action.tolist() == ["b"]
    frame["reward_time"] = frame["reward_time"].dt.tz_localize("UTC")
    bad = BadRows()
    (chunk,) = open_log(frame).chunks(bad)
    assert chunk.decided.tolist() == [microseconds("", "2026-01-01")]
    assert (chunk.returned - chunk.decided).tolist() == [24 * 3600 * 1_000_000]
    assert dict(bad.counts) == {"the id was met before": 1}


def test_a_row_group_of_a_whole_file_streams(tmp_path, monkeypatch):
    """5 MB of numbers that cannot be compressed are in one row group, and a few are in memory."""
    n, path = 300_000, tmp_path / "log.parquet"
    rng = np.random.default_rng(1)
    late = rng.random(n) * 3600.0
    table = pa.table({"time": 1.75e9 + late, "reward_time": 1.76e9 + late})
    pq.write_table(table, path, row_group_size=n, use_dictionary=False)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    monkeypatch.setattr(sources, "ROWS", 10_000)
    monkeypatch.setattr(sources, "BUFFER", 1 << 16)
    del table
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for batch in sources.open_source(path).batches(["time", "reward_time"]):
        rows += batch.lines.size
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == n
    assert most < path.stat().st_size / 2


def test_strict_names_the_rows_and_the_file(tmp_path):
    aside = tmp_path / "bad.csv"
    aside.write_text("of another log\n")
    bad = BadRows(aside)
    bad.refuse()
    bad.finish()
    assert aside.read_text() == "of another log\n"  # no bad row, no file
    bad.add([9, 4], "no time", [None, "soon"])
    bad.flush()
    assert aside.read_text() == "of another log\n"
    bad.finish()
    with pytest.raises(
        ValueError, match=r"2 bad rows, the first in line 4 \(no time: 2\); they are"
    ):
        bad.refuse()
    assert aside.read_text().split() == [
        "bad_line,bad_reason,bad_value",
        "4,no",
        "time,'soon'",
        "9,no",
        "time,",
    ]


def test_ids_as_a_set_finds_them():
    rng = np.random.default_rng(5)
    seen, known = SeenIds(), set()
    for size in [1, 1000, 10, 300, 300, 2000, 1, 0, 500]:
        ids = [f"id {i}" for i in rng.integers(5000, size=size)]
        expected = []
        for id in ids:
            expected.append(id in known)
            known.add(id)
        assert seen.again(hashed(pa.array(ids, pa.string()))).tolist() == expected
    assert sum(part.size for part in seen._sorted) == len(known)


def test_hashes_are_those_of_the_bytes():
    """Against bytes that are read one by one; beginnings, ends and lengths all count."""
    texts = [
        "",
        "a",
        "b",
        "aa",
        "12345678",
        "123456789",
        "12345678\0",
        "x" * 40,
        "x" * 41,
        "\u00e4",
    ]
    many = [*texts, *(f"{i:012x}" for i in range(1000))]
    found = hashed(pa.array(["cut off", *many]).slice(1)).tolist()
    assert len(set(found)) == len(many)
    assert hashed(pa.array(many[::-1], pa.large_string())).tolist() == found[::-1]
    for text, hash in zip(texts, found, strict=False):
        data = text.encode()
        expected = mixed(np.array([len(data)], np.uint64))
        for k in range(0, len(data), 8):
            expected = mixed(expected ^ np.uint64(int.from_bytes(data[k : k + 8], "little")))
        assert hash == expected[0]
    assert hashed(pa.array([None, "a", None]))[1] == found[1]
    assert hashed(pa.array([], pa.string())).tolist() == []


def test_what_is_no_log(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"log = 'nowhere.csv': there is no such file"):
        open_log("nowhere.csv")
    with pytest.raises(ValueError, match="log = 17: expected a file"):
        open_log(17)
    (tmp_path / "log.txt").write_text("time\n")
    with pytest.raises(ValueError, match=r"--format = 'log.txt'"):
        open_log(tmp_path / "log.txt")
