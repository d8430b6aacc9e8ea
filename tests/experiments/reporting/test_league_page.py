"""docs/league.md and its script."""

import importlib.util
import re
from pathlib import Path

import pytest

from belated import registry
from belated.experiments.league.league import new_league
from belated.experiments.league.peers import PEERS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("league_page", ROOT / "benchmarks/league.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_paragraphs_of_the_script(script):
    page = (ROOT / "docs" / "league.md").read_text("utf-8")
    opening = script.INTRODUCTION.split("{seeds}")[0]
    for text in (opening, script.READING, script.WORLDS, script.SETTINGS):
        assert text.strip() in page
    later = re.search(r"> Not played for this page yet: (.*)\.\n", page)
    missing = later[1].split(", ") if later else []
    for world in registry.WORLDS:
        assert (f"\n## {world}\n" in page) != (world in missing)
    for peer in PEERS:
        assert f"- **{peer}**: " in page


def test_who_is_left_out_for_its_time_is_a_player_of_that_world(script):
    players = new_league(["few-banners"], seeds=1).players
    for world, player in script.SLOW:
        assert world in registry.WORLDS
        assert player in players


def test_rows_of_worlds(script):
    league = new_league(list(registry.WORLDS), ["greedy"], [], seeds=1)
    rows = list(script.world_lines(league))
    assert len(rows) == 2 + len(registry.WORLDS)
    (shop,) = (row for row in rows if row.startswith("| shop |"))
    assert shop.endswith("| 20 | 89 | 20,000 |")
