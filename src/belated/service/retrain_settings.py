"""Translates the settings for which a caller wants a bandit retrained into those of a ledger."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from belated import registry
from belated.core.arguments import refuse_wide, wrong
from belated.core.extremes import refuse_extremes
from belated.features import fitting
from belated.ledger.protocol import Ledger
from belated.ledger.spec import Spec
from belated.service.settings import features_of
from belated.wire import Retraining, RetrainView

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.promotion import Promotion


def retrained_view(
    ledger: Ledger, bandit: str, given: Mapping[str, Any]
) -> "tuple[RetrainView, Promotion]":
    """Returns the comparison that a caller asks for, and the promotion that it is about."""
    from belated.ledger.tools.retraining import retrain

    try:
        wanted = msgspec.convert(given, Retraining)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise ValueError(f"{where.rstrip('`')}: {what}" if where else what) from None
    if wanted.back and wanted != Retraining(back=True, request_id=wanted.request_id):
        raise wrong("back", True, "no other settings beside it")
    return retrain(
        ledger,
        bandit,
        None if wanted.back else lambda known: retrained(known, wanted),
        wanted.request_id or "",
    )


def retrained(known: Spec, wanted: Retraining) -> Spec:
    """The settings of a bandit after a retraining, checked.

    Features are those that a new bandit with this policy would have. A loop that learns from
    silence holds open decisions where the new policy or family learns nothing from them.
    """
    from belated.learner import files

    given = {
        name: value
        for name, value in msgspec.structs.asdict(wanted).items()
        if name in Spec.__struct_fields__ and value is not None
    }
    for name, kind in (("policy", "POLICIES"), ("family", "FAMILIES")):
        if name in given:
            part = registry.parsed(getattr(registry, kind), given[name], name)
            refuse_extremes(part)
            given[name] = files.describe(kind, part)
    if given.get("half_life") == 0.0:
        given["half_life"] = None
    spec = msgspec.structs.replace(known, **given)
    if wanted.features is not None:
        features = features_of(wanted.features, spec.max_norm)
        features = fitting(features, files.rebuild("POLICIES", spec.policy, []))
        refuse_wide(features.dim)
        spec = msgspec.structs.replace(spec, features=features.to_dict(), dim=features.dim)
    if wanted.open is None and spec.open == "silence" and not spec.can_hear():
        spec = msgspec.structs.replace(spec, open="hold")
    return spec
