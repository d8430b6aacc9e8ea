"""The command line, as a user meets it."""

import json
import os
import subprocess
import sys
import warnings

import pytest

from belated import __version__, registry
from belated.commands.main import main
from support.command import belated


def test_help_needs_no_numba():
    code = (
        "import sys; sys.argv = ['belated', '--help']\n"
        "from belated.commands.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'numba', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in ("demo", "cache"):
        assert command in out.stdout


def test_version():
    assert belated("--version").stdout.strip() == f"belated {__version__}"


@pytest.mark.parametrize("kind", ["policies", "families", "delays", "environments", "worlds"])
def test_list(kind, monkeypatch, capsys):
    def listed(*options):
        monkeypatch.setattr(sys, "argv", ["belated", "list", kind, *options])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    known = getattr(registry, kind.upper())
    lines = listed().splitlines()
    if kind == "policies":
        lines = [line for line in lines if line.startswith("  ")]  # others are headings
    assert sorted(line.split()[0] for line in lines) == sorted(known)
    assert all(len(line.split()) > 2 for line in lines)
    summaries = json.loads(listed("--json"))
    assert list(summaries) == list(known)
    assert all(summary.endswith(".") for summary in summaries.values())


def test_policies_are_listed_under_advice():
    lines = belated("list", "policies").stdout.splitlines()
    assert lines[0] == "Which one?"
    for heading, advice, policies in registry.which_policy():
        start = lines.index(f"{heading}. {advice}") + 1
        assert [line.split()[0] for line in lines[start : start + len(policies)]] == policies


def test_unknown_command():
    result = belated("nonsense", check=False)
    assert result.returncode == 2
    assert "No such command 'nonsense'" in result.stderr


def test_cache_clear(tmp_path):
    (tmp_path / "belated" / "old").mkdir(parents=True)
    (tmp_path / "belated" / "old" / "kernel.nbc").write_bytes(b"x" * 1_000_000)
    (tmp_path / "photos").mkdir()
    place = {"BELATED_CACHE_DIR": str(tmp_path)}
    assert belated("cache", "path", **place).stdout.startswith(str(tmp_path))
    assert "freed 1.0 MB" in belated("cache", "clear", **place).stdout
    assert [p.name for p in tmp_path.iterdir()] == ["photos"], "nothing else may be deleted"
    assert "freed 0.0 MB" in belated("cache", "clear", **place).stdout


PLAY = """
from belated import Bandit, DelayedOFUGLM, registry
from belated.service.settings import spec_of
from belated.wire import BanditSettings
from belated.worlds.delays import Exponential
from belated.engine import draw_world, play
from belated.worlds.environments import UnitBall
for name in registry.FAMILIES:
    family = registry.load(registry.FAMILIES, name)()
    bandit = Bandit(4, family=family, policy=registry.example_policy(DelayedOFUGLM, family))
    play(bandit, draw_world(UnitBall(9), 4, 50, seed=3), Exponential(15.0))
    bandit.interval([0.1] * 4)
    bandit = Bandit(4, family=family)
    bandit.learn(bandit.decide([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]).id, 1.0)
    assert spec_of(BanditSettings(name, dim=4)).learner().is_compiled, name
loop = BanditSettings("bernoulli", dim=4, loop="conversion", window=3600.0, default_reward=0.0)
assert spec_of(loop).open == "silence" and spec_of(loop).learner().is_compiled
"""


@pytest.mark.slow
@pytest.mark.compiled
def test_cache_warm(tmp_path):
    """After warming, the first run of every family compiles nothing, nor does a service."""
    place = {"BELATED_CACHE_DIR": str(tmp_path)}
    belated("cache", "warm", **place)
    filled = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert filled
    subprocess.run([sys.executable, "-c", PLAY], env={**os.environ, **place}, check=True)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == filled


@pytest.mark.compiled
def test_demo(tmp_path):
    result = belated("demo", "--out", str(tmp_path), "--rounds", "60", "--runs", "2")
    assert "no delay" in result.stdout
    picture = tmp_path / "demo.png"
    assert str(picture) in result.stdout
    assert picture.read_bytes()[:4] == b"\x89PNG"
    again = belated("demo", "--out", str(tmp_path), "--rounds", "60", "--runs", "2")
    assert again.stdout == result.stdout


def test_errors_are_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    result = belated("demo", "--out", str(tmp_path / "file"), "--rounds", "10", check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("belated: ")
    assert "Traceback" not in result.stderr


def test_delay_cost(tmp_path):
    picture = tmp_path / "cost.png"
    plan = ["--per-day", "40", "--dim", "2", "--days", "1", "--runs", "2", "--out", str(picture)]
    plan += ["--family", "gaussian", "--batch-minutes", "120", "--batch-minutes", "600"]
    plain = {"NUMBA_DISABLE_JIT": "1"}
    result = belated("delay-cost", "exponential:5", *plan, **plain)
    assert result.stdout.startswith("In 1 day of 40 decisions, rewards that return 5 hours late")
    assert result.stdout.count(" min: ") == 2
    assert result.stdout.endswith(f"picture: {picture}\n")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    result = belated("delay-cost", "never", *plan, "--gap", "9", check=False, **plain)
    assert result.returncode == 2
    assert result.stderr == "belated: gap = 9.0: expected at most 2, for this family and norm = 1\n"
