"""Delays that depend on the reward: estimates for pending rewards cannot stand them, and say so."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from belated.commands.main import app
from belated.core.times import iso
from belated.logs.late_by_reward import late_by_reward
from belated.logs.values import PENDING
from belated.logs.whole_log import WholeLog
from support.logged import DAY, NOW, WINDOW, conversion_log, explicit_log


def depending_log(rng, n=4_000, days=(3.0, 0.5), window=None):
    """Two actions that earn half the time; rewards of 0 and 1 come after so many days on average.

    With a window all convert, those worth 1 and those worth 2 with these delays.
    """
    age, large = rng.uniform(0.0, 5.0, n), rng.random(n) < 0.5
    delay = rng.exponential(np.where(large, days[1], days[0]))
    came = delay <= (age if window is None else np.minimum(age, window / DAY))
    decided = NOW - (age * DAY * 1e6).astype(np.int64)
    returned = np.where(came, decided + (delay * DAY * 1e6).astype(np.int64), PENDING)
    reward = np.where(came, 1.0 * large + (window is not None), np.nan)
    action = rng.integers(2, size=n)
    return WholeLog(decided, returned, reward, np.full(n, 0.5), action, ["boots", "tent"], {}, NOW)


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize(
    ("days", "said"),
    [((3.0, 0.5), ("sooner", "too high")), ((0.5, 3.0), ("later", "too low"))],
)
def test_delays_that_depend_on_the_reward(days, said, window):
    found = late_by_reward(
        depending_log(np.random.default_rng(1), days=days, window=window), window
    )
    assert all(words in found for words in said)


@pytest.mark.parametrize("pending", [0.3, 0.7])
def test_delays_that_depend_on_the_action_are_allowed(pending):
    """The slowest action earns most: over all actions, large rewards come later."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert late_by_reward(explicit_log(rng, 3_000, pending), None) == ""
        assert late_by_reward(conversion_log(rng, 10_000, pending), WINDOW) == ""


def test_where_nothing_is_pending_delays_do_not_matter():
    log = depending_log(np.random.default_rng(1))
    came = log.returned != PENDING
    known = WholeLog(
        *(column[came] for column in (log.decided, log.returned, log.reward, log.propensity)),
        *(log.action[came], log.names, {}, NOW),
    )
    assert late_by_reward(log, None)
    assert late_by_reward(known, None) == ""


def test_both_commands_say_so_first(tmp_path):
    log, path = depending_log(np.random.default_rng(1), 1_000), tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["time", "action", "propensity", "reward", "reward_time"])
        for time, action, reward, came in zip(
            log.decided, log.action, log.reward, log.returned, strict=True
        ):
            known = ["", ""] if came == PENDING else [reward, iso(int(came))]
            table.writerow([iso(int(time)), log.names[action], 0.5, *known])
    for line in (
        ["evaluate", str(path), "--policy", "uniform"],
        ["plan", str(path), "--policy", "uniform", "--copies", "2", "--decisions", "100"],
    ):
        found = CliRunner().invoke(app, [*line, "--now", iso(NOW)], catch_exceptions=False)
        assert found.stdout.startswith("careful: large rewards of "), found.output
