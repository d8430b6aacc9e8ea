"""``belated compare --world``: policies of ours and other libraries in named worlds."""

from collections.abc import Sequence
from pathlib import Path

import typer

from belated import registry
from belated.experiments.comparison import names_in
from belated.experiments.judging.lift import standings
from belated.experiments.league.league import OURS, new_league, play_league
from belated.experiments.reporting.league_tables import print_league, write_league


def compare_in_worlds(
    worlds: Sequence[str],
    policies: Sequence[str] | None,
    peers: str | None,
    seeds: int,
    decisions: int | None,
    seed: int,
    out: Path = Path("league"),
    threads: int | None = None,
    executor: str = "processes",
) -> None:
    """Play, judge, print the tables and write table and figure into ``out``."""
    asked = [name for text in policies or () for name in names_in(text)] or OURS
    named = None if peers is None else [] if peers == "none" else names_in(peers)
    everywhere = list(registry.WORLDS) if "all" in worlds else list(dict.fromkeys(worlds))
    league = new_league(everywhere, asked, named, seeds, decisions, seed)
    frame = play_league(league, out, threads, executor)
    reference = league.players[0]
    table = standings(frame, reference)
    write_league(frame, table, league.left_out, reference, out)
    print_league(table, league.left_out, reference)
    typer.echo(f"table: {out / 'league.csv'}, figure: {out / 'league.png'}")
