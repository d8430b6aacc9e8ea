"""One decision: the request to a bandit, and its answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from belated.core.arguments import shown, wrong
from belated.core.types import Matrix
from belated.ledger.events import Decided

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold


class Ask(NamedTuple):
    """A request for a decision.

    The actions are the registered ones (all, or the ``eligible``), or come as ``rows`` of features
    or as a ``matrix`` of vectors, with names or without.
    """

    context: Any = None
    context_json: bytes = b""
    eligible: Sequence[str] | None = None
    names: Sequence[str] | None = None
    rows: Sequence[Any] | None = None
    matrix: Matrix | None = None
    played: str | None = None  # in shadow mode: the action that the caller plays
    propensity: float | None = None  # probability with which the caller played it
    request: str = ""
    digest: bytes = b""
    subject: str = ""


NOTHING_SAID = Ask()  # choose one of all registered actions, without a context


def decide(fold: "Fold", ask: Ask, rng: np.random.Generator) -> Decided:
    """Returns the answer of a bandit to a request, with its reasons; nothing is written."""
    learner, spec = fold.learner, fold.spec
    names, matrix = options(fold, ask)
    registered = ask.rows is None and ask.matrix is None
    if registered and ask.eligible is None and fold.actions.features is None:
        choice = learner.choose_from(fold.actions.options(learner), rng)
    else:
        choice = learner.choose(matrix, rng)
    index, propensity = _explored(fold, choice.index, len(matrix), rng)
    proposal = ""
    if spec.mode == "shadow":
        played = ask.played or spec.baseline
        if played not in names:
            raise wrong("played", played, f"the action that is played, one of {names[:20]}")
        proposal, index, propensity = names[index], names.index(played), ask.propensity
    elif ask.played is not None:
        raise wrong("played", ask.played, "None: this bandit is not in shadow mode")
    x = matrix[index]
    score, estimate, width = choice.score, choice.estimate, choice.width
    if index != choice.index:
        estimate, width = float(x @ learner.state.theta), learner.interval_width(x)
        score = estimate + width
    return Decided(
        x.tobytes(),
        names[index],
        index,
        propensity,
        fold.version,
        spec.policy["type"],
        score,
        estimate,
        width,
        ask.context_json,
        None if ask.eligible is None else tuple(ask.eligible),
        proposal,
        None if ask.names is None else tuple(ask.names),
        matrix.tobytes() if spec.log_actions and not registered else b"",
        ask.request,
        ask.subject,
    )


def _explored(
    fold: "Fold", best: int, n: int, rng: np.random.Generator
) -> tuple[int, float | None]:
    """Returns the action to take and its probability, if that is known."""
    if fold.spreads:
        return int(rng.integers(n)), 1.0 / n
    share = fold.spec.exploration
    deterministic = fold.learner.stream(rng) is None
    index = best
    if share > 0.0 and rng.random() < share:
        index = int(rng.integers(n))
    if not deterministic:
        return index, None
    return index, share / n + (1.0 - share if index == best else 0.0)


def options(fold: "Fold", ask: Ask) -> tuple[Sequence[str], Matrix]:
    """Returns names and vectors of the actions to choose from."""
    actions = fold.actions
    if ask.rows is not None:
        matrix = actions.vectors(ask.rows, ask.context)
    elif ask.matrix is not None:
        matrix = ask.matrix
    else:
        for name in ask.eligible or ():
            if name not in actions.listed:
                raise wrong("eligible", name, f"a registered action of {shown(fold.name)}")
        names = list(actions.listed) if ask.eligible is None else ask.eligible
        if not names:
            raise ValueError(f"bandit {fold.name!r} has no action to choose from")
        return names, actions.matrix(ask.eligible, ask.context)
    if matrix.ndim != 2 or matrix.shape[1] != actions.dim or not len(matrix):
        raise ValueError(
            f"actions has shape {matrix.shape}: expected (K, {actions.dim}) with K >= 1"
        )
    names = [str(k) for k in range(len(matrix))] if ask.names is None else ask.names
    if len(names) != len(matrix):
        raise wrong("names", names, f"{len(matrix)}, one per action")
    return names, matrix
