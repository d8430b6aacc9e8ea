"""Playing bandits against simulated worlds: one in plain Python, or many lanes, compiled."""

from belated.core.own import OwnPolicy, is_own
from belated.engine.lanes import RECORD, Batched
from belated.engine.own import OwnPlayer
from belated.engine.plain import Player, Run, World, draw_world, mean_rewards, play
from belated.engine.worlds import (
    LONGEST_HORIZON,
    Lane,
    WorldSettings,
    audit_world,
    has_set,
    play_world,
    seed_of_run,
)

__all__ = [
    "LONGEST_HORIZON",
    "RECORD",
    "Batched",
    "Lane",
    "OwnPlayer",
    "OwnPolicy",
    "Player",
    "Run",
    "World",
    "WorldSettings",
    "audit_world",
    "draw_world",
    "has_set",
    "is_own",
    "mean_rewards",
    "play",
    "play_world",
    "seed_of_run",
]
