"""Another policy, family or features for a bandit: folded from its own log beside it, and compared.

What speaks against going on with them is found here, before anything is written: decisions that
cannot be given a vector by new features, rewards that a new family cannot have, actions that are
too long for a new policy.
"""

import math
from collections.abc import Callable, Iterator
from uuid import uuid4

import msgspec

from belated.core.arguments import NORM_ROUNDING, shown, wrong
from belated.features import Features
from belated.ledger import Ledger, LedgerError
from belated.ledger.base import refuse_compacted
from belated.ledger.events import NOBODY, START, Decided, Draft, Kind
from belated.ledger.fold import Fold
from belated.ledger.promotion import FEATURES, MODEL, Promotion
from belated.ledger.spec import Spec
from belated.ledger.tools.progress import progress
from belated.ledger.tools.reading import Rebuilding, events_of, unknown_bandit
from belated.ledger.tools.replaying import as_if_promoted, transactions
from belated.ledger.tools.side_by_side import SideBySide, last_rewards
from belated.ledger.vectors import entries_of
from belated.wire import RetrainView

Change = Callable[[Spec], Spec]  # from the present settings to those that are wanted
_decided = msgspec.msgpack.Decoder(Decided)


class RefusedError(ValueError):
    """The log speaks against a promotion."""


def retrain(
    ledger: Ledger, name: str, change: Change | None, request: str = ""
) -> tuple[RetrainView, Promotion]:
    """Compare a bandit with what it would be under other settings; nothing is written.

    Without ``change`` the other settings are those before the last promotion. Raises if there is
    no such bandit, if there are no such settings, if they are the present ones, or if events of the
    bandit were compacted. Costs three folds of the log.
    """
    try:
        refuse_compacted(ledger, name, "retraining")
    except LedgerError as error:
        raise RefusedError(str(error)) from None
    replica = Rebuilding(ledger, only={name})
    with progress("replaying", ledger.behind(START)) as told:
        replica.catch_up(told)
    if name not in replica.folds:
        raise unknown_bandit(ledger, name)
    live = replica.fold(name)
    promotion = msgspec.structs.replace(_promotion(live, change), request=request)
    twin, other = as_if_promoted(replica, name, None), as_if_promoted(replica, name, promotion)
    pair = SideBySide(twin, other, last_rewards(live), live.n_rows)
    longest = 0.0
    with progress("folding both", ledger.behind(START)) as told:
        for transaction in transactions(events_of(ledger, told), name):
            for event in transaction:
                if event.kind == Kind.DECIDED and event.id:
                    body = _decided.decode(event.body)
                    pair.ask(body)
                    if body.layout == promotion.layout:
                        longest = max(longest, math.hypot(*entries_of(body.x)[2]))
            pair.take(transaction)
        pair.catch_up()
    against = list(_objections(other, longest))
    return _view(pair, live.spec, promotion, against), promotion


def draft_of(view: RetrainView, promotion: Promotion, now: int) -> Draft:
    """Returns the draft of a promotion; raises if something speaks against it."""
    if view.against:
        raise RefusedError(f"{view.bandit!r} is not promoted: {'; '.join(view.against)}")
    return Draft(Kind.PROMOTED, view.bandit, NOBODY, now, body=promotion.encoded())


def _promotion(live: Fold, change: Change | None) -> Promotion:
    if change is None:
        former = live.told.back()
        if former is None:
            raise wrong("back", True, f"a bandit that was promoted: {shown(live.name)} never was")
        return former
    spec, known = _as_logged(change(live.spec)), _as_logged(live.spec)
    for name in Spec.__struct_fields__:
        old, new = getattr(known, name), getattr(spec, name)
        if name not in (*MODEL, *FEATURES) and old != new:
            raise wrong(name, new, f"{shown(old)}: a promotion leaves it as it is")
    if spec == known:
        raise ValueError("nothing to retrain: expected other settings than the bandit has")
    spec.learner()  # raises where they do not fit together
    regime = uuid4().hex[:8]
    same = spec.features == known.features and spec.dim == known.dim
    return Promotion(spec, regime, live.told.layout if same else regime)


def _as_logged(spec: Spec) -> Spec:
    """Returns settings as they come back from the log, for a fair comparison."""
    return msgspec.json.decode(msgspec.json.encode(spec.as_kept()), type=Spec)


def _objections(fold: Fold, longest: float) -> Iterator[str]:
    """Yields what speaks against going on as ``fold``."""
    for reason, n in fold.lost.items():
        yield f"{n:,} of {fold.n_rows:,} decisions have {reason}"
    spec, features = fold.spec, fold.actions.features
    if isinstance(features, Features):
        longest = max(longest, features.longest)
    else:
        vectors = [x for x in fold.actions.listed.values() if isinstance(x, list)]
        longest = max([longest, *(math.hypot(*x) for x in vectors)])
    if not longest <= spec.bound * NORM_ROUNDING:
        yield (
            f"actions are up to {longest:.6g} long: expected max_norm = {longest:.6g} or more, it "
            f"is {spec.max_norm:g}"
        )


def _view(pair: SideBySide, old: Spec, promotion: Promotion, against: list[str]) -> RetrainView:
    old, new, distances = _as_logged(old), _as_logged(promotion.spec), pair.distances
    n, log_loss, squared = pair.losses()
    changed = [name for name in (*MODEL, *FEATURES) if getattr(old, name) != getattr(new, name)]
    return RetrainView(
        bandit=pair.folds[0].name,
        changed=changed,
        against=against,
        n_decisions=len(distances),
        chosen_differently=sum(distances) / len(distances) if distances else None,
        n_rewards=n,
        log_loss=log_loss,
        squared_error=squared,
    )
