"""The operations that retrain a bandit: compare it with another model of its log, and promote that.

Both are worked out beside the live bandit. When a promotion is in the log, every process rebuilds
the bandit as after an erasure.
"""

from typing import Any

import msgspec

from belated import wire
from belated.ledger import snapshots
from belated.ledger.events import NOBODY, Draft, Kind
from belated.ledger.promotion import promotions_of
from belated.ledger.protocol import Ledger
from belated.service.explaining import TOO_MANY, at_hand
from belated.service.http.api import Api
from belated.service.http.problems import INVALID, Problem, ProblemType
from belated.service.retrain_settings import retrained_view
from belated.service.service import NO_BANDIT, Service

REFUSED = ProblemType(409, "promotion-refused", "The log speaks against the promotion")


class Worked(msgspec.Struct):
    """The result of a process beside the service."""

    view: wire.RetrainView | None = None
    body: str | None = None  # of the event that promotes; None where that is done already
    problem: str = ""  # why the request cannot be met


def add_retraining(api: Api, service: Service) -> None:
    """Add the operations that retrain a bandit."""

    async def worked_out(bandit: str, wanted: wire.Retraining) -> Worked:
        service.fold(bandit)
        given = msgspec.to_builtins(wanted)
        answer = await service.explaining.from_log(worked_view, bandit, given)
        return msgspec.convert(answer, Worked)

    @api.route("POST", "/v1/bandits/{name}/retrain", needs="admin", problems=[NO_BANDIT, TOO_MANY])
    async def retrain_bandit(path: wire.BanditPath, body: wire.Retraining) -> wire.RetrainView:
        """Compare a bandit with what it would be, had it had other settings all along.

        Nothing changes. This is worked out from the log and takes the longer the longer the log is.
        """
        return _view_of(await worked_out(path.name, body))

    @api.route(
        "POST",
        "/v1/bandits/{name}/promote",
        needs="admin",
        problems=[NO_BANDIT, TOO_MANY, REFUSED],
    )
    async def promote_bandit(path: wire.BanditPath, body: wire.Retraining) -> wire.RetrainView:
        """Let a bandit go on as if it had had other settings all along.

        The live bandit decides on until its successor is there, in every worker of this service;
        then the answer comes. With a ``request_id`` the request may be sent again. ``back`` returns
        to the settings before the last promotion.
        """
        worked = await worked_out(path.name, body)
        view = _view_of(worked)
        if view.against:
            raise Problem(REFUSED, "; ".join(view.against))
        if worked.body is not None:
            now = service.replica.clock()
            draft = Draft(Kind.PROMOTED, path.name, NOBODY, now, body=worked.body.encode())
            await service.write([draft])
        await service.catch_up()
        folder = service.snapshot_folder
        if folder is not None:
            await service.from_slow_store(lambda ledger: snapshots.drop_outdated(ledger, folder))
        await service.rebuilding.done(path.name)
        await service.others_rebuilt()
        view.promoted = True
        return view


def _view_of(worked: Worked) -> wire.RetrainView:
    if worked.view is None:
        raise Problem(INVALID, worked.problem)
    return worked.view


def worked_view(log: str | Ledger, bandit: str, given: dict[str, Any]) -> Any:
    """The comparison that a caller asks for, and the promotion, as JSON can hold them."""
    with at_hand(log) as ledger:
        request = given.get("request_id")
        if request and any(p.promotion.request == request for p in promotions_of(ledger, bandit)):
            return msgspec.to_builtins(Worked(wire.RetrainView(bandit)))
        try:
            view, promotion = retrained_view(ledger, bandit, given)
        except (ValueError, TypeError) as error:
            return msgspec.to_builtins(Worked(problem=str(error)))
        return msgspec.to_builtins(Worked(view, promotion.encoded().decode()))
