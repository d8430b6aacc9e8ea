"""Rank, reward and activate as Azure Personalizer v1.0 had them, for programs written for it.

One bandit stands behind them. The caller's ``eventId`` is the request id of a decision: a rank
call may be sent again. Differences that a caller can see are in docs/how-to/service.md.
"""

from collections.abc import Container, Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import msgspec
from msgspec import Meta

from belated import wire
from belated.core.arguments import shown, wrong
from belated.core.events import Status
from belated.ledger.events import Decided, Draft, Event, Kind
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.replica import Proposal, reward_draft
from belated.service.deciding import (
    REQUEST_CHANGED,
    answer_of,
    ask_of,
    made_of,
    without_store,
    work_among,
)
from belated.service.http.access_log import DECISION
from belated.service.http.api import Api, Call
from belated.service.http.openapi import Link
from belated.service.http.problems import FORBIDDEN, INVALID, Problem, ProblemType
from belated.service.service import NO_BANDIT, Service

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

NO_EVENT = ProblemType(404, "unknown-event", "There is no event of this id")
NOT_ACTIVE = ProblemType(409, "event-not-activated", "The event was deferred and never activated")
OTHER_REWARD = ProblemType(409, "other-reward", "The event has another reward already")
ACTIVATED = "belated:activated:"  # before an eventId: the request that activation makes of it
DEEPEST = 8  # objects in objects

EventId = Annotated[str, Meta(min_length=1, max_length=256, pattern=wire.NO_NUL)]
FeatureSets = list[dict[str, Any]]


class RankableAction(wire.Request):
    """An action to choose from."""

    id: wire.ActionName
    features: FeatureSets | None = None


class RankRequest(wire.Request, rename="camel"):
    """Actions to choose one of."""

    actions: Annotated[list[RankableAction], Meta(min_length=1, max_length=wire.MOST_ACTIONS)]
    context_features: FeatureSets | None = None
    excluded_actions: list[str] | None = None
    event_id: EventId | None = None
    defer_activation: bool | None = None


class RankedAction(msgspec.Struct):
    """An action and the probability with which it was to be chosen."""

    id: str
    probability: float | None  # null for the fallback, while the store is down


class RankResponse(msgspec.Struct, rename="camel", omit_defaults=True):
    """``rewardActionId`` is the action to take.

    ``logged`` is there, and false, where the store was down and the fallback is given.
    """

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str
    logged: bool = True  # Personalizer has no such member: left out where nothing is wrong


class RewardRequest(wire.Request):
    """The reward of an event."""

    value: float


class EventPath(wire.Request, rename="camel"):
    """The path of an event."""

    event_id: EventId


def add_personalizer(api: Api, service: Service, bandit: str) -> None:
    """Serve the three operations with this bandit."""
    event = {"eventId": "$response.body#/eventId"}

    @api.route(
        "POST",
        "/personalizer/v1.0/rank",
        answers={201: RankResponse},
        needs="decide",
        problems=[NO_BANDIT, REQUEST_CHANGED],
        links=[Link("reward_event", event), Link("activate_event", event)],
        checks_bandit=True,
    )
    async def rank(body: RankRequest, call: Call) -> RankResponse:
        """Choose one of the actions.

        With ``deferActivation`` nothing is learnt from it before it is activated.
        """
        check_key(call, bandit)
        answer = await decide(service, bandit, body, len(call.raw))
        call.state[DECISION] = answer.decision_id
        return response_of(body, answer)

    @api.route(
        "POST",
        "/personalizer/v1.0/events/{eventId}/reward",
        needs="reward",
        problems=[NO_BANDIT, NO_EVENT, NOT_ACTIVE, OTHER_REWARD],
        checks_bandit=True,
    )
    async def reward_event(path: EventPath, body: RewardRequest, call: Call) -> None:
        """Hand in the reward of an event."""
        check_key(call, bandit)
        await reward(service, bandit, path.event_id, body.value)

    @api.route(
        "POST",
        "/personalizer/v1.0/events/{eventId}/activate",
        needs="reward",
        problems=[NO_BANDIT, NO_EVENT],
        checks_bandit=True,
    )
    async def activate_event(path: EventPath, call: Call) -> None:
        """Say that a deferred event was shown: from now on its reward is waited for."""
        check_key(call, bandit)
        await activate(service, bandit, path.event_id)


def check_key(call: Call, bandit: str) -> None:
    """Refuse a key for another bandit."""
    if call.key is not None and not call.key.covers(bandit):
        raise Problem(FORBIDDEN, f"The key {call.key.id} is for the bandit {call.key.bandit!r}.")


# ----------------------------------------------------------------------------------------- rank


async def decide(
    service: Service, bandit: str, body: RankRequest, size: int
) -> wire.DecisionAnswer:
    """Choose and write; a deferred decision is cancelled in the same breath."""
    asks_again = body.event_id is not None
    if body.event_id is None:
        body.event_id = str(uuid4())
    work = work_among(service.fold(bandit), len(body.actions))
    proposal = await service.worked_out(size, _proposal, service, bandit, body, work=work)
    drafts = [proposal.draft]
    if body.defer_activation:
        drafts.append(Draft(Kind.CANCELLED, bandit, proposal.draft.id, proposal.draft.time))
    try:
        outcome = (await service.write(drafts))[0]
    except StoreUnavailableError:
        request, id = decision_request(body), proposal.draft.id
        answer = without_store(service, bandit, request, id, asks_again=asks_again)
        if answer is None:
            raise
        return answer
    if outcome.status == Status.ACCEPTED:
        service.tally.decisions[bandit] += 1
    return answer_of(made_of(proposal, outcome))


def _proposal(service: Service, bandit: str, body: RankRequest) -> Proposal:
    fold = service.usable_fold(bandit)
    try:
        request = decision_request(body, getattr(fold.actions.features, "tags", ()))
        _drop_unused_ids(fold, request)
        if fold.spec.mode == "shadow":  # Personalizer's apprentice mode plays the first action
            assert request.actions is not None
            request.played, request.propensity = request.actions[0].id, 1.0
        # what was asked for, whatever the mode was at that time
        digest = blake2b(msgspec.msgpack.encode(body, order="deterministic"), digest_size=16)
        ask = ask_of(request)._replace(digest=digest.digest())
        return service.replica.propose(bandit, ask)
    except (TypeError, ValueError, OverflowError) as error:  # the last: a whole number too large
        raise Problem(INVALID, str(error)) from None


def decision_request(body: RankRequest, tags: Container[Any] = ()) -> wire.DecisionRequest:
    """Returns the same in the words of our own API; ``tags`` are the columns that hold lists.

    >>> body = RankRequest(
    ...     [RankableAction("news", [{"type": "text"}]), RankableAction("film")],
    ...     [{"user": {"age": 31, "seen": ["a", "b"]}}],
    ...     excluded_actions=["film"],
    ... )
    >>> request = decision_request(body)
    >>> request.context
    {'user.age': 31, 'user.seen.0': 'a', 'user.seen.1': 'b'}
    >>> request.actions
    [ActionRow(id='news', features={'id': 'news', 'type': 'text'})]
    >>> decision_request(body, tags=["user.seen"]).context
    {'user.age': 31, 'user.seen': ['a', 'b']}
    """
    excluded = set(body.excluded_actions or ())
    rows = [
        wire.ActionRow(
            action.id, {"id": action.id, **columns(f"features of {action.id!r}", features, tags)}
        )
        for action in body.actions
        if action.id not in excluded
        for features in [action.features]
    ]
    if not rows:
        raise wrong("excludedActions", body.excluded_actions, "one action at least left")
    context = columns("contextFeatures", body.context_features, tags)
    return wire.DecisionRequest(
        context=context or None, actions=rows, request_id=body.event_id, probabilities=True
    )


def _drop_unused_ids(fold: "Fold", request: wire.DecisionRequest) -> None:
    """Take the id out of the features where no column is for it: nobody sent it as a feature."""
    if "id" not in getattr(fold.actions.features, "columns", ()):
        for action in request.actions or ():
            if isinstance(action.features, dict):
                del action.features["id"]


def columns(name: str, sets: FeatureSets | None, tags: Container[Any] = ()) -> dict[str, Any]:
    """Returns features in objects as columns with a name each: ``namespace.key``."""
    found: dict[str, Any] = {}
    for features in sets or ():
        for key, value in _leaves(name, features, tags, DEEPEST):
            if key in found:
                raise ValueError(f"{name}: {shown(key)} is there twice, expected once")
            found[key] = value
    return found


def _leaves(
    name: str, value: Any, tags: Container[Any], depth: int, before: str = ""
) -> Iterable[tuple[str, Any]]:
    """Yields paths and values of all that is no object, and no list other than one of tags."""
    if depth == 0:
        raise ValueError(f"{name}: expected objects in objects, {DEEPEST} deep at most")
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        path = f"{before}{key}"
        if isinstance(inner, dict) or (isinstance(inner, list) and path not in tags):
            yield from _leaves(name, inner, tags, depth - 1, f"{path}.")
        else:
            yield path, inner


def response_of(body: RankRequest, answer: wire.DecisionAnswer) -> RankResponse:
    """The chosen action first, then the others as they came; excluded ones keep their places.

    Probabilities are those that are logged. Where the log has only that of the chosen action (in
    shadow mode it is 1; version 0.1 asked for no more), the rest is shared out among the others.
    """
    excluded = set(body.excluded_actions or ())
    chosen, p = answer.action, answer.propensity
    names = [action.id for action in body.actions if action.id not in excluded]
    rest = None if p is None else (1.0 - p) / max(len(names) - 1, 1)
    shares: Sequence[float | None] = answer.probabilities or [rest] * len(names)
    chances = dict(zip(names, shares, strict=True))
    ordered = [(chosen, p), *((id, chances[id]) for id in names if id != chosen)]
    ranked = iter([RankedAction(*pair) for pair in ordered])
    ranking = [
        RankedAction(action.id, 0.0) if action.id in excluded else next(ranked)
        for action in body.actions
    ]
    return RankResponse(ranking, body.event_id or "", chosen, answer.logged)


# ------------------------------------------------------------------------- reward and activation


async def reward(service: Service, bandit: str, event_id: str, value: float) -> None:
    """Hand in a reward, or say why it cannot be used."""
    fold = service.fold(bandit)
    event = await _requested(service, bandit, ACTIVATED + event_id)
    if event is None:
        event = await _requested(service, bandit, event_id)
    if event is None:
        raise Problem(NO_EVENT, f"There is no event {event_id!r}.")
    now = service.replica.clock()
    # Personalizer has no ids of rewards: where they are combined, every call is one of its own.
    own = "" if fold.spec.combine is None else str(uuid4())
    draft = reward_draft(bandit, now, event.id, value, event_id=own)
    (outcome,) = await service.write([draft])
    service.tally.reward(bandit, service.replica.answer(outcome), now)
    if outcome.status == Status.INVALID:
        raise Problem(INVALID, f"{service.replica.refusal(draft, outcome)}.")
    if outcome.status == Status.CONFLICT:
        raise await _conflict(service, event, event_id)


async def _conflict(service: Service, event: Event, event_id: str) -> Problem:
    if await _is_cancelled(service, event):
        return Problem(NOT_ACTIVE, f"POST .../events/{event_id}/activate comes first.")
    return Problem(OTHER_REWARD, "The first reward of an event stays.")


async def activate(service: Service, bandit: str, event_id: str) -> None:
    """Make a decision of a deferred one: the same choice, its window open from now on."""
    fold = service.fold(bandit)
    event = await _requested(service, bandit, event_id)
    if event is None:
        raise Problem(NO_EVENT, f"There is no event {event_id!r}.")
    if not await _is_cancelled(service, event):
        return  # it was not deferred
    request, now = ACTIVATED + event_id, service.replica.clock()
    due, closes = fold.spec.window_at(now)
    body = msgspec.msgpack.decode(event.body, type=Decided)
    draft = Draft(
        Kind.DECIDED,
        bandit,
        service.replica.ids(),
        now,
        due=due,
        closes=closes,
        combine=fold.spec.combine,
        body=msgspec.msgpack.encode(msgspec.structs.replace(body, request=request)),
        request=request,
    )
    await service.write([draft])  # a second activation is a duplicate


async def _requested(service: Service, bandit: str, request: str) -> Event | None:
    found = await service.from_store(lambda ledger: ledger.requested(bandit, request))
    return None if found is None else found[0]


async def _is_cancelled(service: Service, event: Event) -> bool:
    story = await service.from_store(lambda ledger: ledger.story(event.id))
    return any(e.kind == Kind.CANCELLED for e in story)
