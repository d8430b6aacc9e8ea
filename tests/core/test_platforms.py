"""What is different on macOS and Windows, as far as it can be tested on Linux."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from belated.core.files import sync_folder
from belated.ledger import open_ledger


def test_macos_is_told_to_flush_the_cache_of_the_disk(tmp_path):
    """SQLite keeps the setting on all systems and uses it where fsync does not do that."""
    with closing(open_ledger(f"sqlite:///{tmp_path}/log.db")) as ledger:
        assert ledger._db.pragma("fullfsync") == 1


def test_folders_are_flushed_only_where_they_can_be_opened(monkeypatch, tmp_path):
    missing = tmp_path / "missing"
    with monkeypatch.context() as windows:
        windows.setattr("os.name", "nt")
        sync_folder(missing)


def test_the_executors_load_without_the_signals_of_unix():
    code = "import signal; del signal.SIGKILL; from belated.experiments.executors import KILL; "
    result = subprocess.run(
        [sys.executable, "-c", code + "print(int(KILL))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) == signal.SIGTERM


def test_only_what_needs_it_imports_what_windows_lacks():
    lacking = ("fcntl", "pwd", "grp", "resource", "termios", "uvloop")
    source = Path(__file__).parents[2] / "src"
    found = {
        (file.name, name)
        for file in source.rglob("*.py")
        for name in lacking
        if f"import {name}\n" in file.read_text()
    }
    # each of them in a try statement
    assert found == {
        ("cache.py", "fcntl"),
        ("files.py", "fcntl"),
        ("limits.py", "resource"),
        ("workers.py", "fcntl"),
    }
