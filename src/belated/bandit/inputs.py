"""The input of users to a bandit: its model, actions to choose from, rewards, settings left out."""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from belated import registry
from belated.core.arguments import (
    any_number,
    array_of_numbers,
    positive,
    shown,
    whole,
    wrong,
    wrong_type,
)
from belated.core.extremes import are_recorded, refuse_extremes
from belated.core.times import LATEST, SECOND
from belated.features import FeatureMap, Features, UnmatchedCounts, UnmatchedFeaturesWarning
from belated.features.raw_rows import records_of, text_of
from belated.learner.learner import refuse_groups
from belated.model.protocols import Family, Policy

MOST_WARNINGS = 20  # of one bandit; further ones are only counted
LONGEST_NAME = 200  # characters of an action's name
# the settings of a new bandit
USUAL = {
    "window": None,
    "grace": 0.0,
    "default_reward": None,
    "late": "keep",
    "combine": None,
    "half_life": None,
    "half_life_unit": "decisions",
    "open": None,  # see ``Spec.of``
}
# A bandit with one of these keeps a log, in memory if there is no ledger.
LOGGED = ("window", "grace", "default_reward", "late", "combine", "open")
Clock = Callable[[], float]  # seconds since 1970


class AsInLog(Enum):
    """The value of a setting that is not given."""

    AS_IN_LOG = "as in the log"

    def __repr__(self) -> str:  # in the signature of Bandit
        return self.name


AS_IN_LOG = AsInLog.AS_IN_LOG


class Model(NamedTuple):
    """The parts of a bandit that its learner is made of; see ``Bandit``."""

    dim: int
    family: Family
    policy: Policy
    max_norm: float
    groups: Mapping[str, int] | None


def checked_model(
    dim: int | None,
    family: Family | str,
    policy: Policy | str | None,
    max_norm: float,
    features: FeatureMap | None,
    groups: Mapping[str, int] | None,
) -> Model:
    """Returns the model that arguments of ``Bandit`` describe, or raises where they do not fit."""
    if features is not None and not hasattr(features, "transform"):
        raise wrong_type("features", features, "a feature map, such as Features(...)")
    if dim is None:
        if features is None:
            raise TypeError("dim = None: expected the number of features, or features=")
        dim = features.dim
    dim = whole("dim", dim)
    if features is not None and features.dim != dim:
        raise wrong("dim", dim, f"{features.dim}, the number of features that features= gives")
    law = registry.parsed(registry.FAMILIES, family, "family")
    chosen = registry.parsed(
        registry.POLICIES, registry.DEFAULT_POLICY if policy is None else policy, "policy"
    )
    refuse_extremes(law, chosen)
    if groups is not None and getattr(features, "groups", None) is not None:
        raise wrong("groups", groups, "None: the features know their groups")
    norm = positive("max_norm", max_norm)
    if getattr(features, "max_norm", 0.0) > norm:
        raise wrong("max_norm", max_norm, "at least the max_norm of the features")
    if groups is not None and not are_recorded():  # a file has those of features, for any policy
        refuse_groups(groups, dim, law, chosen, norm)
    return Model(dim, law, chosen, norm, getattr(features, "groups", groups))


def random_stream(seed: Any) -> np.random.Generator:
    """Returns a stream of PCG64, whose state a snapshot can hold."""
    if seed is not None and not isinstance(seed, np.random.SeedSequence):
        seed = whole("seed", seed, least=0)
    return np.random.Generator(np.random.PCG64(seed))


def now_by(clock: Clock) -> int:
    """Returns the time that a clock tells, in microseconds, or raises where it tells none."""
    told = clock()
    try:
        seconds = any_number(told)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if not 0.0 <= seconds < LATEST / SECOND:
        raise wrong("clock()", told, f"seconds since 1970, from 0 to {LATEST / SECOND:g}")
    return round(seconds * SECOND)


def action_rows(
    actions: Any,
    context: Any,
    features: FeatureMap | None,
    dim: int,
    sparse: bool = False,
    called_from: int = 4,
) -> Any:
    """Returns the vectors of the actions, one row per action, or raises where they do not fit.

    They are a matrix; ``SparseRows`` where that is asked for and the features can give them.
    ``called_from`` is the ``stacklevel`` of warnings, that of the user's line.
    """
    if sparse and isinstance(features, Features):
        rows = features.sparse_rows(actions, context)
        _warn_of(counts_of(features), called_from)
        return rows
    if features is not None:
        matrix = array_of_numbers("features", features.transform(actions, context))
        _warn_of(counts_of(features), called_from)
        if hasattr(actions, "__len__") and len(matrix) != len(actions):
            raise ValueError(
                f"features gave {len(matrix)} rows: expected {len(actions)}, one per action"
            )
    elif context is not None:
        raise wrong_type("context", context, "None for a bandit without features")
    else:
        matrix = array_of_numbers("actions", actions)
    if matrix.ndim != 2 or matrix.shape[1] != dim or matrix.shape[0] == 0:
        raise ValueError(f"actions has shape {matrix.shape}: expected (K, {dim}) with K >= 1")
    return matrix


def kept(actions: Any) -> Any:
    """Returns actions that can be read twice: for their vectors, and for their names."""
    return list(actions) if isinstance(actions, Iterator) else actions


def checked_names(names: Any, n: int) -> list[str] | None:
    """Returns names that a user gave to ``n`` actions, or raises where they do not fit."""
    if names is None:
        return None
    expected = f"{n} different texts of 1 to {LONGEST_NAME} characters, one per action"
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise wrong_type("names", names, expected)
    given = list(names)
    fit = all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in given)
    if not fit or len(given) != n or len(set(given)) < n:
        raise wrong("names", given, expected)
    return list(map(str, given))  # NumPy has texts of its own


def names_asked(names: Any, n: int) -> list[Any]:
    """Returns the names of the actions of each of ``n`` decisions; see ``decide_many``."""
    if names is None:
        return [None] * n
    given = _several("names", names)
    if isinstance(given[0], str):  # of one set for all
        return [given] * n
    if len(given) != n:
        raise wrong("names", names, f"{n} lists of names, one per decision, or one list for all")
    return given


def made_names(actions: Any, features: FeatureMap | None) -> list[str] | None:
    """Returns names made of the categories of each action; None if they do not tell all apart.

    >>> features = Features(categorical=["banner", "size"], numeric=["price"])
    >>> made_names([{"banner": "boots", "size": 42, "price": 9.5}, {"banner": "map"}], features)
    ['boots, 42', 'map']
    """
    if not isinstance(features, Features):
        return None
    columns = [*features.categorical, *features.hashed]
    made = [
        ", ".join(_category(record[column]) for column in columns if column in record)
        for record in records_of("actions", actions)
    ]
    fit = all(0 < len(name) <= LONGEST_NAME for name in made)
    return made if fit and len(set(made)) == len(made) else None


def _category(value: Any) -> str:
    """Returns a category as people write it; a log cannot hold halves of characters."""
    readable = isinstance(value, str) and value.isprintable()
    return str(value) if readable else text_of(value)


def decisions_asked(action_sets: Any, contexts: Any) -> list[tuple[str, Any, Any]]:
    """Returns name, actions and context of each decision that is asked for; see ``decide_many``.

    The name is that of the arguments with their index.
    """
    if contexts is None:
        sets = _several("action_sets", action_sets)
        return [(f"action_sets[{k}]", actions, None) for k, actions in enumerate(sets)]
    many = _several("contexts", contexts)
    sets = _several("action_sets", action_sets)
    if isinstance(sets[0], Mapping) or getattr(action_sets, "ndim", 0) == 2:  # one set for all
        one = action_sets if hasattr(action_sets, "__len__") else sets  # an iterator is used up
        return [(f"contexts[{k}]", one, context) for k, context in enumerate(many)]
    if len(sets) != len(many):
        raise wrong("contexts", contexts, f"{len(sets)} of them, one for each of action_sets")
    return [
        (f"action_sets[{k}] with contexts[{k}]", actions, context)
        for k, (actions, context) in enumerate(zip(sets, many, strict=True))
    ]


def _several(name: str, given: Any) -> list[Any]:
    """Returns the items of a list, one at least; those of a table are its rows, as dicts."""
    if any(hasattr(given, method) for method in ("to_dicts", "to_pylist", "iterrows")):
        return list(records_of(name, given))
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise wrong_type(name, given, "a list, with an item for each decision")
    items = list(given)
    if not items:
        raise wrong(name, items, "one at least")
    return items


def counts_of(features: FeatureMap | None) -> UnmatchedCounts:
    """Returns the counts of zeros that the features keep; empty for a map that does not count."""
    counts = getattr(features, "unmatched", None)
    return counts if isinstance(counts, UnmatchedCounts) else UnmatchedCounts()


def _warn_of(unmatched: UnmatchedCounts, called_from: int) -> None:
    """Warn of inputs that became zeros for the first time, at the line that called the bandit."""
    new = unmatched.take_new()
    if not new:
        return
    left = MOST_WARNINGS - (sum(w.kind != "other" for w in unmatched.counts) - len(new))
    for what in new[: max(left, 0)]:
        warnings.warn(
            f"{what}: it becomes zeros. bandit.unmatched counts how often; Features(strict=True) "
            "raises instead, ignore= and optional= say what is meant to be so, and bandit.grow "
            "adds categories",
            UnmatchedFeaturesWarning,
            stacklevel=called_from,
        )


class Returned(NamedTuple):
    """A reward as a user hands it in; ``at`` is when it happened, None for now."""

    id: Any
    reward: Any
    at: Any = None
    event_id: Any = None


def returned(rewards: Any) -> list[Returned]:
    """Returns an iterable of rewards as a list; an error of the iterable's own passes through."""
    usage = "expected learn(id, reward), learn([(id, reward), ...]) or learn(ids, rewards)"
    if not isinstance(rewards, Iterable) or isinstance(rewards, Mapping):
        raise TypeError(f"learn({shown(rewards)}): {usage}")
    given = []
    for reward in rewards:
        try:
            given.append(Returned(*reward))
        except TypeError:
            raise TypeError(f"learn([..., {shown(reward)}, ...]): {usage}") from None
    return given


def is_column(given: Any) -> bool:
    """Returns whether this is an array or a list of values in their order, and no single value."""
    unordered = isinstance(given, str | bytes | Mapping | Set)
    return isinstance(given, Collection) and not unordered and getattr(given, "ndim", 1) > 0


def paired(ids: Any, rewards: Any) -> list[Returned]:
    """Returns columns of ids and rewards as a list of rewards, or raises where they do not fit."""
    columns = []
    for name, column in (("ids", ids), ("rewards", rewards)):
        if not is_column(column) or getattr(column, "ndim", 1) > 1:
            raise wrong_type(name, column, "a list, or an array of one dimension")
        columns.append(column.tolist() if hasattr(column, "tolist") else list(column))
    if len(columns[0]) != len(columns[1]):
        raise wrong("rewards", rewards, f"{len(columns[0])} of them, one for each of ids")
    return list(map(Returned, *columns))
