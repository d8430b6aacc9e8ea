"""Make notebooks of their sources: each NAME.py of this folder becomes NAME.ipynb, with its outputs.

    python notebooks/execute.py [--out FOLDER] [NAME ...]    # all by default, into this folder

Sources are Python files in the percent format; edit them, not the notebooks.
"""

import argparse
import os
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
SOURCES = {path.stem: path for path in sorted(HERE.glob("*.py")) if path.stem != "execute"}


def cells(name: str) -> nbformat.NotebookNode:
    """Returns the notebook of a source, without outputs. Ids of cells are their numbers."""
    book = jupytext.read(SOURCES[name])
    for number, cell in enumerate(book.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    book.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    return book


def execute(name: str, folder: Path) -> Path:
    """Runs a notebook and writes it into ``folder``; an error in a cell is raised."""
    book = cells(name)
    NotebookClient(book, timeout=None, record_timing=False).execute()
    book.metadata.pop("language_info", None)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]  # progress
    path = folder / f"{name}.ipynb"
    nbformat.write(book, path)
    return path


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SOURCES)}")
    parser.add_argument("--out", type=Path, default=HERE)
    asked = parser.parse_args()
    for unknown in set(asked.names) - set(SOURCES):
        parser.error(f"{unknown!r}: expected one of {', '.join(SOURCES)}")
    for chosen in asked.names or SOURCES:
        print(execute(chosen, asked.out))
