"""Decisions joined with their rewards, one row per decision, for off-policy evaluation."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import msgspec

from belated.core.times import iso
from belated.ledger import Ledger
from belated.ledger.events import Decided, Event, Kind
from belated.ledger.ids import to_text
from belated.ledger.replica import Progress
from belated.ledger.standing import Ending
from belated.ledger.tools.parquet import arrow, write_rows
from belated.ledger.tools.reading import Bandit, bandits_at_base, configure, events_of
from belated.ledger.vectors import vector_of

SUFFIXES = (".jsonl", ".parquet", ".csv")
_decided = msgspec.msgpack.Decoder(Decided)


class JoinedRow(msgspec.Struct, gc=False):
    """A decision and its ending. Times are in microseconds since 1970."""

    bandit: str
    id: str
    time: int
    action: str
    propensity: float | None
    n_actions: int | None  # None where the log does not say
    probabilities: list[float] | None  # of all actions, if they were asked for
    context: str | None  # JSON
    x: list[float]  # features that have grown as at the end of the log, others as they were then
    model_version: int
    policy: str
    reward: float | None
    reward_time: int | None
    delay_seconds: float | None
    status: str
    reward_received: int | None  # when the reward was handed in
    held_out: bool  # whether the baseline was played, see ``ledger/holdout.py``
    repeats: str | None  # id of the decision whose action was played again


def joined(ledger: Ledger, wanted: Callable[[Event], bool], told: Progress) -> Iterator[JoinedRow]:
    """Yields the wanted decisions in the order of the log, without the erased ones.

    The ending of a decision may come much later than the decision, so the log is read twice.
    """
    endings: dict[bytes, Ending] = {}
    bandits = bandits_at_base(ledger)
    for event in events_of(ledger, told):
        if event.kind in (Kind.CONFIGURED, Kind.PROMOTED):
            configure(bandits, event, ledger)
        elif event.kind == Kind.DECIDED and event.id and wanted(event):
            endings[event.id] = Ending(event.due, event.closes)
        elif event.id in endings:
            endings[event.id].take(event)
    for event in events_of(ledger, told):
        if event.kind == Kind.DECIDED and event.id in endings:
            yield _row(event, endings[event.id], bandits[event.bandit])


def _row(event: Event, ending: Ending, bandit: Bandit) -> JoinedRow:
    body, spec = _decided.decode(event.body), bandit.spec
    default = spec.default_reward if spec.loop == "conversion" else None
    delay = None if ending.time is None else (ending.time - event.time) / 1e6
    return JoinedRow(
        event.bandit,
        to_text(event.id),
        event.time,
        body.action,
        body.propensity,
        body.n_actions or None,
        None if body.probabilities is None else list(body.probabilities),
        body.context.decode() or None,
        _vector(body, bandit),
        body.version,
        body.policy,
        default if ending.status == "expired" else ending.reward,
        ending.time,
        delay,
        ending.status,
        ending.received,
        body.held_out,
        to_text(body.repeats) if body.repeats else None,
    )


def _vector(body: Decided, bandit: Bandit) -> list[float]:
    x = bandit.earlier.present(body.x) if body.layout == bandit.told.layout else body.x
    numbers: list[float] = vector_of(x).tolist()
    return numbers


def write_joined(file: IO[bytes], suffix: str, rows: Iterable[JoinedRow]) -> int:
    """Write a file of decisions; returns how many it has."""
    writers = {".jsonl": _write_lines, ".parquet": _write_parquet, ".csv": _write_csv}
    return writers[suffix](file, rows)


def _plain(row: JoinedRow) -> dict[str, Any]:
    """Returns a row with times that people can read."""
    cells = msgspec.structs.asdict(row)
    times = ("time", "reward_time", "reward_received")
    return cells | {name: None if cells[name] is None else iso(cells[name]) for name in times}


def _write_lines(file: IO[bytes], rows: Iterable[JoinedRow]) -> int:
    encode, n = msgspec.json.Encoder().encode, 0
    for row in rows:
        n += 1
        context = None if row.context is None else msgspec.Raw(row.context.encode())
        file.write(encode(_plain(row) | {"context": context}) + b"\n")
    return n


def _write_csv(file: IO[bytes], rows: Iterable[JoinedRow]) -> int:
    encode, n = msgspec.json.encode, 0
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.DictWriter(text, JoinedRow.__struct_fields__)
    writer.writeheader()
    for row in rows:
        n += 1
        chances = None if row.probabilities is None else encode(row.probabilities).decode()
        lists = {"x": encode(row.x).decode(), "probabilities": chances}
        writer.writerow(_plain(row) | lists)
    text.detach()
    return n


def _write_parquet(file: IO[bytes], rows: Iterable[JoinedRow]) -> int:
    pa, _ = arrow()
    moment = pa.timestamp("us", "UTC")
    types = {
        "bandit": pa.string(),
        "id": pa.string(),
        "time": moment,
        "action": pa.string(),
        "propensity": pa.float64(),
        "n_actions": pa.int64(),
        "probabilities": pa.list_(pa.float64()),
        "context": pa.string(),
        "x": pa.list_(pa.float64()),
        "model_version": pa.int64(),
        "policy": pa.string(),
        "reward": pa.float64(),
        "reward_time": moment,
        "delay_seconds": pa.float64(),
        "status": pa.string(),
        "reward_received": moment,
        "held_out": pa.bool_(),
        "repeats": pa.string(),
    }
    return write_rows(file, pa.schema(types.items()), rows)
