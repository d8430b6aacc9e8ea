"""The league in tables: for a terminal, for a folder and for a page of the documents."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from belated.core.files import replacing
from belated.experiments.judging.lift import SEEN_FROM_REFERENCE, VERDICTS
from belated.experiments.reporting.figures import save_figure
from belated.experiments.reporting.lift_figure import draw_lifts
from belated.registry import DEFAULT_POLICY

HEAD = ("player", "lift", "last tenth", "ahead [95% interval]", "", "µs")
NARROW = {"last tenth": "last\ntenth", "ahead [95% interval]": "ahead\n[95% interval]"}
READING = (
    "Lift: (earned - uniform play) / (best action of every visit - uniform play), in expected "
    "rewards, mean over seeds. Last tenth: the same in the last tenth of the decisions. Ahead: "
    "mean of the differences to {reference} in the same worlds with the same luck. µs: CPU time "
    "per decision with its reward on this machine; ours from dicts, peers from vectors "
    "ready-made (Vowpal Wabbit from dicts)."
)
LeftOut = Mapping[tuple[str, str], str]


def write_league(
    frame: pd.DataFrame, table: pd.DataFrame, left_out: LeftOut, reference: str, folder: Path
) -> None:
    """Write the table as ``league.csv`` and ``league.txt``, the figure as PNG and PDF."""
    text = StringIO()
    print_league(table, left_out, reference, Console(file=text, width=120))
    for name, content in (("csv", table.to_csv(index=False)), ("txt", text.getvalue())):
        with replacing(folder / f"league.{name}") as file:
            file.write(content.encode())
    save_figure(draw_lifts(frame), folder / "league")


def print_league(
    table: pd.DataFrame, left_out: LeftOut, reference: str, console: Console | None = None
) -> None:
    """Print one table per world, how to read it, and the players that are not in it."""
    console = console or Console()
    for world, rows in table.groupby("world", sort=False):
        shown = Table(
            title=_title(world, rows), title_justify="left", box=SIMPLE_HEAD, pad_edge=False
        )
        for i, name in enumerate(HEAD):
            side: Any = "right" if i else "left"
            shown.add_column(NARROW.get(name, name), justify=side, overflow="fold", no_wrap=i > 0)
        for row in rows.itertuples():
            shown.add_row(*map(Text, _cells(row)))
        console.print(shown)
    console.print(READING.format(reference=reference), highlight=False)
    for (world, player), reason in left_out.items():
        console.print(Text(f"left out of {world}: {player}: {reason}"))


def league_lines(table: pd.DataFrame, world: str, reference: str) -> Iterator[str]:
    """Yield the table of one world in Markdown; times are in units of that of the reference."""
    rows = table[table["world"] == world]
    unit = rows.loc[rows["player"] == reference, "microseconds"].iloc[0]
    name = "the default" if reference == DEFAULT_POLICY else reference
    ahead = f"ahead of {name} [95% interval]"  # in ``short_lines``, the default is ahead of a peer
    yield "| " + " | ".join((*HEAD[:3], ahead, "", "time")) + " |"
    yield "|" + "---|" * len(HEAD)
    for row in rows.itertuples():
        *cells, microseconds = _cells(row)
        own = f" ({microseconds} µs)" if row.player == reference else ""
        yield "| " + " | ".join([*cells, f"{row.microseconds / unit:.1f}{own}"]) + " |"


def short_lines(short: pd.DataFrame) -> Iterator[str]:
    """Yield the result of ``in_short`` in Markdown."""
    head = ["world", "lift", "last tenth", "best peer", "its lift", "ahead of it [95% interval]"]
    yield "| " + " | ".join([*head, ", ".join(VERDICTS)]) + " |"
    yield "|---|---|---|---|---|---|---|"
    for world, row in short.iterrows():
        verdicts = ", ".join(str(row[verdict]) for verdict in VERDICTS)
        yield (
            f"| {world} | {row['lift']:.3f} | {row['last_tenth']:.3f} | {row['peer']} "
            f"| {row['of_peer']:.3f} | {_ahead(row)} | {verdicts} |"
        )


def peer_lines(table: pd.DataFrame, peers: Sequence[str]) -> Iterator[str]:
    """Yield one row per peer in Markdown: in how many worlds the reference is ahead of it."""
    yield (
        "| peer | worlds | copies of each | ahead of it, mean of the worlds "
        f"| higher in mean, in so many worlds | {', '.join(VERDICTS)} with confidence |"
    )
    yield "|---|---|---|---|---|---|"
    for peer, rows in table[table["player"].isin(peers)].groupby("player"):
        least, most = rows["seeds"].min(), rows["seeds"].max()
        copies = f"{least}" if least == most else f"{least} to {most}"
        counts = rows["verdict"].map(SEEN_FROM_REFERENCE).value_counts()
        verdicts = ", ".join(str(counts.get(verdict, 0)) for verdict in VERDICTS)
        ahead, in_mean = -rows["ahead"].mean(), int((rows["ahead"] < 0.0).sum())
        yield f"| {peer} | {len(rows)} | {copies} | {ahead:+.3f} | {in_mean} | {verdicts} |"


def _title(world: Any, rows: pd.DataFrame) -> str:
    seeds = rows["seeds"].max()
    return f"{world}: {rows['t'].max():,} decisions, {seeds} seed{'s' if seeds > 1 else ''}"


def _cells(row: Any) -> list[str]:
    return [
        row.player,
        f"{row.lift:.3f}",
        f"{row.last_tenth:.3f}",
        _ahead(row) if row.verdict else "",
        row.verdict,
        f"{row.microseconds:,.0f}",
    ]


def _ahead(row: Any) -> str:
    known = pd.notna(row.low)  # a single seed has no interval
    return f"{row.ahead:+.3f}" + (f" [{row.low:+.3f}, {row.high:+.3f}]" if known else "")
