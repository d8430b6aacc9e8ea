"""What docs/league.md claims of the default, on a few copies of the shop that the page has not."""

import pandas as pd
import pytest

from belated import registry
from belated.experiments.judging.lift import standings
from belated.experiments.league.playing import Match, play_match


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.compiled
def test_the_default_earns_more_than_greedy_play_and_than_empirical_bayes():
    """On average: on one copy (1, where 1 per cent convert) it settles for a poor banner."""
    pytest.importorskip("bayesianbandits")
    players = (registry.DEFAULT_POLICY, "greedy", "bayesianbandits-eb")
    matches = [Match("shop", player, seed, 20_000) for seed in range(6) for player in players]
    frame = pd.concat([play_match(match, float).to_pandas() for match in matches])
    table = standings(frame, registry.DEFAULT_POLICY).set_index("player")
    assert table.loc["greedy", "verdict"] == "lower"
    assert table.loc[registry.DEFAULT_POLICY, "lift"] > 0.57
    assert table.loc["bayesianbandits-eb", "ahead"] < -0.04


@pytest.mark.slow
@pytest.mark.compiled
def test_learning_from_silence_earns_more_than_waiting_for_windows():
    """Where only buyers report, as docs/silence.md says; silence is what users get."""
    players = (registry.DEFAULT_POLICY, f"hold {registry.DEFAULT_POLICY}")
    pairs = [(seed, player) for seed in range(3) for player in players]
    matches = [Match("conversions", player, seed, 10_000) for seed, player in pairs]
    frame = pd.concat([play_match(match, float).to_pandas() for match in matches])
    table = standings(frame, registry.DEFAULT_POLICY).set_index("player")
    assert table.loc[players[0], "lift"] > 0.5
    assert table.loc[players[1], "verdict"] == "lower"
