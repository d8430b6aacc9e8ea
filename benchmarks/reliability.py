"""The long runs behind the promises of docs/reliability.md, one after the other.

``python benchmarks/reliability.py`` takes an hour on two cores and prints the table; with
``--write`` it also puts the whole table into the page; with ``--quick`` the sizes are those of the test
suite; with the names of promises, such as ``P10``, only these are run, with ``latency`` the last table.
It ends with code 1 if something failed, and where health took more than 50 ms beside a bare server that did
not. Progress goes to standard error. Each run is a test with another size: what the test prints is what
stands in the table.
"""

import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import latency
from parts import checked, parser_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reliability.md"
MARK = "<!-- below: the output of benchmarks/reliability.py -->"

LATENCY = f"""
How long a decision takes while something large is done, on SQLite with {latency.EVENTS:,} events in the log and the default policy;
{latency.PROBES} connections that ask every {latency.PAUSE * 1e3:g} ms (`python benchmarks/reliability.py latency`). The quiet time is measured just before
and just after each row; health is asked for all the time, in turn with a bare server. Of {latency.RUNS} runs each row shows the one with the median ratio,
and the slowest answers about health of every run.
Rewards are uploaded twice: some like those in the log, and some that are all 1
where {latency.MEAN:g} was usual, which cost passes of the estimate over all data. Decisions wait for such a pass,
and no ratio is asked of that row.
"""

QUIET = {"ATTACK_QUIET": "500"}  # decisions before an attack, beside those meanwhile


class Run(NamedTuple):
    """One row of the table."""

    promise: str
    what: str
    test: str
    size: dict[str, str]  # environment variables; without them, the size in the test suite
    compiled: bool = False


RUNS = [
    Run(
        "P1, P5, P7",
        "server killed with SIGKILL under 16-way load",
        "service/test_crashes.py::test_a_server_killed_under_load_has_all_that_it_acknowledged",
        {"BELATED_KILLS": "1000"},
    ),
    Run(
        "P2",
        "power cut, simulated down to the sector",
        "ledger/stores/test_faults.py::test_the_ledger_loses_nothing_when_the_power_goes",
        {"POWER_CUT_SEEDS": "10000"},
    ),
    Run(
        "P3",
        "PostgreSQL killed under load",
        "ledger/stores/test_postgres.py::test_a_server_killed_under_load_has_all_that_it_acknowledged",
        {"POSTGRES_KILLS": "20"},
    ),
    Run(
        "P6",
        "4 writers and 2 readers on PostgreSQL",
        "ledger/stores/test_postgres.py::test_readers_see_every_event_once_whoever_commits_when",
        {"POSTGRES_ROUNDS": "1000"},
    ),
    Run(
        "P10",
        "simulated days with faults",
        "ledger/test_simulated_days.py::test_every_day_holds_whatever_fails",
        {"BELATED_SIMULATED_DAYS": "5000"},
    ),
    Run(
        "P11",
        "schemathesis, all checks and phases",
        "service/test_api_conformance.py",
        {"BELATED_API_EXAMPLES": "100"},
        compiled=True,
    ),
    Run(
        "P14",
        "headers that never end",
        "service/test_attacks.py::test_endless_headers",
        {**QUIET, "ATTACK_HEADERS": "1000"},
    ),
    Run(
        "P14",
        "bodies in tiny chunks",
        "service/test_attacks.py::test_bodies_in_tiny_chunks",
        {**QUIET, "ATTACK_BODIES": "1000"},
    ),
    Run(
        "P14",
        "slow headers, half-sent bodies",
        "service/test_attacks.py::test_slow_and_half_sent_requests",
        {**QUIET, "ATTACK_SLOW": "400", "ATTACK_HEADER_SECONDS": "10"},
    ),
    Run(
        "P14",
        "idle connections",
        "service/test_attacks.py::test_idle_connections",
        {**QUIET, "ATTACK_IDLE": "10000", "ATTACK_CONNECTIONS": "1000"},
    ),
    Run(
        "P14",
        "idle connections, faster than they can be accepted",
        "service/test_attacks.py::test_idle_connections_faster_than_they_can_be_accepted",
        {**QUIET, "ATTACK_IDLE": "10000", "ATTACK_CONNECTIONS": "1000"},
    ),
    Run(
        "P14",
        "a lock on the SQLite file",
        "service/test_attacks.py::test_a_lock_that_another_process_holds",
        {"ATTACK_HELD_SECONDS": "13"},
    ),
    Run(
        "P14",
        "foreign transactions on PostgreSQL",
        "service/test_attacks.py::test_foreign_transactions",
        {**QUIET, "ATTACK_FOREIGN": "1000"},
    ),
    Run(
        "P14",
        "workers killed with SIGKILL",
        "service/test_attacks.py::test_killed_workers",
        {**QUIET, "ATTACK_WORKER_KILLS": "50"},
    ),
    Run(
        "bad input",
        "mutated requests",
        "service/test_fuzz.py::test_mutated_requests_are_served_or_refused",
        {"BELATED_FUZZED": "1000000"},
    ),
]


def main() -> None:
    parser = parser_of(__doc__)
    names = {name: None for run in RUNS for name in run.promise.split(", ")}  # in their order
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)}, latency; default: all")
    parser.add_argument("--quick", action="store_true", help="sizes of the test suite")
    parser.add_argument("--write", action="store_true", help="put all tables into the page")
    options = parser.parse_args()
    wanted = checked(parser, options.names, [*names, "latency"])
    if wanted and options.write:
        parser.error("--write replaces all tables of the page: run everything, without names")
    failures = 0
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    say(f"Measured on {machine()}, Python {platform.python_version()}.\n")
    say("| promise | what | result | failed | seconds |")
    say("|---|---|---|---|---|")
    for run in RUNS:
        if wanted and not set(wanted) & set(run.promise.split(", ")):
            continue
        print(f"{run.promise}: {run.what} ...", file=sys.stderr, flush=True)
        started = time.perf_counter()
        said, failed = result(run, {} if options.quick else run.size)
        failed += health_was_late(said)
        failures += failed
        seconds = time.perf_counter() - started
        say(f"| {run.promise} | {run.what} | {marked(said)} | {failed} | {seconds:.0f} |")
    if not wanted or "latency" in wanted:
        say(LATENCY)
        table, holds = latency.table()
        failures += not holds
        for line in table:
            say(line)
    if options.write:
        page, _, _ = PAGE.read_text().partition(MARK)
        PAGE.write_text("\n".join([page + MARK, "", *lines, ""]))
    sys.exit(failures > 0)


def result(run: Run, size: dict[str, str]) -> tuple[str, int]:
    """The line that the test printed, and how many tests failed."""
    jit = {} if run.compiled else {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(ROOT / "tests" / run.test)],
        env={**os.environ, **jit, **size},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        return "see above", 1
    lines = [line for line in done.stdout.splitlines() if line and line[0].isdigit()]
    return lines[0].rstrip("."), 0


def health_was_late(said: str) -> bool:
    """Tells whether a health check took too long, by the line of a test, and the bare server did not.

    >>> line = "9 of 9 health checks answered, the slowest after 51 ms (of a bare server {} ms)"
    >>> health_was_late(line.format(7)), health_was_late(line.format(70)), health_was_late("2 kills")
    (True, False, False)
    """
    told = re.search(r"the slowest after (\d+) ms \(of a bare server (\d+) ms\)", said)
    return told is not None and latency.is_late(float(told[1]), float(told[2]))


def marked(said: str) -> str:
    """The line of a test, in which a health check that took too long is marked.

    >>> marked("9 of 9 health checks answered, the slowest after 51 ms")
    '9 of 9 health checks answered, the slowest after **51 ms**'
    """
    told = re.search(r"the slowest after (\d+) ms", said)
    if told is None or int(told[1]) <= latency.SLOWEST_HEALTH:
        return said
    return said.replace(f"{told[1]} ms", f"**{told[1]} ms**")


def machine() -> str:
    """In words, without names."""
    return (
        f"{os.cpu_count()} cores of a shared {platform.machine()} machine with {platform.system()}"
    )


if __name__ == "__main__":
    main()
