"""Files written beside one that is read: rows of it that could not be used, pages, laws."""

import os
from pathlib import Path
from typing import Any

import msgspec

from belated.core.arguments import wrong


def refuse_source(option: str, path: Path, source: Any) -> None:
    """Raises where a file that is to be written is a folder or, by whatever name, what is read."""
    if path.is_dir():
        raise wrong(option, str(path), "a file, and it is a folder")
    if not isinstance(source, str | Path):
        return
    url = str(source)
    if url.startswith("env:"):
        url = os.environ.get(url.removeprefix("env:"), "")
    read = Path(url.removeprefix("sqlite:///"))
    if path.exists() and read.is_file() and path.samefile(read):
        raise wrong(
            option, str(path), "a file other than the one that is read: it would replace it"
        )


def csv_cell(value: Any) -> Any:
    """Returns a value as a CSV file holds it: lists, true and false as JSON has them."""
    if isinstance(value, bool | list | dict):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return value
