"""The command line in a process of its own."""

import os
import subprocess
import sys


def belated(*args, check=True, **environment):
    return subprocess.run(
        [sys.executable, "-m", "belated", *args],
        env={**os.environ, "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        check=check,
    )
