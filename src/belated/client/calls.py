"""Requests of the clients: when they are sent again, and how their answers are read."""

import random
import ssl
from http import HTTPStatus
from typing import Any, Generic, NamedTuple, TypeVar

import httpx2
import msgspec

from belated.core.arguments import positive, whole, wrong
from belated.wire import ProblemDocument

T = TypeVar("T")

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
    media_type: str = "application/json"
    timeout: float | None = None  # seconds; None: that of the client

    def request(self, http: httpx2.Client | httpx2.AsyncClient) -> httpx2.Request:
        """Returns the request as ``http`` sends it."""
        headers = {} if self.content is None else {"Content-Type": self.media_type}
        timeout = http.timeout if self.timeout is None else self.timeout
        return http.build_request(
            self.method, self.path, content=self.content, headers=headers, timeout=timeout
        )

    def read(self, response: httpx2.Response) -> T:
        """Returns the answer; raises ``ServiceError`` if it is an error."""
        if response.is_success:
            return msgspec.json.decode(response.content, type=self.answer)
        raise ServiceError(_problem(response))


class Attempts:
    """Decides when a request is sent again: after failures that may pass, a little later each time.

    Each request may be sent twice without harm. A decision has a request id, and for all other
    requests the service notices that they were done before.
    """

    def __init__(self, retries: int) -> None:
        self._left, self._pause = retries, FIRST_PAUSE
        self._compiling = LONGEST_COMPILATION

    def pause(self, response: httpx2.Response | None) -> float | None:
        """Returns the seconds to wait before the next attempt; None if this was the last one.

        ``response`` is None if no response came.
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
        """Returns whether the service is compiling; the client waits for that in any case."""
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
    base_url: str, key: str | None, timeout: float, transport: Any, ca_file: str | None
) -> dict[str, Any]:  # of httpx2.Client and httpx2.AsyncClient alike
    """Returns the checked settings of a client."""
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise wrong("base_url", base_url, "an address such as http://127.0.0.1:8787")
    return {
        "base_url": base_url,
        "headers": {} if key is None else {"X-API-Key": key},
        "timeout": positive("timeout", timeout),
        "transport": transport,
        "verify": True if ca_file is None else _trusting(ca_file),
    }


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, TypeError):  # among them SSLError
        expected = "a PEM file with the certificate of who signed that of the service"
        raise wrong("ca_file", ca_file, expected) from None


def checked_retries(retries: int) -> int:
    """Returns the number of retries, checked."""
    return whole("retries", retries, least=0)
