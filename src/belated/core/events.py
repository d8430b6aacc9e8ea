"""Plain data that passes between a bandit and its caller. This module imports no Numba."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:  # a client has no NumPy
    from belated.core.types import Vector

# The standing of a decision.
Standing = Literal["pending", "rewarded", "expired", "late", "cancelled"]


class Status(StrEnum):
    """The status of a reward or of another draft that was handed to a ledger."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # the log holds it already: nothing changes
    CONFLICT = "conflict"  # the log holds something else for this decision
    UNKNOWN = "unknown"  # no such decision
    EXPIRED = "expired"  # kept, but it came after the window
    PARKED = "parked"  # kept until its decision becomes visible
    INVALID = "invalid"  # not a reward that this bandit can have


class UnknownDecisionError(ValueError):
    """A reward names a decision that this bandit never made."""


class ConflictingRewardError(ValueError):
    """A second reward for a decision differs from the first."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice. Estimate and width are on the scale of the linear predictor ``x'theta``.

    Attributes
    ----------
    id
        The id to hand to ``learn`` with the reward: the round, counted from 1; with a ledger, a
        text that no other decision has.
    index
        Row of the chosen action.
    score
        The number that the policy maximised: ``estimate + width`` for an optimistic policy, or
        ``mu(estimate) + L_mu width`` for one that is optimistic on the scale of the reward.
    estimate
        ``x'theta`` of the chosen action.
    width
        The distance by which the truth may lie above or below the estimate.
    propensity
        The probability with which this action was to be played: 1 for a policy that draws nothing,
        exact or with a standard error below 0.01. A policy that has to be asked 2,600 times (EVILL,
        GLM-FPL, Polya-Gamma, a policy of your own without a case of ``probabilities`` or
        ``score_law``) takes hundreds of times as long for that. Without a log,
        ``probabilities=False`` saves the time: the choice is the same, and this is NaN.
    probabilities
        The same for every action, if ``decide`` was asked for it; else None.
    """

    id: Any  # an int; with a ledger, a str
    index: int
    score: float
    estimate: float
    width: float
    propensity: float = math.nan
    probabilities: "Vector | None" = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proof of how close the estimate is to the exact penalised maximum likelihood estimate.

    Attributes
    ----------
    error
        Upper bound on ``||theta - theta_hat||`` in the norm of the Hessian; 0 where the estimate
        has a closed form.
    slack
        Upper bound on the same distance in the norm of ``W``; the radius of the confidence set is
        widened by it.
    passes
        Passes over all returned rewards so far.
    rows
        Rewards looked at in those passes.
    """

    error: float
    slack: float
    passes: int
    rows: int


class Broken(NamedTuple):
    """An assumption that the rewards speak against.

    Attributes
    ----------
    name
        "m1": the bound on the norm of theta_star. "noise": the standard deviation of Gaussian
        rewards. "dispersion": the variance of counts. "constant": a mean reward that no feature
        can stand for. "delay-drift", "delay-size": delays that change with time, or with the size
        of the reward, where silence is learnt from (``monitoring/delay_doubts.py``). "window": the
        number of decisions for which a conversion is waited for. "only-successes": all rewards
        are alike, and most decisions never get one.
    sentence
        The assumption and the rewards that speak against it.
    change
        Settings that would fit.
    """

    name: str
    sentence: str
    change: str

    def __str__(self) -> str:
        return f"{self.sentence} {self.change}"
