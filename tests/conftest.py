"""Settings of every test, and the fixtures that several folders share."""

import os

import pytest
from hypothesis import settings

from support.browser import browser as browser
from support.postgres_server import postgres as postgres
from support.shop_ledger import ask as ask
from support.shop_ledger import belated as belated
from support.shop_ledger import shop as shop

settings.register_profile("belated", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("belated")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that need a database or a browser are slow: `make test` needs neither.

    Nightly ones take minutes each, and are skipped elsewhere.
    """
    tonight = bool(os.environ.get("BELATED_NIGHTLY"))
    for item in items:
        if {"postgres", "browser"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("nightly") and not tonight:
            item.add_marker(pytest.mark.skip(reason="minutes long: set BELATED_NIGHTLY=1"))
