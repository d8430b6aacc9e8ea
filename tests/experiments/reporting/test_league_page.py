"""docs/league.md, its script and the results that it is printed from."""

import importlib.util
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pandas as pd
import pytest

from belated import registry
from belated.experiments.league.league import new_league, open_folder
from belated.experiments.league.peers import PEERS
from belated.experiments.league.playing import Match, play_match

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("league_page", ROOT / "benchmarks/league.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def everything(script):
    return script.planned(list(registry.WORLDS), script.ENOUGH, None)


def test_the_page_is_printed_from_what_is_kept(script, everything):
    """Matches that were not played yet are missing on the page, too, which says so."""
    kept = pd.read_parquet(script.KEPT)
    assert script.KEPT.stat().st_size < 600_000
    planned = {match[:3] for match in everything.matches()}
    assert set(kept[["world", "player", "seed"]].itertuples(index=False, name=None)) <= planned
    page = (ROOT / "docs" / "league.md").read_text("utf-8")
    assert page == "\n".join(script.page(everything, kept, "league.png")) + "\n"


def test_who_is_left_out_for_its_time_is_a_peer_of_that_world(script, everything):
    could_play = new_league(list(registry.WORLDS), ["greedy"], seeds=1).left_out
    for world, player in script.SLOW:
        assert world in registry.WORLDS
        assert player in PEERS
        assert (world, player) not in could_play
    played = {(match.world, match.player) for match in everything.matches()}
    assert not played & set(script.SLOW)


def test_only_matches_of_peers_with_these_versions_are_taken_from_what_is_kept(
    script, everything, tmp_path, monkeypatch
):
    pytest.importorskip("river")
    monkeypatch.setattr(script, "KEPT", tmp_path / "kept.parquet")
    monkeypatch.setattr(registry.load(registry.WORLDS, "few-banners"), "decisions", 20)
    pairs = [("river-linucb", 1000), ("river-linucb", 1001), ("greedy", 1000)]
    tables = [play_match(Match("few-banners", *pair, 20), float).to_pandas() for pair in pairs]
    script.keep(pd.concat(tables))
    kept = pd.read_parquet(script.KEPT)
    kept.loc[kept["seed"] == 1001, "version"] = "0.1"
    kept.to_parquet(script.KEPT)
    league = script.planned(["few-banners"], 2, None)
    script.put_kept_into(tmp_path / "run", league)
    with open_folder(league, tmp_path / "run") as folder:
        assert [part.stem for part in folder.parts.iterdir()] == ["few-banners.river-linucb.1000"]
        again = folder.read_part("few-banners.river-linucb.1000").to_pandas()
    assert again["t"].equals(tables[0]["t"])
    assert again["earned"].to_numpy() == pytest.approx(tables[0]["earned"].to_numpy(), rel=1e-6)


def test_a_library_that_has_to_be_compiled_may_be_missing(script, everything, monkeypatch):
    """What it played is kept and printed; nobody waits for it to play."""
    monkeypatch.setattr(script, "find_spec", lambda name: None)

    def not_there(name):
        raise PackageNotFoundError(name)

    planned = {match.player for match in everything.matches()}
    assert planned - {match.player for match in script.installed(everything).matches()} == set(
        script.COMPILED
    )
    monkeypatch.setattr(script, "version", not_there)
    kept = pd.read_parquet(script.KEPT)
    for player in script.COMPILED:
        assert script.version_of(player) in set(kept.loc[kept["player"] == player, "version"])


def test_copies_that_the_default_has_not_played_are_not_shown(script, tmp_path):
    pytest.importorskip("river")
    league = replace(script.planned(["few-banners"], 2, 20), players=("uniform", "river-linucb"))
    with open_folder(league, tmp_path) as folder:
        for player, seed in [("uniform", 1000), ("river-linucb", 1000), ("river-linucb", 1001)]:
            match = Match("few-banners", player, seed, 20)
            folder.write_part(match.name, play_match(match, float))
    frame = script.finished(league, tmp_path)
    assert set(zip(frame["player"], frame["seed"], strict=True)) == {
        ("uniform", 1000),
        ("river-linucb", 1000),
    }
    page = "\n".join(script.page(league, frame, "league.png"))
    assert "| few-banners | Five banners" in page
    assert "| 5 | 24 | 20 | 1 |" in page
    assert "> A rehearsal with 20 decisions" in page
