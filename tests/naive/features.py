"""Rows of features by their definition: one dense block after another."""

import math

import numpy as np


def row_of(options, seen, record, max_norm=1.0):
    """The row of ``record`` after ``fit`` of ``seen``; without a bound where max_norm is None.

    ``options`` are those of ``Features``. Hashed columns are left out: their places are arbitrary.
    """
    bounded = max_norm is not None
    blocks = {}
    for column in options.get("numeric", ()):
        blocks[column] = _number(options, seen, column, record.get(column))
    for column in options.get("categorical", ()):
        values = [[row[column]] for row in seen if column in row]
        given = [record[column]] if column in record else []
        blocks[column] = _one_hot(values, given, column in options.get("other", ()))
    for column in options.get("tags", ()):
        values = [row[column] for row in seen if column in row]
        block = _one_hot(values, record.get(column, []), column in options.get("other", ()))
        blocks[column] = block / (np.linalg.norm(block) or 1.0) if bounded else block
    pairs = [np.kron(blocks[a], blocks[b]) for a, b in options.get("interactions", ())]
    every = [*blocks.values(), *pairs, *([np.ones(1)] if options.get("intercept", True) else [])]
    return np.concatenate(every) * (max_norm / math.sqrt(len(every)) if bounded else 1.0)


def _number(options, seen, column, value):
    numbers = [row.get(column) for row in seen]
    numbers = sorted(number for number in numbers if not _missing(number))
    may_miss = column in options.get("missing", ())
    if may_miss and _missing(value):
        return np.array([0.0, 1.0])
    how = dict(options.get("scale", {})).get(column, "linear")
    low, high = numbers[0], numbers[-1]
    if how == "quantile":
        at = [float(np.quantile(numbers, k / 20)) for k in range(21)]
        knots = sorted(set(at))
        levels = [np.mean([k / 10 - 1 for k in range(21) if at[k] == knot]) for knot in knots]
        scaled = np.interp(value, knots, levels)
    else:
        curve = {"linear": lambda x: x, "log": math.log, "log1p": math.log1p}[how]
        value = min(max(value, low), high) if low < high or how != "linear" else value
        low, high, value = curve(low), curve(high), curve(value)
        scaled = 2 * (value - low) / (high - low) - 1 if low < high else value - low
    block = np.clip([scaled], -1.0, 1.0)
    return np.append(block, 0.0) if may_miss else block


def _missing(value):
    return value is None or math.isnan(value)


def _one_hot(seen, given, other):
    """A one for each given category, and for the first place where one of them was not seen."""
    known = []
    for values in seen:
        known += [value for value in values if value not in known]
    block = np.array([float(value in given) for value in known])
    return np.append(float(any(value not in known for value in given)), block) if other else block
