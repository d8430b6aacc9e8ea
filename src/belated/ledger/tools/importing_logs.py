"""Somebody else's log into a bandit: decisions, and rewards at the time they came."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from belated.core.events import Status
from belated.ledger import Ledger
from belated.ledger.events import Draft, Kind
from belated.ledger.protocol import Importer
from belated.ledger.replica import Progress, system_clock
from belated.ledger.tools.mapping import Bad, Imported, Mapping, Translator
from belated.ledger.tools.progress import Share, progress
from belated.ledger.tools.reading import bandits_of, only_bandit
from belated.ledger.tools.showing import NOT_SHOWN
from belated.ledger.tools.tables import columns_of, format_of, rows_of
from belated.ledger.tools.write_behind import without_collector, written_behind

BATCH = 5000  # rows at a time, and drafts in a transaction
SHOWN = 20  # bad rows that are shown
ROOM = 1_000_000_000  # bytes for checked rows: beyond, the file is read and translated again
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[Imported]).decode


class Options(NamedTuple):
    """The user's options for a file."""

    columns: str = ""
    vector: str = ""
    context: str = ""
    bandit: str | None = None
    format: str | None = None
    skip_bad: bool = False
    dry_run: bool = False


class LogFile(NamedTuple):
    """A log that is not ours, and how to read it."""

    path: Path
    format: str
    mapping: Mapping

    def chunks(
        self, translator: Translator, told: Progress, share: Share
    ) -> Iterator[tuple[list[Imported], list[Bad]]]:
        """Yields decisions and bad rows, some thousand rows at a time."""
        rows = rows_of(self.path, self.format, self.mapping.texts(), share)
        while chunk := list(islice(rows, BATCH)):
            yield translator.translate(chunk)
            told(len(chunk))


def import_log(ledger: Ledger, path: Path, mapping: Mapping, options: Options) -> dict[str, Any]:
    """Import decisions and rewards of a log into an existing bandit; returns what was done."""
    file = LogFile(path, format_of(path, options.format), mapping)
    mapping.check(columns_of(path, file.format))
    bandits = bandits_of(ledger)
    name = only_bandit(bandits, options.bandit)
    translator = Translator(name, bandits[name], mapping, system_clock())
    share = Share()
    with tempfile.TemporaryFile() as room:
        checked = Checked(room)
        with progress("checking rows", share=share) as told, without_collector():
            ok, refusal = _check_log(file, translator, told, share, checked)
        zeros = _zeros(translator)  # counted now, because the file may be read again to be written
        report: dict[str, Any] = {
            "bandit": name,
            "rows_ok": ok,
            "rows_bad": refusal.bad,
            "bad_rows": refusal.described("row" if file.format == "parquet" else "line"),
            f"bad_rows{NOT_SHOWN}": refusal.bad - len(refusal.rows),
            **zeros,
        }
        if options.dry_run or (refusal.bad and not options.skip_bad):
            return report | {"written": False}
        with progress("importing rows", share=share) as told, without_collector():
            if checked.is_complete:
                chunks = checked.chunks(told, share)
            else:
                chunks = (imported for imported, _ in file.chunks(translator, told, share))
            counts = _write_log(ledger, translator, chunks)
        return report | {"written": True, **counts}


def _zeros(translator: Translator) -> dict[str, Any]:
    """Returns values that become zeros and unregistered actions, with counts of rows."""
    counts = Counter(translator.unmatched.counts)
    retired = translator.retired
    return {
        "became_zeros": [
            {"what": str(what), "rows": rows} for what, rows in counts.most_common(SHOWN)
        ],
        "actions_not_registered": [
            {"action": action, "rows": rows} for action, rows in retired.most_common(SHOWN)
        ],
        "columns_not_used": [{"column": c} for c in translator.columns_not_used()[:SHOWN]],
    }


class Refusal(NamedTuple):
    """Rows that stand in the way of an import."""

    bad: int
    rows: list[Bad]

    def described(self, place: str) -> list[dict[str, Any]]:
        """Returns the first bad rows as the user sees them; ``place`` says what is numbered."""
        return [{place: number, "reason": reason} for number, reason in self.rows]


class _Seen:
    """Tells a decision that comes twice from two rows that contradict each other."""

    def __init__(self) -> None:
        self._rewards: dict[bytes, float | None] = {}

    def contradicted(self, row: Imported) -> bool:
        """Returns whether an earlier row has another reward for the decision."""
        known = self._rewards.get(row.draft.id)
        if known is None:
            self._rewards[row.draft.id] = row.reward
        return known is not None and row.reward not in (None, known)


class Checked:
    """Decisions of checked rows in a temporary file, so that no row is translated twice."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lengths: list[int] = []
        self.is_complete = True

    def add(self, imported: list[Imported]) -> None:
        """Keep some decisions, or none from now on where all of them take too much room."""
        if self.is_complete:
            packed = _pack(imported)
            self.is_complete = self._file.tell() + len(packed) <= ROOM
            if self.is_complete:
                self._file.write(packed)
                self._lengths.append(len(packed))
            else:
                self._file.truncate(0)

    def chunks(self, told: Progress, share: Share) -> Iterator[list[Imported]]:
        """Yields what was added; ``share`` tells from then on what part has been read."""
        size, done = max(1, self._file.tell()), 0
        share.position = lambda: done / size
        self._file.seek(0)
        for length in self._lengths:
            imported = _unpack(self._file.read(length))
            yield imported
            done += length
            told(len(imported))


def _check_log(
    file: LogFile, translator: Translator, told: Progress, share: Share, checked: Checked
) -> tuple[int, Refusal]:
    """Read the whole file; returns the number of decisions, and the rows that are refused."""
    ok, n_bad, seen = 0, 0, _Seen()
    first: list[Bad] = []
    for imported, bad in file.chunks(translator, told, share):
        said = "reward: another row has another reward for this id"
        bad = bad + [Bad(row.line, said) for row in imported if seen.contradicted(row)]
        ok += len(imported) - sum(reason == said for _, reason in bad)
        n_bad += len(bad)
        first += sorted(bad)[: SHOWN - len(first)]
        checked.add(imported)
    return ok, Refusal(n_bad, first)


def _write_log(
    ledger: Ledger, translator: Translator, chunks: Iterable[list[Imported]]
) -> dict[str, Any]:
    seen, counts = _Seen(), {kind: Counter[str]() for kind in ("decisions", "rewards")}

    importer = Importer(lambda bandit, kind, reward: translator.support.contains(reward))
    rows = (row for imported in chunks for row in imported if not seen.contradicted(row))
    is_conversion = translator.spec.loop == "conversion"
    drafts = in_time_order(rows, conversion=is_conversion, now=system_clock())
    batches = iter(lambda: list(islice(drafts, BATCH)), [])
    for batch, outcomes in written_behind(lambda batch: ledger.commit(batch, importer), batches):
        for draft, outcome in zip(batch, outcomes, strict=True):
            if draft.kind != Kind.EXPIRED:
                which = "decisions" if draft.kind == Kind.DECIDED else "rewards"
                late = outcome.status == Status.EXPIRED
                counts[which]["late" if late else str(outcome.status)] += 1
    return {which: dict(of) for which, of in counts.items()}


def in_time_order(rows: Iterable[Imported], *, conversion: bool, now: int) -> Iterator[Draft]:
    """Yields decisions in their order, with rewards and the ends of windows between them.

    If the rows are in the order of time, the log reads as if the bandit had been there.
    """
    later: list[tuple[int, int, Draft]] = []  # a heap; the count keeps equal times in order
    for count, row in enumerate(rows):
        while later and later[0][0] <= row.draft.time:
            yield heappop(later)[2]
        yield row.draft
        id, due = row.draft.id, row.draft.due
        closes = row.draft.closes or due
        in_time = row.reward is not None and (due is None or row.reward_time <= due)
        if row.reward is not None:
            reward = Draft(Kind.REWARDED, row.draft.bandit, id, row.reward_time, row.reward)
            heappush(later, (row.reward_time, 2 * count + 1, reward))
        if closes is not None and closes < now and (conversion or not in_time):
            end = Draft(Kind.EXPIRED, row.draft.bandit, id, closes + 1)
            heappush(later, (closes + 1, 2 * count, end))
    while later:
        yield heappop(later)[2]
