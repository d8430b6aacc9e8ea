"""The audit: what it plays, how it judges fabricated numbers, and one from end to end."""

import math

import pandas as pd
import pytest
from test_report import OFU, Page, made

from belated.engine.worlds import theta_star_of
from belated.experiments import auditing
from belated.experiments.auditing import FULL, QUICK, plan_audit
from belated.experiments.judging.audit_claims import FAILS, HOLDS, OPEN, bound_rows, judge_audit
from belated.experiments.simulation import SCHEMA
from belated.theory import STATEMENTS
from support.command import belated

DELTAS = {OFU: 0.05, "gloc": 0.05}


def covered(left, runs=100):
    """Two policies with two delays; ``left`` runs of gloc leave the set with the second."""
    lanes = [(policy, delay) for policy in DELTAS for delay in ("constant:0", "lomax:20")]
    return pd.DataFrame(
        {
            "policy": policy,
            "family": "gaussian",
            "dim": 2,
            "delay": delay,
            "run": run,
            "t": 500,
            "covered": not (policy == "gloc" and delay == "lomax:20" and run < left),
        }
        for policy, delay in lanes
        for run in range(runs)
    ).astype({"covered": "boolean"})


def checked(outside=0, runs=100, **ratios):
    """Worst ratios of 0.5 but for ``ratios``; ``outside`` runs break R1 by informative delays."""
    rows = [
        {
            "family": "bernoulli",
            "delay": delay,
            "dim": 2,
            "run": run,
            "statement": name,
            "ratio": ratios.get(name, 0.5 + 1e-3 * run),
            "t": 7,
        }
        for delay in ("constant:0", "informative")
        for run in range(runs)
        for name in STATEMENTS
    ]
    frame = pd.DataFrame(rows)
    broken = (frame.delay == "informative") & (frame.statement == "R1") & (frame.run < outside)
    frame.loc[broken, "ratio"] = 1.7
    return frame


@pytest.fixture(autouse=True)
def few_bounds(monkeypatch):
    """The whole table of the bound takes a second; one law will do where it is not the subject."""
    monkeypatch.setattr("belated.experiments.paper.MEANS", (100.0,))


def regret(**changes):
    """Penalties as in the paper's claims, of Delayed OFU-GLM and of what is not."""
    return made(dims=(5,), laws=("exponential",), **changes).replace("ducb-ridge", "thompson")


def judge(coverage=None, checks=None, regrets=None):
    claims = judge_audit(
        covered(0) if coverage is None else coverage,
        checked(outside=100) if checks is None else checks,
        regret(policies=(OFU,)) if regrets is None else regrets,
        DELTAS,
    )
    assert [claim.number for claim in claims] == list(range(1, 7))
    return claims


def test_what_holds_is_said_to_hold():
    ofu, gloc, informative, lemmas, bound, thompson = judge()
    assert [c.verdict for c in (ofu, gloc, informative, lemmas)] == [HOLDS] * 4
    assert "in 2 of 2 cells, above it in 0;" in gloc.reason
    assert [row["says"] for row in lemmas.summary] == list(STATEMENTS.values())
    assert bound.verdict == FAILS
    assert thompson.verdict == OPEN  # no Thompson in these rows


@pytest.mark.parametrize(("left", "verdict"), [(0, HOLDS), (4, OPEN), (12, FAILS), (100, FAILS)])
def test_coverage_is_judged_by_its_interval(left, verdict):
    """Exact limits of 0, 4 and 12 in 100: up to 0.036, from 0.011 to 0.099, from 0.064."""
    ofu, gloc, *_ = judge(covered(left))
    assert (ofu.verdict, gloc.verdict) == (HOLDS, verdict)
    row = gloc.rows[1]
    assert (row["left the set"], row["runs"], row["coverage"]) == (left, 100, verdict)
    if verdict == FAILS:
        assert f"above it in 1 (gaussian, d = 2, lomax:20: {left}.0%)" in gloc.reason


def test_few_runs_say_nothing():
    assert judge(covered(0, runs=20))[0].verdict == OPEN


@pytest.mark.parametrize(("outside", "verdict"), [(0, FAILS), (5, OPEN), (60, HOLDS)])
def test_informative_delays(outside, verdict):
    informative = judge(checks=checked(outside))[2]
    assert informative.verdict == verdict
    assert [row["left the set"] for row in informative.rows] == [outside]


def test_a_violated_lemma_is_named():
    lemmas = judge(checks=checked(R6=1.0001))[3]
    assert lemmas.verdict == FAILS
    assert "Violated in 2 of 16" in lemmas.reason
    assert "R6, bernoulli, informative: 1" in lemmas.reason
    row = lemmas.summary[5]
    assert (row["statement"], row["holds"], row["round"]) == ("R6", FAILS, 7)
    assert judge(checks=checked(R4=math.inf))[3].verdict == FAILS
    # R1 may fail: it is judged by its share
    assert judge(checks=checked(R1=2.0))[3].verdict == HOLDS


def test_nothing_checked_is_nothing_said():
    nothing = pd.DataFrame(columns=auditing.CHECKED.names)
    claims = judge(checks=nothing, regrets=pd.DataFrame(columns=SCHEMA.names))
    assert [claim.verdict for claim in claims[2:4]] == [OPEN, OPEN]
    assert claims[5].verdict == OPEN


@pytest.mark.parametrize(("power", "verdict"), [(0.0, HOLDS), (0.5, FAILS)])
def test_penalty_of_thompson(power, verdict):
    ours = regret(policies=(OFU,))
    theirs = regret(policies=(OFU,), power=power).replace(OFU, "thompson")
    thompson = judge(regrets=pd.concat([ours, theirs]))[5]
    assert thompson.verdict == verdict
    assert {row["policy"] for row in thompson.summary} == {OFU, "thompson"}
    assert "No theorem is claimed" in thompson.reason


def test_the_bound_says_nothing():
    rows = bound_rows()
    assert len(rows) == 3 * 2 * 3
    row = next(r for r in rows if (r["family"], r["dim"], r["law"]) == ("linear", 5, "exponential"))
    assert float(f"{row['as printed']:.3e}") == 1.722e6
    assert all(r["smaller corrected / trivial"] > 1.0 for r in rows)
    assert "In 18 of 18 settings the bounds say nothing" in judge()[4].reason


def test_plan():
    plan = plan_audit()
    assert list(plan.coverage) == list(QUICK.families)
    assert list(plan.refused) == ["ada-ofu-ecolog with gaussian"]
    assert plan.refused["ada-ofu-ecolog with gaussian"].endswith("rewards with a logistic mean")
    assert list(plan.lemmas.delays) == [*QUICK.delays, "informative"]
    assert [e.bayesian for e in plan.bayesian] == [True]
    full = plan_audit(full=True)
    assert list(full.coverage) == list(FULL.families)
    assert "poisson" not in full.lemmas.families
    assert "R = None" in full.refused["delayed-ofu-glm with poisson"]
    assert "thompson" not in full.coverage["gaussian"].policies
    alone = plan_audit(families=["poisson"], policies=["glb-omd"])
    assert alone.lemmas is None
    assert alone.bayesian == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ["thompson"]}, r"policy = Thompson\(.*: expected one with a confidence set"),
        ({"policies": ["glocc"]}, r"did you mean gloc\?"),
        ({"delays": ["informative"]}, r"delay = \['informative'\]: expected at least one law"),
        ({"policies": ["gloc"], "families": ["poisson"]}, r"nothing is left to audit: R = None"),
        ({"runs": 0}, r"runs = 0: expected"),
        ({"horizon": 0}, r"horizon = 0: expected"),
        ({"seed": -1}, r"seed = -1: expected"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        plan_audit(**changes)


def test_from_end_to_end(tmp_path, monkeypatch):
    """A tiny one, twice: the second plays nothing again and writes the same bytes."""
    plan = plan_audit(policies=[OFU, "gloc"], families=["gaussian"], runs=2, horizon=16)
    names = []
    measured = auditing.play_audit(plan, tmp_path, 1, say=names.append)
    assert names == ["coverage-gaussian", "lemmas", "thompson-d3"]
    assert len(measured.covered) == 2 * 5 * 2
    assert len(measured.checked) == 6 * 2 * 9
    claims = auditing.write_audit(plan, measured, tmp_path)
    assert claims[3].verdict == HOLDS
    written = (tmp_path / "audit.html").read_bytes()
    page = Page(written.decode())
    assert page.open == []
    assert len(page.sources) == 3  # coverage, lemmas, penalty
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    for played_again in ("auditing.check_task", "simulation.play_task"):
        monkeypatch.setattr(f"belated.experiments.{played_again}", None)
    again = auditing.play_audit(plan, tmp_path, 1)
    auditing.write_audit(plan, again, tmp_path)
    assert (tmp_path / "audit.html").read_bytes() == written


@pytest.mark.slow
@pytest.mark.compiled
def test_linear_rewards_hold_and_informative_delays_do_not(tmp_path):
    """What the audit is for, as large as it must be to tell: 0 of 100 runs is below 5%."""
    plan = plan_audit(policies=[OFU], families=["gaussian"], runs=100, horizon=300, seed=3)
    measured = auditing.play_audit(plan._replace(bayesian=[]), tmp_path, 1)
    coverage, informative, lemmas, *_ = auditing.write_audit(plan, measured, tmp_path)
    assert coverage.verdict != FAILS
    assert max(row["share"] for row in coverage.rows) <= 0.05
    assert informative.verdict == HOLDS
    assert lemmas.verdict == HOLDS


def test_theta_star_is_drawn_in_every_run():
    (experiment,) = plan_audit(families=["gaussian"]).bayesian
    first, second = (theta_star_of(task.settings()) for task in experiment.tasks()[:2])
    assert not (first == second).any()


def test_errors_of_audit_are_one_line(tmp_path):
    result = belated("audit", "--out", str(tmp_path / "x"), "--policy", "greedy", check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("belated: policy = Greedy(")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()
