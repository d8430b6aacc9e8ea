"""Lift and paired differences, against examples made by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from belated.experiments.judging.lift import in_short, lifts, standings


def rows(player, seed, earned, world="shop"):
    """Uniform play earns 1 per decision, the best 3; checkpoints at 9 and 10 decisions."""
    return [
        {
            "world": world,
            "player": player,
            "seed": seed,
            "t": t,
            "earned": sum_,
            "uniform": 1.0 * t,
            "best": 3.0 * t,
            "seconds": 0.001 * t,
        }
        for t, sum_ in zip((9, 10), earned, strict=True)
    ]


def test_lift_by_hand():
    frame = pd.DataFrame(rows("a", 1, (9.0, 11.0)) + rows("b", 1, (27.0, 28.0)))
    found = lifts(frame)
    assert found.loc["shop", "a", 1].tolist() == pytest.approx([1 / 20, 0.5, 1000.0, 10])
    assert found.loc["shop", "b", 1].tolist() == pytest.approx([18 / 20, 0.0, 1000.0, 10])


def test_the_best_has_lift_one_and_uniform_play_none():
    found = lifts(pd.DataFrame(rows("best", 1, (27.0, 30.0)) + rows("uniform", 1, (9.0, 10.0))))
    assert found["lift"].tolist() == [1.0, 0.0]
    assert found["last_tenth"].tolist() == [1.0, 0.0]


def test_differences_are_paired():
    """Worlds differ by far more than players: only pairs show that one is better."""
    rng = np.random.default_rng(1)
    level, gap = rng.uniform(0.0, 0.8, 12), rng.normal(0.05, 0.01, 12)
    frame = pd.DataFrame(
        [row for i in range(12) for row in rows("ours", i, (9.0, 10.0 + 20.0 * level[i]))]
        + [row for i in range(12) for row in rows("peer", i, (9.0, 10.0 + 20 * (level - gap)[i]))]
    )
    table = standings(frame, "ours").set_index("player")
    assert table.index.tolist() == ["ours", "peer"]
    low, high = stats.t.interval(0.95, 11, -gap.mean(), gap.std(ddof=1) / np.sqrt(12))
    assert table.loc["peer", ["ahead", "low", "high"]].tolist() == pytest.approx(
        [-gap.mean(), low, high]
    )
    assert table["verdict"].tolist() == ["", "lower"]
    assert standings(frame, "peer")["verdict"].tolist() == ["higher", ""]
    assert standings(frame, "peer")["seeds"].tolist() == [12, 12]


def test_a_player_that_is_not_in_every_world_is_judged_where_it_is():
    frame = pd.DataFrame(
        rows("ours", 1, (9.0, 20.0))
        + rows("ours", 1, (9.0, 12.0), world="drift")
        + rows("peer", 1, (9.0, 22.0), world="drift")
    )
    table = standings(frame, "ours")
    assert table["world"].tolist() == ["shop", "drift", "drift"]
    assert table["player"].tolist() == ["ours", "peer", "ours"]
    assert table["ahead"].tolist() == pytest.approx([0.0, 0.5, 0.0])
    assert table["low"].isna().all()
    assert table["verdict"].tolist() == ["", "even", ""]


def test_in_short_by_hand():
    """The reference beats one peer, loses to the other, and is compared with the better one."""
    frame = pd.DataFrame(
        [row for i in range(4) for row in rows("ours", i, (9.0, 20.0 + i))]
        + [row for i in range(4) for row in rows("weak", i, (9.0, 12.0 + 1.1 * i))]
        + [row for i in range(4) for row in rows("strong", i, (9.0, 22.0 + 0.9 * i))]
    )
    short = in_short(standings(frame, "ours"), "ours", ["weak", "strong"]).loc["shop"]
    assert short["peer"] == "strong"
    assert [short["lift"], short["of_peer"], short["ahead"]] == pytest.approx(
        [0.575, 0.6675, -0.0925]
    )
    assert short["low"] < short["ahead"] < short["high"] < 0.0
    assert [short["higher"], short["even"], short["lower"]] == [1, 0, 1]
