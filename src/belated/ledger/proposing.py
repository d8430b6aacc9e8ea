"""One decision: the request to a bandit, and its answer."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from belated.core.arguments import shown, wrong
from belated.core.sparse import SparseRows, count_rows, dense, without_row
from belated.core.top import Places
from belated.core.types import Matrix, Vector
from belated.ledger.events import BY_FEATURES, BY_PLACE, Decided, Stretch
from belated.ledger.sticky import Begun
from belated.ledger.vectors import as_sparse, packed

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.learner.learner import Choice
    from belated.ledger.fold import Fold

T = TypeVar("T")


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
    matrix: Matrix | SparseRows | None = None
    played: str | None = None  # in shadow mode: the action that the caller plays
    propensity: float | None = None  # probability with which the caller played it
    request: str = ""
    digest: bytes = b""
    subject: str = ""
    probabilities: bool = False  # whether to log the probabilities of all actions
    rank: int = 1  # the place in a ranking that this decision is for
    naming: str = ""  # how the actions got their ``names``, see ``Decided``


NOTHING_SAID = Ask()  # choose one of all registered actions, without a context


def decide(
    fold: "Fold",
    ask: Ask,
    rng: np.random.Generator,
    *,
    held_out: bool = False,
    again: Begun | None = None,
    until: int | None = None,
) -> Decided:
    """Returns the answer of a bandit to a request, with its reasons; nothing is written.

    A decision that is held out plays the baseline, and logs what the model thinks of it. The action
    of the stretch ``again`` is played once more, if it can be; any other choice begins a stretch
    that ends at ``until``, if that is given.
    """
    learner, spec = fold.learner, fold.spec
    names, rows = options(fold, ask, sparse=learner.is_sparse)
    registered = ask.rows is None and ask.matrix is None
    repeats = again.id if again is not None and again.action in names else b""
    weighed = spec.mode == "live" and not (fold.spreads or held_out or repeats)
    if registered and ask.eligible is None and fold.actions.features is None:
        choice = fold.choose_among_all(rng, weighed)
    else:
        choice = learner.choose(rows, rng, weighed)
    chances: Vector | None
    if again is not None and repeats:
        index, chances = _for_certain(names, again.action)
    elif held_out:
        index, chances = _baseline(names, spec.baseline, rng)
    else:
        index, chances = _explored(fold, choice, len(names), rng)
    propensity = None if chances is None else float(chances[index])
    proposal = ""
    if spec.mode == "shadow":
        played = ask.played or spec.baseline
        if played not in names:
            raise wrong("played", played, f"the action that is played, one of {names[:20]}")
        proposal, index, propensity = names[index], names.index(played), ask.propensity
    elif ask.played is not None:
        raise wrong("played", ask.played, "None: this bandit is not in shadow mode")
    score, estimate, width = choice.score, choice.estimate, choice.width
    if index != choice.index:
        from belated.learner.action_intervals import interval_width

        x = dense(rows, learner.dim)[index]
        estimate, width = float(x @ learner.state.theta), interval_width(learner, x)
        score = estimate + width
    return Decided(
        packed(rows, index, learner.dim),
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
        _names_to_log(fold, ask),
        dense(rows, learner.dim).tobytes() if spec.log_actions and not registered else b"",
        ask.request,
        ask.subject,
        len(names),
        tuple(chances.tolist()) if chances is not None and ask.probabilities else None,
        held_out,
        None if until is None or repeats else Stretch(until, ask.rank),
        repeats,
        fold.told.regime,
        fold.told.layout,
        _naming(ask),
    )


def _naming(ask: Ask) -> str:
    """Returns how the actions of a request got their names; see ``Decided``."""
    came = ask.rows is not None or ask.matrix is not None
    return BY_PLACE if came and ask.names is None else ask.naming


def _names_to_log(fold: "Fold", ask: Ask) -> tuple[str, ...] | None:
    """Returns the names that came with a request.

    Those made of features would take more room than all else: they go with logged features only.
    """
    if ask.names is None or (ask.naming == BY_FEATURES and not fold.spec.log_actions):
        return None
    return tuple(ask.names)


def _for_certain(names: Sequence[str], action: str) -> tuple[int, Vector]:
    """Returns the place of an action that is played whatever the model thinks, and all chances."""
    index = names.index(action)
    return index, np.eye(1, len(names), index)[0]


def _baseline(names: Sequence[str], baseline: str, rng: np.random.Generator) -> tuple[int, Vector]:
    """Returns the action of a decision that is held out, and the probabilities of all."""
    n = len(names)
    if baseline in names:
        return _for_certain(names, baseline)
    return int(rng.integers(n)), np.full(n, 1.0 / n)


def _explored(
    fold: "Fold", choice: "Choice", n: int, rng: np.random.Generator
) -> tuple[int, Vector | None]:
    """Returns the action to take and the probabilities of all; None in shadow mode."""
    if fold.spreads:
        return int(rng.integers(n)), np.full(n, 1.0 / n)
    share, index = fold.spec.exploration, choice.index
    if share > 0.0 and rng.random() < share:
        index = int(rng.integers(n))
    if choice.probabilities is None or share == 0.0:
        return index, choice.probabilities
    return index, share / n + (1.0 - share) * choice.probabilities


def others(fold: "Fold", ask: Ask, index: int) -> Ask:
    """Returns the same request without the action at ``index``."""
    names, naming = _without(names_of(fold, ask), index), _naming(ask)
    if ask.matrix is not None:
        rest = without_row(ask.matrix, index)
        return ask._replace(names=names, matrix=rest, naming=naming)
    if ask.rows is not None:
        return ask._replace(names=names, rows=_without(ask.rows, index), naming=naming)
    return ask._replace(eligible=names)


def _without(items: Iterable[T], index: int) -> list[T]:
    return [item for k, item in enumerate(items) if k != index]


def rank_request(request: str, rank: int) -> str:
    """Returns the request id of one decision of a ranking; a bandit has every id once.

    >>> rank_request("page-7", 1), rank_request("page-7", 2)
    ('page-7', 'page-7 (rank 2)')
    """
    return f"{request} (rank {rank})" if request and rank > 1 else request


def in_place(ranked: Sequence[Decided]) -> list[Decided]:
    """Returns the decisions of a ranking with indices and probabilities among all its actions.

    In the log they are those among the actions that were left.
    """
    places, found = Places(ranked[0].n_actions), []
    for body in ranked:
        logged = body.probabilities
        index, chances = places.take(body.index, None if logged is None else np.array(logged))
        shown = None if chances is None else tuple(chances.tolist())
        found.append(msgspec.structs.replace(body, index=index, probabilities=shown))
    return found


def names_of(fold: "Fold", ask: Ask) -> Sequence[str]:
    """Returns the names of the actions to choose from: their places, where they have none."""
    if ask.names is not None:
        return ask.names
    if ask.matrix is not None:
        return [str(k) for k in range(count_rows(ask.matrix))]
    if ask.rows is not None:
        return [str(k) for k in range(len(ask.rows))]
    return list(fold.actions.listed) if ask.eligible is None else ask.eligible


def options(fold: "Fold", ask: Ask, sparse: bool = False) -> tuple[Sequence[str], Any]:
    """Returns names and vectors of the actions to choose from, sparse where that is asked for."""
    actions, names = fold.actions, names_of(fold, ask)
    if ask.rows is not None:
        matrix = actions.vectors(ask.rows, ask.context, sparse)
    elif ask.matrix is not None:
        matrix = _vectors(ask.matrix, actions.dim, sparse)
    else:
        for name in ask.eligible or ():
            if name not in actions.listed:
                raise wrong("eligible", name, f"a registered action of {shown(fold.name)}")
        if not names:
            raise ValueError(f"bandit {fold.name!r} has no action to choose from")
        return names, actions.matrix(ask.eligible, ask.context, sparse)
    n = count_rows(matrix)
    if len(names) != n:
        raise wrong("names", names, f"{n}, one per action")
    return names, matrix


def _vectors(given: Matrix | SparseRows, dim: int, sparse: bool) -> Matrix | SparseRows:
    """Returns vectors that came with a request, of the right length, sparse if asked for."""
    if isinstance(given, SparseRows):
        return given
    if given.ndim != 2 or given.shape[1] != dim or not len(given):
        raise ValueError(f"actions has shape {given.shape}: expected (K, {dim}) with K >= 1")
    return as_sparse(given) if sparse else given
