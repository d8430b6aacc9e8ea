"""Logs as Open Bandit Pipeline has them: a dictionary of arrays, without times.

References
----------
Y. Saito, S. Aihara, M. Matsutani, Y. Narita: Open Bandit Dataset and Pipeline. NeurIPS 2021,
Datasets and Benchmarks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from belated.core.arguments import wrong
from belated.logs.whole_log import WholeLog, context_features


def from_open_bandit(feedback: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of a log from the dictionary ``bandit_feedback``.

    Actions become texts, features of the context ``x0``, ``x1`` and so on. ``pd.DataFrame`` makes a
    data frame of it, which ``evaluate_log`` takes as a log.

    >>> columns = from_open_bandit({
    ...     "n_rounds": 2, "n_actions": 2, "action": np.array([0, 1]), "reward": np.array([1, 0]),
    ...     "pscore": np.array([0.5, 0.5]), "context": np.array([[3.0], [4.0]]), "position": None,
    ... })
    >>> list(columns), columns["action"].tolist(), columns["x0"].tolist()
    (['action', 'reward', 'propensity', 'x0'], ['0', '1'], [3.0, 4.0])
    """
    for name in ("action", "reward", "pscore"):
        if feedback.get(name) is None:
            raise wrong("feedback", sorted(feedback), f"a dictionary with {name!r}")
    columns = {
        "action": np.asarray(feedback["action"]).astype(str).astype(object),
        "reward": np.asarray(feedback["reward"], np.float64),
        "propensity": np.asarray(feedback["pscore"], np.float64),
    }
    if feedback.get("position") is not None:
        columns["position"] = np.asarray(feedback["position"]).astype(str).astype(object)
    context = feedback.get("context")
    features: Any = [] if context is None else np.asarray(context, np.float64).T
    return columns | {f"x{k}": column for k, column in enumerate(features)}


def to_open_bandit(log: WholeLog) -> dict[str, Any]:
    """Returns the dictionary ``bandit_feedback``; action k is the k-th of ``log.names``.

    Pending rewards are refused, because the pipeline would take them for numbers.
    """
    pending = int(np.isnan(log.reward).sum())
    if pending:
        raise ValueError(
            f"{pending:,} rewards are pending: expected none, since Open Bandit Pipeline has no "
            "way to say so; leaving them out would count fast actions too often"
        )
    return {
        "n_rounds": len(log.action),
        "n_actions": len(log.names),
        "context": context_features(log.context, len(log.action)),
        "action": log.action,
        "reward": log.reward,
        "pscore": log.propensity,
        "position": None,
    }
