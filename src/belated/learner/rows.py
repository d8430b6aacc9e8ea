"""The rows that a learner is given: their groups of features, how many features, how large."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.core.arguments import WIDEST, shown, whole, wrong, wrong_type
from belated.core.sparse import LARGEST_ENTRY, SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.model.protocols import is_sparse
from belated.model.state import NO_SILENCE, NO_WEIGHTS, History, SparseHistory
from belated.numerics.entries import are_within_size

LARGEST_SHARE = 1e9  # of the square of a row in the ridge of a dense matrix
OWN: Any = ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"]  # what kernels are compiled for


def checked_groups(groups: Mapping[str, int] | None, dim: int) -> dict[str, int]:
    """Returns the groups of features; all features are one group where none are given."""
    if groups is None:
        return {"features": dim}
    if not isinstance(groups, Mapping) or not groups:
        raise wrong_type("groups", groups, "a dict of each group's name and number of features")
    sizes = {str(name): whole(f"groups[{name!r}]", size) for name, size in groups.items()}
    if sum(sizes.values()) != dim:
        raise wrong("groups", groups, f"sizes that sum to {dim}, the number of features")
    if sizes.get("intercept", 1) != 1:
        raise wrong("groups['intercept']", sizes["intercept"], "1: a constant is one feature")
    return sizes


def refuse_many(n_actions: int, dim: int) -> None:
    """Raises where the law of as many scores takes more memory than a covariance may."""
    most = max(WIDEST, WIDEST**2 // dim)
    if n_actions > most:
        raise ValueError(
            f"actions has {n_actions} rows: expected at most {most} of {dim} features; choose from "
            "fewer, or let policy = 'delayed-ofu-glm'"
        )


def checked_entries(rows: SparseRows) -> SparseRows:
    """Returns the rows, or raises where an entry is not finite or is too large."""
    if not are_within_size(rows.values, LARGEST_ENTRY):
        fine = np.abs(rows.values) <= LARGEST_ENTRY
        row = int(np.argmin(fine.all(axis=1)))
        worst = float(rows.values[row][~fine[row]][0])
        raise wrong(
            f"actions[{row}] has an entry", worst, f"finite numbers up to {LARGEST_ENTRY:g}"
        )
    return rows


def longest_row(policy: Any, max_norm: float) -> float:
    """Returns the largest norm that a row may have.

    A policy that needs no bound takes rows until one of them would leave nothing of its ridge.
    """
    if getattr(policy, "needs_bound", True):
        return max_norm
    ridge = math.inf if is_sparse(policy) else float(policy.lam)
    return max(max_norm, min(LARGEST_ENTRY, math.sqrt(LARGEST_SHARE * ridge)))


def too_long(matrix: Matrix, longest: float, max_norm: float, *names: str) -> ValueError:
    """Returns the error that names the row which is not finite, or the longest."""
    names = names or tuple(f"actions[{k}]" for k in range(len(matrix)))
    for name, x in zip(names, matrix, strict=True):
        if not np.isfinite(x).all():
            return wrong(name, x.tolist(), "finite numbers")
    norms = [math.hypot(*x) for x in matrix]
    k = int(np.argmax(norms))
    if longest > max_norm:
        most, remedy = f"{longest:g}, beyond which the policy's ridge is lost in rounding", ""
    else:
        most, remedy = f"max_norm = {max_norm:g}", ", raise max_norm"
    return ValueError(
        f"{names[k]} has norm {norms[k]:.9g}: expected at most {most}; scale the actions{remedy}, "
        "or pass features="
    )


def rows_between(history: Any, start: int, end: int) -> Any:
    """Returns the rows of consecutive decisions, dense or sparse as the history is."""
    if isinstance(history, History):
        return history.x[start:end]
    return rows_at(history, np.arange(start, end))


def rows_at(history: Any, places: Integers) -> Any:
    """Returns the rows of the decisions at these places, dense or sparse as the history is."""
    if isinstance(history, History):
        return history.x[places]
    starts = history.starts[places]
    counts = history.starts[places + 1] - starts
    width = int(counts.max(initial=1))
    inside = np.arange(width) < counts[:, np.newaxis]
    at = np.where(inside, starts[:, np.newaxis] + np.arange(width), 0)
    columns = np.where(inside, history.columns[at], 0).astype(np.int32)
    return SparseRows(columns, np.where(inside, history.values[at], 0.0))


def placed(rows: Any, places: Integers, dim: int) -> Any:
    """Returns rows with more features: feature k becomes feature ``places[k]`` of ``dim``."""
    if isinstance(rows, SparseRows):
        return SparseRows(places[rows.columns].astype(np.int32), rows.values)
    wider = np.zeros((len(rows), dim))
    wider[:, places] = rows
    return wider


def arrays_of(history: Any, decided: int) -> dict[str, Any]:
    """Returns the arrays of a history, cut to the decisions made, by name."""
    weights = {"history.weight": history.weight[:decided]} if len(history.weight) else {}
    if isinstance(history, History):
        return {"history.x": history.x[:decided], "history.y": history.y[:decided]} | weights
    entries = int(history.starts[decided])
    return {
        "history.starts": history.starts[: decided + 1],
        "history.columns": history.columns[:entries],
        "history.values": history.values[:entries],
        "history.y": history.y[:decided],
        **({"history.silence": history.silence[:decided]} if len(history.silence) else {}),
    } | weights


def weights_in_room(arrays: Mapping[str, Any], capacity: int) -> Vector:
    """Returns saved weights with room for more rows, 1 for each; empty where there are none."""
    if "history.weight" not in arrays:
        return NO_WEIGHTS
    weight = np.ones(capacity)
    weight[: len(arrays["history.weight"])] = arrays["history.weight"]
    return weight


def history_of(arrays: Mapping[str, Any], dim: int) -> Any:
    """Returns the history that ``arrays_of`` took apart; raises where its parts do not fit.

    The arrays become part of it: a copy of a million decisions takes as long as reading them.
    """
    y, weight = arrays["history.y"], arrays.get("history.weight", NO_WEIGHTS)
    if len(weight) not in (0, len(y)) or not ((weight >= 0.0) & (weight <= 1.0)).all():
        raise ValueError(f"history of {len(y)} rounds, {len(weight)} weights")
    if "history.x" in arrays:
        x = arrays["history.x"]
        if x.shape != (len(y), dim):
            raise ValueError(f"history.x is {x.dtype}{x.shape}")
        return History(*(np.require(part, np.float64, OWN) for part in (x, y, weight)))
    starts, columns, values = (
        arrays[f"history.{name}"] for name in ("starts", "columns", "values")
    )
    fits = len(starts) == len(y) + 1 and starts[0] == 0 and (np.diff(starts) >= 0).all()
    if not fits or not starts[-1] == len(columns) == len(values):
        raise ValueError(
            f"history of {len(y)} rounds, {len(starts)} starts, {len(columns)} entries"
        )
    if len(columns) and not 0 <= columns.min() <= columns.max() < dim:
        raise ValueError(f"columns beyond {shown(dim)} features")
    silence = arrays.get("history.silence", NO_SILENCE)
    if len(silence) not in (0, len(y)) or not ((silence >= 0.0) & (silence <= 1.0)).all():
        raise ValueError(f"history of {len(y)} rounds, {len(silence)} silences")
    parts = (starts, columns, values, y, weight, silence)
    return SparseHistory(*(np.require(part, requirements=OWN) for part in parts))
