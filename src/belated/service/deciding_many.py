"""Several decisions of one request, in one transaction: batches, and rankings without repetition.

They are as durable as a single one, and may be sent again as well: every decision has a request id
of its own. There is no fallback while the store is down: the request is answered with 503.
"""

from collections.abc import Sequence
from typing import TypeAlias

from belated.core.events import Status
from belated.ledger.events import Outcome
from belated.ledger.proposing import Ask, in_place, rank_request
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.replica import Proposal, Replica
from belated.ledger.sticky import Begun
from belated.service.deciding import Made, answer_of, ask_of, changed, given_before, made_of
from belated.service.http.problems import INVALID, Problem
from belated.service.service import LARGE, Service
from belated.wire import DecisionAnswer, DecisionRequest, TopRequest

Drawn: TypeAlias = Proposal | TypeError | ValueError  # an error, where none could be drawn up


async def decide_many(
    service: Service, name: str, requests: Sequence[DecisionRequest]
) -> list[DecisionAnswer]:
    """Make all decisions, or none if one of the requests does not fit."""
    service.usable_fold(name)
    # however few bytes they have, their decisions may take as long as a large request
    asks = await service.worked_out(LARGE, _asks, requests)
    drawn = await service.worked_out(LARGE, _drawn_up, service.replica, name, asks)
    before: dict[int, Made] = {}
    for k, (ask, one) in enumerate(zip(asks, drawn, strict=True)):
        if not isinstance(one, Proposal):
            error = ValueError(f"decisions[{k}]: {one}")
            before[k] = await given_before(service, name, ask, error)
    new = iter(await _written(service, name, [one for one in drawn if isinstance(one, Proposal)]))
    return [answer_of(before[k] if k in before else next(new)) for k in range(len(asks))]


async def decide_top(service: Service, name: str, request: TopRequest) -> list[DecisionAnswer]:
    """Choose different actions one after the other, the first choice first."""
    service.usable_fold(name)
    try:
        ask = await service.worked_out(LARGE, ask_of, request)
    except (TypeError, ValueError) as error:
        raise Problem(INVALID, str(error)) from None
    try:
        proposals = await service.worked_out(
            LARGE, service.replica.propose_top, name, ask, request.top
        )
    except (TypeError, ValueError) as error:
        ranks = [rank_request(ask.request, rank) for rank in range(1, request.top + 1)]
        asks = [ask._replace(request=rank) for rank in ranks]
        made = [await given_before(service, name, one, error) for one in asks]
    else:
        made = await _written(service, name, proposals)
    bodies = in_place([one.body for one in made])
    return [answer_of(one._replace(body=b)) for one, b in zip(made, bodies, strict=True)]


def _asks(requests: Sequence[DecisionRequest]) -> list[Ask]:
    """Returns the requests as the replica takes them."""
    asks = []
    for k, request in enumerate(requests):
        try:
            asks.append(ask_of(request))
        except (TypeError, ValueError) as error:
            raise Problem(INVALID, f"decisions[{k}]: {error}") from None
    return asks


def _drawn_up(replica: Replica, name: str, asks: Sequence[Ask]) -> list[Drawn]:
    """Returns a proposal for each request, or the error that it raised.

    Where decisions are sticky, one subject gets one action in all requests.
    """
    drawn: list[Drawn] = []
    begun: dict[bytes, Begun] = {}
    for ask in asks:
        try:
            drawn.append(replica.propose(name, ask, begun))
        except (TypeError, ValueError) as error:
            drawn.append(error)
    return drawn


async def _written(service: Service, name: str, proposals: Sequence[Proposal]) -> list[Made]:
    """Write decisions in one transaction and return them; none if a request id was reused."""
    drafts = [draft for draft, _ in proposals]
    try:
        outcomes = await service.write(drafts, _refuse_reused) if drafts else []
    except RequestReusedError as error:
        raise changed(drafts[error.index].request) from None
    except StoreUnavailableError:
        for draft in drafts:
            if not draft.request:  # nobody can ask for it again
                service.abandon(name, draft.id)
        raise
    service.tally.decisions[name] += sum(one.status == Status.ACCEPTED for one in outcomes)
    return list(map(made_of, proposals, outcomes))


class RequestReusedError(ValueError):
    """The request id of the draft at ``index`` was used before with another body."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def _refuse_reused(outcomes: Sequence[Outcome]) -> None:
    for index, outcome in enumerate(outcomes):
        if outcome.status == Status.CONFLICT:
            raise RequestReusedError(index)
