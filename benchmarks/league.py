"""Prints docs/league.md and draws docs/league.png: the default beside every peer, in every world.

The README shows the shop alone, docs/league-shop.png.

The results behind the page are in benchmarks/data/league.parquet, one row per world, player, seed
and checkpoint: peers take hours and do not change with belated, so what they played is kept in the
repository. A peer plays again where the version of its library is another than the kept one; ours
play in every new folder. The folder keeps each match, so that a run that was stopped goes on.
Times are those of the first copy: peers have to play it again (``--again``) for times of one run.

    python benchmarks/league.py league > docs/league.md    # plays what is missing, keeps it, prints
    python benchmarks/league.py new --again > docs/league.md    # peers play the first copy once more
    python benchmarks/league.py league --so-far > docs/league.md    # plays nothing more
    python benchmarks/league.py > docs/league.md    # prints the page again from what is kept
    python benchmarks/league.py rehearsal --seeds 2 --decisions 1000 > rehearsal.md
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from belated import registry
from belated.experiments.judging.lift import in_short, standings
from belated.experiments.league.league import League, new_league, open_folder, play_league
from belated.experiments.league.peers import PEERS, library_of, settings_of
from belated.experiments.league.playing import SCHEMA, world_named
from belated.experiments.reporting.league_tables import league_lines, peer_lines, short_lines
from belated.experiments.reporting.lift_figure import draw_lifts

DOCS = Path(__file__).parent.parent / "docs"
KEPT = Path(__file__).parent / "data" / "league.parquet"
FIRST_SEED = 1000  # nothing was chosen by a look at these worlds
ENOUGH = 20  # copies of each world
LATER = "`inverse-gap` and contextualbandits"  # whose kept times are not of the run of all others
CUBIC = "time that grows with the cube of the number of features: five minutes a copy"
PER_ACTION = "a model per action: tens of milliseconds a decision with 500 of them"
SLOW = {
    ("many-products", "mabwiser-lints"): PER_ACTION,
    ("many-products", "river-linucb"): PER_ACTION,
    ("wide", "mabwiser-linucb"): CUBIC,
    ("wide", "mabwiser-linucb-tuned"): CUBIC,
}
EXACT = "inverse-gap"  # beside the default in every world: exact propensities
# Their library has no wheels. Where it is installed they play, with fewer copies if need be.
COMPILED = "contextualbandits-linucb", "contextualbandits-lints"
COMPILED_IN = "shop", "few-banners", "frequent"
# In the shop alone: how far the default explores, its prior, proof.
IN_THE_SHOP = ("adaptive-thompson:scale=1", "thompson", "delayed-ofu-glm")


def planned(worlds: list[str], seeds: int, decisions: int | None) -> League:
    ours = (registry.DEFAULT_POLICY, EXACT, *IN_THE_SHOP)
    league = new_league(worlds, ours, seeds=seeds, decisions=decisions, seed=FIRST_SEED)
    elsewhere = {
        (world, player): "it plays in the shop alone"
        for world in worlds
        for player in IN_THE_SHOP
        if world != "shop"
    }
    in_few = "its library is compiled where it is installed, and it plays in three worlds"
    elsewhere |= {(w, player): in_few for w in worlds for player in COMPILED}
    left_out = league.left_out | elsewhere | SLOW
    for world in COMPILED_IN:  # what it played there is kept, whether it is installed or not
        for player in COMPILED:
            left_out.pop((world, player), None)
    return replace(league, left_out=left_out)


def installed(league: League) -> League:
    """Returns the league without those who need a library that has to be compiled and is not."""
    missing = [player for player in COMPILED if find_spec(library_of(player)) is None]
    out = {(world, player): "not installed" for world in league.worlds for player in missing}
    return replace(league, left_out=league.left_out | out)


def version_of(player: str) -> str:
    """Returns the version of a player's library, or of belated.

    Of one that is not installed it is that of what is kept.
    """
    try:
        return version(library_of(player) if player in PEERS else "belated")
    except PackageNotFoundError:
        kept = pd.read_parquet(KEPT, columns=["player", "version"])
        return "".join(kept.loc[kept["player"] == player, "version"].unique())


def put_kept_into(folder: Path, league: League, again: bool = False) -> None:
    """Adds what is kept of peers, with the versions of their libraries that are installed.

    With ``again`` the first copy is left out, so that everybody plays it in one run.
    """
    if not KEPT.exists() or league.decisions is not None:
        return
    matches = [match for match in league.matches() if match.player in PEERS]
    matches = [match for match in matches if not (again and match.seed == FIRST_SEED)]
    versions = {player: version_of(player) for player in {match.player for match in matches}}
    kept = pd.read_parquet(KEPT)
    kept = kept[kept["version"] == kept["player"].map(versions)]
    played = dict(list(kept.groupby(["world", "player", "seed"])))
    with open_folder(league, folder) as parts:
        there = parts.finished(match.name for match in matches)
        for match in matches:
            rows = played.get(match[:3])
            if match.name in there or rows is None or rows["t"].max() != match.decisions:
                continue
            table = pa.Table.from_pandas(rows[SCHEMA.names], SCHEMA, preserve_index=False)
            parts.write_part(match.name, table)


def finished(league: League, folder: Path) -> pd.DataFrame:
    """Returns what is in the folder, of copies that the default and somebody else have played."""
    with open_folder(league, folder) as parts:
        names = [match.name for match in league.matches()]
        there = parts.finished(names)
        frame = parts.write_results([name for name in names if name in there]).to_pandas()
    players = frame.groupby(["world", "seed"])["player"]
    ours = players.transform(lambda names: league.players[0] in set(names))
    return frame[ours & (players.transform("nunique") > 1)]


def keep(frame: pd.DataFrame) -> None:
    """Writes what the page is printed from: sums in single precision, which is seven digits."""
    sums = dict.fromkeys(("earned", "uniform", "best", "seconds"), np.float32)
    versions = {player: version_of(player) for player in frame["player"].unique()}
    kept = frame.assign(version=frame["player"].map(versions)).astype(sums)
    own = ["earned", "seconds"]  # the other columns have the same values again and again
    KEPT.parent.mkdir(exist_ok=True)
    kept.to_parquet(
        KEPT,
        index=False,
        compression="zstd",
        compression_level=19,
        use_byte_stream_split=own,
        use_dictionary=[name for name in kept if name not in own],
    )


def world_lines(league: League, table: pd.DataFrame) -> Iterator[str]:
    """One row per world: what is special about it, and its numbers."""
    yield "| world | what it is | actions | features | decisions | copies |"
    yield "|---|---|---|---|---|---|"
    lengths, copies = table.groupby("world")["t"].max(), table.groupby("world")["seeds"]
    for name, summary in registry.summaries(registry.WORLDS).items():
        if name not in lengths:
            continue
        world = world_named(name, FIRST_SEED)
        least, most = copies.min()[name], copies.max()[name]
        yield (
            f"| {name} | {summary} | {len(world.offered(0))} | {world.dim} | {lengths[name]:,} "
            f"| {most if least == most else f'{least} to {most}'} |"
        )


def setting_lines(league: League) -> Iterator[str]:
    """One item per peer, and one per player that is left out."""
    for peer in PEERS:
        yield f"- **{peer}**: {settings_of(peer)}"
    left_out = {pair: why for pair, why in league.left_out.items() if pair[1] in PEERS}
    if left_out:
        yield "\nLeft out:\n"
    for (world, player), reason in left_out.items():
        if player not in COMPILED:  # the text above says it
            yield f"- {player} in {world}: {reason}"


def page(league: League, frame: pd.DataFrame, figure: str) -> Iterator[str]:
    """Yields docs/league.md, paragraph by paragraph."""
    reference, peers = league.players[0], [name for name in league.players if name in PEERS]
    of_one_run = frame["seconds"].where(frame["seed"] == FIRST_SEED)
    table = standings(frame.assign(seconds=of_one_run), reference)
    worlds = [name for name in league.worlds if name in set(table["world"])]
    yield INTRODUCTION.format(figure=figure)
    missing = [name for name in registry.WORLDS if name not in worlds]
    if missing:
        yield f"> Not played for this page yet: {', '.join(missing)}.\n"
    if table.loc[~table["player"].isin(COMPILED), "seeds"].min() < ENOUGH:
        yield f"> Not all has been played for this page: a full one has {ENOUGH} copies of each world.\n"
    if league.decisions is not None:
        yield f"> A rehearsal with {league.decisions:,} decisions in each world.\n"
    yield from short_lines(in_short(table, reference, peers))
    yield "\nThe same by peer:\n"
    yield from peer_lines(table, peers)
    yield READING
    yield WORLDS
    yield from world_lines(league, table)
    yield SETTINGS.format(later=LATER)
    yield from setting_lines(league)
    for world in worlds:
        yield f"\n## {world}\n"
        yield from league_lines(table, world, reference)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print docs/league.md.")
    parser.add_argument("folder", type=Path, nargs="?", help="without one, nothing is played")
    parser.add_argument("--again", action="store_true", help="for times of one run")
    parser.add_argument("--so-far", action="store_true", help="print what is in the folder")
    parser.add_argument("--world", action="append", choices=list(registry.WORLDS))
    parser.add_argument("--seeds", type=int, default=ENOUGH)
    parser.add_argument("--decisions", type=int, help="for a rehearsal, of which nothing is kept")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--figure", type=Path, default=DOCS / "league.png")
    asked = parser.parse_args()
    league = planned(asked.world or list(registry.WORLDS), asked.seeds, asked.decisions)
    if asked.folder is None:
        frame = pd.read_parquet(KEPT)
    else:
        put_kept_into(asked.folder, league, asked.again)
        if not asked.so_far:
            play_league(installed(league), asked.folder, asked.workers)
        frame = finished(league, asked.folder)
        if league.decisions is None:
            keep(frame)
            frame = pd.read_parquet(KEPT)  # what is printed now is what is printed again
    shop = frame[frame["world"] == "shop"]
    for name, part in {"": frame, "-shop": shop}.items():
        figure = asked.figure.with_stem(asked.figure.stem + name)
        draw_lifts(part).savefig(figure, dpi=150, metadata={"Software": None})
    print(*page(league, frame, asked.figure.name), sep="\n")


INTRODUCTION = """# The league

Printed by `make league` (benchmarks/league.py): policies of belated and of other libraries in simulated shops, each
alone in its copy of the same world, with the same visitors and the same luck. **Lift** is the share of what is
possible, (earned - uniform play) / (best action of every visit - uniform play), in expected rewards. `belated compare
--world shop` plays one of them.

![Lift over decisions in every world]({figure})

## The default against the best peer
"""
READING = """
Ahead: the mean of the differences in lift, copy by copy, with Student's 95 per cent interval; here the default's minus the
peer's, in the tables of the worlds that of each player minus the default's. The best peer is the best
of these copies, so the interval is unkind to the default. The last column counts peers: those that the default
beats, those that it neither beats nor trails, and those that it trails, with 95 per cent confidence. With so many comparisons
about one in twenty of those that are even in truth will not say so.

How far the default explores (`scale`) was chosen in the shop, on copies with other seeds than those played here, and so was
`gamma_scale` of `inverse-gap`, in the shop, in `few-banners` and in `frequent`;
`adaptive-thompson:scale=1` is the default without that choice. Peers have the settings below, where the linear ones are
told the standard deviation of a reward, which nobody knows beforehand. Of them `mabwiser-linucb-tuned` was chosen like
the default, on other copies of the shop; the others were not tuned.
"""
WORLDS = """
## The worlds

Time is counted in decisions, 5,000 to a day. Rewards that are known are delivered every ten decisions, three minutes
of such a day, to all players alike. The shop is played for four days, the other worlds for a day or two, a short time
for so few rewards: lifts would be higher after longer runs. A copy is a world with another seed. In `conversions` only
buyers report: ours hear of them when they buy, and close windows themselves; peers cannot, and are told of every
decision when its window closes.
"""
SETTINGS = """
## The peers

Ours get dicts and features by `Features`; peers get raw one-hot vectors of the same columns and pairs of columns, or
text, as they are used. Time, in the tables, is CPU time per decision with its reward over the default's, whose
microseconds stand beside it: that of the first copy, which all play in one run ({later} played it later, on a busier
machine). Ours includes making vectors of dicts, that of
peers does not (Vowpal Wabbit's lines are made within its time).

contextualbandits is not installed with the other peers, because it has no wheels: where one installs it, it is compiled. It
plays in three worlds, in fewer copies (the table by peer has their number), with the policies that learn from new rewards
alone, LinUCB and LinTS; its others are
fitted to all rewards again whenever some return, which takes time that grows with the square of the horizon.
"""


if __name__ == "__main__":
    main()
