"""Files of rewards as bodies: what small ones unpack to, and how long answers are."""

import asyncio
import io
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from belated import Bernoulli, wire
from belated.client import Client, ServiceError
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.policies import Greedy
from belated.service import reward_bodies
from belated.service.service import Service
from support.running_service import served

DATA = Path(__file__).parent.parent / "data" / "parquet"
LINES, PARQUET = "application/x-ndjson", "application/vnd.apache.parquet"
MOST = reward_bodies.MOST_ROWS


@pytest.fixture(scope="module")
def client():
    with served() as (url, _), Client(url) as client:
        client.put_bandit("shop", {"family": "bernoulli", "dim": 2})
        yield client


def parquet(columns, **options):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **{"compression": "zstd"} | options)
    return file.getvalue()


def repeated(value, times):
    """A column with a dictionary of one value."""
    return pa.array([value]).dictionary_encode().take(pa.array([0] * times))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            parquet({"decision_id": repeated("?", 1_000_000), "reward": [1.0] * 1_000_000}),
            "at most, got 1,000,000; send several files",
        ),
        (
            parquet({"decision_id": repeated("?" * 1_000_000, 20_000), "reward": [1.0] * 20_000}),
            "a text of 1000000 bytes",
        ),
        (
            parquet({"decision_id": ["?" * 1_000_000] * 60}, use_dictionary=False),
            "unpacked size = ",
        ),
        (parquet({"decision_id": ["?"], "reward": [[1.0] * 1_000_000]}), "reward = 'list<"),
        (
            parquet({"decision_id": pa.array([b"?" * 100_000], pa.binary(100_000))}),
            "decision_id = 'fixed_size_binary[100000]'",
        ),
    ],
)
def test_a_small_body_that_unpacks_to_much_is_refused(client, body, said):
    """Ten kilobytes took 400 MB, and health took 1.8 s."""
    assert len(body) < 20_000
    with pytest.raises(ServiceError, match="422") as refused:
        client.reward_file("shop", body, PARQUET)
    assert said in str(refused.value)


def test_a_column_that_is_there_twice_is_refused(client):
    table = pa.table([["?"], ["!"], [1.0]], names=["decision_id", "decision_id", "reward"])
    file = io.BytesIO()
    pq.write_table(table, file)
    with pytest.raises(ServiceError, match="expected each name once"):
        client.reward_file("shop", file.getvalue(), PARQUET)


def test_more_rows_than_are_allowed_are_refused(client):
    for body, kind in ((b"{}\n" * (MOST + 1), LINES), (b"a\n" + b"1\n" * (MOST + 1), "text/csv")):
        with pytest.raises(ServiceError, match="expected 50,000 at most, got more"):
            client.reward_file("shop", body, kind)


def test_the_first_bad_rows_are_named_and_all_are_counted(client):
    """An answer had 34 MB."""
    taken = client.reward_file("shop", b"{}\n" * 3_000 + b'{"decision_id":"?","reward":1}', LINES)
    assert (taken.rows, taken.n_bad) == (3_001, 3_001)
    assert taken.statuses == {"invalid": 3_000, "unknown": 1}
    assert [row.line for row in taken.bad] == list(range(1, wire.MOST_BAD_ROWS + 1))


def test_names_of_columns_do_not_come_with_every_row(client):
    """With a header of half a megabyte, an answer about 2,000 rows would have had a gigabyte."""
    header = ",".join(f"column {k}" for k in range(40_000))
    taken = client.reward_file("shop", header.encode() + b"\n1" * 2_000)
    assert taken.n_bad == 2_000
    assert "1 cells: expected 40000" in taken.bad[0].reason
    taken = client.reward_file("shop", b"a" * 130_000 + b"\n1" * 2_000)
    assert len(taken.bad[0].reason) < 2_000


def test_texts_numbers_and_times_of_parquet_are_read(client):
    client.change_actions("shop", {"a": [1.0, 0.0], "b": [0.0, 1.0]})
    made = client.decide("shop")
    columns = {"decision_id": [made.decision_id], "other": [[1, 2]]}
    at = pa.array([time.time_ns() // 1000], pa.timestamp("us", "UTC"))
    for more in (
        {"reward": [1.0], "event_id": [7]},
        {"reward": [1], "at": at},
        {"reward": pa.array([1], pa.int8())},
    ):
        taken = client.reward_file("shop", parquet(columns | more), PARQUET)
        assert set(taken.statuses) <= {"accepted", "duplicate"}, taken.bad


def test_others_have_their_turn_between_the_rows(monkeypatch):
    """Where no row could be written, nothing waited, and all others did."""
    service = Service("memory://", ledger=MemoryLedger())
    service.read_log()
    service.replica.configure("shop", Spec.of(2, Bernoulli(), Greedy()))
    usual, turns, seen = reward_bodies.reward, [0], []

    async def noted(*given):
        seen.append(turns[0])
        return await usual(*given)

    monkeypatch.setattr(reward_bodies, "reward", noted)

    async def use():
        async def turn():
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(turn())
        body = b'{"decision_id":"?","reward":1}\n' * 5_000
        taken = await reward_bodies.take_file(service, "shop", body, LINES)
        other.cancel()
        return taken

    assert asyncio.run(use()).statuses == {"unknown": 5_000}
    assert len(seen) == len(set(seen)) == 5


def test_damaged_statistics_do_not_end_the_process(client):
    """Whoever asks pyarrow for the columns of this file's metadata is aborted."""
    body = (DATA / "damaged_statistics.parquet").read_bytes()
    taken = client.reward_file("shop", body, PARQUET)
    assert taken.statuses == {"unknown": taken.rows}
