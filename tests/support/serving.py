"""`belated serve` in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

ENVIRONMENT = {**os.environ, "COLUMNS": "100", "NUMBA_DISABLE_JIT": "1"}
CONFIG = """
[bandits.shop]
family = "bernoulli"
features = {numeric = {price = [0, 10]}, categorical = {country = ["de", "fr"]}}
loop = "conversion"
window = 600

[bandits.shop.actions]
cheap = {price = 3}
dear = {price = 9.5}

[bandits.plain]
family = "gaussian:sd=0.5"
dim = 2
actions = {left = [1, 0], right = [0, 1]}
"""


@contextmanager
def serving(*args, cwd):
    """The process and its URL, once it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "belated", "serve", "--port", "0", *args],
        env=ENVIRONMENT,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        found = re.fullmatch(
            r"dashboard and API: (https?://127.0.0.1:\d+/) \(Ctrl-C stops\)\n", line
        )
        assert found, (line, process.poll())
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.terminate()  # killed, it would leave its workers behind, and us waiting
        process.communicate(timeout=30)


def ended(process, number=signal.SIGTERM):
    """The exit code and all that is left of the output."""
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
