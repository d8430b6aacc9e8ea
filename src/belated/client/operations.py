"""All that a client can ask of a service, written once for both clients."""

import base64
import logging
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from belated import wire
from belated.client.calls import Call
from belated.core.arguments import shown, wrong, wrong_type
from belated.core.events import Status
from belated.core.ranking import Ranking
from belated.core.times import moment

log = logging.getLogger("belated.client")
T = TypeVar("T")
Page = TypeVar("Page", wire.BanditList, wire.ActionList)
Features: TypeAlias = Mapping[str, Any] | Sequence[float]

BATCH = 1_000  # rewards in one request
FROM_LOG = 600.0  # seconds to wait for what is worked out from the whole log


class Operations(ABC):
    """The operations of a client; a subclass says how a request is sent."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T:
        """Returns the answer to a request; raises if there is none, or if it is an error."""

    async def _ask(
        self,
        answer: type[T],
        method: str,
        *path: str,
        body: Any = None,
        query: str = "",
        timeout: float | None = None,
    ) -> T:
        """Returns the answer to a request about ``path``, whose parts are names of any kind."""
        address = "/".join(["/v1", *map(_quoted, path)]) + query
        content = None if body is None else msgspec.json.encode(body, enc_hook=_plain)
        return await self._send(Call(method, address, answer, content, timeout=timeout))

    async def _pages(self, first: Page, *path: str) -> list[Page]:
        """Returns the first page of a list and all that follow it."""
        pages = [first]
        while pages[-1].next is not None:
            query = f"?after={quote(pages[-1].next, safe='')}"
            pages.append(await self._ask(type(first), "GET", *path, query=query))
        return pages

    # ------------------------------------------------------------------------ decide and learn

    async def decide(
        self,
        bandit: str,
        *,
        context: Mapping[str, Any] | None = None,
        eligible: Sequence[str] | None = None,
        actions: Mapping[str, Features] | None = None,
        matrix: Any = None,
        subject: str | None = None,
        request_id: str | None = None,
        played: str | None = None,
        propensity: float | None = None,
        probabilities: bool = False,
    ) -> wire.DecisionAnswer:
        """Chooses one of the registered actions, of ``actions``, or of the rows of ``matrix``.

        Parameters
        ----------
        context
            Features that all actions share.
        eligible
            Names of the registered actions to choose from; all by default.
        actions
            Features by name, of actions that are not registered.
        matrix
            A vector for each action: a 2-d array.
        subject
            The person or thing that the decision concerns, for ``forget``.
        request_id
            Your own name for the request, to ask again after a crash; drawn by default.
        played, propensity
            In shadow mode: the action that is played, and the probability with which you drew it.
        probabilities
            Whether to log and return the probability of every action, not only of the chosen one.
        """
        body = _decision_request(
            context=context,
            eligible=eligible,
            actions=actions,
            matrix=matrix,
            subject=subject,
            request_id=request_id,
            played=played,
            propensity=propensity,
            probabilities=probabilities,
        )
        path = "bandits", bandit, "decisions"
        return await self._ask(wire.DecisionAnswer, "POST", *path, body=body)

    async def decide_many(
        self, bandit: str, requests: Iterable[Mapping[str, Any]]
    ) -> list[wire.DecisionAnswer]:
        """Makes many decisions with few calls: for a mail campaign, say.

        Parameters
        ----------
        requests
            The arguments of ``decide`` for each decision, as in
            ``[{"context": {"age": 31}, "request_id": "spring-mail-17"}, ...]``. They are sent 100
            at a time, and each hundred is written as a whole or not at all. With a ``request_id``
            of your own in each, a campaign that was interrupted may be sent again.
        """
        bodies = []
        for k, request in enumerate(requests):
            if not isinstance(request, Mapping):
                raise wrong_type(f"requests[{k}]", request, "a dict of arguments of decide")
            try:
                bodies.append(_decision_request(**request))
            except (TypeError, ValueError) as error:
                raise type(error)(f"requests[{k}]: {error}") from None
        if not bodies:
            raise wrong("requests", bodies, "one at least")
        path, made = ("bandits", bandit, "decisions", "batch"), []
        for start in range(0, len(bodies), wire.MOST_DECISIONS):
            batch = wire.DecisionBatch(bodies[start : start + wire.MOST_DECISIONS])
            made += (await self._ask(wire.DecisionList, "POST", *path, body=batch)).decisions
        return made

    async def decide_top(
        self,
        bandit: str,
        top: int,
        *,
        context: Mapping[str, Any] | None = None,
        eligible: Sequence[str] | None = None,
        actions: Mapping[str, Features] | None = None,
        matrix: Any = None,
        subject: str | None = None,
        request_id: str | None = None,
        probabilities: bool = False,
    ) -> list[wire.DecisionAnswer]:
        """Chooses ``top`` different actions; returns their decisions, the first choice first.

        Each decision has an id and a reward of its own. It is made among the actions that the
        choices before it left, and its propensity is the probability given these choices.

        Parameters
        ----------
        top
            How many actions to choose: up to their number, and 100 at most.
        context, eligible, actions, matrix, subject, request_id, probabilities
            As in ``decide``.
        """
        body = wire.TopRequest(
            *_options(context, eligible, actions, matrix),
            request_id=_request_id(request_id),
            subject=subject,
            probabilities=probabilities,
            top=top,
        )
        path = "bandits", bandit, "decisions", "top"
        return (await self._ask(wire.DecisionList, "POST", *path, body=body)).decisions

    async def reward(
        self,
        decision_id: str,
        reward: float,
        *,
        revise: bool = False,
        at: Any = None,
        event_id: str | None = None,
    ) -> Status:
        """Hands in a reward and returns its status; ``revise`` puts it in the place of an earlier
        one.

        Parameters
        ----------
        at
            When the reward happened, if that was not now: a ``datetime`` with its zone, a text such
            as ``"2026-03-31T12:00:00Z"``, or seconds since 1970.
        event_id
            Tells the rewards of one decision apart, if the bandit combines several.
        """
        (status,) = await self._reward([_reward_item(decision_id, reward, at, event_id, revise)])
        return status

    async def rewards(
        self,
        rewards: Iterable[
            tuple[str, float] | tuple[str, float, Any] | tuple[str, float, Any, str | None]
        ],
    ) -> list[Status]:
        """Hands in many rewards, as pairs of decision id and reward; returns the status of each.

        A pair may have a third and a fourth entry: ``at`` and ``event_id`` of ``reward``.
        """
        items = [_reward_item(*reward) for reward in rewards]
        batches = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
        return [status for batch in batches for status in await self._reward(batch)]

    async def outcome(
        self,
        decision_id: str,
        name: str,
        value: float,
        *,
        at: Any = None,
        event_id: str | None = None,
    ) -> Status:
        """Hands in a guardrail outcome: something to watch beside the reward, not learnt from.

        Parameters
        ----------
        name
            Name of the outcome, such as ``"complaint"``.
        at, event_id
            As in ``reward``. Outcomes of one name under several event ids are added up.
        """
        (status,) = await self.outcomes([(decision_id, name, value, at, event_id)])
        return status

    async def outcomes(self, outcomes: Iterable[tuple[Any, ...]]) -> list[Status]:
        """Hands in many outcomes, as tuples of decision id, name and value; returns their statuses.

        A tuple may have a fourth and a fifth entry: ``at`` and ``event_id`` of ``outcome``.
        """
        items = [_outcome_item(*outcome) for outcome in outcomes]
        batches = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
        return [
            status
            for batch in batches
            for status in await self._handed_in("outcomes", wire.OutcomeBatch(batch))
        ]

    async def reward_file(
        self, bandit: str, content: bytes, media_type: str = "text/csv"
    ) -> wire.RewardsTaken:
        """Hands in a file of at most 50,000 rewards and 1 MB, unless the service allows more bytes.

        Parameters
        ----------
        content
            The file, with the columns ``decision_id``, ``reward`` and, if wanted, ``at`` and
            ``event_id``.
        media_type
            ``text/csv``, ``application/x-ndjson`` or ``application/vnd.apache.parquet``.

        Returns
        -------
        RewardsTaken
            Counts by status, and the first 1,000 of the ``n_bad`` rows that could not be used, with
            their lines and reasons.
        """
        address = "/".join(["/v1/bandits", _quoted(bandit), "rewards"])
        return await self._send(Call("POST", address, wire.RewardsTaken, content, media_type))

    async def _reward(self, items: list[wire.RewardItem]) -> list[Status]:
        """Returns the status of each reward."""
        return await self._handed_in("rewards", wire.RewardBatch(items))

    async def _handed_in(self, what: str, body: Any) -> list[Status]:
        """Returns each status; reasons of invalid ones go to the log, in one line."""
        answer = await self._ask(wire.RewardAnswer, "POST", what, body=body)
        reasons = [reason for reason in answer.reasons if reason]
        if reasons:
            more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
            log.warning("invalid: %s%s", reasons[0], more)
        return answer.statuses

    async def cancel(self, decision_id: str) -> Status:
        """Says that a decision was not carried out, so that it waits for no reward."""
        path = "decisions", decision_id, "cancel"
        return (await self._ask(wire.StatusAnswer, "POST", *path)).status

    async def story(self, decision_id: str, *, explain: bool = False) -> wire.DecisionStory:
        """Returns the story of a decision; with ``explain``, also what the model knew."""
        query = "?explain=true" if explain else ""
        return await self._ask(wire.DecisionStory, "GET", "decisions", decision_id, query=query)

    async def best(
        self,
        bandit: str,
        context: Mapping[str, Any] | None = None,
        *,
        eligible: Sequence[str] | None = None,
        actions: Mapping[str, Features] | None = None,
        matrix: Any = None,
    ) -> Ranking:
        """Returns a ranking of the actions and how sure it is; makes no decision.

        Parameters
        ----------
        context, eligible, actions, matrix
            As in ``decide``.

        Returns
        -------
        Ranking
            The best action first, each with its estimated mean reward, an interval of that, and the
            numbers of its decisions and rewards; and a verdict in words.
        """
        body = wire.RankingRequest(*_options(context, eligible, actions, matrix))
        return await self._ask(Ranking, "POST", "bandits", bandit, "ranking", body=body)

    async def lift(self, bandit: str) -> wire.LiftView:
        """Returns what a bandit earns above its holdout: ``sentence`` says it in words.

        The service works it out from the whole log, so a longer log takes longer. A client that
        loses patience asks again and waits for the same work: give the client a ``timeout`` that is
        long enough for your log.
        """
        return await self._ask(wire.LiftView, "GET", "bandits", bandit, "lift")

    async def model(self, bandit: str) -> bytes:
        """Returns the model document of a bandit, with which ``belated.edge`` decides elsewhere."""
        return bytes(await self._ask(msgspec.Raw, "GET", "bandits", bandit, "model"))

    async def made(self, bandit: str, decisions: Sequence[wire.MadeDecision]) -> wire.MadeAnswer:
        """Hands in decisions that were made elsewhere, 100 at most; they may be sent again."""
        body, path = wire.MadeBatch(list(decisions)), ("bandits", bandit, "decisions", "made")
        return await self._ask(wire.MadeAnswer, "POST", *path, body=body)

    # --------------------------------------------------------------------------------- bandits

    async def bandits(self) -> list[str]:
        """Returns the names of all bandits."""
        first = await self._ask(wire.BanditList, "GET", "bandits")
        return [name for page in await self._pages(first, "bandits") for name in page.bandits]

    async def bandit(self, name: str) -> wire.BanditState:
        """Returns a bandit's settings and what it knows."""
        return await self._ask(wire.BanditState, "GET", "bandits", name)

    async def put_bandit(
        self, name: str, settings: Mapping[str, Any] | wire.BanditSettings
    ) -> wire.BanditState:
        """Makes a bandit, or changes its settings; returns its state."""
        return await self._ask(wire.BanditState, "PUT", "bandits", name, body=settings)

    async def retrain(
        self,
        bandit: str,
        settings: Mapping[str, Any] | None = None,
        *,
        back: bool = False,
        timeout: float = FROM_LOG,
    ) -> wire.RetrainView:
        """Compares a bandit with what it would be if it had had other settings all along.

        ``back`` stands for the settings before the last promotion. A longer log takes longer;
        ``timeout`` is in seconds.
        """
        path, body = ("bandits", bandit, "retrain"), _retraining(settings, back)
        return await self._ask(wire.RetrainView, "POST", *path, body=body, timeout=timeout)

    async def promote(
        self,
        bandit: str,
        settings: Mapping[str, Any] | None = None,
        *,
        back: bool = False,
        timeout: float = FROM_LOG,
    ) -> wire.RetrainView:
        """Lets a bandit go on as if it had had other settings all along; returns when it does.

        ``back`` and ``timeout`` are as in ``retrain``.
        """
        path, body = ("bandits", bandit, "promote"), _retraining(settings, back, _request_id(None))
        return await self._ask(wire.RetrainView, "POST", *path, body=body, timeout=timeout)

    async def actions(self, bandit: str) -> dict[str, Any]:
        """Returns the registered actions, by name."""
        return await self._actions("GET", bandit)

    async def change_actions(
        self, bandit: str, put: Mapping[str, Features] | None = None, drop: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Registers actions or changes their features, and withdraws others; returns all."""
        features = {name: _features(given) for name, given in (put or {}).items()}
        return await self._actions("PATCH", bandit, wire.ActionChange(features, list(drop)))

    async def _actions(self, method: str, bandit: str, body: Any = None) -> dict[str, Any]:
        """Returns all actions; the first page of them is the answer to this request."""
        path = "bandits", bandit, "actions"
        first = await self._ask(wire.ActionList, method, *path, body=body)
        pages = await self._pages(first, *path)
        return {name: given for page in pages for name, given in page.actions.items()}

    async def forget(self, bandit: str, subject: str) -> int:
        """Erases a subject's decisions and rewards; returns how many decisions.

        0 may also mean that an attempt whose answer was lost has erased them.
        """
        path = "bandits", bandit, "subjects", subject
        return (await self._ask(wire.Erased, "DELETE", *path)).decisions


# -------------------------------------------------------------------------------------- bodies


def _options(
    context: Mapping[str, Any] | None,
    eligible: Sequence[str] | None,
    actions: Mapping[str, Features] | None,
    matrix: Any,
) -> tuple[Any, Any, Any, Any]:
    """Returns the first fields of a request: the actions and their context."""
    rows = None
    if actions is not None:
        rows = [wire.ActionRow(name, _features(features)) for name, features in actions.items()]
    return (
        None if context is None else dict(context),
        None if eligible is None else list(eligible),
        rows,
        None if matrix is None else _matrix(matrix),
    )


def _decision_request(
    *,
    context: Mapping[str, Any] | None = None,
    eligible: Sequence[str] | None = None,
    actions: Mapping[str, Features] | None = None,
    matrix: Any = None,
    request_id: str | None = None,
    **others: Any,
) -> wire.DecisionRequest:
    """Returns the body of a decision, whose fields ``others`` are sent as they are."""
    options = _options(context, eligible, actions, matrix)
    return wire.DecisionRequest(*options, request_id=_request_id(request_id), **others)


def _retraining(
    settings: Mapping[str, Any] | None, back: bool, request_id: str | None = None
) -> dict[str, Any]:
    """Returns the body of a request to retrain a bandit."""
    named = {"back": back, "request_id": request_id}
    return dict(settings or {}) | {name: value for name, value in named.items() if value}


def _request_id(given: str | None) -> str:
    """Returns the name of a request, drawn if the caller has none: it may be sent again."""
    return str(uuid4()) if given is None else given


def _reward_item(
    decision_id: str,
    reward: Any,
    at: Any = None,
    event_id: str | None = None,
    revise: bool = False,
) -> wire.RewardItem:
    """Returns an item of a batch; raises at NaN, which would arrive as null."""
    value = _finite(f"reward of {shown(decision_id)}", reward)
    return wire.RewardItem(decision_id, value, revise, _seconds(at), event_id)


def _outcome_item(
    decision_id: str, name: str, value: Any, at: Any = None, event_id: str | None = None
) -> wire.OutcomeItem:
    number = _finite(f"{shown(name)} of {shown(decision_id)}", value)
    return wire.OutcomeItem(decision_id, name, number, _seconds(at), event_id)


def _finite(what: str, given: Any) -> float:
    try:
        value = float(given)
        if math.isfinite(value):
            return value
    except (TypeError, ValueError):
        pass
    raise wrong(what, given, "a finite number")


def _seconds(at: Any) -> float | None:
    return None if at is None else moment("at", at) / 1e6


def _features(given: Features) -> Any:
    return dict(given) if isinstance(given, Mapping) else [float(value) for value in given]


def _matrix(given: Any) -> wire.Base64Matrix:
    """Returns a matrix as base64, which is read three times faster than JSON and is exact."""
    n_rows, content = _of_array(given) if hasattr(given, "__array__") else _of_lists(given)
    return wire.Base64Matrix(n_rows, base64.b64encode(content).decode())


def _of_array(given: Any) -> tuple[int, bytes]:
    """Returns the number of rows of an array or a data frame, and their numbers as bytes."""
    import numpy as np  # whoever has an array has NumPy; the client does without

    matrix = np.ascontiguousarray(given, "<f8")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"matrix has shape {matrix.shape}: expected a row for each action")
    return len(matrix), matrix.tobytes()


def _of_lists(given: Any) -> tuple[int, bytes]:
    """Returns the number of rows of nested lists, and their numbers as bytes."""
    try:
        rows = [[float(value) for value in row] for row in given]
    except (TypeError, ValueError):
        rows = []
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise wrong("matrix", given, "a row of numbers for each action, all rows of one length")
    return len(rows), struct.pack(f"<{len(rows) * len(rows[0])}d", *chain.from_iterable(rows))


def _quoted(part: str) -> str:
    if not isinstance(part, str) or not part:
        raise wrong("name", part, "text that is not empty")
    return quote(part, safe="")


def _plain(value: Any) -> Any:
    """Converts numbers of NumPy for the JSON encoder."""
    if getattr(value, "shape", None) == ():  # a number of NumPy or its like
        return value.item()
    raise TypeError(f"{shown(value)}: expected what JSON can hold, got {type(value).__name__}")
