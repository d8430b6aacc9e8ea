"""``belated evaluate``: tables, JSON, bad rows, refusals and errors."""

import csv
import gzip
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from belated.commands.main import app
from belated.core.times import iso
from belated.logs.evaluating import evaluate_log
from belated.logs.values import PENDING
from support.logged import NOW, TRUTH, WINDOW, conversion_log, explicit_log

HEADER = ["time", "arm", "pscore", "reward", "reward_time", "kind"]


def rows_of(log):
    for k in range(len(log.action)):
        came = log.returned[k] != PENDING
        yield [
            iso(int(log.decided[k])),
            log.names[log.action[k]],
            log.propensity[k],
            log.reward[k] if came else "",
            iso(int(log.returned[k])) if came else "",
            log.context["kind"][k],
        ]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A log of which 30 per cent is pending."""
    log = explicit_log(np.random.default_rng(1), 3_000, 0.3)
    path = tmp_path_factory.mktemp("evaluate") / "log.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows_of(log)])
    return path


def call(*args):
    return CliRunner().invoke(app, ["evaluate", *map(str, args)])


UNIFORM = ("--policy", "uniform")
RULE = ("--policy", "support.logged:target", "--context", "kind", "--now", iso(NOW))


def test_a_table_with_all_that_is_known(path):
    result = call(path, *RULE, "--policy", "uniform")
    assert result.exit_code == 0, result.output
    said = result.output
    assert "columns: time=time,action=arm,reward=reward,reward-time=reward_time,prop" in said
    assert "3,000 decisions, " in said
    assert "loop: explicit: every decision gets a reward some day" in said
    for word in ("as played", "IPS", "SNIPS", "doubly robust", "overlap", "gains over", "Assumed:"):
        assert word in said
    assert "each of the 3 actions of the log, equally often" in said
    assert not path.with_name("log.csv.bad.csv").exists()


def test_the_same_as_json_and_from_python(path):
    found = json.loads(call(path, *RULE, "--json").output)
    assert found["rows"] == 3_000
    played, target = found["policies"]
    assert played["policy"] == "as played"
    assert target["without_support"] == 0
    assert [line["action"] for line in target["overlap"]] == ["boots", "map", "tent"]
    lines = {line["estimator"]: line for line in target["estimates"]}
    assert lines["doubly robust"]["low"] < TRUTH < lines["doubly robust"]["high"]
    again = evaluate_log(path, ["support.logged:target"], context=["kind"], now=NOW)
    assert again == found


def test_a_test_of_users_who_keep_their_action(tmp_path):
    """Of 40 users 27 have a: as draws of their own, 4,000 rows would not be those of a coin."""
    rng, path = np.random.default_rng(16), tmp_path / "log.csv"
    user = rng.integers(40, size=4_000)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "action", "propensity", "reward", "user"])
        for k, one in enumerate(user):
            action = "a" if one < 27 else "b"
            whose = "" if k < 10 else f"user {one}"
            writer.writerow([iso(NOW + k * 10**6), action, 0.5, int(rng.random() < 0.4), whose])
    result = call(path, *UNIFORM)
    assert result.exit_code == 0, result.output
    assert "columns not used: none" in result.output
    path.write_text(path.read_text().replace("user", "whose"))
    result = call(path, *UNIFORM)
    assert result.exit_code == 1
    assert "the propensities of the log are wrong. If they are right, and a subj" in result.output
    result = call(path, *UNIFORM, "--map", "subject=whose", "--context", "whose")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("interval", ["bootstrap", "bernstein", "anytime"])
def test_intervals(path, interval):
    found = json.loads(call(path, *RULE, "--interval", interval, "--json").output)
    lines = {line["estimator"]: line for line in found["policies"][1]["estimates"]}
    assert lines["IPS"]["low"] < TRUTH < lines["IPS"]["high"]
    assert (lines["SNIPS"]["low"] is None) == (interval == "bernstein")


def test_bad_rows_are_shown_and_put_aside(path, tmp_path):
    worse = tmp_path / "worse.csv"
    text = path.read_text()
    worse.write_text(text + f"{iso(NOW)},tent,1.5,,,new\n{iso(NOW)},,0.5,,,new\n")
    result = call(worse, *RULE)
    assert result.exit_code == 0, result.output
    assert "the propensity is not in (0, 1]" in result.output
    assert "3,000 decisions" in result.output
    aside = csv.reader((tmp_path / "worse.csv.bad.csv").read_text().splitlines())
    assert [row[0] for row in aside] == ["bad_line", "3002", "3003"]
    strict = call(worse, *RULE, "--strict")
    assert isinstance(strict.exception, ValueError)
    assert "2 bad rows" in str(strict.exception)


def test_a_log_without_propensities(path, tmp_path):
    less = tmp_path / "less.csv"
    less.write_text(path.read_text().replace("pscore", "weight", 1))
    result = call(less, *RULE)
    assert "without the probability with which each action was played" in str(result.exception)


def test_a_log_that_cannot_answer(path, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("".join(path.read_text().splitlines(keepends=True)[:40]))
    result = call(few, *RULE, "--json")
    assert result.exit_code == 1
    _, target = json.loads(result.output)["policies"]
    assert not target["answered"]
    assert target["estimates"] == []
    assert "No answer. " in call(few, *RULE).output


def test_only_what_was_computed_is_spoken_of(path):
    """And a policy that learns is played by `belated plan`, too, at full traffic."""
    learner = call(path, "--policy", "uniform", "--policy", "linucb", "--replays", "2").output
    assert "The direct method is right only if" in learner
    assert "which `belated plan` plays" in learner
    assert "decisions, by 2 replays with rejection" in learner
    assert "the luck of a single replay" in learner
    alone = json.loads(call(path, "--policy", "linucb", "--replays", "2", "--json").output)[
        "assumptions"
    ]
    assert not any("direct method" in said or "Clipped" in said for said in alone)
    fixed = json.loads(call(path, "--policy", "uniform", "--json").output)["assumptions"]
    assert not any("belated plan" in said for said in fixed)


def test_errors_are_said_in_words(path, tmp_path):
    wrong = call(path, "--policy", "uniform", "--context", "kind,nosuch")
    assert str(wrong.exception).startswith("--context = 'nosuch': expected one of the columns time")
    rule = tmp_path / "rule.py"
    rule.write_text("def broken(context, actions):\n    return context['nosuch']\n")
    said = str(call(path, "--policy", f"{rule}:broken").exception)
    assert said == f"--policy {rule}:broken: it raised KeyError: 'nosuch' ({rule}, line 2)"
    early = path.read_text().splitlines()[1:]
    first = min(line.partition(",")[0] for line in early)
    said = str(call(path, "--policy", "uniform", "--now", first).exception)
    assert said.startswith("log: expected rewards, and none has come by 2025-")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("l.csv", lambda raw: raw.replace(b"tent", b"t\xf6nt"), "expected text in UTF-8"),
        (
            "u.csv",
            lambda raw: raw.decode().encode("utf-16"),
            "u.csv, line 1: expected text in UTF-8",
        ),
        ("s.csv", lambda raw: raw.replace(b",", b";"), "s.csv: expected commas between columns"),
        ("t.csv", lambda raw: raw.replace(b",", b"\t"), "t.csv: expected commas between columns"),
        ("log.csv.gz", gzip.compress, "log.csv.gz: it is compressed; unpack it first"),
    ],
)
def test_files_of_other_kinds(name, change, said, path, tmp_path):
    (tmp_path / name).write_bytes(change(path.read_bytes()))
    error = str(call(tmp_path / name, *RULE).exception)
    assert said in error
    assert name in error


def test_columns_that_are_not_used_are_listed(path):
    assert "columns not used: kind\n" in call(path, "--policy", "uniform").output
    assert "columns not used: none\n" in call(path, *RULE).output


def test_the_answer_begins_with_a_sentence(path):
    first, second, *_ = call(path, *RULE, "--policy", "uniform").output.splitlines()
    assert first.startswith("The policy of the log earned 0.3")
    assert second.startswith("support.logged:target would have earned 0.4")
    assert ", by doubly robust: 0.1" in second
    assert " more than what was played (0." in second
    uniform = json.loads(call(path, *UNIFORM, "--level", "0.99999", "--json").output)["headlines"][
        1
    ]
    assert "Whether that is more or less than what was played, the log cannot say: the" in uniform
    ends = uniform.removesuffix(".").rpartition(" is between ")[2].split(" and ")
    assert float(ends[0]) < 0.0 < float(ends[1])
    boots = json.loads(call(path, "--policy", "fixed:boots", "--json").output)["headlines"][1]
    assert " less than what was played (0." in boots
    wide = json.loads(call(path, *RULE, "--interval", "bernstein", "--json").output)["headlines"]
    assert wide[1].endswith("), by IPS.")


def test_decisions_whose_window_has_closed_are_not_open(tmp_path):
    """Of conversions it is said how many decisions may still convert."""
    log = conversion_log(np.random.default_rng(1), 3_000, 0.3)
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows_of(log)])
    line = [
        path,
        "--policy",
        "uniform",
        "--loop",
        "conversion",
        "--window",
        "4d",
        "--now",
        iso(NOW),
    ]
    found, said = json.loads(call(*line, "--json").output), call(*line).output
    silent = log.returned == PENDING
    assert found["silent"] == silent.sum()
    assert found["open"] == (silent & (log.age < WINDOW)).sum() < found["silent"]
    assert f"{found['silent']:,} of them without a conversion, {found['open']:,} of these" in said
    assert "not the 1 / G(delay) of IPCW-IPS" in said
