"""Every store keeps the same promises; and what only a file can do wrong."""

from itertools import count

import pytest

from belated.ledger.checks import LEDGER_CHECKS
from belated.ledger.memory import MemoryLedger
from belated.ledger.sqlite import SQLiteLedger


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_memory(check):
    check(MemoryLedger)


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_sqlite(check, tmp_path):
    names = (tmp_path / f"{k}.db" for k in count())
    check(lambda: SQLiteLedger(next(names)))
