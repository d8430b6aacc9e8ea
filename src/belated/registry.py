"""Names a user can type, and where each one lives. Nothing is imported until it is asked for."""

from difflib import get_close_matches
from importlib import import_module
from inspect import getdoc
from typing import Any

POLICIES = {
    "delayed-ofu-glm": "policies.delayed_ofu_glm:DelayedOFUGLM",
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


def example_policy(policy_type: Any, family: Any) -> Any:
    """The policy with its defaults, and an R of 1 where the family has none to offer."""
    needs_R = family.R is None and "R" in policy_type._fields
    return policy_type(R=1.0) if needs_R else policy_type()
