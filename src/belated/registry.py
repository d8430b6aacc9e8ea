"""Names a user can type, and where each one lives. Nothing is imported until it is asked for."""

from difflib import get_close_matches
from importlib import import_module
from inspect import getdoc
from typing import Any

POLICIES = {
    "delayed-ofu-glm": "policies.delayed_ofu_glm:DelayedOFUGLM",
    "ducb-ridge": "policies.ducb_glcb:DUCBRidge",
    "ducb-literal": "policies.ducb_glcb:DUCBLiteral",
    "thompson": "policies.thompson:Thompson",
    "gloc": "policies.gloc:GLOC",
    "ada-ofu-ecolog": "policies.ecolog:AdaOFUECOLog",
    "glb-omd": "policies.glb_omd:GLBOMD",
    "lin-ts": "policies.lin_ts:LinTS",
    "inflated-ts": "policies.inflated_ts:InflatedTS",
    "evill": "policies.evill:EVILL",
    "glm-fpl": "policies.glm_fpl:GLMFPL",
    "polya-gamma": "policies.polya_gamma:PolyaGamma",
    "greedy": "policies.greedy:Greedy",
    "uniform": "policies.uniform:UniformPlay",
}
FAMILIES = {
    "gaussian": "families.gaussian:Gaussian",
    "bernoulli": "families.bernoulli:Bernoulli",
    "bounded": "families.bernoulli:Bounded",
    "binomial": "families.bernoulli:Binomial",
    "tanh": "families.tanh:Tanh",
    "probit": "families.probit:Probit",
    "poisson": "families.poisson:Poisson",
}
DELAYS = {
    "exponential": "delays:Exponential",
    "uniform": "delays:Uniform",
    "lomax": "delays:Lomax",
    "pareto": "delays:Pareto",
    "geometric": "delays:Geometric",
    "constant": "delays:Constant",
    "packet": "delays:PacketLoss",
    "empirical": "delays:Empirical",
    "never": "delays:Never",
    "informative": "delays:Informative",
}
ENVIRONMENTS = {
    "unit-ball": "environments:UnitBall",
    "sphere": "environments:Sphere",
    "fixed-arms": "environments:FixedArms",
}
FEEDBACK = {
    "identified": "feedback:Identified",
    "conversions": "feedback:Conversions",
    "aggregated": "feedback:Aggregated",
}


def load(registry: dict[str, str], name: str) -> Any:
    """The parameter type registered under ``name``.

    >>> load(FAMILIES, "poisson").__name__
    'Poisson'
    """
    if name not in registry:
        near = get_close_matches(name, registry, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"name = {name!r}: expected one of {', '.join(registry)}{hint}")
    module, attribute = registry[name].split(":")
    return getattr(import_module(f"belated.{module}"), attribute)


def summaries(registry: dict[str, str]) -> dict[str, str]:
    """The first line of what each one says of itself.

    >>> summaries(DELAYS)["never"]
    'No reward ever returns.'
    """
    return {name: (getdoc(load(registry, name)) or "").split("\n")[0] for name in registry}


def name_of(registry: dict[str, str], params: object) -> str | None:
    """The name under which the type of ``params`` is registered, if it is."""
    for name in registry:
        if load(registry, name) is type(params):
            return name
    return None


def parse(registry: dict[str, str], text: str) -> Any:
    """The parameters that ``text`` describes: a name, then values after a colon.

    >>> parse(DELAYS, "exponential:500")
    Exponential(expected=500.0)
    >>> parse(POLICIES, "ducb-ridge:delta=0.1,c=2").c
    2.0
    """
    name, _, rest = text.partition(":")
    kind = load(registry, name.strip())
    values: dict[str, Any] = {}
    for position, part in enumerate(filter(None, rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            if position or not kind._fields:
                raise ValueError(f"{text!r}: expected name:value or name:field=value,field=value")
            key, value = kind._fields[0], key
        if key not in kind._fields:
            near = get_close_matches(key, kind._fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            fields = ", ".join(kind._fields) or "none"
            raise ValueError(f"{key} in {text!r}: expected a parameter of {name} ({fields}){hint}")
        values[key] = _value(value)
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r}: {error}") from None


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def spell(registry: dict[str, str], params: Any) -> str:
    """Text that ``parse`` reads, for parameters that are numbers: what differs from the defaults.

    >>> from belated.delays import Exponential
    >>> spell(DELAYS, Exponential(500.0))
    'exponential:500'
    """
    name = name_of(registry, params) or type(params).__name__
    defaults = getattr(params, "_field_defaults", {})
    parts = []
    for position, (field, value) in enumerate(getattr(params, "_asdict", dict)().items()):
        first_of_a_delay = position == 0 and registry is DELAYS and not isinstance(value, tuple)
        if first_of_a_delay or not _alike(value, defaults.get(field)):
            number = (
                f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else ""
            )
            parts.append((number or str(value)) if position == 0 else f"{field}={number or value}")
    return f"{name}:{','.join(parts)}" if parts else name


def _alike(a: Any, b: Any) -> bool:
    return type(a) is type(b) and str(a) == str(b)


def example_policy(policy_type: Any, family: Any) -> Any:
    """The policy with its defaults; with an R of 1 and a horizon of 100 where none is on offer."""
    values: dict[str, Any] = {}
    if family.R is None and "R" in policy_type._fields:
        values["R"] = 1.0
    if "horizon" in policy_type._fields:
        values["horizon"] = 100
    return policy_type(**values)
