"""The client for programs with an event loop."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx2

from belated.client import calls
from belated.client.calls import Attempts, Call, Features
from belated.core.events import Status
from belated.core.ranking import Ranking
from belated.wire import (
    ActionList,
    BanditSettings,
    BanditState,
    DecisionAnswer,
    DecisionStory,
)

T = TypeVar("T")


class AsyncClient:
    """The same methods as ``Client``, with ``await``. One object may serve many tasks at once."""

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retries: int = 5,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._retries = calls.checked_retries(retries)
        self._http = httpx2.AsyncClient(**calls.http_options(base_url, key, timeout, transport))

    async def close(self) -> None:
        """Let go of the connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _send(self, call: Call[T]) -> T:
        attempts = Attempts(self._retries)
        while True:
            response = failure = None
            try:
                response = await self._http.send(call.request(self._http))
            except httpx2.TransportError as error:
                failure = error
            pause = attempts.pause(response)
            if pause is None:
                return calls.outcome(call, response, failure)
            await asyncio.sleep(pause)

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
    ) -> DecisionAnswer:
        """See ``Client.decide``."""
        return await self._send(
            calls.decision(
                bandit,
                context=context,
                eligible=eligible,
                actions=actions,
                matrix=matrix,
                subject=subject,
                request_id=request_id,
                played=played,
                propensity=propensity,
            )
        )

    async def reward(self, decision_id: str, reward: float, *, revise: bool = False) -> Status:
        """Hand in a reward; ``revise`` puts it in the place of an earlier one."""
        (call,) = calls.rewards([calls.reward_item(decision_id, reward, revise)])
        return calls.statuses(await self._send(call))[0]

    async def rewards(self, rewards: Iterable[tuple[str, float]]) -> list[Status]:
        """Hand in many, as pairs of decision id and reward: what became of each."""
        items = [calls.reward_item(id, reward) for id, reward in rewards]
        return [
            status
            for call in calls.rewards(items)
            for status in calls.statuses(await self._send(call))
        ]

    async def cancel(self, decision_id: str) -> Status:
        """Say that a decision was not carried out: no reward is waited for."""
        return (await self._send(calls.cancellation(decision_id))).status

    async def story(self, decision_id: str, *, explain: bool = False) -> DecisionStory:
        """Returns the story of a decision; with ``explain``, also what the model knew."""
        return await self._send(calls.story(decision_id, explain))

    async def best(
        self,
        bandit: str,
        context: Mapping[str, Any] | None = None,
        *,
        eligible: Sequence[str] | None = None,
        actions: Mapping[str, Features] | None = None,
        matrix: Any = None,
    ) -> Ranking:
        """See ``Client.best``."""
        return await self._send(
            calls.ranking(
                bandit, context=context, eligible=eligible, actions=actions, matrix=matrix
            )
        )

    # --------------------------------------------------------------------------------- bandits

    async def bandits(self) -> list[str]:
        """Names of all bandits."""
        page = await self._send(calls.bandit_list(None))
        names = page.bandits
        while page.next is not None:
            page = await self._send(calls.bandit_list(page.next))
            names += page.bandits
        return names

    async def bandit(self, name: str) -> BanditState:
        """A bandit's settings and what it knows."""
        return await self._send(calls.bandit_state(name))

    async def put_bandit(
        self, name: str, settings: Mapping[str, Any] | BanditSettings
    ) -> BanditState:
        """Make a bandit, or change its settings."""
        return await self._send(calls.bandit_settings(name, settings))

    async def actions(self, bandit: str) -> dict[str, Any]:
        """The registered actions, by name."""
        return await self._all_actions(bandit, await self._send(calls.action_list(bandit, None)))

    async def change_actions(
        self, bandit: str, put: Mapping[str, Features] | None = None, drop: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Register actions or change their features, and withdraw others; returns all."""
        first = await self._send(calls.action_change(bandit, put or {}, drop))
        return await self._all_actions(bandit, first)

    async def _all_actions(self, bandit: str, page: ActionList) -> dict[str, Any]:
        actions = page.actions
        while page.next is not None:
            page = await self._send(calls.action_list(bandit, page.next))
            actions |= page.actions
        return actions

    async def forget(self, bandit: str, subject: str) -> int:
        """Erase a subject's decisions and rewards; returns how many decisions.

        0 may also mean that an attempt whose answer was lost has erased them.
        """
        return (await self._send(calls.erasure(bandit, subject))).decisions
