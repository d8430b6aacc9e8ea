"""Decisions: from a request to a proposal, from what was written to an answer."""

import base64
import binascii
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from belated.core.arguments import array_of_numbers, shown, wrong
from belated.core.events import Status
from belated.core.types import Matrix
from belated.ledger.events import Decided, Outcome
from belated.ledger.ids import to_text
from belated.ledger.proposing import NOTHING_SAID, Ask
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.replica import Proposal
from belated.service.http.problems import INVALID, Problem, ProblemType
from belated.service.service import Service
from belated.service.settings import finite
from belated.wire import Base64Matrix, DecisionAnswer, DecisionRequest, RankingRequest

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

REQUEST_CHANGED = ProblemType(
    409, "request-id-reused", "The request_id was used before with another body"
)
EMPTY = DecisionRequest()
_canonical = msgspec.msgpack.Encoder(order="deterministic")
_decided = msgspec.msgpack.Decoder(Decided)


async def decide(
    service: Service, name: str, request: DecisionRequest, size: int = 0
) -> DecisionAnswer:
    """Choose, write, answer: never with an action that was not logged, unless it says so.

    ``size`` is that of the request in bytes.
    """
    fold = service.usable_fold(name)
    try:
        ask = await service.worked_out(size, ask_of, request)
    except (TypeError, ValueError) as error:
        raise Problem(INVALID, str(error)) from None
    try:
        work = work_of(fold, request)
        proposal = await service.worked_out(size, service.replica.propose, name, ask, work=work)
    except (TypeError, ValueError) as error:
        return answer_of(await given_before(service, name, ask, error))
    try:
        (outcome,) = await service.write([proposal.draft])
    except StoreUnavailableError:
        asks_again = request.request_id is not None
        answer = without_store(service, name, request, proposal.draft.id, asks_again=asks_again)
        if answer is None:
            raise
        return answer
    if outcome.status == Status.ACCEPTED:
        service.tally.decisions[fold.name] += 1
    return answer_of(made_of(proposal, outcome))


def work_of(fold: "Fold", request: RankingRequest) -> int:
    """Returns how much is to be compared: a request of few bytes may be about thousands of actions.

    See ``Service.worked_out``.
    """
    if isinstance(request.matrix, Base64Matrix):
        n_actions = request.matrix.rows
    else:
        n_actions = len(
            request.eligible or request.actions or request.matrix or fold.actions.listed
        )
    return work_among(fold, n_actions)


def work_among(fold: "Fold", n_actions: int) -> int:
    """Returns how much is to be compared to choose one of as many actions."""
    return n_actions * min(n_actions, fold.spec.dim)


def ask_of(request: DecisionRequest) -> Ask:
    """The request as the loop takes it."""
    if request == EMPTY:
        return NOTHING_SAID
    given = [request.eligible, request.actions, request.matrix]
    if sum(part is not None for part in given) > 1:
        raise ValueError("expected one of eligible, actions and matrix at most")
    if request.eligible is not None:  # twice would be drawn twice as often as its propensity says
        _check_once("eligible", request.eligible)
    names = rows = matrix = None
    if request.actions is not None:
        names = [action.id for action in request.actions]
        rows = [action.features for action in request.actions]
        _check_once("actions", names)
    elif request.matrix is not None:
        matrix = _matrix(request.matrix)
        if request.context is not None:
            raise wrong("context", request.context, "nothing with a matrix, which holds it already")
    digest = b""
    if request.request_id is not None:
        digest = blake2b(_canonical.encode(request), digest_size=16).digest()
    return Ask(
        context=request.context,
        context_json=b"" if request.context is None else msgspec.json.encode(request.context),
        eligible=request.eligible,
        names=names,
        rows=rows,
        matrix=matrix,
        played=request.played,
        propensity=request.propensity,
        request=request.request_id or "",
        digest=digest,
        subject=request.subject or "",
        probabilities=request.probabilities,
    )


def _check_once(name: str, ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        raise wrong(name, ids, "every id once")


def _matrix(given: Base64Matrix | list[list[float]]) -> Matrix:
    if not isinstance(given, Base64Matrix):
        return array_of_numbers("matrix", given)
    try:
        numbers = np.frombuffer(base64.b64decode(given.base64, validate=True), "<f8")
        return np.ascontiguousarray(numbers.reshape(given.rows, -1), np.float64)
    except (binascii.Error, ValueError) as error:
        raise ValueError(
            f"matrix.base64 = {shown(given.base64[:40])}: expected base64 of {given.rows} rows of "
            f"float64 numbers ({error})"
        ) from None


class Made(NamedTuple):
    """A decision in the log."""

    id: bytes
    body: Decided
    retried: bool  # whether the request had been made before


def made_of(proposal: Proposal, outcome: Outcome) -> Made:
    """Returns the decision that a request has got, now or before."""
    if outcome.status == Status.CONFLICT:
        raise changed(proposal.body.request)
    if outcome.earlier is not None:
        return Made(outcome.earlier.id, _decided.decode(outcome.earlier.body), True)
    return Made(proposal.draft.id, proposal.body, False)


def answer_of(made: Made) -> DecisionAnswer:
    """Returns the answer to the caller, once the decision is in the log."""
    id, body, retried = made
    return DecisionAnswer(
        action=body.action,
        index=body.index,
        logged=True,
        decision_id=to_text(id),
        propensity=body.propensity,
        score=finite(body.score),
        estimate=body.estimate,
        width=finite(body.width),
        model_version=body.version,
        proposal=body.proposal or None,
        retried=retried,
        probabilities=None if body.probabilities is None else list(body.probabilities),
        held_out=body.held_out,
        repeats=to_text(body.repeats) if body.repeats else None,
    )


async def given_before(service: Service, name: str, ask: Ask, error: Exception) -> Made:
    """The decision of a request that is sent again, though the bandit could not make it now.

    Its actions or its mode may have changed since. If there is none, ``error`` is the answer.
    """
    found = None
    if ask.request:
        found = await service.from_store(lambda ledger: ledger.requested(name, ask.request))
    if found is None:
        raise Problem(INVALID, str(error)) from None
    event, digest = found
    if digest != ask.digest:
        raise changed(ask.request)
    return Made(event.id, _decided.decode(event.body), True)


def changed(request: str) -> Problem:
    """Returns the problem of a request id that was used before with another body."""
    detail = f"request_id = {shown(request)}: expected the body it had before"
    return Problem(REQUEST_CHANGED, detail)


def without_store(
    service: Service, name: str, request: DecisionRequest, id: bytes, *, asks_again: bool
) -> DecisionAnswer | None:
    """The answer to a request whose decision ``id`` could not be written: the fallback, if any.

    ``asks_again`` says whether the caller can send the same request again.
    """
    answer = _fallback(service, name, request)
    if answer is not None:
        service.tally.not_logged[name] += 1
    if answer is not None or not asks_again:
        service.abandon(name, id)
    return answer


def _fallback(service: Service, name: str, request: DecisionRequest) -> DecisionAnswer | None:
    """The action to take while the store is down, where one was set and is allowed."""
    fold = service.fold(name)
    names: Any = request.eligible
    if request.actions is not None:
        names = [action.id for action in request.actions]
    elif request.matrix is not None:
        return None
    elif names is None:
        names = list(fold.actions.listed)
    if fold.spec.fallback not in names:
        return None
    action = fold.spec.fallback
    return DecisionAnswer(action=action, index=names.index(action), logged=False)
