"""Parquet files, which need a library that is an extra."""

from collections.abc import Iterable
from itertools import islice
from typing import IO, Any

import msgspec

from belated.core.extras import extra

CHUNK = 20_000  # rows in memory at once


def arrow() -> tuple[Any, Any]:
    """Returns the library, and its module for Parquet."""
    with extra("experiments", instead="use .jsonl"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    return pa, pq


def write_rows(file: IO[bytes], schema: Any, rows: Iterable[msgspec.Struct]) -> int:
    """Write structs whose fields are the columns of ``schema``; returns how many rows there are."""
    pa, pq = arrow()
    rows, n = iter(rows), 0
    with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
        while chunk := list(islice(rows, CHUNK)):
            columns = zip(*map(msgspec.structs.astuple, chunk), strict=True)
            arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            n += len(chunk)
    return n
