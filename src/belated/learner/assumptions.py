"""Assumptions of a policy or a family that the rewards speak against, in words.

Every test asks for an effect worth a sentence *and* for a deviation beyond ``Z`` standard
deviations, so that a learner whose assumptions hold is accused in fewer than one look in 1,000
(``tests/learner/test_assumptions.py`` simulates such learners and counts). A look costs a pass over
the rewards, a sample of the actions and, where a norm is bounded, one solution of d equations:
``Learner.broken_assumptions`` takes one when the number of rewards has doubled.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from belated.core.events import Broken
from belated.core.sparse import SparseRows
from belated.core.types import Matrix, Vector
from belated.estimators.laplace import Laplace
from belated.estimators.likelihood import Likelihood
from belated.estimators.newton import LazyNewton
from belated.estimators.newton.fit import MULTIPLIER
from belated.estimators.ridge import Ridge
from belated.families import Binomial, Gaussian, Poisson
from belated.learner.rows import rows_at
from belated.model.protocols import derivatives

if TYPE_CHECKING:  # a learner imports this module
    from belated.learner.learner import Learner

FIRST_LOOK = 100  # rewards
SAMPLE = 2_000  # decisions whose residuals are looked at, spread over all that have a reward
Z = 5.0  # standard deviations beyond which a deviation is not chance
LARGE_DISPERSION = 2.0  # variance of rewards, as a multiple of the assumed one, worth a sentence
SMALL_DISPERSION = 0.25
UNEXPLAINED = 0.1  # of the distance from the mean reward to that of a zero vector
LONGEST_RAY = 64.0  # factor on the estimate, beyond which no number is worth naming
STEPS = 8  # of a bisection between 1 and LONGEST_RAY: to 2 per cent

LEAST_ALIKE = 50  # rewards of one value, and decisions that should have one, worth a sentence
UNANSWERED = 2.0 / 3.0  # of these decisions
TO_COME = 10  # rewards that may come late for each one that did

# Estimators that fit all returned rewards: the residuals of others may be large for other reasons.
FITS = (LazyNewton, Ridge, Laplace, Likelihood)


class AssumptionWarning(UserWarning):
    """The rewards of a bandit speak against an assumption of its policy or its family."""


def outgrown_window(policy: Any, since_oldest_open: int) -> list[Broken]:
    """Returns that a window in decisions is too short, if it is; no chance is involved.

    ``since_oldest_open`` decisions were made after the oldest one whose conversion may still come.
    """
    window = getattr(policy, "window", None)
    if window is None or since_oldest_open <= window:
        return []
    name = type(policy).__name__
    return [
        Broken(
            "window",
            f"{name} takes conversions to come within {window:,} decisions; {since_oldest_open:,} "
            "were made since the oldest one that is still waited for, so its width is too small.",
            f"Make a bandit of another name with {name}(window=...) of as many decisions as are "
            "made while a window is open, or use the default policy.",
        )
    ]


def only_successes(
    y: Vector, old: int | None, *, expired: int = 0, late: int = 0, cancelled: int = 0
) -> list[Broken]:
    """Returns that rewards seem to be sent for successes alone, if they do.

    All rewards are then alike and above zero, and most decisions that should have one have none. No
    test can tell that from a loop of sure successes that loses most rewards, so the words say what
    was counted. While successes are reported sooner than failures, they are true, too.

    Parameters
    ----------
    y
        The rewards of all decisions, in their order; NaN where there is none.
    old
        The number of decisions that are so old that their reward should have come; None where a
        window says that. Of these, the decisions count that are older than half of those with a
        reward: rewards may be handed in all at once, in the order of their decisions.
    expired
        Decisions whose window closed without a reward.
    late
        Rewards that came after that. Where some do, many more may be to come.
    cancelled
        Decisions for which no reward is waited for.
    """
    returned = np.flatnonzero(~np.isnan(y))
    n = len(returned)
    if n < LEAST_ALIKE or not y[returned[0]] > 0.0 or (y[returned] != y[returned[0]]).any():
        return []
    if old is None:
        missing = expired - TO_COME * late
        due, whose = n + missing, "decisions that have a reward or whose window is over"
    else:
        due = min(old, int(returned[n // 2]))
        missing = due - int(np.searchsorted(returned, due)) - cancelled
        whose = "decisions that are older than twice the longest delay"
    if due < LEAST_ALIKE or missing <= UNANSWERED * due:
        return []
    value = f"{y[returned[0]]:g}"
    return [
        Broken(
            "only-successes",
            f"Only successes seem to be reported: all {n:,} rewards are {value}, and of {due:,} "
            f"{whose}, {missing:,} have none. So all mean rewards look as if they were {value}.",
            "Make a bandit of another name with window= and default_reward=0 (loop='conversion'), "
            "which learns from decisions without a reward, or report failures, too.",
        )
    ]


class _Look(NamedTuple):
    """Rewards and what the estimate says of them."""

    learner: "Learner"
    n: int  # rewards that are looked at: of the last half-life, where there is one
    mean: float  # of all rewards
    variance: float
    rows: Matrix | SparseRows  # a sample of the actions
    y: Vector  # their rewards
    z: Vector  # x'theta
    fitted: Vector  # mean rewards, as the policy models them
    squares: Vector | None  # of the residuals, as multiples of the assumed variance


def broken_assumptions(learner: "Learner") -> list[Broken]:
    """Returns the assumptions that the returned rewards speak against, by more than chance."""
    look = _look(learner)
    if look is None:
        return []
    found = [_norm_bound(look) or _no_constant(look)]
    # A ball, or a missing constant, leaves residuals that say nothing of the noise.
    if found[0] is None or (found[0].name == "m1" and isinstance(learner.estimator, Ridge)):
        found.append(_noise(look))
    return [broken for broken in found if broken is not None]


def _look(learner: "Learner") -> _Look | None:
    """Returns what the rewards say; None while there are too few."""
    counts = ~np.isnan(learner.history.y[: learner.n_decided])
    if learner.half_life is not None:  # older rewards may be those of another theta_star
        counts &= learner.history.weight[: learner.n_decided] >= 0.5
    if learner.hears:
        counts[_first_open(learner) :] = False  # of those, only the ones that converted have come
    returned = np.flatnonzero(counts)
    if len(returned) < FIRST_LOOK:
        return None
    rewards = learner.history.y[returned]
    sample = returned[:: -(-len(returned) // SAMPLE)]
    rows, theta = rows_at(learner.history, sample), learner.state.theta
    if isinstance(rows, SparseRows):
        z = (rows.values * theta[rows.columns]).sum(axis=1)
    else:
        z = rows @ theta
    means, slopes, _ = np.array([derivatives(learner.family, float(at)) for at in z]).T
    fitted = z if getattr(learner.policy, "linear_mean", False) else means
    y = learner.history.y[sample]
    squares = _squares(learner, y - fitted, slopes)
    moments = len(rewards), float(rewards.mean()), float(rewards.var())
    return _Look(learner, *moments, rows, y, z, fitted, squares)


def _first_open(learner: "Learner") -> int:
    """Returns the first row whose reward may still come, where silence is learnt from."""
    missing = np.isnan(learner.history.y[: learner.n_decided])
    silent = missing & (learner.history.silence[: learner.n_decided] > 0.0)
    open = silent if silent.any() else missing  # others that are missing were cancelled
    return int(np.argmax(open)) if open.any() else learner.n_decided


# ------------------------------------------------------------------------- the norm of theta_star


def _norm_bound(look: _Look) -> Broken | None:
    """Judges ``||theta_star|| <= m1``, for a policy that assumes it."""
    learner = look.learner
    m1 = getattr(learner.policy, "m1", None)
    if m1 is None:
        return None
    low, high = (learner.mean(sign * m1 * learner.max_norm) for sign in (-1.0, 1.0))
    outside = max(low - look.mean, look.mean - high)
    at_bound = derivatives(learner.family, m1 * learner.max_norm)[1] * learner.family.a_phi
    spread = math.sqrt(max(look.variance, at_bound) / look.n)
    n, taken = look.n, f"theta_star is taken to have norm at most m1 = {m1:g}"
    if outside > Z * spread:
        sentence = (
            f"{taken}, so mean rewards lie between {low:.3g} and {high:.3g}; the mean of {n:,} "
            f"rewards is {look.mean:.3g}."
        )
    elif _pulls_outwards(look, m1):
        sentence = f"{taken}; the {n:,} rewards so far say that it is longer."
    else:
        return None
    length = _length_along_theta(look)
    about = f" to about {length:.2g}" if length is not None and length > m1 else ""
    return Broken(
        "m1",
        sentence,
        f"Use the default policy, which assumes no bound, or raise m1{about}; a larger m1 makes "
        "the policy explore for longer.",
    )


def _pulls_outwards(look: _Look, m1: float) -> bool:
    """True where the rewards put theta_star outside the ball of radius m1 by more than chance.

    Where the estimate is sought in the ball, the gradient of F, the penalised negative
    log-likelihood, is ``-multiplier theta`` there. If theta_star is in the ball, the decrease of F
    that a step beyond it promises is at most that from theta_star: a chi-square of d degrees and
    the penalty. Elsewhere ``||theta||`` exceeds m1 by at most the distance of theta to theta_star
    in its own direction, which the same numbers bound.
    """
    learner, state = look.learner, look.learner.state
    family, policy = cast(Any, learner.family), cast(Any, learner.policy)
    estimator: Any = getattr(learner.estimator, "newton", learner.estimator)
    multiplier = 0.0
    if isinstance(estimator, LazyNewton):
        H, ridge, variance = state.fit.H, estimator.lam * estimator.kappa, family.a_phi
        multiplier = float(state.fit.scalars[MULTIPLIER])
    elif isinstance(estimator, Ridge):
        H, ridge, variance = state.W, policy.lam, float(getattr(policy, "R", family.R)) ** 2
    else:
        return False
    dispersion = 1.0 if look.squares is None else max(1.0, float(look.squares.mean()))
    chance = _chi_square(learner.dim) * variance * dispersion
    try:
        along = float(state.theta @ np.linalg.solve(H, state.theta))
    except np.linalg.LinAlgError:
        along = math.nan
    if not along > 0.0:  # H is singular to rounding, or theta is zero
        return False
    length = math.hypot(*state.theta)
    if multiplier > 0.0:
        return multiplier**2 * along > chance + ridge * m1**2
    return (length - m1) * length > (math.sqrt(chance) + math.sqrt(ridge) * m1) * math.sqrt(along)


def _chi_square(d: int) -> float:
    """Returns the quantile of a chi-square of d degrees that a normal exceeds at ``Z``.

    E. B. Wilson, M. M. Hilferty: The Distribution of Chi-square. PNAS 1931.
    """
    return float(d * (1.0 - 2.0 / (9.0 * d) + Z * math.sqrt(2.0 / (9.0 * d))) ** 3)


def _length_along_theta(look: _Look) -> float | None:
    """Returns the norm of the multiple of theta that fits the sample best; None if there is none.

    The derivative of the negative log-likelihood along theta grows with the factor on theta.
    """
    learner = look.learner

    def falls(factor: float) -> bool:
        means = [learner.mean(factor * float(z)) for z in look.z]
        return float(look.z @ (np.array(means) - look.y)) < 0.0

    if falls(LONGEST_RAY):
        return None
    low, high = 1.0, LONGEST_RAY
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if falls(middle) else (low, middle)
    return math.sqrt(low * high) * float(np.linalg.norm(learner.state.theta))


# ----------------------------------------------------------------------------- the law of rewards


def _squares(learner: "Learner", residuals: Vector, slopes: Vector) -> Vector | None:
    """Returns squared residuals over the variances that the family assumes (Pearson's chi-square).

    None where it assumes none: that of 0 or 1 follows from its mean, whatever its law.
    """
    family, policy = learner.family, learner.policy
    if not isinstance(learner.estimator, FITS):
        return None
    if isinstance(family, Gaussian):
        learnt = getattr(policy, "learns_dispersion", False)
        assumed = not learnt and getattr(policy, "R", family.R) == family.R
    else:
        counts = isinstance(family, Poisson) or (isinstance(family, Binomial) and family.trials > 1)
        assumed = counts and not getattr(policy, "linear_mean", False)
    return residuals**2 / (family.a_phi * slopes) if assumed else None


def _noise(look: _Look) -> Broken | None:
    """Judges how much rewards vary around their mean."""
    if look.squares is None:
        return None
    family, n, d = look.learner.family, look.n, look.learner.dim
    dispersion = float(look.squares.mean())
    # by the spread of the squares themselves: those of rare counts have long tails
    spread = float(look.squares.std()) / math.sqrt(len(look.squares))
    large = dispersion > LARGE_DISPERSION and dispersion - 1.0 > Z * spread
    if isinstance(family, Gaussian):
        # d parameters may explain as many residuals
        small = n > 2 * d and dispersion * n / (n - d) < SMALL_DISPERSION
        sd = math.sqrt(dispersion) * family.sd
        return _gaussian_noise(family.sd, sd) if large or small else None
    if not large:
        return None
    name = type(family).__name__
    return Broken(
        "dispersion",
        f"{name} rewards have a variance that follows from their mean; these vary {dispersion:.2g} "
        "times as much.",
        "Use Gaussian() with the default policy, which learns how much rewards vary, or "
        f"{name} with the default policy and {math.sqrt(dispersion):.2g} times its scale.",
    )


def _gaussian_noise(assumed: float, sd: float) -> Broken:
    result = "is too sure of its estimates" if sd > assumed else "explores for longer than it must"
    return Broken(
        "noise",
        f"Rewards are taken to vary around their mean with sd = {assumed:g}; they do with "
        f"{sd:.2g}, so the policy {result}.",
        f"Set sd = {sd:.2g}, or leave it out with the default policy, which learns it.",
    )


def _no_constant(look: _Look) -> Broken | None:
    """Judges whether features without a constant can stand for the mean reward."""
    learner, residuals = look.learner, look.y - look.fitted
    if "intercept" in learner.groups or not isinstance(learner.estimator, FITS):
        return None
    missed, spread = float(residuals.mean()), float(residuals.std()) / math.sqrt(len(residuals))
    at_zero = learner.mean(0.0)
    little = abs(missed) <= UNEXPLAINED * abs(look.mean - at_zero)
    if little or abs(missed) <= Z * spread or _has_constant(look.rows):
        return None
    return Broken(
        "constant",
        f"The mean of {look.n:,} rewards is {look.mean:.3g}, that of the estimate "
        f"{look.fitted.mean():.3g}: no feature is constant, and a vector of zeros is taken to "
        f"have the mean reward {at_zero:.3g}.",
        'Add a feature that is always 1, and name it in groups: {..., "intercept": 1}; with a '
        "transformer of another library, Transformed(..., intercept=True).",
    )


def _has_constant(rows: Matrix | SparseRows) -> bool:
    """True where some feature has the same value, not zero, in all rows."""
    if not isinstance(rows, SparseRows):
        return bool(((rows == rows[0]).all(axis=0) & (rows[0] != 0.0)).any())
    return any(
        value != 0.0 and ((rows.columns == j) & (rows.values == value)).any(axis=1).all()
        for j, value in zip(rows.columns[0], rows.values[0], strict=True)
    )
