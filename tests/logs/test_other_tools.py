"""Logs of other tools: Open Bandit Pipeline's dictionary and Vowpal Wabbit's dsjson."""

import numpy as np
import pandas as pd
import pytest

from belated import Bandit
from belated.logs.bad_rows import BadRows
from belated.logs.chunks import open_log
from belated.logs.dsjson import write_dsjson
from belated.logs.evaluating import evaluate_log
from belated.logs.open_bandit import from_open_bandit, to_open_bandit
from belated.logs.whole_log import gathered
from support.logged import NAMES, explicit_log


def test_a_dictionary_there_and_back():
    log = explicit_log(np.random.default_rng(1), 500, 0.0)
    feedback = to_open_bandit(log)
    assert (feedback["n_rounds"], feedback["n_actions"]) == (500, 3)
    assert feedback["context"].shape == (500, 3)  # a constant and two kinds
    frame = pd.DataFrame(from_open_bandit(feedback))
    (back,) = open_log(frame, needs=("action", "propensity")).chunks(BadRows())
    assert back.action.astype(int).tolist() == log.action.tolist()
    assert back.reward.tolist() == log.reward.tolist()
    assert back.propensity.tolist() == log.propensity.tolist()


def test_a_dictionary_is_evaluated_without_times():
    log = explicit_log(np.random.default_rng(2), 500, 0.0)
    frame = pd.DataFrame(from_open_bandit(to_open_bandit(log)))
    found = evaluate_log(frame, ["fixed:2"], context=["x1"])
    (ips,) = (x for x in found["policies"][1]["estimates"] if x["estimator"] == "IPS")
    own = log.action == 2
    expected = (log.reward[own] / log.propensity[own]).sum() / 500
    assert ips["value"] == pytest.approx(expected, rel=1e-12)


def test_dictionaries_that_cannot_be():
    log = explicit_log(np.random.default_rng(3), 100, 0.3)
    with pytest.raises(ValueError, match="rewards are pending: expected none, since Open Bandit"):
        to_open_bandit(log)
    with pytest.raises(ValueError, match=r"feedback = \['action'\]: expected a dictionary with 'r"):
        from_open_bandit({"action": np.zeros(2)})


def test_dsjson_there_and_back(tmp_path):
    log = explicit_log(np.random.default_rng(4), 200, 0.3)
    path = tmp_path / "log.dsjson"
    assert write_dsjson(log, path) == 200
    bad = BadRows()
    back = gathered(open_log(path, needs=("action",)).chunks(bad, context=["Context.kind"]), bad)
    assert bad.total == 0
    assert back.names == NAMES
    assert back.action.tolist() == log.action.tolist()
    np.testing.assert_array_equal(back.reward, log.reward)
    assert back.propensity.tolist() == log.propensity.tolist()
    assert back.decided.tolist() == log.decided.tolist()
    assert back.context["Context.kind"].tolist() == log.context["kind"].tolist()


def test_events_that_stand_for_others_are_bad_rows(tmp_path):
    """Of a log that was thinned, an event counts 1 / (1 - pdrop) times, and here once."""
    path = tmp_path / "log.dsjson"
    write_dsjson(explicit_log(np.random.default_rng(4), 4, 0.0), path)
    lines = path.read_text().splitlines()
    lines[0] = lines[0].replace('{"_label', '{"pdrop": 0.0, "_label', 1)
    lines[2] = lines[2].replace('{"_label', '{"pdrop": 0.5, "_label', 1)
    path.write_text("\n".join(lines))
    bad = BadRows()
    (chunk,) = open_log(path, needs=("action",)).chunks(bad)
    assert chunk.line.tolist() == [1, 2, 4]
    assert "pdrop = 0.5: expected 0, because rows count once" in bad.first[0].value


def test_vowpal_wabbit_learns_from_it(tmp_path):
    """A line is an example that the tool can parse: three actions and the label of one."""
    vw = pytest.importorskip("vowpalwabbit")
    log = explicit_log(np.random.default_rng(5), 300, 0.0)
    path = tmp_path / "log.dsjson"
    write_dsjson(log, path)
    learner = vw.Workspace("--cb_explore_adf --dsjson --quiet")
    for line in path.read_text().splitlines():
        examples = learner.parse(line)
        assert len(examples) == 1 + len(NAMES)
        learner.learn(examples)
        learner.finish_example(examples)
    learner.finish()


def test_a_ledger_of_ours(tmp_path):
    """Its loop and its window are known, and so are its propensities."""
    rng, begin = np.random.default_rng(6), 1_750_000_000.0
    clock = [begin]
    bandit = Bandit(
        dim=2,
        family="bernoulli",
        policy="uniform",
        seed=1,
        ledger=f"sqlite:///{tmp_path}/shop.db",
        window=3_600.0,
        default_reward=0.0,
        clock=lambda: clock[0],
    )
    for k in range(300):
        clock[0] = begin + 60.0 * k
        decision = bandit.decide(np.eye(2))
        if rng.random() < (0.2, 0.6)[decision.index]:
            bandit.learn(decision.id, 1.0)
    bandit.close()
    found = evaluate_log(f"sqlite:///{tmp_path}/shop.db", ["fixed:1"])
    assert (found["loop"], found["rows"]) == ("conversion", 300)
    played, fixed = found["policies"]
    assert played["estimates"][0]["value"] == pytest.approx(0.4, abs=0.1)
    (ips,) = (line for line in fixed["estimates"] if line["estimator"] == "IPS")
    assert ips["low"] < 0.6 < ips["high"]
