"""Kinds of feedback: the part of a reward that is seen. A policy says which kind it learns from.

>>> Conversions(window=30.0)
Conversions(window=30.0)
>>> feedback_named("aggregated")
Aggregated()
"""

import math
from typing import Any, NamedTuple

from belated import registry
from belated.core.arguments import not_negative, parameters, wrong, wrong_type
from belated.model.protocols import Family, feedback_of, refuse_family


@parameters
class Identified(NamedTuple):
    """Every reward returns with the decision it belongs to."""

    def checked(self) -> "Identified":
        """Returns itself: there is nothing to check."""
        return self


@parameters
class Conversions(NamedTuple):
    """Only successes return: a zero is never seen, nor is a success later than the window.

    Parameters
    ----------
    window
        Rounds after which a success is not waited for any more; infinite by default.
    """

    window: float = math.inf

    def checked(self) -> "Conversions":
        """Raises where a parameter does not fit."""
        if self.window == math.inf:
            return self
        return self._replace(window=not_negative("window", self.window))


@parameters
class Aggregated(NamedTuple):
    """One number per round: the sum of the rewards that return in it, without their decisions."""

    def checked(self) -> "Aggregated":
        """Returns itself: there is nothing to check."""
        return self


Feedback = Identified | Conversions | Aggregated


def feedback_named(feedback: Any) -> Feedback:
    """The feedback itself, given it or its name (``"conversions:window=30"``)."""
    if isinstance(feedback, str):
        feedback = registry.parse(registry.FEEDBACK, feedback)
    if not isinstance(feedback, Feedback):
        raise wrong_type("feedback", feedback, f"one of {', '.join(registry.FEEDBACK)}")
    return feedback


def name_of(feedback: Feedback) -> str:
    """The name a policy declares."""
    return str(registry.name_of(registry.FEEDBACK, feedback))


def feedback_for(policy: Any) -> Feedback:
    """The feedback that the policy learns from, with its window if it has one, or defaults."""
    name, window = feedback_of(policy), getattr(policy, "window", None)
    feedback = Identified() if name == "any" else feedback_named(name)
    if isinstance(feedback, Conversions) and window is not None:
        return Conversions(window)
    return feedback


def whole_window(feedback: Conversions) -> float:
    """The number of whole rounds in which a conversion counts: an int, or infinity."""
    return feedback.window if feedback.window == math.inf else math.floor(feedback.window)


def with_window(policy: Any, feedback: Feedback) -> Any:
    """The policy, told the window of the feedback where it asks for it."""
    if not isinstance(feedback, Conversions) or getattr(policy, "window", 0) is not None:
        return policy
    return policy._replace(window=whole_window(feedback))


def check_window(policy: Any, feedback: Feedback) -> None:
    """Raises where the policy expects conversions to be waited for shorter or longer."""
    window = getattr(policy, "window", None)
    if isinstance(feedback, Conversions) and window not in (
        None,
        feedback.window,
        whole_window(feedback),
    ):
        raise wrong("window", window, f"{feedback.window:g} as in the feedback, or None")


def check_feedback(policy: Any, family: Family, feedback: Feedback) -> None:
    """Raises where the policy cannot learn from what is seen, or the family does not fit it."""
    refuse_family(policy, family)
    wanted, offered = feedback_of(policy), name_of(feedback)
    if wanted not in (offered, "any"):
        raise ValueError(
            f"feedback = {offered}: {type(policy).__name__} learns from {wanted} feedback; pass "
            f"feedback={wanted!r}, or another policy"
        )
    low, high, integer = family.support
    if isinstance(feedback, Conversions) and not (low == 0.0 and high == 1.0 and integer):
        raise wrong("family", family, "rewards of 0 or 1 (Bernoulli), where only ones return")
    check_window(policy, feedback)
