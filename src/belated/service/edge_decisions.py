"""Deciding elsewhere: the model document that others decide by, and the decisions they made."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from belated.core.arguments import NORM_ROUNDING, shown, wrong
from belated.core.events import Status
from belated.core.sparse import LARGEST_ENTRY, SparseRows
from belated.core.times import iso, moment
from belated.ledger.events import Decided, Draft, Kind
from belated.ledger.ids import from_text, time_of
from belated.ledger.rules import LEEWAY
from belated.ledger.vectors import packed
from belated.service.http.problems import INVALID, Problem, ProblemType
from belated.service.service import LARGE, Service
from belated.wire import MadeAnswer, MadeDecision, ModelDocument

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

NOT_SCORABLE = ProblemType(409, "not-scorable", "The bandit cannot decide elsewhere")


async def model_document(service: Service, name: str) -> ModelDocument:
    """Returns the model document of a bandit, as it is now."""
    from belated.ledger.tools.model_documents import document_of  # it needs Numba

    fold = service.usable_fold(name)
    try:
        return await service.worked_out(LARGE, document_of, fold, service.replica.clock())
    except ValueError as error:
        raise Problem(NOT_SCORABLE, str(error)) from None


async def take_made(service: Service, name: str, items: Sequence[MadeDecision]) -> MadeAnswer:
    """Write the decisions that fit; returns what became of each."""
    if service.fold(name).spec.mode == "shadow":
        raise Problem(INVALID, "This bandit is in shadow mode: the caller plays.")
    now = service.replica.clock()
    drafts: list[Draft | str] = []
    for item in items:
        try:
            drafts.append(_draft(service, name, item, now))
        except ValueError as error:
            drafts.append(str(error))
    well = [draft for draft in drafts if isinstance(draft, Draft)]
    written = iter(await service.write(well) if well else [])
    statuses = [
        next(written).status if isinstance(draft, Draft) else Status.INVALID for draft in drafts
    ]
    for item, draft, status in zip(items, drafts, statuses, strict=True):
        if status is Status.ACCEPTED and isinstance(draft, Draft):
            age = (draft.time - moment("model_time", item.model_time)) / 1e6
            service.tally.made_elsewhere(name, max(age, 0.0))
    return MadeAnswer(statuses, [draft if isinstance(draft, str) else "" for draft in drafts])


def _draft(service: Service, name: str, item: MadeDecision, now: int) -> Draft:
    """Returns the event of a decision, or raises where it does not fit the bandit."""
    fold = service.fold(name)
    id = from_text(item.decision_id)
    if id is None or id[6] >> 4 != 7:
        raise wrong("decision_id", item.decision_id, "a UUID of version 7, in small letters")
    time = time_of(id)
    if time > now + LEEWAY:
        raise wrong("decision_id", iso(time), f"no time after now, {iso(now)}")
    moment("model_time", item.model_time)
    _refuse_wrong_place(fold, item)
    body = Decided(
        _vector(service, name, item),
        item.action,
        item.index,
        item.propensity,
        item.model_version,
        fold.spec.policy["type"],
        math.nan if item.score is None else item.score,
        item.estimate,
        0.0,
        b"" if item.context is None else msgspec.json.encode(item.context),
        None if item.eligible is None else tuple(item.eligible),
        subject=item.subject or "",
        n_actions=item.n_actions,
    )
    due, closes = fold.spec.window_at(time)
    return Draft(
        *(Kind.DECIDED, name, id, time, None, due, msgspec.msgpack.encode(body)),
        subject=item.subject or "",
        closes=closes,
        combine=fold.spec.combine,
    )


def _refuse_wrong_place(fold: "Fold", item: MadeDecision) -> None:
    """Raises where the index is not that of the action among those that could be chosen.

    Which actions could be chosen is known where the decision names them, and where none was
    registered or withdrawn since its model was made.
    """
    if item.index >= item.n_actions:
        raise wrong("index", item.index, f"less than n_actions = {item.n_actions}")
    if item.eligible is not None:
        names = item.eligible
    elif item.model_version >= fold.listed_since:
        names = list(fold.actions.listed)
    else:
        return
    if item.n_actions != len(names):
        raise wrong("n_actions", item.n_actions, f"{len(names)}, the actions to choose from")
    if names[item.index] != item.action:
        said = f"the place of {shown(item.action)}: that is {shown(names[item.index])}"
        raise wrong("index", item.index, said)


def _vector(service: Service, name: str, item: MadeDecision) -> bytes:
    """Returns the vector of the action that was played, as a log holds it."""
    fold = service.fold(name)
    if not fold.earlier.knows(item.dim):
        raise wrong("dim", item.dim, f"{fold.spec.dim}, the number of features, or an earlier one")
    columns, values = np.array(item.columns, np.int32), np.array(item.values, np.float64)
    if len(columns) != len(values) or not (np.diff(columns, append=item.dim) > 0).all():
        said = f"ascending numbers below dim = {item.dim}, one for each of values"
        raise wrong("columns", item.columns, said)
    if fold.learner.is_sparse:
        if (np.abs(values) > LARGEST_ENTRY).any():
            raise wrong("values", item.values, f"numbers of size {LARGEST_ENTRY:g} at most")
        return packed(SparseRows(columns[np.newaxis], values[np.newaxis]), 0, item.dim)
    longest = fold.spec.bound
    if not np.linalg.norm(values) <= longest * NORM_ROUNDING:
        raise wrong("values", shown(item.values), f"a vector of norm {longest:g} at most")
    vector = np.zeros(item.dim)
    vector[columns] = values
    return vector.tobytes()
