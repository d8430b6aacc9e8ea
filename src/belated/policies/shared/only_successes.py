"""Code for policies that learn where only successes return."""

from typing import Any, TypeVar

from belated.model.protocols import Family

P = TypeVar("P")


def learns_from_successes(policy_type: type[P]) -> type[P]:
    """Class decorator for a policy of rewards of 0 or 1, of which only ones return."""
    made: Any = policy_type
    made.feedback, made.refuses = "conversions", _refuses
    return policy_type


def _refuses(policy: Any, family: Family) -> str:
    """Returns why the policy refuses this family; empty where rewards are 0 or 1."""
    low, high, integer = family.support
    fits = low == 0.0 and high == 1.0 and integer
    return "" if fits else "learns from rewards of 0 or 1 (Bernoulli), of which ones return"
