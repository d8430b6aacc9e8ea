"""The HTTP operations of the service."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import groupby
from typing import Any

import msgspec

from belated.core.ranking import Ranking
from belated.ledger import snapshots
from belated.ledger.events import NOBODY, Draft, KeyChange, Kind, Outcome, Status
from belated.ledger.ids import all_from_texts, from_text, to_text
from belated.ledger.spec import Spec
from belated.service.access import Gate, Headers, Key, RateLimit, new_key
from belated.service.api import Answer, Api, Call
from belated.service.dashboard.data import Dashboard
from belated.service.dashboard.watching import Watch
from belated.service.deciding import REQUEST_CHANGED, decide
from belated.service.explaining import explain, iso, story_of
from belated.service.logs import DECISION
from belated.service.messages import (
    ActionChange,
    ActionList,
    BanditList,
    BanditPath,
    BanditSettings,
    BanditState,
    DecisionAnswer,
    DecisionPath,
    DecisionRequest,
    DecisionStory,
    Erased,
    Explaining,
    Health,
    KeyList,
    KeyPath,
    KeyRequest,
    KeyView,
    NewKeyAnswer,
    ParkedList,
    ParkedReward,
    RankingRequest,
    RewardAnswer,
    RewardBatch,
    RewardItem,
    StatusAnswer,
    SubjectPath,
    Watching,
)
from belated.service.openapi import Link
from belated.service.problems import INVALID, STORE_UNAVAILABLE, Problem, ProblemType
from belated.service.ranking import rank
from belated.service.running import NO_BANDIT, NOT_READY, Service
from belated.service.settings import spec_of, state_of

NO_DECISION = ProblemType(404, "unknown-decision", "There is no decision of this id")
NO_KEY_OF_ID = ProblemType(404, "unknown-key", "There is no API key of this id")
CHANGES_PAST = ProblemType(409, "settings-changed", "The bandit exists with other settings")
UNWELL = (NOT_READY, STORE_UNAVAILABLE)


def new_api(service: Service, limit: RateLimit | None = None) -> Api:
    """The operations of ``service``; the most frequent come first, where the router looks."""
    gate = Gate(service.ring, limit)

    def admit(headers: Headers, scope: str, bandit: str | None) -> Key | None:
        service.check_ready()  # the keys stand in the log: before it is read, the door looks open
        return gate(headers, scope, bandit)

    api = Api("belated", version("belated"), admit)
    _add_loop(api, service)
    _add_bandits(api, service)
    _add_privacy(api, service)
    _add_keys(api, service)
    _add_dashboard(api, service)
    _add_health(api, service)
    return api


# --------------------------------------------------------------------------- decide and learn


def _add_loop(api: Api, service: Service) -> None:
    rewarding = Link(
        "send_rewards",
        body={"rewards": [{"decision_id": "$response.body#/decision_id", "reward": 1}]},
    )
    reading = Link("read_decision", {"id": "$response.body#/decision_id"})
    cancelling = Link("cancel_decision", {"id": "$response.body#/decision_id"})

    @api.route(
        "POST",
        "/v1/bandits/{name}/decisions",
        answers={200: DecisionAnswer},
        needs="decide",
        problems=[NO_BANDIT, REQUEST_CHANGED, *UNWELL],
        links=[rewarding, reading, cancelling],
        max_bytes=32_000_000,
    )
    async def make_decision(path: BanditPath, body: DecisionRequest, call: Call) -> DecisionAnswer:
        """Choose an action.

        The answer comes when the decision is safe on disk. With a ``request_id`` the request may
        be sent again: the same body gets the same decision, also after a crash.
        """
        answer = await decide(service, path.name, body)
        call.state[DECISION] = answer.decision_id
        return answer

    @api.route(
        "POST",
        "/v1/rewards",
        answers={200: RewardAnswer},
        needs="reward",
        problems=UNWELL,
        max_bytes=8_000_000,
        checks_bandit=True,
    )
    async def send_rewards(body: RewardBatch, call: Call) -> RewardAnswer:
        """Hand in rewards that have returned.

        They may come in any order, late, or twice: each is answered with what became of it.
        """
        return RewardAnswer(await _reward(service, body.rewards, _bandit_of(call)))

    @api.route(
        "GET",
        "/v1/decisions/{id}",
        answers={200: DecisionStory},
        needs="read",
        problems=[NO_DECISION, *UNWELL],
        checks_bandit=True,
    )
    async def read_decision(path: DecisionPath, query: Explaining, call: Call) -> DecisionStory:
        """Tell the story of a decision.

        With ``explain=true``, what the model knew then and what it thought of every action, too:
        this is worked out from the log and takes the longer the longer the log is.
        """
        id = from_text(path.id) or b"?"
        events = await service.from_store(lambda: service.ledger.story(id))
        if not events or _bandit_of(call) not in ("", events[0].bandit):
            raise Problem(NO_DECISION, f"There is no decision {path.id!r}.")
        story = story_of(events)
        if query.explain:
            story.explanation = await asyncio.to_thread(explain, service, events[0])
        return story

    @api.route(
        "POST",
        "/v1/decisions/{id}/cancel",
        answers={200: StatusAnswer},
        needs="reward",
        problems=UNWELL,
        checks_bandit=True,
    )
    async def cancel_decision(path: DecisionPath, call: Call) -> StatusAnswer:
        """Say that a decision was not carried out: no reward is waited for."""
        id = from_text(path.id)
        if id is None:
            return StatusAnswer(Status.UNKNOWN)
        draft = Draft(Kind.CANCELLED, _bandit_of(call), id, service.loop.clock())
        (outcome,) = await service.write([draft])
        return StatusAnswer(outcome.status)

    @api.route("GET", "/v1/parked", answers={200: ParkedList}, needs="read", problems=UNWELL)
    async def list_parked() -> ParkedList:
        """List the parked rewards: those that came before their decision was visible here."""
        parked = await service.from_store(service.ledger.parked)
        return ParkedList([ParkedReward(to_text(w.id), iso(w.time), w.value) for w in parked])


def _bandit_of(call: Call) -> str:
    """The one bandit that the caller's key is for; "" for all."""
    return "" if call.key is None else call.key.bandit


NO_ID = Outcome(Status.UNKNOWN)  # what a text that is no id gets


async def _reward(service: Service, items: Sequence[RewardItem], bandit: str) -> list[Status]:
    """Each status in turn; ids that cannot be ids are unknown."""
    now, rewarded, revised = service.loop.clock(), Kind.REWARDED, Kind.REVISED
    ids = all_from_texts([item.decision_id for item in items])
    drafts = [
        Draft(revised if item.revise else rewarded, bandit, id, now, item.reward)
        for item, id in zip(items, ids, strict=True)
        if id is not None
    ]
    written = iter(await service.write(drafts) if drafts else [])
    outcomes = [NO_ID if id is None else next(written) for id in ids]
    statuses: list[Status] = []
    for outcome, alike in groupby(outcomes):
        status, count = service.loop.answer(outcome), len(list(alike))
        service.tally.reward(outcome.bandit, status, now, count)
        statuses += [status] * count
    return statuses


# ------------------------------------------------------------------------------------ bandits


def _add_bandits(api: Api, service: Service) -> None:
    deciding = Link("make_decision", {"name": "$response.body#/name"})
    looking = Link("read_bandit", {"name": "$response.body#/name"})

    first = {"name": "$response.body#/bandits/0"}

    @api.route(
        "GET",
        "/v1/bandits",
        answers={200: BanditList},
        needs="read",
        problems=UNWELL,
        links=[Link("make_decision", first, body={}), Link("list_actions", first)],
    )
    async def list_bandits() -> BanditList:
        """List the bandits."""
        return BanditList(list(service.loop.folds))

    @api.route(
        "GET",
        "/v1/bandits/{name}",
        answers={200: BanditState},
        needs="read",
        problems=[NO_BANDIT, *UNWELL],
    )
    async def read_bandit(path: BanditPath) -> BanditState:
        """Show a bandit's settings and what it knows."""
        return state_of(service.fold(path.name))

    @api.route(
        "POST",
        "/v1/bandits/{name}/ranking",
        answers={200: Ranking},
        needs="read",
        problems=[NO_BANDIT, *UNWELL],
        max_bytes=32_000_000,
    )
    async def rank_actions(path: BanditPath, body: RankingRequest) -> Ranking:
        """Say which action is best, and how sure that is.

        Actions come with their estimated mean reward, the best first, an interval of it, and how
        many decisions and rewards they have had, in whatever context. Nothing is decided.
        """
        return rank(service, path.name, body)

    @api.route(
        "PUT",
        "/v1/bandits/{name}",
        answers={200: BanditState, 201: BanditState},
        needs="admin",
        problems=[CHANGES_PAST, *UNWELL],
        links=[deciding, looking],
    )
    async def put_bandit(path: BanditPath, body: BanditSettings) -> Answer:
        """Make a bandit, or change its settings.

        What would give the past another meaning (family, policy, features, loop) cannot be
        changed: make a bandit of another name.
        """
        old = service.loop.folds.get(path.name)
        old_spec = None if old is None else old.spec
        try:
            spec = spec_of(body)
            learner = spec.learner()
        except (TypeError, ValueError) as error:
            raise Problem(INVALID, str(error)) from None
        await asyncio.to_thread(learner.warm_up)  # seconds, where the compiler has to work
        try:
            draft = service.loop.settings_draft(path.name, spec)
            if draft is not None:
                await service.write([draft])
                await service.until(lambda: _spec(service, path.name) != old_spec)
            fold = service.fold(path.name)
            fold.spec.check_change(spec)  # at another replica, somebody may have been quicker
        except ValueError as error:
            raise Problem(CHANGES_PAST, str(error)) from None
        return Answer(state_of(fold), 201 if old is None else 200)

    @api.route(
        "GET",
        "/v1/bandits/{name}/actions",
        answers={200: ActionList},
        needs="read",
        problems=[NO_BANDIT, *UNWELL],
    )
    async def list_actions(path: BanditPath) -> ActionList:
        """List the registered actions with their features."""
        return ActionList(service.fold(path.name).actions.listed)

    @api.route(
        "PATCH",
        "/v1/bandits/{name}/actions",
        answers={200: ActionList},
        needs="admin",
        problems=[NO_BANDIT, *UNWELL],
        max_bytes=32_000_000,
    )
    async def change_actions(path: BanditPath, body: ActionChange) -> ActionList:
        """Register actions, change their features, withdraw them."""
        service.fold(path.name)
        try:
            draft = service.loop.actions_draft(path.name, body.put, body.drop)
        except (TypeError, ValueError) as error:
            raise Problem(INVALID, str(error)) from None
        await service.write([draft])
        await service.until(lambda: _has_changed(service.fold(path.name).actions.listed, body))
        return ActionList(service.fold(path.name).actions.listed)


def _spec(service: Service, name: str) -> Spec | None:
    fold = service.loop.folds.get(name)
    return None if fold is None else fold.spec


def _has_changed(listed: Mapping[str, Any], change: ActionChange) -> bool:
    """Whether the registered actions are as a change wants them."""
    wanted = dict.fromkeys(change.drop) | change.put  # what is dropped and put is put
    return all(listed.get(name) == features for name, features in wanted.items())


# ------------------------------------------------------------------------------- privacy, keys


def _add_privacy(api: Api, service: Service) -> None:
    @api.route(
        "DELETE",
        "/v1/bandits/{name}/subjects/{subject}",
        answers={200: Erased},
        needs="admin",
        problems=[NO_BANDIT, *UNWELL],
    )
    async def forget_subject(path: SubjectPath) -> Erased:
        """Erase all decisions and rewards of a subject.

        The log keeps a tombstone, and the model is rebuilt as if they had never been.
        """
        fold = service.fold(path.name)
        await service.writer.drain()
        now = service.loop.clock()
        erased = await service.from_store(
            lambda: service.ledger.forget(path.name, path.subject, now)
        )
        await service.write([])
        await service.until(lambda: service.fold(path.name) is not fold)  # but one made anew
        folder = service.snapshot_folder
        if folder is not None:
            await service.from_store(lambda: snapshots.drop_erased(service.loop, folder))
        return Erased(erased)


def _add_keys(api: Api, service: Service) -> None:
    @api.route("GET", "/v1/keys", answers={200: KeyList}, needs="admin", problems=UNWELL)
    async def list_keys() -> KeyList:
        """List the API keys, without their secrets."""
        return KeyList(
            [KeyView(k.id, k.name, list(k.scopes), k.bandit or None) for k in service.ring.valid()]
        )

    @api.route("POST", "/v1/keys", answers={201: NewKeyAnswer}, needs="admin", problems=UNWELL)
    async def make_key(body: KeyRequest) -> NewKeyAnswer:
        """Make an API key.

        The first one closes the service to everybody without a key.
        """
        key = new_key()
        await _write_key(
            service,
            KeyChange(
                key.id, body.name, key.secret_hash, body.bandit or "", tuple(sorted(body.scopes))
            ),
        )
        return NewKeyAnswer(key.id, key.text)

    @api.route(
        "DELETE",
        "/v1/keys/{id}",
        answers={204: None},
        needs="admin",
        problems=[NO_KEY_OF_ID, *UNWELL],
    )
    async def revoke_key(path: KeyPath) -> None:
        """Revoke an API key."""
        known = service.loop.keys.get(path.id)
        if known is None or known.revoked:
            raise Problem(NO_KEY_OF_ID, f"There is no key {path.id!r}.")
        await _write_key(service, msgspec.structs.replace(known, revoked=True))


async def _write_key(service: Service, key: KeyChange) -> None:
    body = msgspec.msgpack.encode(key)
    await service.write([Draft(Kind.KEYS, "", NOBODY, service.loop.clock(), body=body)])
    await service.until(lambda: service.loop.keys.get(key.id) == key)


# ------------------------------------------------------------------------ health and dashboard


def _add_dashboard(api: Api, service: Service) -> None:
    watch = Watch(service)

    @api.route(
        "GET",
        "/v1/dashboard",
        answers={200: Dashboard},
        needs="read",
        problems=[NO_BANDIT, *UNWELL],
        checks_bandit=True,
    )
    async def read_dashboard(query: Watching, call: Call) -> Dashboard:
        """Give the numbers behind the page at /."""
        only = _bandit_of(call)
        names = [name for name in service.loop.folds if only in ("", name)]
        if query.bandit is not None and query.bandit not in names:
            raise Problem(NO_BANDIT, f"There is no bandit {query.bandit!r}.")
        return await watch.dashboard(names, query.bandit)


def _add_health(api: Api, service: Service) -> None:
    @api.route("GET", "/healthz", answers={200: Health}, needs=None)
    async def healthz() -> Health:
        """Say whether the process is alive."""
        return Health("ok")

    @api.route("GET", "/readyz", answers={200: Health, 503: Health}, needs=None)
    async def readyz() -> Answer:
        """Say whether requests can be served: the log is read and the store answers."""
        if service.draining:
            return Answer(Health("draining"), 503)
        if not service.ready:
            return Answer(Health("starting"), 503)
        if service.store_is_down:
            return Answer(Health("store unavailable"), 503)
        return Answer(Health("ok"), 200)
