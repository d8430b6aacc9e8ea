"""A PostgreSQL of our own in a temporary folder, to stop, to kill and to start again."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from support.needed import missing

SETTINGS = """
listen_addresses = ''
fsync = on
synchronous_commit = on
shared_buffers = 32MB
max_connections = 40
log_min_messages = fatal
"""


def binaries() -> Path | None:
    """The folder with PostgreSQL's programs, where there is one."""
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    complete = [folder for folder in folders if (folder / "initdb").exists()]
    return complete[0] if complete else None


class Postgres:
    """A cluster that listens on a socket in its own folder only, with everything synced."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self._folder = TemporaryDirectory(prefix="pg")  # short: a socket's path has a limit
        self.folder = Path(self._folder.name)
        self.data = self.folder / "data"
        self.as_owner: list[str] = []
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(self.folder, "postgres")
            self.as_owner = ["runuser", "-u", "postgres", "--"]
        flags = ["-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        self._run("initdb", *flags)
        (self.data / "postgresql.auto.conf").write_text(
            SETTINGS + f"unix_socket_directories = '{self.folder}'\n"
        )

    @property
    def url(self) -> str:
        """What a client connects to."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self, name: str) -> str:
        """Make an empty database; returns its URL."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        return self.url_of(name)

    def copied(self, schema: str) -> str:
        """Dump a schema and restore it, as ``belated``, in a new database; returns its URL."""
        url, dump = self.new_database(f"copy_of_{schema}"), self.folder / f"{schema}.sql"
        self._run("pg_dump", f"--schema={schema}", f"--file={dump}", self.url)
        self._run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={dump}", url)
        with psycopg.connect(url) as connection:
            connection.execute(f"alter schema {schema} rename to belated")
        return url

    def start(self) -> None:
        """Start, also after a kill; returns when connections are taken."""
        self._run("pg_ctl", "start", "-D", self.data, "-w", "-l", self.folder / "log")

    def stop(self) -> None:
        """Stop as an operator would: clients are cut off, everything is written."""
        self._run("pg_ctl", "stop", "-D", self.data, "-w", "-m", "fast")

    def kill(self) -> None:
        """End the postmaster and all its processes at once, with SIGKILL."""
        postmaster = self.postmaster()
        # Held first: otherwise it would see one child die and end the others its own way.
        os.kill(postmaster, signal.SIGSTOP)
        children = [process for process, parent in running().items() if parent == postmaster]
        for process in [*children, postmaster]:
            os.kill(process, signal.SIGKILL)
        while not running().keys().isdisjoint([*children, postmaster]):
            time.sleep(0.005)
        # Where nobody buries the dead, their ids live on, and the next start would wait for them.
        (self.data / "postmaster.pid").unlink()
        (self.folder / ".s.PGSQL.5432.lock").unlink()

    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def close(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.kill()
        self._folder.cleanup()

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [*self.as_owner, self.programs / program, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            log = self.folder / "log"
            said = log.read_text() if log.exists() else ""
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}{said}")


def running() -> dict[int, int]:
    """The parent of every process that runs; one that is dead and not yet buried does not."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running server, for the whole session; skipped where PostgreSQL is not installed."""
    programs = binaries()
    if programs is None:
        missing("no PostgreSQL server here: expected postgres and initdb in PATH")
    if os.getuid() == 0 and not shutil.which("runuser"):
        pytest.skip("PostgreSQL does not run as root: expected another user, or runuser")
    server = Postgres(programs)
    server.start()
    yield server
    server.close()


@contextmanager
def foreign_transactions(*urls: str) -> Iterator[None]:
    """Transactions that have a number, left open in these databases."""
    with ExitStack() as stack:
        for url in urls:
            connection = stack.enter_context(psycopg.connect(url))
            connection.execute("select pg_current_xact_id()")
        yield
