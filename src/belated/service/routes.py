"""The HTTP operations of the service."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import msgspec

from belated import wire
from belated.core.arguments import wrong
from belated.core.events import Status
from belated.core.ranking import Ranking
from belated.core.times import iso
from belated.ledger import snapshots
from belated.ledger.base import not_erased, too_old
from belated.ledger.events import NOBODY, Draft, KeyChange, Kind
from belated.ledger.ids import from_text, to_text
from belated.ledger.protocol import StoreUnavailableError
from belated.ledger.tools.half_lives import FEWEST
from belated.service.compiling import COMPILING
from belated.service.dashboard.data import Dashboard
from belated.service.dashboard.watching import Watch
from belated.service.deciding import REQUEST_CHANGED, decide, work_of
from belated.service.deciding_many import decide_many, decide_top
from belated.service.edge_decisions import NOT_SCORABLE, model_document, take_made
from belated.service.explaining import COMPACTED, TOO_MANY, story_of
from belated.service.http.access import KEYS_HOLD_AFTER, Gate, Headers, RateLimit, new_key
from belated.service.http.access_log import DECISION
from belated.service.http.api import Answer, Api, Call
from belated.service.http.limits import MAX_BODY
from belated.service.http.openapi import Link
from belated.service.http.paging import NO_PAGE, page_of
from belated.service.http.problems import INVALID, STORE_UNAVAILABLE, Problem, ProblemType
from belated.service.promoting import add_retraining
from belated.service.ranking import rank
from belated.service.rewarding import FILES, note_outcomes, reward
from belated.service.service import NO_BANDIT, NOT_READY, Service
from belated.service.settings import spec_of, state_of

NO_DECISION = ProblemType(404, "unknown-decision", "There is no decision of this id")
NO_KEY_OF_ID = ProblemType(404, "unknown-key", "There is no API key of this id")
CHANGES_PAST = ProblemType(409, "settings-changed", "The bandit exists with other settings")
UNWELL = (NOT_READY, COMPILING, STORE_UNAVAILABLE)
BEHIND_AFTER = 5.0  # seconds without a look at the end of the log, which is followed all the time


def new_api(service: Service, limit: RateLimit | None = None, max_body: int = MAX_BODY) -> Api:
    """The operations of ``service``; the most frequent come first, where the router looks."""
    gate = Gate(service.ring, limit)

    async def admit(headers: Headers, scope: str, bandit: str | None) -> KeyChange | None:
        service.check_ready()  # the keys stand in the log: before it is read, the door looks open
        try:
            await service.know_keys()
        except StoreUnavailableError:
            # What is known without keys was there for everybody; a decision has its fallback.
            if not (service.ring.is_open or scope == "decide"):
                raise
        return await gate(headers, scope, bandit)

    api = Api(
        "belated", version("belated"), admit, service.settled, max_body, UNWELL, service.writer
    )
    _add_loop(api, service)
    _add_bandits(api, service)
    add_retraining(api, service)
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
        needs="decide",
        problems=[NO_BANDIT, REQUEST_CHANGED],
        links=[rewarding, reading, cancelling],
    )
    async def make_decision(
        path: wire.BanditPath, body: wire.DecisionRequest, call: Call
    ) -> wire.DecisionAnswer:
        """Choose an action.

        The answer comes when the decision is safe on disk. With a ``request_id`` the request may
        be sent again: the same body gets the same decision, also after a crash.
        """
        answer = await decide(service, path.name, body, len(call.raw))
        call.state[DECISION] = answer.decision_id
        return answer

    @api.route(
        "POST",
        "/v1/bandits/{name}/decisions/batch",
        needs="decide",
        problems=[NO_BANDIT, REQUEST_CHANGED],
    )
    async def make_decisions(path: wire.BanditPath, body: wire.DecisionBatch) -> wire.DecisionList:
        """Choose an action for each of several requests, in one transaction.

        If one of them does not fit, no decision is made. With a ``request_id`` in each, the batch
        may be sent again, also after a crash: each gets the decision that it got before.
        """
        return wire.DecisionList(await decide_many(service, path.name, body.decisions))

    @api.route(
        "POST",
        "/v1/bandits/{name}/decisions/top",
        needs="decide",
        problems=[NO_BANDIT, REQUEST_CHANGED],
    )
    async def make_ranking(path: wire.BanditPath, body: wire.TopRequest) -> wire.DecisionList:
        """Choose several different actions, the first choice first, in one transaction.

        Each is a decision of its own, with an id, among the actions that those before it left:
        its propensity is the probability given the choices before it. With a ``request_id`` the
        request may be sent again.
        """
        return wire.DecisionList(await decide_top(service, path.name, body))

    @api.route("POST", "/v1/bandits/{name}/decisions/made", needs="decide", problems=[NO_BANDIT])
    async def take_decisions(path: wire.BanditPath, body: wire.MadeBatch) -> wire.MadeAnswer:
        """Take in decisions that were made elsewhere, by a model document.

        They may be sent again: a decision that the log has is a duplicate. An invalid one is
        answered with the reason, and the others are taken in.
        """
        return await take_made(service, path.name, body.decisions)

    @api.route(
        "GET", "/v1/bandits/{name}/model", needs="decide", problems=[NO_BANDIT, NOT_SCORABLE]
    )
    async def read_model(path: wire.BanditPath) -> wire.ModelDocument:
        """Give the model document of a bandit, with which others decide elsewhere.

        For adaptive-thompson and greedy, with 1,024 features at most; not for a bandit with a
        holdout or in shadow mode.
        """
        return await model_document(service, path.name)

    @api.route("POST", "/v1/rewards", needs="reward", problems=[NO_BANDIT], checks_bandit=True)
    async def send_rewards(body: wire.RewardBatch, call: Call) -> wire.RewardAnswer:
        """Hand in rewards that have returned.

        They may come in any order, late, or twice: each is answered with what became of it. An
        invalid one is answered with the reason, too.
        """
        return await reward(service, body.rewards, _bandit_of(call))

    @api.route("POST", "/v1/outcomes", needs="reward", checks_bandit=True)
    async def send_outcomes(body: wire.OutcomeBatch, call: Call) -> wire.RewardAnswer:
        """Hand in guardrail outcomes: what else came of decisions, to be compared and not learnt.

        Like rewards they may come in any order, late, or twice. A decision has one outcome for
        each pair of a name and an event id.
        """
        return await note_outcomes(service, body.outcomes, _bandit_of(call))

    @api.route(
        "POST",
        "/v1/bandits/{name}/rewards",
        needs="reward",
        problems=[NO_BANDIT],
        takes=tuple(FILES),
    )
    async def send_reward_file(path: wire.BanditPath, call: Call) -> wire.RewardsTaken:
        """Hand in a file of rewards.

        The columns are ``decision_id`` and ``reward`` and, if wanted, ``at`` and ``event_id``, in
        CSV with a header, in JSON lines or in Parquet, of 50,000 rows at most. The answer says what
        became of the rows, and which ones could not be used, up to the first 1,000 of these. A file
        may be sent again: what is in the log already is a duplicate.
        """
        from belated.service.reward_bodies import take_file  # which needs Numba

        return await take_file(service, path.name, call.raw, call.media_type)

    @api.route(
        "GET",
        "/v1/decisions/{id}",
        needs="read",
        problems=[NO_DECISION, COMPACTED, TOO_MANY],
        checks_bandit=True,
    )
    async def read_decision(
        path: wire.DecisionPath, query: wire.Explaining, call: Call
    ) -> wire.DecisionStory:
        """Tell the story of a decision.

        With ``explain=true``, what the model knew then and what it thought of every action, too:
        this is worked out from the log and takes the longer the longer the log is.
        """
        id = from_text(path.id) or b"?"
        events = await service.from_store(lambda ledger: ledger.story(id))
        if not events or _bandit_of(call) not in ("", events[0].bandit):
            why = await service.from_store(lambda ledger: too_old(ledger, id))
            said = f"There is no decision {path.id!r}" + (f": {why}." if why else ".")
            raise Problem(NO_DECISION, said)
        story = story_of(events)
        fold = service.replica.folds.get(story.bandit)
        story.silence = None if fold is None else fold.silence_of(id)
        if query.explain:
            story.explanation = await service.explaining.explain(events[0])
        return story

    @api.route(
        "POST",
        "/v1/decisions/{id}/cancel",
        needs="reward",
        problems=[NO_BANDIT],
        checks_bandit=True,
    )
    async def cancel_decision(path: wire.DecisionPath, call: Call) -> wire.StatusAnswer:
        """Say that a decision was not carried out: no reward is waited for."""
        id = from_text(path.id)
        if id is None:
            return wire.StatusAnswer(Status.UNKNOWN)
        draft = Draft(Kind.CANCELLED, _bandit_of(call), id, service.replica.clock())
        (outcome,) = await service.write([draft])
        return wire.StatusAnswer(outcome.status)

    @api.route("GET", "/v1/parked", needs="read", problems=[NO_PAGE])
    async def list_parked(query: wire.Paging) -> wire.ParkedList:
        """List the parked rewards: those that came before their decision was visible here.

        They are kept for two minutes. Then they are deleted, as unknown.
        """
        after = NOBODY if query.after is None else from_text(query.after)
        if after is None:
            raise Problem(NO_PAGE, str(wrong("after", query.after, "`next` of a page")))
        found = await service.from_slow_store(lambda ledger: ledger.parked(query.limit, after))
        parked = [wire.ParkedReward(to_text(w.id), iso(w.time), w.value) for w in found]
        return wire.ParkedList(
            parked, parked[-1].decision_id if len(parked) == query.limit else None
        )


def _bandit_of(call: Call) -> str:
    """The one bandit that the caller's key is for; "" for all."""
    return "" if call.key is None else call.key.bandit


# ------------------------------------------------------------------------------------ bandits


@contextmanager
def _refusing(kind: ProblemType) -> Iterator[None]:
    """Answer with a problem of this kind where settings do not fit."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise Problem(kind, str(error)) from None


def _add_bandits(api: Api, service: Service) -> None:
    deciding = Link("make_decision", {"name": "$response.body#/name"})
    looking = Link("read_bandit", {"name": "$response.body#/name"})

    first = {"name": "$response.body#/bandits/0"}

    @api.route(
        "GET",
        "/v1/bandits",
        needs="read",
        problems=[NO_PAGE],
        links=[Link("make_decision", first, body={}), Link("list_actions", first)],
    )
    async def list_bandits(query: wire.Paging) -> wire.BanditList:
        """List the bandits."""
        return wire.BanditList(*page_of(service.replica.folds.keys(), query))

    @api.route("GET", "/v1/bandits/{name}", needs="read", problems=[NO_BANDIT])
    async def read_bandit(path: wire.BanditPath) -> wire.BanditState:
        """Show a bandit's settings and what it knows."""
        return state_of(service.fold(path.name), service.replica.clock())

    @api.route("GET", "/v1/bandits/{name}/forgetting", needs="read", problems=[NO_BANDIT, TOO_MANY])
    async def judge_forgetting(path: wire.BanditPath) -> wire.ForgettingView:
        """Say whether a half-life would have predicted the rewards of the last day better.

        This is worked out from the log and takes the longer the longer the log is.
        """
        n = service.fold(path.name).learner.n_observed
        if n < FEWEST:  # no process need be started to say so
            words = f"Too few to say whether forgetting would help: {n} rewards in all."
            return wire.ForgettingView(words, n)
        return await service.explaining.forgetting(path.name, service.replica.clock())

    @api.route("GET", "/v1/bandits/{name}/lift", needs="read", problems=[NO_BANDIT, TOO_MANY])
    async def judge_lift(path: wire.BanditPath) -> wire.LiftView:
        """Compare a bandit with its holdout in reward per decision, pending rewards made up for.

        This is worked out from the log and takes the longer the longer the log is.
        """
        service.fold(path.name)
        return await service.explaining.lift(path.name, service.replica.clock())

    @api.route("POST", "/v1/bandits/{name}/ranking", needs="read", problems=[NO_BANDIT])
    async def rank_actions(path: wire.BanditPath, body: wire.RankingRequest, call: Call) -> Ranking:
        """Say which action is best, and how sure that is.

        Actions come with their estimated mean reward, the best first, an interval of it, and how
        many decisions and rewards they have had, in whatever context. Nothing is decided.
        """
        work = work_of(service.fold(path.name), body)
        return await service.worked_out(len(call.raw), rank, service, path.name, body, work=work)

    @api.route(
        "PUT",
        "/v1/bandits/{name}",
        answers={200: wire.BanditState, 201: wire.BanditState, 202: wire.BanditState},
        needs="admin",
        problems=[CHANGES_PAST],
        links=[deciding, looking],
    )
    async def put_bandit(path: wire.BanditPath, body: wire.BanditSettings) -> Answer:
        """Make a bandit, or change its settings.

        What would give the past another meaning (family, policy, features, loop) cannot be changed
        here: see ``promote_bandit``, or make a bandit of another name. 202 says that its kernels
        are still being compiled: until they are there, its decisions answer 503 with a Retry-After.
        """
        service.check_serves(path.name)
        is_new = path.name not in service.replica.folds
        known = service.replica.folds.get(path.name)
        with _refusing(INVALID):
            spec = spec_of(body, None if known is None else known.spec)
        with _refusing(CHANGES_PAST):
            if known is not None:
                known.spec.changed_to(spec)
        with _refusing(INVALID):
            await service.compiling.get_ready(path.name, spec, known)
        await service.settled()
        try:
            draft = service.replica.settings_draft(path.name, spec)
            if draft is not None:
                await service.write([draft])
                await service.catch_up()
            fold = service.fold(path.name)
            fold.spec.changed_to(spec)  # at another replica, somebody may have been quicker
        except ValueError as error:
            raise Problem(CHANGES_PAST, str(error)) from None
        status = 201 if is_new else 200
        if path.name in service.replica.held:
            status = 202
        return Answer(state_of(fold, service.replica.clock()), status)

    @api.route("GET", "/v1/bandits/{name}/actions", needs="read", problems=[NO_BANDIT, NO_PAGE])
    async def list_actions(path: wire.BanditPath, query: wire.Paging) -> wire.ActionList:
        """List the registered actions with their features."""
        return _actions(service.fold(path.name).actions.listed, query)

    @api.route("PATCH", "/v1/bandits/{name}/actions", needs="admin", problems=[NO_BANDIT])
    async def change_actions(
        path: wire.BanditPath, body: wire.ActionChange, call: Call
    ) -> wire.ActionList:
        """Register actions, change their features, withdraw them.

        The answer is the first page of those that are registered now.
        """
        service.fold(path.name)
        try:
            draft = await service.worked_out(
                len(call.raw), service.replica.actions_draft, path.name, body.put, body.drop
            )
        except (TypeError, ValueError) as error:
            raise Problem(INVALID, str(error)) from None
        await service.write([draft])
        await service.catch_up()
        return _actions(service.fold(path.name).actions.listed, wire.Paging())


def _actions(listed: Mapping[str, Any], query: wire.Paging) -> wire.ActionList:
    names, after = page_of(listed.keys(), query)
    return wire.ActionList({name: listed[name] for name in names}, after)


# ------------------------------------------------------------------------------- privacy, keys


def _add_privacy(api: Api, service: Service) -> None:
    @api.route(
        "DELETE",
        "/v1/bandits/{name}/subjects/{subject}",
        needs="admin",
        problems=[NO_BANDIT],
    )
    async def forget_subject(path: wire.SubjectPath) -> wire.Erased:
        """Erase all decisions and rewards of a subject.

        The log keeps a tombstone, and the model is rebuilt as if they had never been, in every
        worker of this service. Decisions that were compacted stay in the model, under no name:
        the answer then says so in ``note``.
        """
        service.fold(path.name)
        await service.rebuilding.done(path.name)  # then those that wait here are rebuilt together
        now, folder = service.replica.clock(), service.snapshot_folder
        erased = await service.from_slow_store(
            lambda ledger: ledger.forget(path.name, path.subject, now)
        )
        service.on_write()
        if folder is not None:
            await service.from_slow_store(lambda ledger: snapshots.drop_outdated(ledger, folder))
        await service.catch_up()
        await service.rebuilding.done(path.name)
        await service.others_rebuilt()
        return wire.Erased(erased, await service.from_store(not_erased))


def _add_keys(api: Api, service: Service) -> None:
    @api.route("GET", "/v1/keys", needs="admin", problems=[NO_PAGE])
    async def list_keys(query: wire.Paging) -> wire.KeyList:
        """List the API keys, without their secrets; those that were revoked are left out."""
        ids, after = page_of(service.replica.keys.keys(), query)
        keys = [service.replica.keys[id] for id in ids]
        views = [
            wire.KeyView(k.id, k.name, list(k.scopes), k.bandit or None)
            for k in keys
            if not k.revoked
        ]
        return wire.KeyList(views, after)

    @api.route("POST", "/v1/keys", answers={201: wire.NewKeyAnswer}, needs="admin")
    async def make_key(body: wire.KeyRequest) -> wire.NewKeyAnswer:
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
        return wire.NewKeyAnswer(key.id, key.text)

    @api.route("DELETE", "/v1/keys/{id}", needs="admin", problems=[NO_KEY_OF_ID])
    async def revoke_key(path: wire.KeyPath) -> None:
        """Revoke an API key."""
        known = service.replica.keys.get(path.id)
        if known is None or known.revoked:
            raise Problem(NO_KEY_OF_ID, f"There is no key {path.id!r}.")
        await _write_key(service, msgspec.structs.replace(known, revoked=True))


async def _write_key(service: Service, key: KeyChange) -> None:
    body = msgspec.msgpack.encode(key)
    await service.write([Draft(Kind.KEYS, "", NOBODY, service.replica.clock(), body=body)])
    await asyncio.sleep(KEYS_HOLD_AFTER)


# ------------------------------------------------------------------------ health and dashboard


def _add_dashboard(api: Api, service: Service) -> None:
    watch = Watch(service)

    @api.route("GET", "/v1/dashboard", needs="read", problems=[NO_BANDIT], checks_bandit=True)
    async def read_dashboard(query: wire.Watching, call: Call) -> Dashboard:
        """Give the numbers behind the page at /."""
        only = _bandit_of(call)
        names = [name for name in service.replica.folds if only in ("", name)]
        if query.bandit is not None and query.bandit not in names:
            service.check_serves(query.bandit)
            raise Problem(NO_BANDIT, f"There is no bandit {query.bandit!r}.")
        return await watch.dashboard(names, query.bandit)


def _add_health(api: Api, service: Service) -> None:
    @api.route("GET", "/healthz", needs=None)
    async def healthz() -> wire.Health:
        """Say whether the process is alive."""
        return wire.Health("ok")

    @api.route("GET", "/readyz", answers={200: wire.Health, 503: wire.Health}, needs=None)
    async def readyz() -> Answer:
        """Say whether requests can be served: the log is read and the store answers.

        ``compiling`` counts the bandits whose kernels are still being compiled.
        """
        compiling = len(service.compiling.names)
        if service.draining:
            return Answer(wire.Health("draining"), 503)
        if not service.ready:
            return Answer(
                wire.Health("compiling" if compiling else "starting", compiling=compiling), 503
            )
        if service.outage.is_on:
            return Answer(wire.Health("store unavailable", compiling=compiling), 503)
        if service.staleness > BEHIND_AFTER:
            return Answer(wire.Health("behind the log", compiling=compiling), 503)
        return Answer(wire.Health("ok", compiling=compiling), 200)
