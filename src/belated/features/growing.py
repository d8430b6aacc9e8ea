"""Features that know more categories than before: the old ones keep their meaning."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from belated.core.arguments import shown, wrong
from belated.core.types import Integers
from belated.features.raw_rows import Key, text_of

if TYPE_CHECKING:
    from belated.features.columns import Features

_MEANING = (
    *("numeric", "categorical", "hashed", "interactions", "intercept", "max_norm"),
    *("missing", "tags", "scale", "other", "bounded"),
)
_NUMBERS = ("ranges", "quantiles")  # what was learned of numbers


def grown(old: "Features", new: "Features") -> "Features":
    """``new`` with the categories of ``old`` before the others, in their order.

    Raises where ``new`` is not ``old`` with more categories: what was learnt would mean something
    else. What features notice (``ignore``, ``optional``, ``strict``) may differ.
    """
    for option in _MEANING:
        if getattr(new, option) != getattr(old, option):
            before = getattr(old, option)
            raise wrong(f"features: {option}", getattr(new, option), f"{before!r}, as before")
    before, after = old.to_dict(), new.to_dict()
    for learned in _NUMBERS:
        numbers, others = (d["fitted"].get(learned, []) for d in (before, after))
        if numbers != others:
            raise wrong(f"features: {learned}", others, f"{shown(numbers)}, as before")
    known, wanted = dict(before["fitted"]["categories"]), dict(after["fitted"]["categories"])
    for column, categories in known.items():
        given = {text_of(category) for category in wanted[column]}
        for category in categories:
            if text_of(category) not in given:
                raise ValueError(
                    f"features: column {column!r} lacks the category {category!r}: expected all "
                    "there were; categories are added, never taken away"
                )
    more = {column: _others(wanted[column], known[column]) for column in known}
    return type(new).from_dict(after | {"fitted": _with_more(after["fitted"], known, more)})


def with_categories(features: "Features", more: Mapping[Key, Iterable[Any]]) -> "Features":
    """See ``Features.with_categories``."""
    described = features.to_dict()
    known = dict(described["fitted"]["categories"])
    for column, values in more.items():
        if column not in known:
            raise wrong("column", column, f"one of the categorical columns {list(known)}")
        if isinstance(values, str):  # its letters would be categories
            raise TypeError(f"column {column!r} = {values!r}: expected a list of categories")
    new = {column: _others(values, known[column]) for column, values in more.items()}
    fitted = _with_more(described["fitted"], known, new)
    return type(features).from_dict(described | {"fitted": fitted})


def _others(values: Iterable[Any], known: Iterable[Any]) -> list[Any]:
    """Returns the values that are not known, each once and as ``fit`` writes them."""
    texts = {text_of(category) for category in known}
    return [json.loads(t) for t in dict.fromkeys(map(text_of, values)) if t not in texts]


def _with_more(
    fitted: dict[str, Any], known: Mapping[Key, list[Any]], more: Mapping[Key, list[Any]]
) -> dict[str, Any]:
    categories = [[column, [*values, *more.get(column, ())]] for column, values in known.items()]
    return fitted | {"categories": categories}


def places_in(old: "Features", new: "Features") -> Integers:
    """Returns the place of each feature of ``old`` in ``new``, which is ``old`` grown."""
    widths, narrow = new.widths, old.widths
    starts = dict(zip(widths, np.cumsum([0, *widths.values()]), strict=False))
    places = []
    for block in old.blocks:
        inside = np.zeros(1, np.int64)
        for column in old.columns_of(block):  # of a pair, the second varies faster
            inside = (inside[:, None] * widths[column] + np.arange(narrow[column])).ravel()
        places.append(starts[block] + inside)
    return np.concatenate(places).astype(np.int64)
