"""How quickly a log is answered, and in how much memory.

    python benchmarks/logs.py                # 10 million rows, CSV and Parquet
    python benchmarks/logs.py --rows 1000000

prints the section of docs/performance.md. The command runs in a process of its own, whose peak
memory is that of the operating system.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

BEGIN = 1_750_000_000_000_000  # microseconds
CHUNK = 1_000_000  # rows that are made at once

EARLIER = """
An earlier run of 100,000,000 decisions of the same kind (`python benchmarks/logs.py --rows 100000000`), on a machine that did
much other work as well; the seconds of a processor say what it costs:

| file | GB | seconds | of a processor | peak GiB |
|---|---|---|---|---|
| csv | 8.90 | 437.5 | 104.4 | 2.07 |
| parquet | 2.27 | 214.3 | 83.3 | 2.03 |

The file is never in memory; ids that were seen are, as hashes, since one that comes twice is a bad row."""


def chunk(start: int, rows: int, total: int) -> pa.Table:
    """Decisions of 30 days; delays have a mean of six hours, and a tenth never returns."""
    rng = np.random.default_rng(start)
    decided = BEGIN + np.arange(start, start + rows) * (30 * 86_400_000_000 // total)
    delay = rng.exponential(6 * 3600e6, rows).astype(np.int64)
    end = BEGIN + 30 * 86_400_000_000
    came = (rng.random(rows) < 0.9) & (decided + delay <= end)
    moment = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "id": pa.array([f"{i:012x}-{i % 7919:04x}" for i in range(start, start + rows)]),
            "time": pa.array(decided).cast(moment),
            "action": pa.array(np.array(["boots", "tent", "map"])[rng.integers(3, size=rows)]),
            "propensity": pa.array(np.full(rows, 0.3333)),
            "reward": pa.array(rng.integers(2, size=rows).astype(float), mask=~came),
            "reward_time": pa.array(decided + delay, mask=~came).cast(moment),
        }
    )


def write(folder: Path, rows: int) -> tuple[Path, Path]:
    as_csv, as_parquet = folder / "log.csv", folder / "log.parquet"
    schema = chunk(0, 1, rows).schema
    with csv.CSVWriter(as_csv, schema) as text, pq.ParquetWriter(as_parquet, schema) as columns:
        for start in range(0, rows, CHUNK):
            part = chunk(start, min(CHUNK, rows - start), rows)
            text.write_table(part)
            columns.write_table(part)
    return as_csv, as_parquet


def measured(*command: str) -> tuple[float, float, float]:
    """Seconds, seconds of a processor and GiB of a ``belated`` command in its own process."""
    begun = time.perf_counter()
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    arguments = [sys.executable, "-m", "belated", *command]
    child = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=nowhere)
    _, status, used = os.wait4(child, 0)
    assert status == 0, command
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    print(f"""
## How late is a log

Printed by `python benchmarks/logs.py`: `belated delays LOG --by action` on {rows:,} decisions of 30 days with
their ids, actions, propensities and rewards, in a process of its own. Reading grows with the rows; curves, laws and
tests are of a million of them.

| file | GB | seconds | of a processor | peak GiB |
|---|---|---|---|---|""")
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), rows):
            seconds, busy, memory = measured("delays", str(path), "--by", "action")
            size = path.stat().st_size / 1e9
            numbers = f"{size:.2f} | {seconds:.1f} | {busy:.1f} | {memory:.2f}"
            print(f"| {path.suffix[1:]} | {numbers} |", flush=True)
    print(EARLIER)


if __name__ == "__main__":
    main()
