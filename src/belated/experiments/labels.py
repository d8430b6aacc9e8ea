"""The labels under which the parts of an experiment appear in tables, figures and reports."""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from belated import registry
from belated.core.arguments import wrong, wrong_type
from belated.engine.conversion_lane import Served
from belated.model.plain_policy import is_own
from belated.model.protocols import choose
from belated.worlds.delays import Empirical

OFU = "delayed-ofu-glm"
PAPER_FAMILIES = {"gaussian": "linear", "bernoulli": "logistic"}
PARETO_LAWS = {"lomax": "Pareto (Lomax)", "pareto": "Pareto (type I)"}
HOLD = "hold "  # before a policy: see ``parsed_policy``
FEW = 5  # delays that a label can name
LABEL = re.compile(r"[^\W_][^$\x00-\x1f]{0,59}")  # figures can show these: no TeX, nothing hidden


def family_name(family: str) -> str:
    """Returns the name of a reward family in the paper's words."""
    return PAPER_FAMILIES.get(family, family)


def law_name(law: str) -> str:
    """Returns the name of a delay law, which tells the two readings of Pareto apart."""
    return PARETO_LAWS.get(law, law)


def listed(name: str, values: Any) -> list[Any]:
    """Returns the values as a list; a single value becomes a list of one."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        values = [values]
    values = list(values)
    if not values:
        raise wrong(name, values, "at least one")
    return values


def _is_policy(value: Any) -> bool:
    return type(value) in choose.cases or is_own(value)


class Labelled(NamedTuple):
    """A policy under a name that the user chose."""

    label: str
    policy: Any


def labelled_policies(policies: Any) -> list[Any]:
    """Returns the policies one by one; those of a mapping, and texts with a label such as
    ``"wide=thompson:scale=2"``, are ``Labelled``.

    >>> labelled_policies(["greedy", "wide=thompson:scale=2"])
    ['greedy', Labelled(label='wide', policy='thompson:scale=2')]
    """
    if isinstance(policies, Mapping) and policies:
        return [Labelled(label, policy) for label, policy in policies.items()]
    return [_read_label(policy) for policy in listed("policies", policies)]


def _read_label(policy: Any) -> Any:
    name = policy.partition(":")[0] if isinstance(policy, str) else ""
    if "=" not in name:
        return policy
    label, _, rest = policy.partition("=")
    return Labelled(label.strip(), rest.strip())


def policies_by_label(policies: Any) -> dict[str, Any]:
    """Returns all policies by label: the user's own label if there is one."""
    given = labelled_policies(policies)
    own = [thing.label if isinstance(thing, Labelled) else None for thing in given]
    for label in own:
        if label is not None and not (isinstance(label, str) and LABEL.fullmatch(label)):
            raise wrong("policies", label, "a label: 1 to 60 characters, a letter or digit first")
    things = [thing.policy if isinstance(thing, Labelled) else thing for thing in given]
    return labelled("policies", registry.POLICIES, things, _is_policy, own)


def parsed_policy(given: Any, known: dict[str, str] = registry.POLICIES) -> Any:
    """Returns a policy, given it or its text; "hold " before it lets it wait for windows to close.

    >>> parsed_policy("hold greedy").open
    'hold'
    """
    if isinstance(given, str) and given.startswith(HOLD):
        return Served(registry.parse(known, given.removeprefix(HOLD).strip()), "hold")
    return registry.parsed(known, given)


def _checked(name: str, known: dict[str, str], value: Any, fits: Any) -> Any:
    is_policy = known is registry.POLICIES
    thing = parsed_policy(value) if is_policy else registry.parsed(known, value)
    if isinstance(thing, type) or not fits(thing):
        raise wrong_type(name, value, f"names, such as {next(iter(known))}, or objects")
    return thing


def labelled(
    name: str,
    known: dict[str, str],
    values: Any,
    fits: Any,
    own: Sequence[str | None] | None = None,
) -> dict[str, Any]:
    """Returns the things by label: the short name if it tells them apart, else all parameters.

    ``own`` has the labels that the user chose, None for a thing without one.
    """
    things = [_checked(name, known, value, fits) for value in listed(name, values)]
    short = [_short_name(known, thing) for thing in things]
    chosen = own or [None] * len(things)
    automatic = [label for label, mine in zip(short, chosen, strict=True) if mine is None]
    labels = [
        mine
        or (
            label
            if automatic.count(label) == 1 and known is not registry.DELAYS
            else _spelled(known, thing)
        )
        for thing, label, mine in zip(things, short, chosen, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            hint = "; label them, as in {'a': ..., 'b': ...}" if name == "policies" else ""
            raise wrong(name, label, f"each one once{hint}")
    return dict(zip(labels, things, strict=True))


def _spelled(known: dict[str, str], thing: Any) -> str:
    if isinstance(thing, Served):
        return f"{thing.open} {_spelled(known, thing.policy)}"
    if isinstance(thing, Empirical) and len(thing.values) > FEW:
        digest = sha256(thing.values.tobytes()).hexdigest()[:8]
        return f"empirical, median {np.median(thing.values):.4g} ({digest})"
    plain = is_own(thing) and not hasattr(thing, "_asdict")
    text = _attributes(known, thing) if plain else registry.spell(known, thing)
    return text if len(text) <= 60 else f"{text[:40]}...{sha256(text.encode()).hexdigest()[:8]}"


def _attributes(known: dict[str, str], thing: Any) -> str:
    """Returns a plain policy's name with the numbers and texts that it was made with."""
    values = [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in getattr(thing, "__dict__", {}).items()
        if isinstance(value, bool | int | float | str) and not key.startswith("_") and key != "name"
    ]
    return ":".join([_short_name(known, thing), *([",".join(values)] if values else [])])


def _short_name(known: dict[str, str], thing: Any) -> str:
    if isinstance(thing, Served):
        return f"{thing.open} {_short_name(known, thing.policy)}"
    own = getattr(thing, "name", None) if is_own(thing) else None
    return own or registry.name_of(known, thing) or type(thing).__name__
