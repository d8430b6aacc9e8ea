"""Numbered SQL files, applied in order, each once."""

from importlib.resources import files

from belated.ledger.protocol import LedgerError


def scripts(store: str) -> list[str]:
    """Returns the migrations of a store; the first makes an empty database into schema 1."""
    folder = files(__name__) / store
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text() for name in names]


def missing(store: str, name: str, schema: int) -> list[tuple[int, str]]:
    """Returns the (version, script) pairs that a database of version ``schema`` still needs."""
    known = scripts(store)
    if schema > len(known):
        raise LedgerError(
            f"{name} has schema {schema}: expected at most {len(known)}, the newest this belated "
            "knows. Use the belated that made it, or a newer one"
        )
    return list(enumerate(known[schema:], schema + 1))
