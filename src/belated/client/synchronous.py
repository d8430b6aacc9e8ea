"""The client for ordinary programs."""

import time
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


class Client:
    """A connection to a service.

    Every request is sent again where the service cannot be reached, is busy (429) or has no store
    (503): a little later each time, with the same bytes and request id, so that nothing is done
    twice. What is refused raises ``ServiceError``, a service that stays out of reach
    ``ConnectionError``.

    Parameters
    ----------
    base_url
        Such as ``http://127.0.0.1:8787``.
    key
        API key, where the service asks for one.
    timeout
        Seconds to wait for an answer, each time.
    retries
        How often to try again.
    transport
        Of httpx2, instead of the network.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retries: int = 5,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._retries = calls.checked_retries(retries)
        self._http = httpx2.Client(**calls.http_options(base_url, key, timeout, transport))

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send(self, call: Call[T]) -> T:
        attempts = Attempts(self._retries)
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

    # ------------------------------------------------------------------------ decide and learn

    def decide(
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
        """Choose one of the registered actions, of ``actions``, or of the rows of ``matrix``.

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
            Whom the decision concerns, for ``forget``.
        request_id
            Your own name for the request, to ask again after a crash; drawn by default.
        played, propensity
            In shadow mode: the action that is played, and the probability with which it was.
        """
        return self._send(
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

    def reward(self, decision_id: str, reward: float, *, revise: bool = False) -> Status:
        """Hand in a reward; ``revise`` puts it in the place of an earlier one."""
        (call,) = calls.rewards([calls.reward_item(decision_id, reward, revise)])
        return calls.statuses(self._send(call))[0]

    def rewards(self, rewards: Iterable[tuple[str, float]]) -> list[Status]:
        """Hand in many, as pairs of decision id and reward: what became of each."""
        items = [calls.reward_item(id, reward) for id, reward in rewards]
        return [
            status for call in calls.rewards(items) for status in calls.statuses(self._send(call))
        ]

    def cancel(self, decision_id: str) -> Status:
        """Say that a decision was not carried out: no reward is waited for."""
        return self._send(calls.cancellation(decision_id)).status

    def story(self, decision_id: str, *, explain: bool = False) -> DecisionStory:
        """Returns the story of a decision; with ``explain``, also what the model knew."""
        return self._send(calls.story(decision_id, explain))

    def best(
        self,
        bandit: str,
        context: Mapping[str, Any] | None = None,
        *,
        eligible: Sequence[str] | None = None,
        actions: Mapping[str, Features] | None = None,
        matrix: Any = None,
    ) -> Ranking:
        """Returns a ranking: which action is best, and how sure that is. Nothing is decided.

        Parameters
        ----------
        context, eligible, actions, matrix
            As of ``decide``.

        Returns
        -------
        Ranking
            The best action first, each with its estimated mean reward, an interval of it, and how
            many decisions and rewards it has had; and a verdict in words.
        """
        return self._send(
            calls.ranking(
                bandit, context=context, eligible=eligible, actions=actions, matrix=matrix
            )
        )

    # --------------------------------------------------------------------------------- bandits

    def bandits(self) -> list[str]:
        """Names of all bandits."""
        page = self._send(calls.bandit_list(None))
        names = page.bandits
        while page.next is not None:
            page = self._send(calls.bandit_list(page.next))
            names += page.bandits
        return names

    def bandit(self, name: str) -> BanditState:
        """A bandit's settings and what it knows."""
        return self._send(calls.bandit_state(name))

    def put_bandit(self, name: str, settings: Mapping[str, Any] | BanditSettings) -> BanditState:
        """Make a bandit, or change its settings."""
        return self._send(calls.bandit_settings(name, settings))

    def actions(self, bandit: str) -> dict[str, Any]:
        """The registered actions, by name."""
        return self._all_actions(bandit, self._send(calls.action_list(bandit, None)))

    def change_actions(
        self, bandit: str, put: Mapping[str, Features] | None = None, drop: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Register actions or change their features, and withdraw others; returns all."""
        return self._all_actions(bandit, self._send(calls.action_change(bandit, put or {}, drop)))

    def _all_actions(self, bandit: str, page: ActionList) -> dict[str, Any]:
        actions = page.actions
        while page.next is not None:
            page = self._send(calls.action_list(bandit, page.next))
            actions |= page.actions
        return actions

    def forget(self, bandit: str, subject: str) -> int:
        """Erase a subject's decisions and rewards; returns how many decisions.

        0 may also mean that an attempt whose answer was lost has erased them.
        """
        return self._send(calls.erasure(bandit, subject)).decisions
