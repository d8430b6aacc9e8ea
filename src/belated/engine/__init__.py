"""Playing bandits against simulated worlds: one in plain Python, or many lanes, compiled."""

from belated.engine.lanes import RECORD, Batched
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import Player, Run, World, draw_world, mean_rewards, play
from belated.engine.worlds import (
    LONGEST_HORIZON,
    Lane,
    WorldSettings,
    audit_world,
    has_set,
    play_world,
    seed_of_run,
)
from belated.model.plain_policy import OwnPolicy, is_own

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
