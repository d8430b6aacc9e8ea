"""Verdicts on the league: the lift of every player, and how far players are apart.

Lift is the share of what is possible: (earned - uniform) / (best - uniform), in expected rewards.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from belated.experiments.run_intervals import mean_interval

KEYS = ["world", "player", "seed"]


def lift_of(part: pd.DataFrame) -> Any:
    """Returns the lift of sums of ``earned``, ``uniform`` and ``best``."""
    return (part["earned"] - part["uniform"]) / (part["best"] - part["uniform"])


VERDICTS = ("higher", "even", "lower")


def lifts(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per world, player and seed.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results of the league, one row per world, player, seed and checkpoint.

    Returns
    -------
    pandas.DataFrame
        Indexed by world, player and seed: ``lift`` over the whole run, ``last_tenth`` in the last
        tenth of its decisions alone, ``microseconds`` of CPU time per decision with its reward, and
        ``t``, the number of decisions.
    """
    sums = frame.set_index(KEYS)
    end = sums.groupby(KEYS, sort=False)["t"].transform("max")
    last = sums[sums["t"] == end]
    tenth = sums[sums["t"] == np.ceil(0.9 * end)]
    columns = ["earned", "uniform", "best"]
    return pd.DataFrame(
        {
            "lift": lift_of(last),
            "last_tenth": lift_of(last[columns] - tenth[columns]),
            "microseconds": 1e6 * last["seconds"] / last["t"],
            "t": last["t"],
        }
    )


def standings(frame: pd.DataFrame, reference: str, confidence: float = 0.95) -> pd.DataFrame:
    """Returns one row per world and player, in the order of worlds and of lift.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results of the league.
    reference : str
        The player that the others are compared with, seed by seed.
    confidence : float
        Of each interval.

    Returns
    -------
    pandas.DataFrame
        ``seeds`` and ``t``, their numbers; ``lift``, ``last_tenth``, ``microseconds``, means over
        seeds; ``ahead``, the mean of the lift of the player minus that of the reference in the same
        worlds, with its interval ``low`` to ``high``; ``verdict``, which is "higher" or "lower"
        where the interval is on one side of 0, "even" elsewhere, and empty for the reference.
    """
    rows = []
    for world, part in lifts(frame).groupby("world", sort=False):
        by_player = part["lift"].unstack("player")
        ranked = by_player.mean().sort_values(ascending=False, kind="stable").index
        for player in ranked:
            mine = part.xs(player, level="player")
            ahead = mean_interval((by_player[player] - by_player[reference]).dropna(), confidence)
            verdict = "higher" if ahead.low > 0.0 else "lower" if ahead.high < 0.0 else "even"
            rows.append(
                {
                    "world": world,
                    "player": player,
                    "seeds": len(mine),
                    "t": int(mine["t"].max()),
                    **mine[["lift", "last_tenth", "microseconds"]].mean(),
                    "ahead": ahead.value,
                    "low": ahead.low,
                    "high": ahead.high,
                    "verdict": "" if player == reference else verdict,
                }
            )
    return pd.DataFrame(rows)


# What a verdict on a player says of the reference.
SEEN_FROM_REFERENCE = {"higher": "lower", "lower": "higher", "even": "even"}


def in_short(table: pd.DataFrame, reference: str, peers: Sequence[str]) -> pd.DataFrame:
    """Returns one row per world: the reference against the best of the peers.

    Parameters
    ----------
    table : pandas.DataFrame
        The result of ``standings`` with the same reference.
    reference : str
        The player in question.
    peers : sequence of str
        The players that it is measured by.

    Returns
    -------
    pandas.DataFrame
        Indexed by world: ``lift`` and ``last_tenth`` of the reference; ``peer``, the one with the
        highest lift, and its lift ``of_peer``; ``ahead``, the lift of the reference minus that of
        this peer, with ``low`` and ``high``; the number of peers than which the reference is
        ``higher``, ``even`` or ``lower``.
    """
    rows = {}
    for world, part in table.groupby("world", sort=False):
        ours = part[part["player"] == reference].iloc[0]
        others = part[part["player"].isin(peers)]
        best = others.loc[others["lift"].idxmax()]
        seen_from_us = others["verdict"].map(SEEN_FROM_REFERENCE)
        rows[world] = {
            "lift": ours["lift"],
            "last_tenth": ours["last_tenth"],
            "peer": best["player"],
            "of_peer": best["lift"],
            "ahead": -best["ahead"],
            "low": -best["high"],
            "high": -best["low"],
            **{verdict: int((seen_from_us == verdict).sum()) for verdict in VERDICTS},
        }
    return pd.DataFrame.from_dict(rows, orient="index")
