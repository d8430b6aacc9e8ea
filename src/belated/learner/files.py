"""A bandit on disk: one zip file of plain arrays and a JSON header. No pickle.

The header names the format, its version, the types and all parameters with every derived default
filled in; the arrays are the whole state, so a bandit that is read back goes on byte for byte.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from belated import registry
from belated.core.arguments import wrong, wrong_type
from belated.core.files import replacing
from belated.features import FeatureMap, Features, Transformed
from belated.learner.rows import arrays_of, history_of
from belated.model.state import DECIDED, OBSERVED, History, State

FORMAT, VERSION = "belated-bandit", 5


class SnapshotError(ValueError):
    """A file that cannot be read as a bandit."""


def write(path: str | PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write to a temporary file beside ``path``, flush it to disk, then move it into place.

    Links are followed, and a file that is replaced keeps its permissions.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)}: its directory does not exist")
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)}: expected a file, this is a directory")
    header = {"format": FORMAT, "version": VERSION, **header}
    with replacing(target) as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


@contextmanager
def reading(path: str | PathLike[str]) -> Iterator[None]:
    """Raises every error with the contents of a file as a ``SnapshotError`` that names the file."""
    try:
        yield
    except Exception as error:  # damaged bytes can break a reader anywhere
        raise SnapshotError(
            f"{os.fspath(path)}: expected a file that Bandit.save wrote; this is none, or it is "
            f"damaged ({type(error).__name__}: {error})"
        ) from error


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the header and the arrays of a file that ``write`` made."""
    with (
        open(path, "rb") as raw,
        reading(path),
        np.load(raw, allow_pickle=False) as file,
    ):
        header = json.loads(str(file["header"]))
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r}")
        version = header["version"]
        # A file of another version may hold anything, so nothing else is looked at.
        arrays = {k: file[k] for k in file.files if k != "header" and version == VERSION}
        if version == VERSION:
            missing = {"dim", "max_norm", "family", "policy", "features", "stream"} - {*header}
            if missing:
                raise ValueError(f"without {', '.join(sorted(missing))}")
    if version != VERSION:
        raise SnapshotError(
            f"{os.fspath(path)} has format version {version!r}: expected {VERSION}, the one this "
            "belated reads. Read it with the belated that wrote it"
        )
    return header, arrays


def describe(kind: str, params: Any) -> dict[str, Any]:
    """Returns the type and the values of a NamedTuple of parameters, as JSON can hold them."""
    name = registry.name_of(getattr(registry, kind), params)
    return {"type": name or type(params).__qualname__, "values": registry.values_of(params)}


def rebuild(kind: str, description: dict[str, Any], types: Iterable[type]) -> Any:
    """Returns the NamedTuple that ``describe`` described; ``types`` are the user's own."""
    own: dict[str, Any] = {}
    for t in types:
        if not isinstance(t, type):
            raise wrong_type("types", t, "types such as MyPolicy, not objects of them")
        own[t.__qualname__] = t
    known, name = getattr(registry, kind), str(description.get("type"))
    if name not in known and name not in own:
        raise SnapshotError(
            f"types = {list(own)}: expected {name} among them, a type of the saved bandit that is "
            "not part of belated"
        )
    params_type = registry.load(known, name) if name in known else own[name]
    derived = getattr(params_type, "derived", ())  # written by version 0.1; derived again
    try:
        values = {k: v for k, v in description["values"].items() if k not in derived}
        return params_type(**values)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise SnapshotError(f"cannot make a {name} of {description} ({error})") from error


def rebuild_features(header: dict[str, Any], given: Any) -> FeatureMap | None:
    """Returns the feature map that was saved; ``given`` is the part that the file cannot hold."""
    description = header["features"]
    kind = description.get("kind") if isinstance(description, dict) else None
    if kind == "vectors":
        description = None
    if given is not None and (description is None or kind == "features"):
        raise wrong("features", given, "None: the file holds the features, if there were any")
    if description is None:
        return None
    if kind == "features":
        try:
            return Features.from_dict(description)
        except (TypeError, KeyError, ValueError) as error:
            raise SnapshotError(f"cannot make Features of {description} ({error})") from error
    if given is None:
        wanted = description.get("transformer", "feature map")
        raise wrong("features", None, f"the fitted {wanted} of the saved bandit: no file holds it")
    return Transformed.restore(description, given) if kind == "transformed" else given


def flatten(state: State, history: Any) -> dict[str, Any]:
    """Returns all arrays except scratch, by name; the history is cut to the decisions made."""
    n = int(state.counts[DECIDED])
    parts = ("fit", "memory", "work")
    arrays = {k: value for k, value in state._asdict().items() if k not in parts}
    arrays |= {f"fit.{name}": value for name, value in state.fit._asdict().items()}
    arrays |= {f"memory.{name}": value for name, value in state.memory._asdict().items()}
    return arrays | arrays_of(history, n)


def copy_into(targets: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Fill each target with the array of its name."""
    for name, target in targets.items():
        if arrays[name].shape != target.shape or arrays[name].dtype != target.dtype:
            raise ValueError(f"{name} is {arrays[name].dtype}{arrays[name].shape}")
        target[...] = arrays[name]


def fill(state: State, arrays: dict[str, Any]) -> Any:
    """Copy saved arrays into the fresh ``state``; returns the saved history."""
    y = arrays["history.y"]
    state.counts[:] = arrays["counts"]
    if len(y) != state.counts[DECIDED]:
        raise ValueError(f"history of {len(y)} rounds, not {state.counts[DECIDED]}")
    history = history_of(arrays, state.theta.shape[0])
    copy_into(flatten(state, history), arrays)
    numbers = history.x if isinstance(history, History) else history.values
    kept = [a.ravel() for a in (state.theta, state.W, state.W_inv, numbers)]
    returned = np.count_nonzero(~np.isnan(history.y))
    if not np.isfinite(np.concatenate(kept)).all() or state.counts[OBSERVED] != returned:
        raise ValueError("numbers that do not belong together")
    return history
