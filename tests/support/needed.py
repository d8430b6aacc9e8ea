"""Programs that some tests need, and not every machine has."""

import os
import shutil
import sys
from pathlib import Path

import pytest

# The environment of the tests comes first; Debian has nginx in /usr/sbin.
PLACES = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"]
)


def missing(what):
    """Skip this test; fail it where BELATED_CI is set: .ci/run installs what is needed."""
    if os.environ.get("BELATED_CI"):
        pytest.fail(what)
    pytest.skip(what)


def program(name):
    """Returns where a program is; ends the test where it is not installed."""
    return shutil.which(name, path=PLACES) or missing(f"{name} is not installed")
