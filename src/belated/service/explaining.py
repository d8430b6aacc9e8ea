"""The whole story of a decision: what the model knew, what it thought of every action."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from belated.core.types import Matrix
from belated.ledger import snapshots
from belated.ledger.ending import ending_of
from belated.ledger.events import Decided, Event
from belated.ledger.ids import to_text
from belated.ledger.loop import Loop
from belated.service.messages import ActionView, DecisionStory, EventView, Explanation
from belated.service.running import Service
from belated.service.settings import finite

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold


def story_of(events: list[Event]) -> DecisionStory:
    """What the log says of a decision."""
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
        features=np.frombuffer(body.x).tolist(),
        events=[EventView(e.kind.name.lower(), iso(e.time), e.value) for e in events],
        context=msgspec.Raw(body.context) if body.context else None,
        request_id=body.request or None,
        subject=body.subject or None,
        proposal=body.proposal or None,
        window_closes=None if first.due is None else iso(first.due),
    )


def explain(service: Service, first: Event) -> Explanation:
    """Rebuild what was known at the time, from the log alone."""
    body = msgspec.msgpack.decode(first.body, type=Decided)
    fold = _fold_at(service, first.bandit, body.version)
    if len(body.x) != 8 * fold.learner.dim:
        # It was imported, after the features had grown: no model of ours had a part in it.
        live = service.fold(first.bandit)
        fold = Loop(service.ledger, only=live.name).empty_fold(live.name, live.spec)
        body = msgspec.structs.replace(body, x=live.earlier.present(body.x), matrix=b"")
    names, matrix, complete = _options(fold, body)
    learner = fold.learner
    views = [
        ActionView(
            name,
            x.tolist(),
            float(x @ learner.state.theta),
            finite(learner.interval_width(x)),
            learner.mean(float(x @ learner.state.theta)),
        )
        for name, x in zip(names, matrix, strict=True)
    ]
    return Explanation(
        n_decided=learner.n_decided,
        n_observed=learner.n_observed,
        n_pending=len(fold.pending),
        theta=learner.state.theta.tolist(),
        actions=views,
        complete=complete,
    )


def _fold_at(service: Service, name: str, version: int) -> "Fold":
    """A bandit as it was after its first ``version`` events."""
    loop = Loop(service.ledger, only=name)
    if service.snapshot_folder is not None:
        snapshots.load(loop, service.snapshot_folder)
        if name not in loop.folds or loop.folds[name].version > version:
            loop = Loop(service.ledger, only=name)
    fold, position = loop.folds.get(name), loop.position
    while fold is None or fold.version < version:
        events, position = service.ledger.follow(position, 10_000)
        if not events:
            break
        mine = [event for event in events if event.bandit == name]
        if mine and fold is None:
            fold = loop.new_fold(name, mine[0])
        if fold is not None:
            fold.apply(mine[: version - fold.version])
    assert fold is not None
    return fold


def _options(fold: "Fold", body: Decided) -> tuple[list[str], Matrix, bool]:
    """Names and vectors of the actions there were, as far as the log holds them."""
    dim = fold.learner.dim
    if body.matrix:
        matrix = np.frombuffer(body.matrix).reshape(-1, dim)
        names = body.names or tuple(str(k) for k in range(len(matrix)))
        return list(names), matrix, True
    context: Any = msgspec.json.decode(body.context) if body.context else None
    names = body.eligible or tuple(fold.actions.listed)
    if body.names is None and body.action in names:
        try:
            return list(names), fold.actions.matrix(names, context), True
        except ValueError:
            pass  # the context is gone: the log was told to retain no more than it must
    return [body.action], np.frombuffer(body.x).reshape(1, dim), False


def iso(time: int) -> str:
    """A time as ISO 8601 has it, in UTC."""
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat().replace("+00:00", "Z")
