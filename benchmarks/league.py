"""Prints docs/league.md and draws docs/league.png: the default beside every peer, in every world.

What was played is kept in a folder, so that a run that was stopped goes on.

    python benchmarks/league.py league > docs/league.md
    python benchmarks/league.py league --world shop --world rare > docs/league.md    # some of them
    python benchmarks/league.py league --seeds 2 --decisions 1000    # a rehearsal
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from belated import registry
from belated.experiments.judging.lift import in_short, standings
from belated.experiments.league.league import League, new_league, play_league
from belated.experiments.league.peers import PEERS, settings_of
from belated.experiments.league.playing import world_named
from belated.experiments.reporting.league import league_lines, short_lines
from belated.experiments.reporting.lift_figure import draw_lifts

DOCS = Path(__file__).parent.parent / "docs"
FIRST_SEED = 1000  # nothing was chosen by a look at these worlds
ENOUGH = 20  # copies of each world
PER_ACTION = "a model per action: tens of milliseconds a decision with 500 of them"
CUBIC = "time that grows with the cube of the number of features"
SLOW = {
    ("many-products", "mabwiser-lints"): PER_ACTION,
    ("many-products", "river-linucb"): PER_ACTION,
    ("wide", "thompson"): CUBIC,
    ("wide", "delayed-ofu-glm"): CUBIC,
    ("wide", "mabwiser-linucb"): CUBIC,
}


def planned(worlds: list[str], seeds: int, decisions: int | None) -> League:
    league = new_league(worlds, seeds=seeds, decisions=decisions, seed=FIRST_SEED)
    return replace(league, left_out=league.left_out | SLOW)


def world_lines(league: League) -> Iterator[str]:
    """One row per world: what is special about it, and its numbers."""
    yield "| world | what it is | actions | features | decisions |"
    yield "|---|---|---|---|---|"
    for name, summary in registry.summaries(registry.WORLDS).items():
        if name not in league.worlds:
            continue
        world = world_named(name, FIRST_SEED)
        decisions = league.decisions or world.decisions
        actions = len(world.offered(0))
        yield f"| {name} | {summary} | {actions} | {world.dim} | {decisions:,} |"


def setting_lines(league: League) -> Iterator[str]:
    """One item per peer, and one per player that is left out."""
    for peer in PEERS:
        yield f"- **{peer}**: {settings_of(peer)}"
    left_out = {pair: why for pair, why in league.left_out.items() if pair[0] in league.worlds}
    if left_out:
        yield "\nLeft out:\n"
    for (world, player), reason in left_out.items():
        yield f"- {player} in {world}: {reason}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Print docs/league.md.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--world", action="append", choices=list(registry.WORLDS))
    parser.add_argument("--seeds", type=int, default=ENOUGH)
    parser.add_argument("--decisions", type=int)
    parser.add_argument("--figure", type=Path, default=DOCS / "league.png")
    asked = parser.parse_args()
    league = planned(asked.world or list(registry.WORLDS), asked.seeds, asked.decisions)
    frame = play_league(league, asked.folder)
    reference, peers = league.players[0], [name for name in league.players if name in PEERS]
    table = standings(frame, reference)
    draw_lifts(frame).savefig(asked.figure, dpi=150, metadata={"Software": None})
    print(INTRODUCTION.format(seeds=len(league.seeds), figure=asked.figure.name))
    if asked.decisions or asked.seeds < ENOUGH:
        print(REHEARSAL)
    if asked.world:
        missing = [name for name in registry.WORLDS if name not in asked.world]
        print(f"> Not played for this page yet: {', '.join(missing)}.\n")
    print(*short_lines(in_short(table, reference, peers)), sep="\n")
    print(READING)
    print(WORLDS, *world_lines(league), sep="\n")
    print(SETTINGS, *setting_lines(league), sep="\n")
    for world in league.worlds:
        print(f"\n## {world}\n", *league_lines(table, world, reference), sep="\n")


REHEARSAL = """> A rehearsal, with fewer or shorter runs than `make league` plays: the numbers say nothing yet.
"""
INTRODUCTION = """# The league

Printed by `make league` (benchmarks/league.py): policies of belated and of other libraries in simulated shops, each
alone in its copy of the same world, with the same visitors and the same luck. {seeds} copies of each world. **Lift** is
the share of what is possible, (earned - uniform play) / (best action of every visit - uniform play), in expected
rewards. `belated compare --world shop` plays one of them.

![Lift over decisions in every world]({figure})

## The default against the best peer
"""
READING = """
Ahead: the mean of the differences in lift, copy by copy, with Student's 95 per cent interval. The best peer is the best
of these copies, so the interval is unkind to the default. Higher, even, lower: against how many peers the default has a
higher or lower lift with 95 per cent confidence, and against how many neither; with so many comparisons about one in
twenty of those that are even in truth will not say so.

How far the default explores (`scale`) was chosen in the shop, on copies with other seeds than those played here. Peers
were not tuned: they have the settings below, where the linear ones are told the standard deviation of a reward, which
nobody knows beforehand. The same search over their exploration could lift them, too, so the like-for-like row is
`adaptive-thompson:scale=1`, the default without that choice. In a trial on three other copies of the shop, LinUCB of
mabwiser with a quarter of its alpha had a lift of 0.82 where the default had 0.78.
"""
WORLDS = """
## The worlds

Time is counted in decisions, 5,000 to a day. Every reward is handed over as soon as it is known.
"""
SETTINGS = """
## The peers

Ours get dicts and features by `Features`; peers get raw one-hot vectors of the same columns and pairs of columns, or
text, as they are used. Time, in the tables, is CPU time per decision with its reward in units of the default's, in the
same run; ours includes making vectors of dicts, that of peers does not (Vowpal Wabbit's lines are made within its time).
"""


if __name__ == "__main__":
    main()
