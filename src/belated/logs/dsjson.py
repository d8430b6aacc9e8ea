"""Logs as Vowpal Wabbit has them: one JSON object per decision, in the form dsjson.

Reading is done by ``belated.ledger.tools.tables``, where the form is known as ``dsjson``. It has no
time of the reward: a pending one is written without a cost, and comes back as pending.

References
----------
Vowpal Wabbit wiki: "DSJSON format".
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from belated.core.times import iso
from belated.logs.learning_targets import plain_cell
from belated.logs.whole_log import WholeLog


def write_dsjson(log: WholeLog, path: str | Path) -> int:
    """Writes a log and returns the number of its decisions.

    Every action of the log is an option of every decision. The context is one namespace.
    """
    options = [{"_tag": name, "Action": {name: 1.0}} for name in log.names]
    with Path(path).open("w", encoding="utf-8") as file:
        for row in range(len(log.action)):
            file.write(json.dumps(_event(log, row, options)) + "\n")
    return len(log.action)


def _event(log: WholeLog, row: int, options: list[dict[str, Any]]) -> dict[str, Any]:
    index, reward = int(log.action[row]), float(log.reward[row])
    cells = {name: plain_cell(column[row]) for name, column in log.context.items()}
    there = {name: cell for name, cell in cells.items() if cell is not None and cell == cell}
    cost = {} if np.isnan(reward) else {"_label_cost": 0.0 - reward}
    return cost | {
        "_label_probability": float(log.propensity[row]),
        "_label_Action": index + 1,
        "_labelIndex": index,
        "Timestamp": iso(int(log.decided[row])),
        "Version": "1",
        "EventId": str(row + 1),
        "a": [index + 1],
        "p": [float(log.propensity[row])],
        "c": {"Context": there, "_multi": options},
    }
