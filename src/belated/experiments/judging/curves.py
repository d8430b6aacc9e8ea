"""Regret curves by lane, and how settings are named in tables and sentences."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from belated.experiments.labels import OFU, family_name, law_name

HEAVY = ("lomax", "pareto")  # within any horizon the mean of their delays is far below the law's

Row = dict[str, Any]
Measured = tuple[list[Row], list[Row], str, str]  # summary, rows, verdict, reason


class Lane(NamedTuple):
    """Policy and setting whose runs are compared with those of another lane."""

    policy: str
    family: str
    dim: int
    n_actions: int
    law: str
    expected: float

    @property
    def delayed(self) -> bool:
        """Returns whether rewards come late at all."""
        return self.law != "constant" or self.expected > 0.0

    def undelayed(self) -> "Lane":
        """Returns the same lane without delay."""
        return self._replace(law="constant", expected=0.0)

    def setting(self) -> Row:
        """Returns the columns that name the lane in a table."""
        named = {"family": family_name(self.family), "law": law_name(self.law)}
        return self._asdict() | named


def curves_of(frame: pd.DataFrame) -> dict[Lane, Any]:
    """Returns the regret of each lane: a table, one row per run and one column per checkpoint."""
    keys = list(Lane._fields)
    if frame.duplicated([*keys, "run", "t"]).any():
        raise ValueError(
            "some rows share policy, family, dim, n_actions, law, expected, run and t: "
            "give policies that differ in their parameters different names"
        )
    table = frame.pivot(index=[*keys, "run"], columns="t", values="regret")
    curves = {lane_of(key): part.droplevel(keys) for key, part in table.groupby(level=keys)}
    return dict(sorted(curves.items(), key=lambda item: order(item[0])))


def order(lane: Lane) -> tuple[Any, ...]:
    """Sort key of rows: the paper's policy first, families by the name they are shown under."""
    return lane.policy != OFU, lane.policy, family_name(lane.family), *lane[2:]


def lane_of(key: Any) -> Lane:
    """Returns the lane of a group, in plain Python numbers, which can be written as JSON."""
    policy, family, dim, n_actions, law, expected = key
    return Lane(policy, family, int(dim), int(n_actions), law, float(expected))


def grouped(rows: list[Row], *keys: str) -> list[tuple[Any, list[Row]]]:
    """Groups rows by the values of some columns, in the order in which these first appear."""
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return list(groups.items())


def with_findings(rows: list[Row], judged: list[Row], found: Sequence[str]) -> list[Row]:
    """Returns the rows with a column ``finding``, which is empty where a row was not judged."""
    by_row = {id(row): finding for row, finding in zip(judged, found, strict=True)}
    return [row | {"finding": by_row.get(id(row), "")} for row in rows]


def counted(rows: list[Row], finding: str) -> str:
    """Returns how many rows have a finding and, in brackets, the setting of every one of them.

    Settings that differ in the expected delay alone are named together.
    """
    delays = defaultdict(list)
    for row in rows:
        if row["finding"] == finding:
            setting = f"{row['policy']}, {row['family']}, d = {row['dim']}, {row['law']}"
            delays[setting, row.get("against", "")].append(row.get("expected"))
    places = []
    for (setting, against), expected in delays.items():
        known = ", ".join(f"{e:g}" for e in expected if e is not None)
        places.append(f"{setting} {known}".rstrip() + (f" against {against}" if against else ""))
    return f"{sum(map(len, delays.values()))}{in_brackets(places)}"


def in_brackets(places: list[str]) -> str:
    """Returns the places in brackets; nothing where there are none."""
    return f" ({'; '.join(places)})" if places else ""
