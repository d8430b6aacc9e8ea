"""``belated.simulate`` and the commands around it, as a user meets them."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import belated as package
from belated import registry
from belated.experiments.experiment import new_experiment
from belated.experiments.experiment_file import delta_of, experiment_of
from belated.experiments.options import Options
from belated.experiments.paper import Choices, paper_experiment, stated_choices
from belated.experiments.simulation import SCHEMA, Results
from belated.families import Bernoulli, Gaussian
from belated.policies import DelayedOFUGLM, DUCBRidge, Greedy, Thompson
from belated.worlds.delays import Empirical, Exponential, Informative
from belated.worlds.environments import FixedArms, UnitBall, UnitBallOnce
from support.command import belated

SMALL = {"dims": [2], "horizon": 40, "runs": 2, "seed": 1, "n_actions": 4, "checkpoints": 4}


def small(policies=("delayed-ofu-glm",), families=("gaussian",), delays=("constant:0",), **changes):
    return new_experiment(Options(policies, families, delays, **{**SMALL, **changes}))


class Mine:
    def choose(self, actions, t):
        return 0

    def observe(self, x, y):
        pass


def test_the_tidy_table(tmp_path):
    results = package.simulate(
        [DelayedOFUGLM(), "thompson", Mine()],
        ["gaussian", Bernoulli()],
        ["exponential:5", Exponential(9.0)],
        **{**SMALL, "dims": [2, 3]},
    )
    frame = results.frame()
    assert list(frame.columns) == SCHEMA.names
    assert len(frame) == 3 * 2 * 2 * 2 * 2 * 4  # policies, families, delays, dims, runs, rounds
    assert set(frame.policy) == {"delayed-ofu-glm", "thompson", "Mine"}
    assert set(frame.delay) == {"exponential:5", "exponential:9"}
    assert set(frame.law) == {"exponential"}
    assert set(frame.expected) == {5.0, 9.0}
    assert sorted(set(frame.t)) == [10, 20, 30, 40]
    assert (frame.observed + frame.missing == frame.t).all()
    known = frame.policy == "delayed-ofu-glm"
    assert frame.covered[known].all()
    assert frame.covered[~known].isna().all()
    assert frame.certificate[~known].isna().all()
    results.save(tmp_path / "x.parquet")
    again = Results.load(tmp_path / "x.parquet").frame()
    assert again.equals(frame)
    picture = tmp_path / "x.png"
    results.plot(picture)
    assert picture.stat().st_size > 10_000


def test_same_numbers_whoever_plays(tmp_path):
    settings = dict(SMALL, policies=["ducb-ridge", "uniform"], delays=["lomax:50", "never"])
    once = package.simulate(**settings, threads=1)
    twice = package.simulate(**settings, threads=2)
    with ThreadPoolExecutor(2) as pool:
        mine = package.simulate(**settings, executor=pool, out=tmp_path / "out")
    assert once.frame().equals(twice.frame())
    assert once.frame().equals(mine.frame())
    assert Results.load(tmp_path / "out" / "results.parquet").frame().equals(once.frame())
    more = package.simulate(**{**settings, "runs": 3}, out=tmp_path / "out")  # resumes, and goes on
    rows = len(once.frame())
    assert len(more.frame()) == rows * 3 // 2
    assert more.frame().query("run < 2").reset_index(drop=True).equals(once.frame())
    with pytest.raises(ValueError, match=r"holds another experiment \(seed is 1 there, 2 here\)"):
        package.simulate(**{**settings, "seed": 2}, out=tmp_path / "out")


def test_labels():
    experiment = small(
        ["greedy", "greedy:lam=2", DUCBRidge(delta=0.01)],
        delays=["exponential:100", "exponential:100.5", Empirical([1.0, np.inf]), Informative()],
    )
    assert list(experiment.policies) == ["greedy", "greedy:lam=2", "ducb-ridge"]
    assert list(experiment.delays)[:2] == ["exponential:100", "exponential:100.5"]
    assert experiment.policies["greedy:lam=2"] == Greedy(lam=2.0)
    json.dumps(experiment.identity(), allow_nan=False)
    assert [task.name for task in experiment.tasks()] == ["d2-run0000", "d2-run0001"]


class Dithering(Mine):
    """A policy in plain Python with a parameter."""

    def __init__(self, epsilon):
        self.epsilon = epsilon


def test_two_of_one_policy_are_labelled(tmp_path):
    two = {"narrow": "thompson:scale=0.5", "wide": Thompson(scale=2.0)}
    settings = {**SMALL, "delays": ["constant:0"], "out": tmp_path / "out"}
    results = package.simulate(two, **settings)
    assert list(dict.fromkeys(results.frame().policy)) == ["narrow", "wide"]
    texts = [f"{label.get_text()}" for label in results.plot().legends[0].get_texts()]
    assert texts == ["narrow", "wide"]
    more = package.simulate(two, **{**settings, "runs": 3})  # goes on in the same folder
    assert more.frame().query("run < 2").reset_index(drop=True).equals(results.frame())
    listed = ["narrow=thompson:scale=0.5", "wide = thompson:scale=2"]
    assert package.simulate(listed, **{**settings, "runs": 3}).frame().equals(more.frame())
    with pytest.raises(ValueError, match="holds another experiment"):
        package.simulate({"wide": two["narrow"], "narrow": two["wide"]}, **settings)


def test_two_of_one_policy_of_your_own():
    both = small([Dithering(0.1), Dithering(0.2), Mine()])
    assert list(both.policies) == ["Dithering:epsilon=0.1", "Dithering:epsilon=0.2", "Mine"]
    assert list(small({"a": Mine(), "b": Mine()}).policies) == ["a", "b"]
    with pytest.raises(ValueError, match="'Mine': expected each one once; label them, as in"):
        small([Mine(), Mine()])


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({"": "greedy"}, "policies = '': expected a label"),
        ({"_hidden": "greedy"}, "policies = '_hidden': expected a label"),
        ({"$x$": "greedy"}, "expected a label"),
        ({1: "greedy"}, "policies = 1: expected a label"),
        ({}, "expected at least one"),
        (["a=greedy", "a=thompson"], "policies = 'a': expected each one once"),
        (["greedy", "greedy=thompson"], "policies = 'greedy': expected each one once"),
        ({"a": "gredy"}, "did you mean greedy"),
        ({"a": Greedy}, "policies = .*: expected names"),
    ],
)
def test_labels_that_are_none(policies, message):
    with pytest.raises((TypeError, ValueError), match=message):
        small(policies)


@pytest.mark.parametrize("kind", ["POLICIES", "FAMILIES", "DELAYS"])
def test_what_is_spelled_can_be_read(kind):
    known = getattr(registry, kind)
    for name in known:
        if name in ("empirical", "informative"):
            continue
        params = registry.load(known, name)()
        assert registry.parse(known, registry.spell(known, params)) == params
    assert registry.parse(registry.DELAYS, registry.spell(registry.DELAYS, Exponential(1 / 3))) == (
        Exponential(1 / 3)
    )


def test_checkpoints():
    assert small(checkpoints=4).checkpoints.tolist() == [10, 20, 30, 40]
    assert small(checkpoints=[7, 3]).checkpoints.tolist() == [3, 7, 40]
    logarithmic = small(checkpoints=5, spacing="logarithmic", horizon=10_000).checkpoints
    assert logarithmic.tolist() == [1, 10, 100, 1000, 10_000]
    assert small(checkpoints=1, spacing="logarithmic").checkpoints.tolist() == [40]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ["delayed-ofu-gml"]}, r"did you mean delayed-ofu-glm\?"),
        ({"policies": ["thompson:scal=1"]}, r"scal in .*did you mean scale\?"),
        ({"policies": ["thompson:scale=x"]}, r"'thompson:scale=x': scale = 'x'"),
        ({"policies": []}, r"policies = \[\]: expected at least one"),
        ({"policies": ["greedy", "greedy"]}, r"policies = 'greedy': expected each one once"),
        ({"policies": [Greedy]}, r"policies = .*: expected names, such as"),
        ({"policies": [3]}, r"policies = 3: expected names, such as"),
        ({"delays": ["exponential:-1"]}, r"'exponential:-1': expected = -1: expected a finite"),
        ({"delays": ["exponential:1,2"]}, r"'exponential:1,2': expected name:value"),
        ({"families": ["exponential:1"]}, r"family = 'exponential': expected one of"),
        ({"horizon": 0}, r"horizon = 0: expected a whole number, 1 or more"),
        ({"horizon": 2**31}, r"horizon = 2147483648: expected at most"),
        ({"runs": 0}, r"runs = 0: expected"),
        ({"n_actions": 0}, r"n_actions = 0: expected"),
        ({"dims": [0]}, r"dims = 0: expected"),
        ({"dims": [2, 2]}, r"dims = \[2, 2\]: expected each dimension once"),
        ({"dims": 2.5}, r"dims = 2\.5: expected a whole number"),
        ({"seed": -1}, r"seed = -1: expected"),
        ({"checkpoints": [50]}, r"checkpoints = 50: expected at most the horizon, 40"),
        ({"spacing": "cubic"}, r"spacing = 'cubic': expected linear or logarithmic"),
        ({"environment": FixedArms(np.eye(3))}, r"dims = 2: expected 3, the length of the arms"),
        ({"environment": "sphere:0"}, r"'sphere:0': n_actions = 0: expected"),
        ({"environment": 3}, r"environment = 3: expected an environment"),
        ({"max_norm": 0.5}, r"max_norm = 0\.5: expected at least 1, the longest action"),
        ({"families": ["poisson"]}, r"delayed-ofu-glm with poisson, d = 2: R = None"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small(**changes)


def test_the_papers_grid():
    experiment = paper_experiment()
    assert experiment.dims == (5, 10, 20)
    assert (experiment.horizon, experiment.runs) == (100_000, 30)
    assert experiment.environment.n_actions == 100
    delays = list(experiment.delays)
    assert delays[0] == "constant:0"
    assert len(delays) == 13
    assert {"exponential:250", "uniform:1000", "lomax:100"} < set(delays)
    for policy in experiment.policies.values():
        assert policy.delta == 0.05 / 3
        assert (policy.m1, policy.lam) == (1.0, 1.0)
    assert experiment.families == {"gaussian": Gaussian(sd=0.5), "bernoulli": Bernoulli()}
    assert experiment.environment == UnitBallOnce(100)
    # as the figures were made: R = 1 with logistic rewards, the inflation sqrt(G) / kappa
    assert experiment.policy("delayed-ofu-glm", "gaussian").R is None
    assert experiment.policy("delayed-ofu-glm", "bernoulli").R == 1.0
    theirs = experiment.policy("ducb-ridge", "bernoulli")
    assert (theirs.R, theirs.c) == (1.0, pytest.approx(5.0861612696))
    assert experiment.policy("ducb-ridge", "gaussian").c == 1.0
    assert set(experiment.identity()["variants"]) == {
        "delayed-ofu-glm bernoulli",
        "ducb-ridge bernoulli",
    }
    assert {20_000, 40_000, 60_000, 80_000} < set(experiment.checkpoints.tolist())
    # 2 policies x 2 families x 12 delays x 3 dimensions x 30 runs, and those without delay
    assert len(experiment.lanes()) * len(experiment.tasks()) == 4320 + 4 * 90
    choices = Choices(pareto="pareto", sets="per-round", theta_per_run=True)
    other = paper_experiment(choices, only=["logistic,d=5", "E=500", "pareto"])
    assert (other.environment, other.bayesian) == (UnitBall(100), True)
    assert list(other.delays) == ["constant:0", "pareto:500"]
    assert list(other.families) == ["bernoulli"]
    with pytest.raises(ValueError, match=r"only = 'd=6': expected any of linear, .*d=5"):
        paper_experiment(only=["d=6"])
    with pytest.raises(ValueError, match=r"pareto = 'typo': expected lomax"):
        paper_experiment(Choices(pareto="typo"))
    with pytest.raises(ValueError, match=r"sets = 'typo': expected per-run .* or per-round"):
        paper_experiment(Choices(sets="typo"))
    with pytest.raises(ValueError, match=r"R = -1"):
        paper_experiment(Choices(logistic_R=-1.0))
    stated = stated_choices(experiment, Choices())
    assert "Lomax" in stated["Pareto delays"][0]


# ---------------------------------------------------------------------------------- the commands

TINY = ("--only", "linear,d=5,E=100,exponential", "--horizon", "60", "--runs", "2")


@pytest.mark.slow
def test_reproduce(tmp_path):
    out = tmp_path / "paper"
    printed = belated("reproduce", *TINY, "--out", str(out)).stdout
    assert [line.split(":")[0] for line in printed.splitlines() if line.startswith("claim")] == [
        f"claim {i}" for i in range(1, 6)
    ]
    folder = out / "per-run"
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert {"regret-linear-exponential.png", "final-regret-linear.pdf"} <= figures
    page = (out / "report.html").read_text()
    assert "not stated; 1 is the smallest that the theorem allows" in page
    assert "The printed curves were read from 20,000 rounds on" in page
    assert json.loads((folder / "manifest.json").read_text())
    refused = belated("reproduce", *TINY, "--seed", "2", "--out", str(out), check=False)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "holds another experiment (seed is 1 there, 2 here)" in refused.stderr
    part = next((folder / "parts").glob("*.parquet"))
    good, whole = part.read_bytes(), (folder / "results.parquet").read_bytes()
    part.write_bytes(good[: len(good) // 2])
    again = belated("reproduce", *TINY, "--out", str(out))
    assert part.name in again.stderr
    assert part.read_bytes() == good
    assert (folder / "results.parquet").read_bytes() == whole
    assert "As printed and as written" not in page
    belated("reproduce", *TINY, "--sets", "per-round", "--out", str(out))
    assert "As printed and as written" in (out / "report.html").read_text()
    assert (out / "per-round" / "results.parquet").read_bytes() != whole


def test_simulate_from_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'policies = ["greedy", "uniform"]\nfamilies = ["bernoulli"]\ndelays = ["uniform:5"]\n'
        "dims = [2]\nhorizon = 50\nruns = 2\nn_actions = 4\n"
    )
    out = tmp_path / "out"
    file = str(tmp_path / "mine.toml")
    printed = belated("simulate", file, "--horizon", "30", "--delay", "never", "--out", str(out))
    greedy, uniform = printed.stdout.splitlines()[-2:]
    assert greedy.split()[:4] == ["bernoulli", "2", "never", "greedy"]
    frame = Results.load(out / "results.parquet").frame()
    assert frame.t.max() == 30
    assert set(frame.delay) == {"never"}
    assert set(frame.policy) == {"greedy", "uniform"}
    final = frame[(frame.t == 30) & (frame.policy == "uniform")].regret
    error = final.std(ddof=1) / len(final) ** 0.5
    assert uniform.split()[4:] == [f"{final.mean():.1f}", f"{error:.1f}"]
    assert (out / "report.html").exists()
    assert list((out / "figures").glob("*.png"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "gredy"), "did you mean greedy?"),
        (("--horizon", "0"), "horizon = 0: expected"),
        (("--delay", "exponential:0"), "expected = 0: expected a finite number above 0"),
        (("--executor", "threds"), "threads"),
        (("--threads", "0"), "threads = 0: expected"),
        (("no-such-file.toml",), "no-such-file.toml"),
    ],
)
def test_errors_of_simulate_are_one_line(tmp_path, arguments, message):
    out = tmp_path / "out"
    result = belated("simulate", *arguments, "--out", str(out), check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("belated: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (out / "results.parquet").exists()


def test_bad_files(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("horizn = 3")
    with pytest.raises(ValueError, match=r"horizn in .*did you mean horizon\?"):
        experiment_of(file, {})
    file.write_text("horizon = ")
    with pytest.raises(ValueError, match=r"x\.toml: expected TOML"):
        experiment_of(file, {})
    assert delta_of(experiment_of(None, {"policies": ["greedy"]})) == 0.05
    assert delta_of(experiment_of(None, {"policies": ["ducb-ridge:delta=0.2"]})) == 0.2


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_reproduce_resumes(tmp_path, blow):
    """Killed or stopped in the middle, the same command ends where it would have ended."""
    settings = ["--only", "linear,d=5,E=100,exponential", "--horizon", "30000", "--runs", "12"]
    command = [sys.executable, "-m", "belated", "reproduce", *settings, "--threads", "1", "--out"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run([*command, str(whole)], check=True, capture_output=True)
    process = subprocess.Popen(
        [*command, str(broken)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # what a shell starts in the background ignores Ctrl-C, and so would its children
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not list(broken.glob("per-run/parts/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(blow)
    _, errors = process.communicate(timeout=60)
    finished = {
        part.name: part.stat().st_mtime_ns for part in broken.glob("per-run/parts/*.parquet")
    }
    assert 0 < len(finished) < 12
    assert not (broken / "per-run" / "results.parquet").exists()
    if blow == signal.SIGINT:
        assert process.returncode == 130
        assert errors.strip() == "stopped; the same command resumes"
    subprocess.run([*command, str(broken)], check=True, capture_output=True)
    for name, written in finished.items():
        part = broken / "per-run" / "parts" / name
        assert part.stat().st_mtime_ns == written  # not played again
    results = [folder / "per-run" / "results.parquet" for folder in (broken, whole)]
    assert results[0].read_bytes() == results[1].read_bytes()


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("executor", ["dask", "ray"])
def test_worlds_on_other_machines(executor, monkeypatch):
    """Same numbers, bit for bit, from worker processes."""
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[executor])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    settings = dict(
        SMALL, policies=["delayed-ofu-glm", "uniform"], families=["gaussian", "bernoulli"], runs=3
    )
    here = package.simulate(**settings, threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cluster's own, on start and end
        there = package.simulate(**settings, executor=executor, threads=2)
    assert there.frame().equals(here.frame())


def test_labels_in_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('horizon = 20\n[policies]\nnarrow = "thompson:scale=0.5"\nwide = "thompson"\n')
    assert list(experiment_of(file, {}).policies) == ["narrow", "wide"]
