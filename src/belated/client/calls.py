"""Requests and answers of the clients as plain functions: everything but the sending itself."""

import base64
import logging
import math
import random
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx2
import msgspec

from belated.core.arguments import positive, shown, whole, wrong
from belated.core.events import Status
from belated.core.ranking import Ranking
from belated.wire import (
    ActionChange,
    ActionList,
    ActionRow,
    BanditList,
    BanditSettings,
    BanditState,
    Base64Matrix,
    DecisionAnswer,
    DecisionRequest,
    DecisionStory,
    Erased,
    ProblemDocument,
    RankingRequest,
    RewardAnswer,
    RewardBatch,
    RewardItem,
    StatusAnswer,
)

log = logging.getLogger("belated.client")
T = TypeVar("T")
Features: TypeAlias = Mapping[str, Any] | Sequence[float]

BATCH = 1_000  # rewards in one request
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds between attempts
COMPILING = "/problems/compiling"  # the type of a problem
LONGEST_COMPILATION = 600.0  # seconds
# The service is busy (429), starting or without its store (503), or a proxy does not reach it.
WORTH_A_RETRY = frozenset((429, 502, 503, 504))


class ServiceError(Exception):
    """The service refused a request.

    Attributes
    ----------
    problem
        The RFC 9457 problem document: ``type``, ``title``, ``status``, ``detail`` and ``errors``.
    """

    def __init__(self, problem: ProblemDocument) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem


class Call(NamedTuple, Generic[T]):
    """A request, its bytes fixed before it is first sent, and the type of its answer."""

    method: str
    path: str
    answer: type[T]
    content: bytes | None = None

    def request(self, http: httpx2.Client | httpx2.AsyncClient) -> httpx2.Request:
        """The request as ``http`` sends it."""
        headers = {} if self.content is None else {"Content-Type": "application/json"}
        return http.build_request(self.method, self.path, content=self.content, headers=headers)

    def read(self, response: httpx2.Response) -> T:
        """The answer, or the error that it is."""
        if response.is_success:
            return msgspec.json.decode(response.content, type=self.answer)
        raise ServiceError(_problem(response))


class Attempts:
    """Decides when a request is sent again: after failures that may pass, a little later each time.

    Each request may be sent twice without harm: a decision has a request id, and for the rest the
    service finds out that it was done before.
    """

    def __init__(self, retries: int) -> None:
        self._left, self._pause = retries, FIRST_PAUSE
        self._compiling = LONGEST_COMPILATION

    def pause(self, response: httpx2.Response | None) -> float | None:
        """Seconds to wait before the next attempt, or None: this was the last one.

        ``response`` is None where there was none.
        """
        if response is not None and response.status_code not in WORTH_A_RETRY:
            return None
        if response is not None and self._is_compiling(response):
            return _retry_after(response)
        if self._left == 0:
            return None
        self._left -= 1
        backoff = self._pause * random.uniform(0.5, 1.0)  # clients must not come back in step
        self._pause = min(2.0 * self._pause, LONGEST_PAUSE)
        return max(backoff, 0.0 if response is None else _retry_after(response))

    def _is_compiling(self, response: httpx2.Response) -> bool:
        """Returns whether the service is compiling, which is waited for in any case."""
        if response.status_code != 503 or _problem(response).type != COMPILING:
            return False
        self._compiling -= _retry_after(response)
        return self._compiling > 0.0


def outcome(
    call: Call[T], response: httpx2.Response | None, failure: httpx2.TransportError | None
) -> T:
    """Returns the answer of the last attempt, or raises its error."""
    if response is not None:
        return call.read(response)
    raise ConnectionError(f"{call.method} {call.path}: no answer ({failure!r})") from failure


def _retry_after(response: httpx2.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), 6.0 * LONGEST_PAUSE) if text.isdecimal() else 0.0


def _problem(response: httpx2.Response) -> ProblemDocument:
    """Returns the problem that the service names; a proxy on the way may not name one."""
    try:
        return msgspec.json.decode(response.content, type=ProblemDocument)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = response.status_code
        known = status in set(HTTPStatus)
        title = HTTPStatus(status).phrase if known else "Unknown status"
        return ProblemDocument("about:blank", title, status, response.text[:200])


def http_options(
    base_url: str, key: str | None, timeout: float, transport: Any
) -> dict[str, Any]:  # of httpx2.Client and httpx2.AsyncClient alike
    """The checked settings of a client."""
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise wrong("base_url", base_url, "an address such as http://127.0.0.1:8787")
    return {
        "base_url": base_url,
        "headers": {} if key is None else {"X-API-Key": key},
        "timeout": positive("timeout", timeout),
        "transport": transport,
    }


def checked_retries(retries: int) -> int:
    """Returns the number of retries, checked."""
    return whole("retries", retries, least=0)


# ---------------------------------------------------------------------------------- operations


def decision(
    bandit: str,
    *,
    context: Mapping[str, Any] | None,
    eligible: Sequence[str] | None,
    actions: Mapping[str, Features] | None,
    matrix: Any,
    subject: str | None,
    request_id: str | None,
    played: str | None,
    propensity: float | None,
) -> Call[DecisionAnswer]:
    """Choose an action; always with a request id, so that it can be sent again."""
    body = DecisionRequest(
        *_options(context, eligible, actions, matrix),
        request_id=str(uuid4()) if request_id is None else request_id,
        subject=subject,
        played=played,
        propensity=propensity,
    )
    return Call("POST", f"/v1/bandits/{_quoted(bandit)}/decisions", DecisionAnswer, _json(body))


def ranking(
    bandit: str,
    *,
    context: Mapping[str, Any] | None,
    eligible: Sequence[str] | None,
    actions: Mapping[str, Features] | None,
    matrix: Any,
) -> Call[Ranking]:
    """The request for a ranking of actions."""
    body = RankingRequest(*_options(context, eligible, actions, matrix))
    return Call("POST", f"/v1/bandits/{_quoted(bandit)}/ranking", Ranking, _json(body))


def _options(
    context: Mapping[str, Any] | None,
    eligible: Sequence[str] | None,
    actions: Mapping[str, Features] | None,
    matrix: Any,
) -> tuple[dict[str, Any] | None, list[str] | None, list[ActionRow] | None, Base64Matrix | None]:
    """The fields of a request that say which actions there are, and in which context."""
    rows = None
    if actions is not None:
        rows = [ActionRow(name, _features(features)) for name, features in actions.items()]
    return (
        None if context is None else dict(context),
        None if eligible is None else list(eligible),
        rows,
        None if matrix is None else _matrix(matrix),
    )


def rewards(items: Iterable[RewardItem]) -> Iterator[Call[RewardAnswer]]:
    """Rewards in as many requests as it takes."""
    left = iter(items)
    while batch := list(islice(left, BATCH)):
        yield Call("POST", "/v1/rewards", RewardAnswer, _json(RewardBatch(batch)))


def statuses(answer: RewardAnswer) -> list[Status]:
    """Returns the status of each reward; reasons of invalid ones go to the log, in one line."""
    reasons = [reason for reason in answer.reasons if reason]
    if reasons:
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        log.warning("invalid: %s%s", reasons[0], more)
    return answer.statuses


def reward_item(decision_id: str, reward: Any, revise: bool = False) -> RewardItem:
    """A reward; NaN would arrive as null and be refused with a message nobody understands."""
    try:
        value = float(reward)
        if math.isfinite(value):
            return RewardItem(decision_id, value, revise)
    except (TypeError, ValueError):
        pass
    raise wrong(f"reward of {shown(decision_id)}", reward, "a finite number")


def cancellation(decision_id: str) -> Call[StatusAnswer]:
    """A decision was not carried out."""
    return Call("POST", f"/v1/decisions/{_quoted(decision_id)}/cancel", StatusAnswer)


def story(decision_id: str, explain: bool) -> Call[DecisionStory]:
    """The request for the story of a decision."""
    query = "?explain=true" if explain else ""
    return Call("GET", f"/v1/decisions/{_quoted(decision_id)}{query}", DecisionStory)


def bandit_list(after: str | None) -> Call[BanditList]:
    """A page of the bandits."""
    return Call("GET", f"/v1/bandits{_page(after)}", BanditList)


def bandit_state(name: str) -> Call[BanditState]:
    """A bandit and what it knows."""
    return Call("GET", f"/v1/bandits/{_quoted(name)}", BanditState)


def bandit_settings(name: str, settings: Mapping[str, Any] | BanditSettings) -> Call[BanditState]:
    """Make or change a bandit."""
    return Call("PUT", f"/v1/bandits/{_quoted(name)}", BanditState, _json(settings))


def action_list(bandit: str, after: str | None) -> Call[ActionList]:
    """A page of the registered actions."""
    return Call("GET", f"/v1/bandits/{_quoted(bandit)}/actions{_page(after)}", ActionList)


def action_change(
    bandit: str, put: Mapping[str, Features], drop: Iterable[str]
) -> Call[ActionList]:
    """Register and withdraw actions."""
    change = ActionChange({name: _features(given) for name, given in put.items()}, list(drop))
    return Call("PATCH", f"/v1/bandits/{_quoted(bandit)}/actions", ActionList, _json(change))


def erasure(bandit: str, subject: str) -> Call[Erased]:
    """Erase what concerns a subject."""
    return Call("DELETE", f"/v1/bandits/{_quoted(bandit)}/subjects/{_quoted(subject)}", Erased)


def _page(after: str | None) -> str:
    """The query for a page of a list; the first one needs none."""
    return "" if after is None else f"?after={quote(after, safe='')}"


def _features(given: Features) -> Any:
    return dict(given) if isinstance(given, Mapping) else [float(value) for value in given]


def _matrix(given: Any) -> Base64Matrix:
    """Three times as quick to read as JSON lists, and exact."""
    n_rows, content = _of_array(given) if hasattr(given, "__array__") else _of_lists(given)
    return Base64Matrix(n_rows, base64.b64encode(content).decode())


def _of_array(given: Any) -> tuple[int, bytes]:
    """The rows of an array or a data frame: how many, and their numbers."""
    import numpy as np  # whoever has an array has NumPy; the client does without

    matrix = np.ascontiguousarray(given, "<f8")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"matrix has shape {matrix.shape}: expected a row for each action")
    return len(matrix), matrix.tobytes()


def _of_lists(given: Any) -> tuple[int, bytes]:
    """The same of lists."""
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


def _json(body: Any) -> bytes:
    """Numbers of NumPy are numbers."""
    return msgspec.json.encode(body, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if getattr(value, "shape", None) == ():  # a number of NumPy or its like
        return value.item()
    raise TypeError(f"{shown(value)}: expected what JSON can hold, got {type(value).__name__}")
