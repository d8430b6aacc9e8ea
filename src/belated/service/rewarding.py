"""Rewards, and guardrail outcomes, that come over HTTP."""

from collections.abc import Sequence
from itertools import groupby

from belated import wire
from belated.core.events import Status
from belated.core.times import moment
from belated.ledger.events import Draft, Kind, Outcome
from belated.ledger.ids import all_from_texts
from belated.ledger.replica import outcome_draft
from belated.ledger.rules import second_event
from belated.service.service import Service

NO_ID = Outcome(Status.UNKNOWN)  # what a text that is no id gets
FILES = {  # formats of rewards by media type, see reward_bodies.py
    "text/csv": "csv",
    "application/x-ndjson": "jsonl",
    "application/vnd.apache.parquet": "parquet",
}
NO_TIME = Outcome(Status.INVALID)  # what a reward gets whose time is no time


async def reward(
    service: Service, items: Sequence[wire.RewardItem], bandit: str
) -> wire.RewardAnswer:
    """Writes rewards and returns one status per reward; an id that is no UUID is unknown."""
    now = service.replica.clock()
    ids = all_from_texts([item.decision_id for item in items])
    drafts = [
        NO_ID if id is None else _reward_draft(item, id, bandit, now)
        for item, id in zip(items, ids, strict=True)
    ]
    outcomes = await _written(service, drafts)
    statuses: list[Status] = []
    for outcome, alike in groupby(outcomes):
        status, count = service.replica.answer(outcome), len(list(alike))
        service.tally.reward(outcome.bandit, status, now, count)
        statuses += [status] * count
    return _answer(service, statuses, items, drafts, outcomes)


async def note_outcomes(
    service: Service, items: Sequence[wire.OutcomeItem], bandit: str
) -> wire.RewardAnswer:
    """Writes guardrail outcomes and returns one status per outcome; nothing is learnt."""
    now = service.replica.clock()
    ids = all_from_texts([item.decision_id for item in items])
    drafts = [
        NO_ID if id is None else _outcome_draft(item, id, bandit, now)
        for item, id in zip(items, ids, strict=True)
    ]
    outcomes = await _written(service, drafts)
    statuses = [outcome.status for outcome in outcomes]
    return _answer(service, statuses, items, drafts, outcomes)


async def _written(service: Service, drafts: Sequence[Draft | Outcome]) -> list[Outcome]:
    """Write the drafts; returns what became of them, among the outcomes that are known already."""
    well = [draft for draft in drafts if isinstance(draft, Draft)]
    written = iter(await service.write(well) if well else [])
    return [next(written) if isinstance(draft, Draft) else draft for draft in drafts]


def _answer(
    service: Service,
    statuses: list[Status],
    items: Sequence[wire.RewardItem | wire.OutcomeItem],
    drafts: Sequence[Draft | Outcome],
    outcomes: Sequence[Outcome],
) -> wire.RewardAnswer:
    """Returns the statuses, with a reason for each that is invalid, or for a second event."""
    if Status.INVALID not in statuses and Status.CONFLICT not in statuses:
        return wire.RewardAnswer(statuses)
    answered = zip(items, drafts, outcomes, strict=True)
    reasons = [_reason(service, item, draft, outcome) for item, draft, outcome in answered]
    return wire.RewardAnswer(statuses, reasons) if any(reasons) else wire.RewardAnswer(statuses)


def _reason(
    service: Service,
    item: wire.RewardItem | wire.OutcomeItem,
    draft: Draft | Outcome,
    outcome: Outcome,
) -> str:
    """Returns why a reward was refused; "" if its status says it all."""
    if outcome is NO_TIME:
        try:
            moment("at", item.at)
        except ValueError as error:
            return str(error)
    if isinstance(draft, Draft) and outcome.status is Status.INVALID:
        return service.replica.refusal(draft, outcome)
    return second_event(draft, outcome.facts) if isinstance(draft, Draft) else ""


def _outcome_draft(item: wire.OutcomeItem, id: bytes, bandit: str, now: int) -> Draft | Outcome:
    """The draft of a guardrail outcome; see ``_reward_draft``."""
    try:
        at = None if item.at is None else moment("at", item.at)
    except ValueError:
        return NO_TIME
    return outcome_draft(bandit, now, id, item.name, item.value, at, item.event_id or "")


def _reward_draft(item: wire.RewardItem, id: bytes, bandit: str, now: int) -> Draft | Outcome:
    """The draft of a reward, or what a reward gets whose time cannot be understood."""
    kind, event_id = Kind.REVISED if item.revise else Kind.REWARDED, item.event_id or ""
    try:
        at = now if item.at is None else moment("at", item.at)
    except ValueError:
        return NO_TIME
    return Draft(kind, bandit, id, at, item.reward, received=now, event_id=event_id)
