"""The contents of a bandit's file, and the parts of a bandit that are read back from it."""

from collections.abc import Iterable
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from belated.features import FeatureMap
from belated.learner import files
from belated.learner.forgetting import Unit
from belated.learner.learner import Learner
from belated.model.protocols import Family, Policy


class Parts(NamedTuple):
    """The parts of a bandit; see ``Bandit``."""

    dim: int
    max_norm: float
    family: Family
    policy: Policy
    features: FeatureMap | None
    groups: dict[str, int] | None
    stream: dict[str, Any]  # state of the random stream
    arrays: dict[str, Any]  # the whole state and history
    half_life: float | None
    half_life_unit: Unit
    tick: int  # the latest of a decision, where something is forgotten


def write_parts(
    path: str | PathLike[str],
    learner: Learner,
    features: FeatureMap | None,
    rng: np.random.Generator,
) -> None:
    """Write all parts of a bandit to ``path``, all of them or nothing."""
    header = {
        "dim": learner.dim,
        "max_norm": learner.max_norm,
        "family": files.describe("FAMILIES", learner.family),
        "policy": files.describe("POLICIES", learner.policy),
        "features": None if features is None else features.to_dict(),
        "stream": rng.bit_generator.state,
    }
    if learner.is_sparse and getattr(features, "groups", None) is None:
        header["groups"] = learner.groups
    if learner.half_life is not None:
        length, unit = learner.half_life
        header |= {"half_life": length, "half_life_unit": unit, "tick": learner.tick}
    files.write(path, header, files.flatten(learner.state, learner.history))


def read_parts(path: str | PathLike[str], features: Any, types: Iterable[type]) -> Parts:
    """Read back what ``write_parts`` wrote; for ``features`` and ``types`` see ``Bandit.load``."""
    header, arrays = files.read(path)
    own = list(types)
    family = files.rebuild("FAMILIES", header["family"], own)
    policy = files.rebuild("POLICIES", header["policy"], own)
    feature_map = files.rebuild_features(header, features)
    with files.reading(path):
        if arrays["theta"].shape != (header["dim"],):
            raise ValueError(f"theta of shape {arrays['theta'].shape}")
        if feature_map is not None and feature_map.dim != header["dim"]:
            raise ValueError(f"{feature_map.dim} features, not {header['dim']}")
    return Parts(
        header["dim"],
        header["max_norm"],
        family,
        policy,
        feature_map,
        header.get("groups"),
        header["stream"],
        arrays,
        header.get("half_life"),
        header.get("half_life_unit", "decisions"),
        header.get("tick", -1),
    )
