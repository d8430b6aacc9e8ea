"""A thousand simulated days with faults, and proof that the simulation would notice (P10).

BELATED_SIMULATED_DAYS=100000 for a long run.
"""

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from multiprocessing import get_context
from traceback import extract_tb

import pytest

from belated.core.events import Status
from belated.ledger import LedgerError, fold, rules
from belated.ledger.batch import Plan
from belated.ledger.events import Kind
from belated.ledger.hearing import Hearing
from belated.ledger.stores import sqlite
from support.simulation import World, simulate

DAYS = int(os.environ.get("BELATED_SIMULATED_DAYS", "1000"))
DAYS_OF_A_SEED = 20


@pytest.mark.slow
def test_every_day_holds_whatever_fails():
    happened: Counter[str] = Counter()
    seeds = range(DAYS // DAYS_OF_A_SEED)
    with ExitStack() as stack:
        run = map
        if DAYS > 1000:
            run = stack.enter_context(ProcessPoolExecutor(mp_context=get_context("spawn"))).map
        for result in run(simulate, seeds, repeat(DAYS_OF_A_SEED)):
            happened += result.happened
    faults = sum(happened[what] for what in happened if what.startswith(("failed", "restart")))
    print(
        f"{DAYS} days, {len(seeds)} seeds, {happened['decided']} decisions, "
        f"{faults + happened['power cut']} failures and crashes, 0 days that did not hold"
    )
    expected = ["power cut", "failed before", "failed after", "failed to read", "clock back"]
    expected += ["restart from log", "restart from snapshot", "forgotten", "settings", "too early"]
    expected += [f"reward {s}" for s in ("accepted", "duplicate", "conflict", "expired", "unknown")]
    expected += ["cancelled accepted", "revised accepted", "outcome accepted", "retained"]
    expected += ["quiet"]  # time passes in the log where nobody decides
    for what in expected:
        assert happened[what] > DAYS / 200, what


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_decides_everything(seed):
    first, second = (simulate(seed, 8) for _ in range(2))
    assert first == second
    assert simulate(seed + 2, 8).digest != first.digest


def test_a_failing_seed_says_how_to_see_it_again(monkeypatch):
    def fails(world):
        raise ZeroDivisionError

    monkeypatch.setattr(World, "check", fails)
    with pytest.raises(ZeroDivisionError) as caught:
        simulate(7, 3)
    assert caught.value.__notes__ == ["day 1; again: python tests/support/simulation.py 7 3"]


# ------------------------------------------------------------------------- it would be noticed


def found(seeds):
    """What of the checks one of the seeds does not pass."""
    for seed in seeds:
        try:
            simulate(seed, DAYS_OF_A_SEED)
        except (AssertionError, LookupError, ValueError, LedgerError) as error:
            return extract_tb(error.__traceback__)[-1].line
    return "nothing"


def test_rewards_that_count_twice(monkeypatch):
    judge = rules.judge

    def credulous(draft, *known):
        status = judge(draft, *known)
        again = draft.kind == Kind.REWARDED and status == Status.DUPLICATE
        return Status.ACCEPTED if again else status

    monkeypatch.setattr(rules, "judge", credulous)
    assert "event.id not in once" in found(range(4))


def test_conversions_learnt_on_arrival(monkeypatch):
    rewarded = fold.Fold._rewarded

    def eager(self, events):
        was, self.spec = self.spec, explicit(self.spec)
        rewarded(self, events)
        self.spec = was

    def explicit(spec):
        fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
        return type(spec)(**fields | {"loop": "explicit"})

    monkeypatch.setitem(fold._TAKE, Kind.REWARDED, eager)
    assert "len(fold.pending) == parts[0]" in found(range(6))


def test_windows_that_close_without_a_failure(monkeypatch):
    monkeypatch.setattr(Hearing, "closed", lambda self, row, reward: None)
    assert "value == story.value" in found(range(6))


def test_an_estimate_that_depends_on_how_the_log_was_cut(monkeypatch):
    """Rewards of one transaction are learnt together, live and in a replay."""
    monkeypatch.setattr(Plan, "end_transaction", lambda self: None)
    assert found(range(4)) != "nothing"


def test_commits_that_are_not_synced(monkeypatch):
    opened = sqlite.SQLiteLedger._open

    def unsafe(self, flags):
        opened(self, flags)
        self._db.pragma("synchronous", "off")

    monkeypatch.setattr(sqlite.SQLiteLedger, "_open", unsafe)
    assert found(range(1, 31, 2)) != "nothing"
