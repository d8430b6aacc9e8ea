"""The client for ordinary programs."""

import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from belated.client import calls
from belated.client.operations import Operations

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    operation: Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Client, P], T]":
    """Returns a method that returns when the operation is done.

    ``_Blocking`` awaits nothing, so that the first step of a coroutine is its last.
    """

    @wraps(operation)
    def called(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            operation(self._blocking, *args, **kwargs).send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError(f"{operation.__name__} awaits something")

    return called


class _Blocking(Operations):
    """The operations, each of which blocks until its answer has come."""

    def __init__(self, http: httpx2.Client, retries: int) -> None:
        self._http, self._retries = http, retries

    async def _send(self, call: calls.Call[T]) -> T:
        attempts = calls.Attempts(self._retries)
        while True:
            response = failure = None
            try:
                response = self._http.send(call.request(self._http))
            except httpx2.TransportError as error:
                failure = error
            pause = attempts.pause(response)
            if pause is None:
                return calls.outcome(call, response, failure)
            time.sleep(pause)


class Client:
    """A connection to a service.

    If the service cannot be reached, is busy (429) or has no store (503), the client sends the
    request again: with a longer pause each time, and with the same bytes and request id, so that
    nothing is done twice. A refused request raises ``ServiceError``; a service that stays out of
    reach raises ``ConnectionError``.

    Parameters
    ----------
    base_url
        Address of the service, such as ``http://127.0.0.1:8787``.
    key
        API key, if the service asks for one.
    timeout
        Seconds to wait for an answer, each time.
    retries
        How often to try again.
    transport
        A transport of httpx2, used instead of the network.
    ca_file
        PEM file with the certificate of the authority that signed the certificate of an https
        service. It replaces the authorities that httpx2 trusts.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retries: int = 5,
        transport: httpx2.BaseTransport | None = None,
        ca_file: str | None = None,
    ) -> None:
        retries = calls.checked_retries(retries)
        options = calls.http_options(base_url, key, timeout, transport, ca_file)
        self._http = httpx2.Client(**options)
        self._blocking = _Blocking(self._http, retries)

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    decide = _waiting(Operations.decide)
    decide_many = _waiting(Operations.decide_many)
    decide_top = _waiting(Operations.decide_top)
    reward = _waiting(Operations.reward)
    rewards = _waiting(Operations.rewards)
    outcome = _waiting(Operations.outcome)
    outcomes = _waiting(Operations.outcomes)
    reward_file = _waiting(Operations.reward_file)
    cancel = _waiting(Operations.cancel)
    story = _waiting(Operations.story)
    best = _waiting(Operations.best)
    lift = _waiting(Operations.lift)
    model = _waiting(Operations.model)
    made = _waiting(Operations.made)
    bandits = _waiting(Operations.bandits)
    bandit = _waiting(Operations.bandit)
    put_bandit = _waiting(Operations.put_bandit)
    retrain = _waiting(Operations.retrain)
    promote = _waiting(Operations.promote)
    actions = _waiting(Operations.actions)
    change_actions = _waiting(Operations.change_actions)
    forget = _waiting(Operations.forget)
