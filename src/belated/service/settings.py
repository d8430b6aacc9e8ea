"""Translates the settings that a caller sends into those of a ledger, and back."""

from math import isfinite
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from belated import registry
from belated.core.arguments import WIDEST, refuse_wide, wrong
from belated.features import Features, fitting
from belated.ledger.spec import Spec, vectors_in
from belated.wire import BanditSettings, BanditState, FeatureSettings

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold


def spec_of(settings: BanditSettings, known: Spec | None = None) -> Spec:
    """The settings as a ledger holds them, checked.

    A bandit that names no policy, or does not say what open decisions or closed windows count for,
    keeps what it has, by ``known``; a new one gets the default.
    """
    default = settings.default_reward
    if default is not None and known is None and settings.loop != "conversion":
        # Its author expects that silence is learnt from. By successes alone all rates are 1.
        raise wrong(
            "default_reward",
            default,
            "loop = 'conversion' beside it; an explicit loop learns nothing from decisions without "
            "a reward",
        )
    family = registry.parsed(registry.FAMILIES, settings.family, "family")
    text = settings.policy
    if text is None and known is not None:
        from belated.learner import files

        policy = files.rebuild("POLICIES", known.policy, [])
    else:
        policy = registry.parsed(registry.POLICIES, text or registry.DEFAULT_POLICY, "policy")
    features = None
    dim = settings.dim
    if settings.features is not None:
        features = features_of(settings.features, settings.max_norm)
        features = fitting(features, policy, None if known is None else known.features)
        if dim not in (None, features.dim):
            raise wrong("dim", dim, f"{features.dim}, the number of features, or nothing")
        dim = features.dim
    if dim is None:
        raise wrong("dim", None, "the number of features of an action, or features")
    refuse_wide(dim)
    given = msgspec.structs.asdict(settings) | {"family": family, "policy": policy, "dim": dim}
    if features is not None and settings.groups is not None:
        raise wrong("groups", settings.groups, "nothing: the features know their groups")
    if settings.groups is not None:
        from belated.learner.learner import refuse_groups

        refuse_groups(settings.groups, dim, family, policy, settings.max_norm)
    if settings.open is None and known is not None:
        given["open"] = known.open
    if default is None:
        given["default_reward"] = 0.0 if known is None else known.default_reward
    given["features"] = vectors_in(settings.groups) if features is None else features.to_dict()
    return Spec.of(**{name: given[name] for name in Spec.__struct_fields__})


def features_of(settings: FeatureSettings, max_norm: float) -> Features:
    """Features that need no fitting: their ranges and categories are given."""
    by_quantiles = {column for column, how in settings.scale.items() if how == "quantile"}
    for column, ends in settings.numeric.items():
        expected = "ascending quantiles" if column in by_quantiles else "[lowest, highest]"
        if sorted(ends) != ends or (len(ends) != 2 and column not in by_quantiles):
            raise wrong(f"features.numeric[{column!r}]", ends, expected)
    for column, buckets in settings.hashed.items():
        if buckets > WIDEST:
            expected = f"at most {WIDEST} buckets, and as many features together; 256, say"
            raise wrong(f"features.hashed[{column!r}]", buckets, expected)
    numbers = settings.numeric.items()
    quantiles = [[column, ends] for column, ends in numbers if column in by_quantiles]
    learned = {
        "ranges": [[column, *ends] for column, ends in numbers if column not in by_quantiles],
        "categories": [
            [column, list(values)]
            for column, values in {**settings.categorical, **settings.tags}.items()
        ],
        # Left out where there are none, as in the features of earlier logs.
        **({"quantiles": quantiles} if quantiles else {}),
    }
    return Features.from_dict(
        {
            "kind": "features",
            "numeric": list(settings.numeric),
            "categorical": list(settings.categorical),
            "hashed": list(settings.hashed.items()),
            "interactions": settings.interactions,
            "intercept": settings.intercept,
            "max_norm": max_norm,
            "ignore": settings.ignore,
            "optional": settings.optional,
            "strict": settings.strict,
            "missing": settings.missing,
            "tags": list(settings.tags),
            "scale": list(settings.scale.items()),
            "other": settings.other,
            "fitted": learned,
        }
    )


def state_of(fold: "Fold", now: int) -> BanditState:
    """Returns the settings and the state of a bandit; ``now`` is in microseconds."""
    from belated.model.protocols import sqrt_beta
    from belated.model.state import ERROR

    learner, counts = fold.learner, fold.counts
    width = float(sqrt_beta(learner.policy, learner.state)) if learner.has_set else None
    return BanditState(
        name=fold.name,
        settings=msgspec.to_builtins(fold.spec),
        n_actions=len(fold.actions.listed),
        model_version=fold.version,
        n_decided=learner.n_decided,
        n_observed=learner.n_observed,
        n_pending=fold.pending.n_waiting,
        n_expired=counts.expired,
        n_late=counts.late,
        n_cancelled=counts.cancelled,
        theta=np.asarray(learner.state.theta).tolist(),
        certified_error=finite(float(learner.state.scalars[ERROR])),
        width=None if width is None else finite(width),
        n_held=fold.pending.n_held,
        waiting=fold.waiting_words(now),
        broken_assumptions=fold.broken_assumptions(),
        n_silent=fold.hearing.n_open if fold.hearing else 0,
        silent_failures=fold.hearing.failures if fold.hearing else 0.0,
    )


def finite(number: float) -> float | None:
    """Returns the number, or None if it is infinite or NaN, which JSON cannot hold."""
    return number if isfinite(number) else None
