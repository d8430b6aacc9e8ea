"""The ledger in PostgreSQL: what only a shared server can do wrong."""

from itertools import count

import psycopg
import pytest
from postgres_server import postgres  # noqa: F401 - a fixture

from belated.ledger.checks import LEDGER_CHECKS
from belated.ledger.postgres import PostgresLedger

names = (f"ledger_{k}" for k in count())


@pytest.fixture
def new(postgres):  # noqa: F811
    """Makes ledgers, each empty and in a schema of its own."""
    made = []

    def make(schema=None):
        made.append(PostgresLedger(postgres.url, schema=schema or next(names)))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_it_is_a_ledger(check, new):
    check(new)
