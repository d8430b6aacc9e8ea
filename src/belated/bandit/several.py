"""Several decisions in one call: one of each of many sets, or several different ones of one set."""

from typing import Any

from belated.bandit.backend import Asked, Backend
from belated.bandit.inputs import action_rows, checked_names, decisions_asked, kept, names_asked
from belated.core.arguments import wrong
from belated.core.events import Decision
from belated.core.sparse import count_rows

USER = 6  # stacklevel of the user's line: user, Bandit, here, _checked, action_rows, the warning


def decide_many(
    backend: Backend, action_sets: Any, contexts: Any, names: Any, probabilities: bool | None
) -> list[Decision]:
    """Choose one action of each set and record all, or raise and record none."""
    backend.follow()
    asked, wanted = [], decisions_asked(action_sets, contexts)
    named = names_asked(names, len(wanted))
    for (name, actions, context), of_rows in zip(wanted, named, strict=True):
        try:
            asked.append(_checked(backend, actions, context, of_rows))
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{name}: {error}") from error
    return shown(backend.decide(asked, probabilities=probabilities), probabilities)


def decide_top(
    backend: Backend, actions: Any, context: Any, top: int, names: Any, probabilities: bool | None
) -> list[Decision]:
    """Choose ``top`` different actions, one after the other, and record all."""
    backend.follow()
    asked = _checked(backend, actions, context, names)
    n = count_rows(asked.rows)
    if top > n:
        raise wrong("top", top, f"at most {n}, the number of actions")
    return shown(backend.decide_top(asked, top, probabilities=probabilities), probabilities)


def shown(decisions: list[Decision], probabilities: bool | None) -> list[Decision]:
    """Returns the decisions, with probabilities only if they were asked for."""
    return decisions if probabilities else [without_probabilities(d) for d in decisions]


def without_probabilities(decision: Decision) -> Decision:
    """Returns the decision without the probabilities of all actions."""
    d = decision  # ``dataclasses.replace`` would take as long as a small decision itself
    return Decision(d.id, d.index, d.score, d.estimate, d.width, d.propensity)


def _checked(backend: Backend, actions: Any, context: Any, names: Any) -> Asked:
    """Returns vectors that the policy can choose from, with their names, or raise."""
    known, actions = backend.learner, kept(actions)
    rows = action_rows(
        actions, context, backend.features, known.dim, known.is_sparse, called_from=USER
    )
    known.check_norms(rows)
    return Asked(rows, context, actions, checked_names(names, count_rows(rows)))
