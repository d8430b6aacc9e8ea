"""Two models that take in one log side by side: how they would choose, and what they expect."""

import math
from typing import Any

import msgspec
import numpy as np

from belated.core.sparse import SparseRows
from belated.core.types import Matrix, Vector
from belated.families import Bernoulli, Binomial, Gaussian, Poisson, Probit
from belated.learner.rows import rows_at
from belated.ledger.events import Decided, Event
from belated.ledger.fold import Fold
from belated.ledger.vectors import dim_of
from belated.model.protocols import cumulant
from belated.wire import LossView

LAST = 1_000  # decisions, and rewards, by which two models are compared
STEPS = 1_000  # times that the models are brought up to date meanwhile
AT_ONCE = 20_000  # events before that


class SideBySide:
    """Two models of one log.

    Before each of the last decisions both are asked how they would choose. Each of the last
    rewards is predicted by both before it is learnt, by the estimates of when its decision was
    made or, where the decisions that are compared are many, of shortly before.

    Parameters
    ----------
    live, other
        Folds that have taken in nothing yet.
    rewards
        By row of the history: the rewards that are to be predicted.
    n_rows
        Number of decisions in the log.
    """

    def __init__(self, live: Fold, other: Fold, rewards: dict[int, float], n_rows: int) -> None:
        self.folds = live, other
        self._rewards, self._asked_from = rewards, n_rows - LAST
        self._careful_from = max(0, min(self._asked_from, *rewards or [n_rows]))
        self._step = max(1, (n_rows - self._careful_from) // STEPS)
        self._held: list[Event] = []
        self._row = 0
        self._scored: list[tuple[Vector, Vector, Vector]] = []  # rewards, predictors of both
        self.distances: list[float] = []

    def ask(self, body: Decided) -> None:
        """Ask both models how they would choose, where this is one of the last decisions."""
        row, self._row = self._row, self._row + 1
        if row < self._careful_from:
            return
        if (row - self._careful_from) % self._step == 0:
            self.catch_up()
        if row >= self._asked_from and not body.held_out:  # what was held out is nobody's choice
            live, other = (chances_of(fold, body) for fold in self.folds)
            if live is not None and other is not None:
                self.distances.append(0.5 * float(np.abs(live - other).sum()))

    def take(self, transaction: list[Event]) -> None:
        """Take in a transaction, now or with others."""
        self._held += transaction
        if self._row < self._careful_from and len(self._held) >= AT_ONCE:
            self.catch_up()

    def catch_up(self) -> None:
        """Let both models take in what was held back; rewards of it are predicted first."""
        thetas = [fold.learner.state.theta.copy() for fold in self.folds]
        first = self.folds[0].n_rows
        for fold in self.folds:
            fold.apply(self._held)
        self._held = []
        last = self.folds[0].n_rows
        rows = [row for row in range(max(first, self._careful_from), last) if row in self._rewards]
        same = [fold.learner.dim for fold in self.folds] == [len(theta) for theta in thetas]
        if rows and same:  # else the features have grown
            pairs = zip(self.folds, thetas, strict=True)
            live, other = (_predictors(fold, theta, np.array(rows)) for fold, theta in pairs)
            self._scored.append((np.array([self._rewards[row] for row in rows]), live, other))

    def losses(self) -> tuple[int, LossView | None, LossView | None]:
        """Returns the number of rewards, their log-losses where these compare, squared errors."""
        if not self._scored:
            return 0, None, None
        y, *predictors = map(np.concatenate, zip(*self._scored, strict=True))
        learners = [fold.learner for fold in self.folds]
        both = list(zip(learners, predictors, strict=True))
        squared = [(np.array([learner.mean(z) for z in zs]) - y) ** 2 for learner, zs in both]
        scale = float(np.var(y)) or 1.0
        logs = [_log_losses(learner, zs, y, scale) for learner, zs in both]
        return len(y), _loss(*logs) if _comparable(*learners) else None, _loss(*squared)


def last_rewards(fold: Fold) -> dict[int, float]:
    """Returns the last rewards that are final, by row; none where only conversions are learnt."""
    if fold.on_the_fly:
        return {}
    y: Vector = fold.learner.history.y[: fold.n_rows].copy()
    y[[pending.row for _, pending in fold.pending.items()]] = np.nan  # others may still be silent
    return {int(row): float(y[row]) for row in np.flatnonzero(~np.isnan(y))[-LAST:]}


def chances_of(fold: Fold, body: Decided) -> Vector | None:
    """Returns the probability of each action there was; None if the log does not hold them."""
    rows = options_of(fold, body)
    if rows is None:
        return None
    if fold.spreads:
        return np.full(len(rows), 1.0 / len(rows))
    stream = np.random.default_rng(0)
    try:
        return fold.learner.choose(rows, stream, weighed=True).probabilities
    except ValueError:  # an action that is longer than this policy can have
        return None


def options_of(fold: Fold, body: Decided) -> Matrix | None:
    """Returns the vectors of the actions there were; None if the log does not hold them."""
    if body.matrix:
        x = np.frombuffer(body.matrix).reshape(-1, dim_of(body.x))
        # another number of features: it was drawn up before a growth
        return x if (body.layout, x.shape[1]) == (fold.told.layout, fold.learner.dim) else None
    actions = fold.actions
    names = list(body.eligible or actions.listed)
    if not body.of_registered or names[body.index : body.index + 1] != [body.action]:
        return None
    try:
        context = msgspec.json.decode(body.context) if body.context else None
        matrix: Matrix = actions.matrix(names, context)
        return matrix
    except (ValueError, KeyError, TypeError):  # blanked by retention, or features that do not fit
        return None


def _predictors(fold: Fold, theta: Vector, rows: Any) -> Vector:
    """Returns the linear predictors of rows of the history, by an earlier estimate."""
    x = rows_at(fold.learner.history, rows)
    if isinstance(x, SparseRows):
        return np.asarray((x.values * theta[x.columns]).sum(axis=1))
    return np.asarray(x @ theta)


def _comparable(live: Any, other: Any) -> bool:
    """Returns whether log-losses are of the same kind: of one family, or of two of 0 and 1."""
    linear = [getattr(learner.policy, "linear_mean", False) for learner in (live, other)]
    families = {type(live.family), type(other.family)}
    same = len(families) == 1 and getattr(live.family, "trials", 1) == getattr(
        other.family, "trials", 1
    )
    return not any(linear) and (same or families == {Bernoulli, Probit})


def _log_losses(learner: Any, z: Vector, y: Vector, variance: float) -> Vector:
    """Returns minus the logarithm of the likelihood of each reward at its linear predictor.

    Gaussian rewards are taken to have this ``variance``, so that models with other or with learnt
    noise compare. Of a quasi-likelihood, it is what an estimate minimises.
    """
    family = learner.family
    if isinstance(family, Gaussian):
        return np.asarray((y - z) ** 2 / (2.0 * variance) + 0.5 * math.log(2 * math.pi * variance))
    if isinstance(family, Probit):
        p = np.clip([learner.mean(one) for one in z], 1e-15, 1.0 - 1e-15)
        return np.asarray(-y * np.log(p) - (1.0 - y) * np.log1p(-p))
    losses = np.array([cumulant(family, float(one)) for one in z]) - y * z
    if isinstance(family, Poisson):
        losses += [math.lgamma(count + 1.0) for count in y]
    elif isinstance(family, Binomial):
        losses -= [math.log(math.comb(family.trials, int(count))) for count in y]
    return np.asarray(losses / family.a_phi)


def _loss(live: Vector, other: Vector) -> LossView:
    gains = live - other
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
    return LossView(
        float(live.mean()),
        float(other.mean()),
        float(gains.mean()),
        error if math.isfinite(error) else None,
    )
