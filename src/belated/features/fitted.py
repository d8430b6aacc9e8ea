"""The ranges and categories that ``Features.fit`` learns, and the columns and blocks of them."""

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from belated.features.kinds import (
    Category,
    Hashed,
    Kind,
    Number,
    Tags,
    curve_by_quantiles,
    curve_by_range,
    quantiles_of,
    refuse_for_scale,
)
from belated.features.layout import Block
from belated.features.raw_rows import (
    Key,
    Record,
    is_missing,
    number_of,
    numbered,
    tags_of,
    text_in,
)

if TYPE_CHECKING:
    from belated.features.columns import Features


# ----------------------------------------------------------------------------------- learning


def learned_from(features: "Features", sides: list[list[Record]]) -> dict[str, Any]:
    """Returns ranges, quantiles and categories of the columns, as JSON can hold them.

    Every column is learnt from the side that has it.
    """
    ranges, quantiles, categories = [], [], []
    for column in features.numeric:
        numbers = np.array(_numbers_in(features, column, sides))
        if features.scale.get(column) == "quantile":
            quantiles.append([column, quantiles_of(numbers)])
        else:
            ranges.append([column, float(numbers.min()), float(numbers.max())])
    for column in (*features.categorical, *features.hashed, *features.tags):
        texts = _texts_in(features, column, sides)
        if column not in features.hashed:
            categories.append([column, list(map(json.loads, texts))])
    others = {key for key in set[Any]().union(*chain(*sides)) if isinstance(key, str)}
    learned: dict[str, Any] = {"ranges": ranges, "categories": categories}
    learned |= {"quantiles": quantiles} if quantiles else {}
    learned |= {"others": rest} if (rest := sorted(others - {*features.columns})) else {}
    return learned


def _numbers_in(features: "Features", column: Key, sides: list[list[Record]]) -> list[float]:
    """Returns the numbers of a column that are not missing."""
    numbers: list[float] = []
    may_miss, how = column in features.missing, features.scale.get(column, "linear")
    for row, record in numbered(_side_with(column, sides)):
        value = record.get(column)
        if not (may_miss and is_missing(value)):
            numbers.append(number_of(column, value, row))
            refuse_for_scale(how, column, numbers[-1], row)
    return numbers or _nowhere(column, sides)


def _texts_in(features: "Features", column: Key, sides: list[list[Record]]) -> list[str]:
    """Returns the texts of a column's categories, each once."""
    texts: dict[str, None] = {}
    for row, record in numbered(_side_with(column, sides)):
        if column in record:
            value = record[column]
            for one in tags_of(column, value, row) if column in features.tags else [value]:
                texts[text_in(column, one, row)] = None
    return list(texts) or _nowhere(column, sides)


def _side_with(column: Key, sides: list[list[Record]]) -> list[Record]:
    """Returns the rows of the side that has the column, or of the first."""
    return next((side for side in sides if any(column in row for row in side)), sides[0])


def _nowhere(column: Key, sides: list[list[Record]]) -> NoReturn:
    keys = [key for side in sides for key in side[0]]
    raise ValueError(f"column {column!r} is in no row: expected one of {keys}")


# ------------------------------------------------------------------------- what is made of it


class Fitted(NamedTuple):
    """Columns with what was learned of them, and the blocks of a row."""

    names: dict[Any, list[str]]  # of each block: a column, a pair of them, or None: the intercept
    kinds: dict[Key, Kind]  # of each column
    blocks: list[Block]
    learned: dict[str, Any]  # the same, as ``learned_from`` gives it
    keys: frozenset[Key]  # that a row may have: columns, those to ignore, and others seen in fit


def fitted(features: "Features", learned: dict[str, Any]) -> Fitted:
    """Returns the columns and blocks of features that have learned this."""
    kinds = _kinds(features, learned)
    names: dict[Any, list[str]] = {column: kind.names for column, kind in kinds.items()}
    for left, right in features.interactions:
        names[left, right] = [f"{a} * {b}" for a in names[left] for b in names[right]]
    if features.intercept:
        names[None] = ["intercept"]
    blocks, start = [], 0
    for block, inside in names.items():
        columns = features.columns_of(block)  # of a pair, the second varies faster
        steps = [len(names[columns[1]]), 1] if len(columns) == 2 else [1]
        blocks.append(Block(start, list(zip(columns, steps, strict=False))))
        start += len(inside)
    keys = frozenset([*features.columns, *features.ignore, *learned.get("others", ())])
    return Fitted(names, kinds, blocks, learned, keys)


def _kinds(features: "Features", learned: dict[str, Any]) -> dict[Key, Kind]:
    """Returns every column with what was learned of it."""
    ranges = {column: ends for column, *ends in learned["ranges"]}
    quantiles, values = dict(learned.get("quantiles", ())), dict(learned["categories"])
    kinds: dict[Key, Kind] = {}
    for column in features.numeric:
        how = features.scale.get(column, "linear")
        if how == "quantile":
            curve = curve_by_quantiles(quantiles[column])
        else:
            refuse_for_scale(how, column, ranges[column][0], None)
            curve = curve_by_range(how, *ranges[column])
        kinds[column] = Number(column, curve, column in features.missing)
    for column in features.categorical:
        kinds[column] = _category(features, column, values[column])
    for column, buckets in features.hashed.items():
        kinds[column] = Hashed(column, buckets, column in features.optional)
    for column in features.tags:
        kinds[column] = Tags(_category(features, column, values[column]), features.bounded)
    return kinds


def _category(features: "Features", column: Key, values: list[Any]) -> Category:
    return Category.of(column, values, column in features.other, column in features.optional)
