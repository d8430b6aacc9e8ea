"""Would forgetting help? The rewards of the last day, as predicted with and without a half-life.

Each half-life is fitted on what was known when the last day began. The loss of a reward y is what
estimates minimise, the negative log-likelihood ``(b(z) - y z) / a(phi)`` at z = x'theta, without
the part that no estimate changes: differences of it are in nats.
"""

import math
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from belated.core.arguments import shown
from belated.core.types import Vector
from belated.ledger.ids import times_of
from belated.ledger.protocol import Ledger
from belated.ledger.replica import Replica
from belated.wire import ForgettingView, HalfLifeView

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.learner.learner import Learner
    from belated.ledger.fold import Fold

DAY = 86_400
DAYS = (1, 3, 10, 30)  # half-lives that are tried
FEWEST = 50  # rewards of the last day that say anything
Z = 2.0  # standard errors beyond which a gain is not chance
RENEWALS = 4  # so that a learnt prior forgets what it was learnt from before
AT_ONCE = 10_000  # events


def would_forgetting_help(ledger: Ledger, name: str, now: int) -> ForgettingView:
    """Returns how much better each half-life predicts the rewards of the day before ``now``.

    ``now`` is in microseconds. Costs a replay of the log, and a few fits.
    """
    from belated.learner.forgetting import half_life_of, refuse_forgetting
    from belated.learner.rows import rows_at

    fold, known = _a_day_ago(ledger, name, now - DAY * 1_000_000)
    learner = fold.learner
    try:
        refuse_forgetting(half_life_of(DAY, "seconds"), learner.policy, learner.estimator)  # type: ignore[arg-type]
    except ValueError:
        policy = type(learner.policy).__name__
        return ForgettingView(f"{policy} cannot forget: no half-life was tried.")
    y = _final_rewards(fold, now)
    before = np.full(len(y), np.nan)
    before[: len(known)] = known
    new = np.flatnonzero(~np.isnan(y) & np.isnan(before))
    n = len(new)
    if n < FEWEST or np.isnan(known).all():
        words = f"{n} rewards of the last day, {np.count_nonzero(~np.isnan(known))} before"
        return ForgettingView(f"Too few to say whether forgetting would help: {words}.", n)
    rows, times = rows_at(learner.history, new), times_of(fold.ids)[: len(known)]
    plain = msgspec.structs.replace(fold.spec, half_life=None).learner()
    plain.take_over(learner, np.arange(learner.dim), known)
    losses = {days: _losses(plain, days, times, rows, y[new]) for days in (None, *DAYS)}
    views = []
    for days in DAYS:
        gains = losses[None] - losses[days]
        error = float(gains.std(ddof=1)) / math.sqrt(n)
        views.append(HalfLifeView(days * DAY, float(gains.mean()), error))
    return ForgettingView(_sentence(views, n), n, views)


def _a_day_ago(ledger: Ledger, name: str, start: int) -> "tuple[Fold, Vector]":
    """Returns the bandit as it is, and the rewards that were known at ``start``, NaN elsewhere."""
    replica = Replica(ledger, only={name})
    replica.begin()
    position = replica.position
    fold: Any = replica.folds.get(name)
    known: Any = None
    while True:
        events, position = ledger.follow(position, AT_ONCE)
        if not events:
            break
        mine = [event for event in events if event.bandit == name]
        if mine and fold is None:
            fold = replica.new_fold(name, mine[0])
        late = [e.tx for e in mine if e.written > start] if known is None else []
        if late:
            fold.apply([event for event in mine if event.tx < late[0]])
            known = _final_rewards(fold, start)
            mine = [event for event in mine if event.tx >= late[0]]
        if mine:
            fold.apply(mine)
    if fold is None:
        raise KeyError(f"bandit = {shown(name)}: expected one of this ledger")
    return fold, _final_rewards(fold, start) if known is None else known


def _final_rewards(fold: "Fold", at: int) -> Vector:
    """Returns the rewards by row, without those that came while silent ones still wait."""
    y: Vector = fold.learner.history.y[: fold.learner.n_decided].copy()
    if fold.spec.open == "silence":
        y[times_of(fold.ids) + fold.spec.closes_after > at] = np.nan
    return y


def _losses(plain: "Learner", days: int | None, times: Any, rows: Any, y: Vector) -> Vector:
    """Returns the loss of each new reward after a fit with this half-life."""
    from belated.core.sparse import SparseRows
    from belated.learner.forgetting import forget_by, half_life_of
    from belated.model.protocols import cumulant

    learner = deepcopy(plain)
    forget_by(learner, half_life_of(None if days is None else days * DAY, "seconds"), lambda: times)
    for _ in range(RENEWALS):
        learner.refresh()
    theta, family = learner.state.theta, learner.family
    if isinstance(rows, SparseRows):
        z = (rows.values * theta[rows.columns]).sum(axis=1)
    else:
        z = rows @ theta
    if getattr(learner.policy, "linear_mean", False):
        return np.asarray((z - y) ** 2 / (2.0 * float(family.R or 1.0) ** 2))
    learnt = getattr(learner.policy, "learns_dispersion", False)
    scale = float(np.var(y)) if learnt else family.a_phi
    return np.array([cumulant(family, float(at)) for at in z] - y * z) / max(scale, 1e-300)


def _sentence(views: list[HalfLifeView], n: int) -> str:
    best = max(views, key=lambda view: view.gain)
    tried = ", ".join(f"{days}" for days in DAYS[:-1])
    if best.gain <= Z * best.error:
        return (
            f"No half-life of {tried} or {DAYS[-1]} days predicts the last day's {n:,} rewards "
            "better than remembering everything, by more than chance."
        )
    days = best.half_life // DAY
    return (
        f"With a half-life of {days} day{'s' if days > 1 else ''} the last day's {n:,} rewards are "
        f"predicted better by {best.gain:.2g} nats each (standard error {best.error:.1g}): set "
        f'half_life = {best.half_life}, half_life_unit = "seconds".'
    )
