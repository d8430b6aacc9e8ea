"""The whole story of a decision: what the model knew, what it thought of every action."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from belated.core.times import iso
from belated.core.types import Matrix
from belated.ledger import open_ledger, snapshots
from belated.ledger.base import version_at_base
from belated.ledger.events import (
    IMPORTED,
    Decided,
    Event,
    Guardrail,
    Kind,
    Position,
    Reward,
)
from belated.ledger.ids import to_text
from belated.ledger.promotion import promotions_of
from belated.ledger.protocol import Ledger
from belated.ledger.replica import Replica
from belated.ledger.standing import ending_of
from belated.ledger.tools.half_lives import would_forgetting_help
from belated.ledger.tools.lifting import is_it_worth_it
from belated.ledger.vectors import dim_of, vector_of
from belated.service.background_process import BackgroundProcess, TooManyCallsError
from belated.service.http.problems import Problem, ProblemType
from belated.service.settings import finite
from belated.wire import (
    ActionView,
    DecisionStory,
    EventView,
    Explanation,
    ForgettingView,
    LiftView,
)

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

TOO_MANY = ProblemType(503, "too-many-explanations", "Other explanations are worked out first")
COMPACTED = ProblemType(410, "compacted", "What the model knew then was compacted and dropped")
RETRY_AFTER = 5.0  # seconds


def story_of(events: list[Event]) -> DecisionStory:
    """Returns the story of a decision, as the log has it."""
    first = events[0]
    body = msgspec.msgpack.decode(first.body, type=Decided)
    return DecisionStory(
        decision_id=to_text(first.id),
        bandit=first.bandit,
        status=ending_of(events).status,
        action=body.action,
        propensity=body.propensity,
        model_version=body.version,
        policy=body.policy,
        score=finite(body.score),
        estimate=body.estimate,
        width=finite(body.width),
        features=vector_of(body.x).tolist(),
        events=[_view(event) for event in events],
        context=msgspec.Raw(body.context) if body.context else None,
        request_id=body.request or None,
        subject=body.subject or None,
        proposal=body.proposal or None,
        window_closes=None if first.due is None else iso(first.due),
        grace_ends=None if first.closes is None else iso(first.closes),
        n_actions=body.n_actions or None,
        probabilities=None if body.probabilities is None else list(body.probabilities),
        held_out=body.held_out,
        repeats=to_text(body.repeats) if body.repeats else None,
    )


def _view(event: Event) -> EventView:
    received = None if event.received is None else iso(event.received)
    view = EventView(event.kind.name.lower(), iso(event.time), event.value, received)
    if event.kind == Kind.OUTCOME:
        noted = msgspec.msgpack.decode(event.body, type=Guardrail)
        view.outcome, view.event_id = noted.name, noted.event_id or None
        view.value, view.reward = view.reward, None
    if event.body and event.kind in (Kind.REWARDED, Kind.REVISED):
        reward = msgspec.msgpack.decode(event.body, type=Reward)
        view.event_id = reward.event_id or None
        view.part = reward.value if event.kind == Kind.REVISED else None
    return view


class Explaining:
    """Works out explanations one after the other, beside the live state.

    Parameters
    ----------
    ledger, folder
        The log, for threads, and where its snapshots lie, if there are any.
    url
        Of the log, for other processes; None where they cannot read it.
    """

    def __init__(self, ledger: Ledger, folder: Path | None, url: str | None) -> None:
        self._ledger, self._folder, self._url = ledger, folder, url
        self._background = BackgroundProcess()
        self._under_way: dict[Any, asyncio.Task[Any]] = {}

    async def explain(self, first: Event) -> Explanation:
        """Returns what was known when a decision was made; ``first`` is its event in the log."""
        version = msgspec.msgpack.decode(first.body, type=Decided).version
        if version < await asyncio.to_thread(version_at_base, self._ledger, first.bandit):
            raise Problem(COMPACTED, "The model is known from the beginning of the log on.")
        said: Explanation = await self._once(first.id, lambda: self._explain(first))
        return said

    async def forgetting(self, bandit: str, now: int) -> ForgettingView:
        """Returns whether forgetting would help a bandit; see ``ledger/tools/half_lives.py``."""
        return msgspec.convert(await self.from_log(forgetting_view, bandit, now), ForgettingView)

    async def lift(self, bandit: str, now: int) -> LiftView:
        """Returns what a bandit earns above its holdout; see ``ledger/tools/lifting.py``."""
        return msgspec.convert(await self.from_log(lift_view, bandit, now), LiftView)

    async def from_log(self, view: Callable[..., Any], bandit: str, about: Any) -> Any:
        """Returns a view that is worked out from the whole log."""

        async def work() -> Any:
            if self._url is None:
                return await asyncio.to_thread(view, self._ledger, bandit, about)
            return await self._background.call(view, self._url, bandit, about)

        # Whoever asks about now a moment later is told the same; other questions have their own.
        asked = b"" if isinstance(about, int) else msgspec.json.encode(about)
        return await self._once((view, bandit, asked), work)

    async def _once(self, key: Any, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Returns what is worked out; whoever asks again meanwhile waits for the same work."""
        task = self._under_way.get(key)
        if task is None:  # a client that lost patience may have asked before
            task = asyncio.get_running_loop().create_task(work())
            self._under_way[key] = task
            task.add_done_callback(lambda task: self._finished(key, task))
        try:
            return await asyncio.shield(task)
        except TooManyCallsError:
            raise Problem(TOO_MANY, "Try again in a moment.", retry_after=RETRY_AFTER) from None

    def stop(self) -> None:
        """Give up what is under way."""
        self._background.stop()

    def _finished(self, key: Any, task: "asyncio.Task[Any]") -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # whoever still waits is told: it need not be logged

    async def _explain(self, first: Event) -> Explanation:
        if self._url is None:
            return await asyncio.to_thread(explanation, self._ledger, self._folder, first)
        said = await self._background.call(explanation_of, self._url, self._folder, first.id.hex())
        return msgspec.convert(said, Explanation)


def explanation_of(url: str, folder: str | None, id: str) -> Any:
    """The explanation of a decision, as JSON can hold it."""
    with closing(open_ledger(url)) as ledger:
        first, *_ = ledger.story(bytes.fromhex(id))
        return msgspec.to_builtins(explanation(ledger, folder, first))


def forgetting_view(log: str | Ledger, bandit: str, now: int) -> Any:
    """The answer to whether forgetting would help a bandit, as JSON can hold it."""
    with at_hand(log) as ledger:
        return msgspec.to_builtins(would_forgetting_help(ledger, bandit, now))


def lift_view(log: str | Ledger, bandit: str, now: int) -> Any:
    """The comparison of a bandit with its holdout, as JSON can hold it."""
    with at_hand(log) as ledger:
        return msgspec.to_builtins(is_it_worth_it(ledger, bandit, now))


def at_hand(log: str | Ledger) -> AbstractContextManager[Ledger]:
    """Returns a ledger that is open, or that is opened here by its URL and closed again."""
    return closing(open_ledger(log)) if isinstance(log, str) else nullcontext(log)


def explanation(ledger: Ledger, folder: Path | str | None, first: Event) -> Explanation:
    """Rebuild what was known when a decision was made, from the log alone."""
    from belated.learner.action_intervals import interval_width, score_deviations

    body = msgspec.msgpack.decode(first.body, type=Decided)
    place = Position(first.tx, first.seq)
    fold = _fold_at(ledger, folder, first.bandit, body.version, body.regime, place)
    if dim_of(body.x) != fold.learner.dim:
        # It was imported, after the features had grown: no model of ours had a part in it.
        replica = Replica(ledger, only={first.bandit})
        replica.catch_up()
        present = replica.fold(first.bandit)
        fold = replica.empty_fold(first.bandit, present.spec)
        body = msgspec.structs.replace(body, x=present.present_vector(body), matrix=b"")
    names, matrix, complete = _options(fold, body)
    learner = fold.learner
    sds = score_deviations(learner, matrix)
    views = [
        ActionView(
            name,
            x.tolist(),
            float(x @ learner.state.theta),
            finite(interval_width(learner, x)),
            learner.mean(float(x @ learner.state.theta)),
            None if sds is None else finite(float(sds[k])),
        )
        for k, (name, x) in enumerate(zip(names, matrix, strict=True))
    ]
    return Explanation(
        n_decided=learner.n_decided,
        n_observed=learner.n_observed,
        n_pending=fold.pending.n_waiting,
        theta=learner.state.theta.tolist(),
        actions=views,
        complete=complete,
        rule=_rule(fold, body),
        heard=fold.heard_words(),
    )


def _rule(fold: "Fold", body: Decided) -> str:
    """Says how the action was chosen."""
    from belated.learner.action_intervals import rule_of

    if body.policy == IMPORTED:
        return "another program chose: the decision was imported"
    if body.proposal:
        return f"the caller chose; the bandit, in shadow mode, would have played {body.proposal!r}"
    if body.repeats:
        return "sticky: the action that the subject had got before was played again"
    if body.held_out:
        return "held out: the baseline was played, to compare the bandit with"
    if fold.spreads:
        return "nothing was learnt yet: every action had the same probability"
    share, rule = fold.spec.exploration, rule_of(fold.learner)
    return f"drawn uniformly with probability {share:g}; otherwise {rule}" if share else rule


def _fold_at(
    ledger: Ledger,
    folder: Path | str | None,
    name: str,
    version: int,
    regime: str,
    place: Position,
) -> "Fold":
    """A bandit as it was after its first ``version`` events, for a decision at ``place``.

    ``regime`` is that of the model that decided: it may not have known of a promotion yet.
    """
    replica = Replica(ledger, only={name})
    snapshots.load(replica, folder, lambda manifest: _is_before(manifest, name, version, regime))
    promotions = promotions_of(ledger, name, place)
    while promotions and promotions[-1].promotion.regime != regime:
        promotions.pop()
    replica.begin()
    fold, position = replica.folds.get(name), replica.position
    while fold is None or fold.version < version:
        events, position = ledger.follow(position, 10_000)
        if not events:
            break
        mine = [event for event in events if event.bandit == name]
        if mine and fold is None:
            fold = replica.new_fold(name, mine[0], promotions)
        if fold is not None:
            fold.apply(mine[: version - fold.version])
    assert fold is not None
    return fold


def _is_before(manifest: snapshots.Manifest, name: str, version: int, regime: str) -> bool:
    """Returns whether a snapshot holds a bandit as it was after ``version`` events or fewer."""
    return any(
        bandit["name"] == name
        and bandit["version"] <= version
        and bandit.get("regime", [""])[0] == regime
        for bandit in manifest["bandits"]
    )


def _options(fold: "Fold", body: Decided) -> tuple[list[str], Matrix, bool]:
    """Names and vectors of the actions there were, as far as the log holds them."""
    dim = fold.learner.dim
    if body.matrix:
        matrix = np.frombuffer(body.matrix).reshape(-1, dim)
        names = body.names or tuple(str(k) for k in range(len(matrix)))
        return list(names), matrix, True
    context: Any = msgspec.json.decode(body.context) if body.context else None
    names = body.eligible or tuple(fold.actions.listed)
    if body.of_registered and body.action in names:
        try:
            return list(names), fold.actions.matrix(names, context), True
        except ValueError:
            pass  # the context is gone: the log was told to retain no more than it must
    return [body.action], vector_of(body.x).reshape(1, dim), False
