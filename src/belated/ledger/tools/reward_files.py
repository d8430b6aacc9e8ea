"""Files of rewards: their rows, how they are handed in, and what is put aside."""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import msgspec

from belated.core.arguments import any_number, wrong
from belated.core.events import Status
from belated.core.files import refuse_missing, replacing
from belated.core.side_files import csv_cell, refuse_source
from belated.core.times import microseconds
from belated.ledger import Ledger
from belated.ledger.base import too_old
from belated.ledger.ids import all_from_texts
from belated.ledger.protocol import Importer
from belated.ledger.replica import reward_draft, system_clock
from belated.ledger.rules import refusal, second_event
from belated.ledger.tools.progress import Share, progress
from belated.ledger.tools.reading import bandits_of, only_bandit
from belated.ledger.tools.tables import (
    Row,
    columns_of,
    format_of,
    is_missing,
    parse_map,
    rows_of,
)

FIELDS = ("decision_id", "reward", "at", "event_id")
NEEDED, TEXTS = ("decision_id", "reward"), ("decision_id", "event_id")
COLUMNS = {field: field for field in FIELDS}
MOST_NAMED, LONGEST_NAMES = 50, 1_000  # columns in an error, and their characters together
LONGEST_EVENT_ID = 200  # characters
_json = msgspec.json.Encoder(enc_hook=str)  # Parquet has values of types that JSON lacks
BATCH = 1000  # rewards that are handed in together: others must not wait for many
IN_THE_LOG = (Status.ACCEPTED, Status.DUPLICATE, Status.EXPIRED, Status.PARKED)
REASONS = {
    Status.UNKNOWN: "this bandit has no decision of that id",
    Status.CONFLICT: "the decision has another reward, or was cancelled",
}


class Given(NamedTuple):
    """A reward of a file; ``at`` is in microseconds since 1970, None for now."""

    line: int
    decision_id: str
    reward: float
    at: int | None
    event_id: str


class Bad(NamedTuple):
    """A row that could not be used, and why."""

    line: int
    status: Status
    reason: str


class Taken(NamedTuple):
    """The outcome of rewards that were handed in together."""

    statuses: Mapping[Status, int]
    bad: Sequence[Bad]


Send = Callable[[Sequence[Given]], Taken]


def parse_columns(text: str) -> dict[str, str]:
    """Returns the column of each field, by what ``--map`` says.

    >>> parse_columns("decision_id=decision,at=sold_at")["at"]
    'sold_at'
    """
    return COLUMNS | parse_map(text, FIELDS)


def texts(columns: Mapping[str, str]) -> frozenset[str]:
    """Returns the columns that hold names: 007 and 7 are different names."""
    return frozenset(columns[field] for field in TEXTS)


def given_or_bad(
    rows: Iterable[Row], columns: Mapping[str, str] = COLUMNS
) -> Iterator[Given | Bad]:
    """Yields a reward for each row, or the reason why it has none."""
    for row in rows:
        try:
            yield _given(row, columns)
        except ValueError as error:
            yield Bad(row.line, Status.INVALID, str(error))


def _given(row: Row, columns: Mapping[str, str]) -> Given:
    if row.problem:
        raise ValueError(row.problem)
    cells = {field: row.cells.get(column) for field, column in columns.items()}
    for field in NEEDED:
        if is_missing(cells[field]):
            there = ", ".join(islice(row.cells, MOST_NAMED))[:LONGEST_NAMES] or "none"
            raise wrong(columns[field], None, f"a value; the columns are {there}")
    try:
        reward = any_number(cells["reward"])
    except (TypeError, ValueError, OverflowError):
        reward = math.nan
    if not math.isfinite(reward):
        raise wrong("reward", cells["reward"], "a finite number")
    at, event_id = cells["at"], "" if is_missing(cells["event_id"]) else str(cells["event_id"])
    if len(event_id) > LONGEST_EVENT_ID or "\0" in event_id:
        raise wrong("event_id", event_id, f"{LONGEST_EVENT_ID} characters at most, without NUL")
    time = None if is_missing(at) else microseconds("at", at)
    return Given(row.line, str(cells["decision_id"]), reward, time, event_id)


def into_ledger(ledger: Ledger, bandit: str | None) -> tuple[str, Send]:
    """Returns the name of the bandit, and a function that writes rewards into its ledger."""
    bandits = bandits_of(ledger)
    name = only_bandit(bandits, bandit)
    spec = bandits[name].spec
    support, family = spec.law().support, spec.family["type"]
    importer = Importer(lambda bandit, kind, reward: support.contains(reward))

    def send(rewards: Sequence[Given]) -> Taken:
        now, statuses, bad = system_clock(), Counter[Status](), []
        ids = all_from_texts([given.decision_id for given in rewards])
        pairs = list(zip(rewards, ids, strict=True))
        drafts = [
            reward_draft(name, now, id, given.reward, given.at, given.event_id)
            for given, id in pairs
            if id is not None
        ]
        judged = zip(drafts, ledger.commit(drafts, importer), strict=True)
        for given, id in pairs:
            status, reason = Status.UNKNOWN, ""
            if id is not None:
                draft, outcome = next(judged)
                status = outcome.status
                if status is Status.INVALID:
                    reason = refusal(draft, outcome.facts, support, family)
                elif status is Status.UNKNOWN:
                    reason = too_old(ledger, id)
                elif status is Status.CONFLICT:
                    reason = second_event(draft, outcome.facts)
            statuses[status] += 1
            if status not in IN_THE_LOG:
                bad.append(Bad(given.line, status, reason or REASONS[status]))
        return Taken(statuses, bad)

    return name, send


def hand_in(
    path: Path, send: Send, *, columns: str = "", format: str | None = None, aside: Path
) -> dict[str, Any]:
    """Hand in all rewards of a file; returns what became of them.

    Run again, it goes on where it stopped: what is in the log already changes nothing. Rows that
    could not be used are in ``aside``, with their cells, to be mended and handed in. It takes the
    place of that of an earlier run when this one ends.
    """
    refuse_missing("file", str(path), path)
    refuse_source("--bad", aside, path)
    kind, named, share = format_of(path, format), parse_columns(columns), Share()
    columns_of(path, kind)  # raises if commas or the names of columns are missing
    rows = rows_of(path, kind, texts(named), share)
    statuses, n_rows, n_bad = Counter[Status](), 0, 0
    with progress("handing in rewards", share=share) as told, TemporaryFile() as spool:
        while chunk := list(islice(rows, BATCH)):
            read, cells = list(given_or_bad(chunk, named)), {row.line: row.cells for row in chunk}
            rewards = [row for row in read if isinstance(row, Given)]
            bad = [row for row in read if isinstance(row, Bad)]
            statuses[Status.INVALID] += len(bad)
            if rewards:
                taken = send(rewards)
                statuses.update(taken.statuses)
                bad += taken.bad
            for row in sorted(bad):
                spool.write(_json.encode([*row, cells[row.line]]) + b"\n")
            n_rows, n_bad = n_rows + len(chunk), n_bad + len(bad)
            told(len(chunk))
        _put_aside(aside, spool)
    late = Status.EXPIRED
    counts = {"late" if s is late else str(s): n for s, n in statuses.items() if n}
    return {
        "rows": n_rows,
        "rewards": counts,
        "rows_bad": n_bad,
        "bad_rows_are_in": str(aside) if n_bad else None,
    }


def _put_aside(path: Path, spool: IO[bytes]) -> None:
    """Write the bad rows, in JSON lines, as a CSV file with all columns that any of them has.

    Columns of the user come last: of two with one name, a reader takes the last.
    """
    spool.seek(0)
    columns = list(dict.fromkeys(name for line in spool for name in msgspec.json.decode(line)[-1]))
    if not spool.tell():
        path.unlink(missing_ok=True)
        return
    spool.seek(0)
    with replacing(path) as raw:
        file = TextIOWrapper(raw, encoding="utf-8", newline="")
        writer = csv.writer(file)
        writer.writerow([*Bad._fields, *columns])
        for line in spool:
            *found, cells = msgspec.json.decode(line)
            writer.writerow([*found, *(csv_cell(cells.get(name)) for name in columns)])
        file.detach()  # ``replacing`` closes the file
