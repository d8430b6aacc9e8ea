"""A league: worlds and players, planned, played side by side and kept in a folder."""

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from belated import registry
from belated.core.arguments import whole, wrong
from belated.experiments.executors import open_executor
from belated.experiments.labels import parsed_policy
from belated.experiments.league.peers import PEERS, CannotPlayError
from belated.experiments.league.playing import (
    SCHEMA,
    Match,
    play_match,
    player_named,
    world_named,
)
from belated.experiments.running import run
from belated.experiments.store import Folder

# Unless somebody asks for others: the default, and beside it how far it explores, its prior and
# what is proved.
OURS = (registry.DEFAULT_POLICY, "adaptive-thompson:scale=1", "thompson", "delayed-ofu-glm")


@dataclass(frozen=True)
class League:
    """Worlds and players, and who cannot play where.

    Attributes
    ----------
    worlds, players
        Their names. The first player is the one that the others are compared with.
    seeds
        The seeds of the copies of each world.
    decisions
        Decisions in a run, or None for what each world says.
    left_out
        By world and player: why it does not play there.
    """

    worlds: tuple[str, ...]
    players: tuple[str, ...]
    seeds: range
    decisions: int | None
    left_out: dict[tuple[str, str], str]

    def matches(self) -> list[Match]:
        """Returns all matches, seed by seed: a league that is stopped has whole pairs."""
        return [
            Match(world, player, seed, self.decisions or world_named(world, seed).decisions)
            for seed in self.seeds
            for world in self.worlds
            for player in self.players
            if (world, player) not in self.left_out
        ]


def new_league(
    worlds: Sequence[str],
    policies: Sequence[str] = OURS,
    peers: Sequence[str] | None = None,
    seeds: int = 20,
    decisions: int | None = None,
    seed: int = 0,
) -> League:
    """Returns a league, after a look at whether everybody can play.

    Parameters
    ----------
    worlds : sequence of str
        Names of worlds; see ``belated list worlds``.
    policies : sequence of str
        Policies of ours, by name and parameters; "hold " before a name lets it wait for windows to
        close where only buyers report.
    peers : sequence of str, optional
        Names of peers; by default all whose libraries are installed.
    seeds : int
        Number of copies of each world.
    decisions : int, optional
        Decisions in a run; by default what the world says.
    seed : int
        The seed of the first copy; the others follow.
    """
    others = tuple(PEERS) if peers is None else tuple(peers)
    for peer in others:
        if peer not in PEERS:
            raise wrong("peer", peer, f"one of {', '.join(PEERS)}")
    for policy in policies:
        parsed_policy(policy)
    if not policies:
        raise ValueError("policies = []: expected one or more, to compare the peers with")
    left_out = {}
    for name in worlds:
        world = world_named(name, seed=0)
        for player in (*policies, *others):
            try:
                player_named(player, world)
            except CannotPlayError as error:
                left_out[name, player] = str(error)
            except ModuleNotFoundError as error:
                if peers is not None:
                    raise
                left_out[name, player] = str(error)
    return League(
        tuple(worlds),
        (*policies, *others),
        range(whole("seed", seed, least=0), seed + whole("seeds", seeds)),
        decisions if decisions is None else whole("decisions", decisions, least=10),
        left_out,
    )


def open_folder(league: League, out: str | os.PathLike[str]) -> Folder:
    """Returns the folder in which the matches of a league are kept, one part each."""
    return Folder(Path(out), {"kind": "league", "decisions": league.decisions}, SCHEMA)


def play_league(
    league: League,
    out: str | os.PathLike[str],
    workers: int | None = None,
    executor: str | Executor | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Play the matches that are not in the folder yet, and return one row per checkpoint.

    A folder may grow: more worlds, players and seeds are added to what is there. Players are
    written in Python and would wait for each other in threads, so processes are the default.
    """
    with (
        open_folder(league, out) as folder,
        open_executor(executor or "processes", whole("threads", workers or os.cpu_count())) as pool,
    ):
        table = run(league.matches(), play_match, folder, pool, progress=progress)
    frame: pd.DataFrame = table.to_pandas()
    return frame
