"""A loop that hears of successes alone, and learns nothing from silence, says so."""

import asyncio
import warnings

import numpy as np
import pytest

from belated import AssumptionWarning, Bandit, Bernoulli
from belated.learner.assumptions import only_successes
from belated.policies import UniformPlay
from support.service_client import SECOND, Client, alarms

ACTIONS = np.eye(2)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def told(n, gap, rate, delay, *, window, reports_failures, upload=None, only=1.0, late_failures=0):
    """Returns the names of the assumptions that a bandit says are broken.

    ``n`` decisions are made every ``gap`` seconds; with ``upload`` seconds, rewards are handed in
    together as often. The share ``only`` of all rewards comes back.
    """
    now, rng = [0.0], np.random.default_rng(7)
    bandit = Bandit(
        2,
        family=Bernoulli(),
        policy=UniformPlay(),
        seed=1,
        ledger="memory://",
        window=window,
        clock=lambda: now[0],
    )
    to_come = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(n):
            now[0] += gap
            uploads = upload is None or now[0] % upload < gap
            due = [(at, *reward) for at, *reward in to_come if uploads and at <= now[0]]
            to_come = [waiting for waiting in to_come if not (uploads and waiting[0] <= now[0])]
            if due:
                bandit.learn([(id, y, at) for at, id, y in due])
            id, success = bandit.decide(ACTIONS).id, float(rng.random() < rate)
            if (success or reports_failures) and rng.random() < only:
                wait = rng.exponential(delay) + (0.0 if success else late_failures)
                to_come.append((now[0] + wait, id, success))
    broken = {b.name for b in bandit.broken_assumptions}
    said = [str(w.message) for w in caught if issubclass(w.category, AssumptionWarning)]
    assert ("only-successes" in broken) is any(words.startswith("Only succ") for words in said)
    assert ("Only successes" in repr(bandit)) is ("only-successes" in broken)
    return broken


@pytest.mark.parametrize("window", [HOUR, None])
def test_successes_alone_are_noticed(window):
    loop = {"window": window, "reports_failures": False}
    assert "only-successes" in told(700, MINUTE, 0.1, 5 * MINUTE, **loop)


HONEST = {
    "nearly all convert": (400, MINUTE, 0.99, 5 * MINUTE, HOUR, {}),
    "all convert, and half of the rewards are lost": (400, MINUTE, 1.0, 60.0, HOUR, {"only": 0.5}),
    "no window is over": (400, MINUTE, 1.0, DAY, DAY, {}),
    "rewards are slow": (1000, MINUTE, 1.0, 10 * DAY, None, {}),
    "rewards are slow, and all come after their window": (400, MINUTE, 1.0, 4 * HOUR, HOUR, {}),
    "one upload a day": (1500, 4 * MINUTE, 1.0, MINUTE, None, {"upload": DAY}),
    "failures are reported, too": (700, MINUTE, 0.1, 5 * MINUTE, None, {}),
    "failures come when windows close": (
        *(700, MINUTE, 0.1, 5 * MINUTE, 2 * HOUR),
        {"late_failures": HOUR},
    ),
}


@pytest.mark.parametrize("case", HONEST)
def test_honest_loops_are_not_accused(case):
    *numbers, window, more = HONEST[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        broken = told(*numbers, window=window, reports_failures=True, **more)
    assert "only-successes" not in broken


def test_few_or_different_rewards_and_cancelled_decisions_say_nothing():
    y = np.full(1000, np.nan)
    y[::20] = 1.0
    assert only_successes(y, None, expired=900) != []
    assert only_successes(y, 900) != []
    assert only_successes(y[:980], None, expired=900) == []  # 49 rewards
    assert only_successes(y, None, expired=900, late=85) == []
    assert only_successes(y, 900, cancelled=850) == []
    assert only_successes(0.0 * y, 900) == only_successes(-y, 900) == []
    y[500] = 2.0
    assert only_successes(y, None, expired=900) == only_successes(y, 900) == []


def test_a_service_shows_it():
    client = Client()
    client.bandit(policy=None, window=HOUR)
    client("PATCH", "/v1/bandits/shop/actions", {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0]}})
    for _ in range(4):
        made = client("POST", "/v1/bandits/shop/decisions/batch", {"decisions": [{}] * 75})
        client.reward(*[(one["decision_id"], 1.0) for one in made["decisions"][:15]])
    client.now += round(2 * HOUR * SECOND)
    asyncio.run(client.service.expire())
    client.decide()
    words = client("GET", "/v1/bandits/shop")["broken_assumptions"]["only-successes"]
    assert "all 60 rewards are 1, and of " in words
    assert alarms(client)["assumption-only-successes"] == words
