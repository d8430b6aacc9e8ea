"""``belated.compare``, its command, and the page on all algorithms."""

import csv
import time
from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scipy import stats
from sklearn.isotonic import IsotonicRegression

import belated as package
from belated import registry
from belated.commands import catalogue
from belated.core.arguments import parameters
from belated.estimators import penalised_mle
from belated.experiments import comparison
from belated.experiments.comparison import new_comparison
from belated.experiments.experiment import new_experiment
from belated.experiments.options import Options
from belated.experiments.reporting import field_figure
from belated.families import Gaussian
from belated.model.protocols import choose, feedback_of, refuse_family
from belated.policies import Greedy, Thompson
from belated.policies.greedy import _choose
from belated.policies.shared.constants import known_horizon
from support.command import belated

SMALL = {"dim": 2, "horizon": 40, "runs": 3, "seed": 1, "n_actions": 4}
ONE = {"horizon": 9, "runs": 1, "n_actions": 4}
ROOT = Path(__file__).parents[2]


def entered(policies, family=None, delays="constant:0", dim=2, horizon=40, runs=2):
    families = [] if family is None else [family]
    options = Options(policies, families, delays, [dim], horizon, runs, n_actions=4)
    experiment, left_out = new_comparison(options)
    return list(experiment.policies), list(experiment.families), left_out


@parameters
class Fussy(NamedTuple):
    """Learns from Gaussian rewards only, and wants to know the number of rounds."""

    horizon: int | None = None
    lam: float = 1.0

    def refuses(self, family):
        return "" if isinstance(family, Gaussian) else "is for Gaussian rewards"

    def resolve(self, family, dim, max_norm):
        refuse_family(self, family)
        return self._replace(horizon=known_horizon(self))

    def estimator(self, family, dim, max_norm):
        return penalised_mle(family, dim, max_norm, m1=1.0, lam=self.lam)


class Converts(Greedy):
    """Is told of successes only."""

    __slots__ = ()

    @property
    def feedback(self):
        return "conversions"


choose.case(Fussy, Converts)(_choose.py_func if hasattr(_choose, "py_func") else _choose)


@pytest.fixture
def fussy(monkeypatch):
    """Two more in the registry, each with something it cannot do."""
    import belated.policies.greedy as home

    for name, kind in (("fussy", Fussy), ("converts", Converts)):
        monkeypatch.setattr(home, kind.__name__, kind, raising=False)
        monkeypatch.setitem(registry.POLICIES, name, f"policies.greedy:{kind.__name__}")


# --------------------------------------------------------------------------------------- who plays


def test_groups_and_those_left_out(fussy):
    everyone = list(registry.POLICIES)
    played, families, left_out = entered("all-linear")
    assert families == ["gaussian"]
    assert {"delayed-ofu-glm", "fussy", "oful", "thompson"} <= set(played)
    assert left_out["converts"].startswith(
        "feedback = identified: Converts learns from conversions"
    )
    assert left_out["delayed-ucb1"].startswith("arms are rows")
    assert sorted([*played, *left_out]) == sorted(everyone)
    played, families, left_out = entered("all-logistic")
    assert families == ["bernoulli"]
    assert {"delayed-ofu-glm", "ada-ofu-ecolog"} <= set(played)
    assert left_out["delayed-ucb1"].startswith("arms are rows")
    assert left_out["fussy"] == "family = Bernoulli(): Fussy is for Gaussian rewards"
    played, families, left_out = entered("all", family="poisson")
    assert families == ["poisson"]
    assert "greedy" in played
    assert left_out["delayed-ofu-glm"].startswith("R = None: Poisson rewards are not sub-Gaussian")
    assert sorted([*played, *left_out]) == sorted(everyone)
    played, families, _ = entered("all-linear", family="bernoulli")
    assert families == ["bernoulli"]
    assert "fussy" not in played
    assert "fussy" not in entered("all-logistic", family="gaussian")[0]


def test_k_armed_policies_play_where_arms_stay():
    options = Options("all-logistic", [], "never", [3], environment="one-hot:3", **ONE)
    experiment, left_out = new_comparison(options)
    assert {"delayed-ucb1", "bold", "delayed-ofu-glm"} <= set(experiment.policies)
    assert left_out["odaaf"].startswith("feedback = identified")
    with pytest.raises(ValueError, match="dims = 2: expected 3"):
        new_comparison(replace(options, dims=[2]))


def test_policies_that_are_named():
    played, families, left_out = entered("greedy")
    assert (played, families, left_out) == (["greedy"], ["gaussian"], {})
    played, _, _ = entered(["greedy, ducb-ridge:delta=0.1, c=2,thompson:scale=0.5", "uniform"])
    assert played == ["greedy", "ducb-ridge", "thompson", "uniform"]
    options = Options("ducb-ridge:delta=0.1, c=2", [], "never", [2], **ONE)
    experiment, _ = new_comparison(options)
    assert experiment.policies["ducb-ridge"][1:6] == (0.1, None, None, None, 2.0)
    both = [Thompson(scale=0.5), "greedy", "all-linear"]  # each once: greedy is in the group too
    played, _, left_out = entered(both)
    assert sorted([*played, *left_out]) == sorted([*registry.POLICIES, "thompson:scale=0.5"])


def test_policies_that_are_labelled(tmp_path):
    expected = {"narrow": Thompson(scale=0.5), "wide": Thompson(scale=2.0)}
    text = "narrow=thompson:scale=0.5, wide=thompson:scale=2"
    for asked in (expected, text, text.split(","), [text]):
        experiment, _ = new_comparison(Options(asked, [], "never", [2], **ONE))
        assert experiment.policies == expected
    played, _, _ = entered(["all-linear", "ducb-ridge:c=2,mine=greedy"])
    assert {"ducb-ridge:c=2", "mine", "greedy"} <= set(played)
    sizes = {"dim": 2, "horizon": 20, "runs": 2, "n_actions": 3, "out": tmp_path / "out"}
    field = package.compare(expected, **sizes)
    assert sorted(field.table.policy) == ["narrow", "wide"]
    again = package.compare(text, **sizes)  # in the same folder: nothing is played again
    assert again.results.frame().equals(field.results.frame())


@pytest.mark.parametrize(
    ("policies", "family", "message"),
    [
        ("greedy,greedy", None, "policies = 'greedy': expected each one once"),
        ("delayed-ofu-glm", "poisson", "delayed-ofu-glm with poisson, d = 2: R = None"),
        ("fussy", "bernoulli", "fussy with bernoulli, d = 2: .* is for Gaussian rewards"),
        (
            "converts",
            None,
            "converts with gaussian, d = 2: feedback = identified: Converts learns",
        ),
        ("all-liner", None, r"did you mean all-linear\?"),
        ("all:delta=0.1", None, "policies = 'all:delta=0.1': expected a group without parameters"),
        ("all-linear,all-logistic", None, "family = None: expected one of bernoulli, gaussian"),
        ([], None, r"policies = \[\]: expected at least one"),
        ("all", 3, "family = 3: expected a family"),
    ],
)
def test_what_cannot_be_asked(fussy, policies, family, message):
    with pytest.raises((ValueError, TypeError), match=message):
        entered(policies, family)
    with pytest.raises(ValueError, match="dim = 0: expected"):
        entered("all", dim=0)


def test_a_simulation_tells_the_number_of_rounds(fussy):
    options = Options(
        ["fussy"], ["gaussian"], ["constant:0"], dims=[2], horizon=30, runs=1, n_actions=3
    )
    experiment = new_experiment(options)
    assert experiment.policies["fussy"].horizon is None  # and yet it is not refused


def test_feedback():
    assert feedback_of(Greedy()) == "identified"
    assert feedback_of(Converts()) == "conversions"


# --------------------------------------------------------------------------------------- the table


def test_the_table():
    delays = ["constant:0", "exponential:9"]
    names = ["uniform", "delayed-ofu-glm", "greedy"]
    field = package.compare(names, delays=delays, **SMALL)
    assert list(field.table.columns) == [
        "delay",
        "policy",
        "regret",
        "standard_error",
        "behind",
        "behind_low",
        "behind_high",
        "coverage",
        "microseconds",
    ]
    frame = field.results.frame()
    for delay in delays:
        rows = field.table[field.table.delay == delay]
        assert sorted(rows.policy) == sorted(names)
        assert rows.regret.is_monotonic_increasing
        last = frame[(frame.t == 40) & (frame.delay == delay)].sort_values("run")
        runs = {p: last[last.policy == p].regret.to_numpy() for p in names}
        best = rows.policy.iloc[0]
        assert (rows.behind.iloc[0], rows.behind_high.iloc[0]) == (0.0, 0.0)
        for row in rows.itertuples():
            mine = runs[row.policy]
            assert row.regret == pytest.approx(mine.mean())
            assert row.standard_error == pytest.approx(stats.sem(mine))
            if row.policy != best:
                low, high = stats.ttest_rel(mine, runs[best]).confidence_interval(0.95)
                assert row.behind == pytest.approx((mine - runs[best]).mean())
                assert (row.behind_low, row.behind_high) == pytest.approx((low, high))
            if row.policy == "delayed-ofu-glm":
                assert row.coverage == last[last.policy == row.policy].covered.mean()
            else:
                assert pd.isna(row.coverage)
            assert row.microseconds > 0.0


def test_coverage_is_a_share_of_runs():
    """Over whole runs: a set that failed once has failed, whatever it did later."""
    size = SMALL | {"runs": 6}
    field = package.compare("delayed-ofu-glm:width_scale=0.3", delays="constant:0", **size)
    frame = field.results.frame()
    expected = frame.groupby("run").covered.min().astype(float).mean()
    assert field.table.coverage.tolist() == [expected]
    assert 0.0 < expected < 1.0, "find another width: this one decides nothing"


class Slow:
    """Plays the first action, and takes its time over it."""

    def __init__(self, seconds):
        self.seconds = seconds

    def choose(self, actions, t):
        start = time.thread_time()
        while time.thread_time() - start < self.seconds:
            pass
        return 0

    def observe(self, x, y):
        pass


def test_time_is_that_of_the_policy():
    """What a policy burns is counted, once a round."""
    quick, slow = Slow(0.0), Slow(0.002)
    quick.name, slow.name = "quick", "slow"
    options = Options([quick, slow], [], "constant:0", [2], horizon=12, runs=1, n_actions=4)
    experiment, _ = new_comparison(options)
    times = comparison.time_lanes(experiment)
    gap = times["slow", "constant:0"] - times["quick", "constant:0"]
    assert gap == pytest.approx(2000.0, rel=0.25)


def test_time_is_not_that_of_the_world(monkeypatch):
    """By a clock of our own: neither starting, nor drawing, nor the worst of the plays counts."""
    clock, disturbance = [0.0], cycle([0.5, 0.0, 0.7])

    def played(world):
        clock[0] += 5.0 + 3.0 * len(world.lanes) + next(disturbance)
        clock[0] += world.horizon * (2.0 + 0.25 * len(world.lanes))

    monkeypatch.setattr(comparison, "play_world", played)
    monkeypatch.setattr(comparison, "time", SimpleNamespace(thread_time=lambda: clock[0]))
    experiment, _ = new_comparison(Options("greedy", [], "never", [2], **ONE))
    assert comparison.time_lanes(experiment)["greedy", "never"] == pytest.approx(0.25e6)


def test_timing_plays_what_was_asked(monkeypatch, fussy):
    """One policy at a time, few rounds of a long run, and the horizon of the whole."""
    seen = []
    monkeypatch.setattr(comparison, "TIMED_ROUNDS", 7)
    monkeypatch.setattr(comparison, "play_world", seen.append)
    delays = ["constant:0", "never"]
    options = Options("fussy,greedy", [], delays, [2], horizon=50, runs=2, n_actions=4)
    experiment, _ = new_comparison(options)
    times = comparison.time_lanes(experiment)
    assert list(times) == [(p, d) for p in ("fussy", "greedy") for d in ("constant:0", "never")]
    assert {world.horizon for world in seen} == {1, 7}
    for world in seen:
        assert len(set(world.lanes)) <= 1
        for lane in world.lanes:
            assert lane.policy in (Fussy(horizon=50), Greedy())
    assert any(lane.policy == Fussy(horizon=50) for world in seen for lane in world.lanes)


# -------------------------------------------------------------------------------------- the figure


def made(names, runs=4):
    rng = np.random.default_rng(2)
    t = np.array([25, 50, 100])
    parts = [
        pd.DataFrame(
            {
                "policy": name,
                "family": "gaussian",
                "delay": "exponential:9",
                "law": "exponential",
                "expected": 9.0,
                "dim": 2,
                "n_actions": 5,
                "run": run,
                "t": t,
                "regret": (5.0 + level) * t / 100 + rng.random(),
            }
        )
        for level, name in enumerate(names)
        for run in range(runs)
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("count", [1, 6, 15, 40])
def test_every_line_is_labelled(count):
    names = [f"policy-{i:02d}" for i in range(count)]
    figure = field_figure.draw_field(made(names))
    (axes,) = figure.axes
    labels = {text.get_text().split()[0]: text for text in axes.texts}
    assert list(labels) == names  # from the least regret to the largest
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in labels.values()]
    assert all(a.y1 <= b.y0 for a, b in pairwise(boxes)), "labels overlap"
    assert max(box.x1 for box in boxes) <= figure.bbox.x1, "a label is cut off"
    assert boxes[-1].y1 <= figure.bbox.y1
    assert boxes[0].y0 >= 0
    bands = len(axes.collections)
    assert bands == count
    single = field_figure.draw_field(made(names[:2], runs=1))
    assert not single.axes[0].collections, "one run has no error to show"


def test_nothing_to_regret_can_be_drawn():
    frame = made(["a", "b"]).assign(regret=0.0)
    FigureCanvasAgg(field_figure.draw_field(frame)).draw()
    with pytest.raises(ValueError, match="nothing to draw"):
        field_figure.draw_field(frame[:0])


@pytest.mark.parametrize("seed", range(5))
def test_spread_is_isotonic_regression(seed):
    rng = np.random.default_rng(seed)
    wanted, gap = np.sort(rng.random(12) ** 2), 0.07
    places = field_figure.spread(wanted, gap, 0.0, 1.0)
    offsets = gap * np.arange(12)
    twin = IsotonicRegression(y_min=0.0, y_max=1.0 - offsets[-1]).fit(
        np.arange(12), wanted - offsets
    )
    assert np.allclose(places, twin.predict(np.arange(12)) + offsets)
    assert (np.diff(places) >= gap - 1e-12).all()


# ------------------------------------------------------------------------------------- the command

TINY = ("--horizon", "30", "--runs", "2", "--dim", "2", "--actions", "4", "--threads", "1")


def test_compare_command(tmp_path):
    out = tmp_path / "out"
    asked = ("compare", "--policies", "greedy,uniform", "--policies", "delayed-ofu-glm", *TINY)
    first = belated(*asked, "--delay", "exponential:5", "--out", str(out))
    with (out / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["policy"] for row in rows} == {"greedy", "uniform", "delayed-ofu-glm"}
    assert not any(row["left_out"] for row in rows)
    lines = [line.split() for line in first.stdout.splitlines()]
    for row in rows:
        (line,) = [line for line in lines if line and line[0] == row["policy"]]
        assert line[1] == f"{float(row['regret']):,.1f}"
        assert ("no" in line) == (row["coverage"] == "")
    assert "linear rewards, d = 2, K = 4, delay exponential:5, 2 runs" in first.stdout
    assert "first 30 rounds" in first.stdout
    assert (out / "compare.txt").read_text().split() == first.stdout.rpartition("table:")[0].split()
    assert (out / "compare.png").read_bytes()[:4] == b"\x89PNG"
    assert (out / "compare.pdf").read_bytes()[:4] == b"%PDF"
    parts = {p.name: p.stat().st_mtime_ns for p in (out / "parts").iterdir()}
    again = belated(*asked, "--delay", "exponential:5", "--out", str(out))
    assert {p.name: p.stat().st_mtime_ns for p in (out / "parts").iterdir()} == parts
    assert again.stderr == ""
    other = belated(*asked, "--delay", "never", "--out", str(out), check=False)
    assert other.returncode == 2
    assert "holds another experiment" in other.stderr


def test_left_out_is_said(tmp_path):
    out = tmp_path / "out"
    asked = ("compare", "--policies", "all", "--family", "poisson", *TINY, "--out", str(out))
    printed = " ".join(belated(*asked).stdout.split())
    assert "left out: delayed-ofu-glm: R = None: Poisson rewards are not" in printed
    with (out / "compare.csv").open() as file:
        reasons = {row["policy"]: row["left_out"] for row in csv.DictReader(file)}
    assert reasons["delayed-ofu-glm"].startswith("R = None")
    assert reasons["greedy"] == ""
    assert set(registry.POLICIES) == set(reasons)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "delayed-ofu-glm", "--family", "poisson"), "R = None"),
        (("--executor", "threds"), "threads"),
    ],
)
def test_errors_of_compare_are_one_line(tmp_path, arguments, message):
    result = belated("compare", *TINY, *arguments, "--out", str(tmp_path / "out"), check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("belated: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


# ------------------------------------------------------------------------------ docs/algorithms.md


@pytest.mark.parametrize("name", registry.POLICIES)
def test_policies_say_what_they_are(name):
    said = catalogue.sections(registry.load(registry.POLICIES, name))
    assert [title for title in catalogue.SECTIONS if not said.get(title)] == []
    assert said[""].split("\n")[0].endswith(".")


def test_the_page_is_what_the_command_prints():
    printed = belated("list", "policies", "--markdown").stdout
    assert (ROOT / "docs" / "algorithms.md").read_text() == printed
    for name in registry.POLICIES:
        assert f"\n## {name}\n" in printed
    refused = belated("list", "families", "--markdown", check=False)
    assert refused.returncode == 2
    assert "--markdown with families: expected policies" in refused.stderr
