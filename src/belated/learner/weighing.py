"""The probabilities that go with a decision: the shares in which a policy plays each action."""

import math
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from belated.core.types import Vector
from belated.model.protocols import (
    ResolvedPolicy,
    draw_parameter,
    is_randomised,
    probabilities,
    score_law,
)
from belated.model.state import DECIDED, State
from belated.model.steps import count_choices, exact_chances, gaussian_chances
from belated.numerics.gaussian_scores import POINTS, normal_points
from belated.numerics.pruning import DecisionSet

REPEATS = 2_600  # decisions from which a probability is counted: a standard error below 0.01


class Weights(NamedTuple):
    """The share of draws in which each action is played, and the number of draws.

    An infinite number of draws stands for exact shares.
    """

    shares: Vector
    draws: float

    @property
    def is_exact(self) -> bool:
        """Returns whether the shares are probabilities, not counted."""
        return self.draws == math.inf

    def given(self, index: int) -> tuple[float, Vector]:
        """Returns the propensity of the action that was chosen, and the probabilities of all.

        The choice counts as one more draw: of n among M draws, its propensity is (n + 1) / (M + 1).
        It is never zero. Where the draws are random, its inverse is on average the inverse of the
        true probability, but for what is played with a probability far below 1 / M.
        """
        if self.draws == 0:  # the choice is all there is: no arithmetic is needed
            self.shares[index] = 1.0
            return 1.0, self.shares
        one = 1.0 / (self.draws + 1.0)
        chances = self.shares * (1.0 - one)
        chances[index] += one
        return float(chances[index]), chances


def weighs_cheaply(policy: ResolvedPolicy) -> bool:
    """True if the probabilities of all actions cost no more than a few decisions."""
    kind = type(policy)
    return not is_randomised(policy) or kind in probabilities.cases or kind in score_law.cases


def certain(n: int) -> Weights:
    """Returns the weights of ``n`` actions for a policy that draws nothing: its choice is all."""
    return Weights(np.zeros(n), 0)


def weigh(policy: ResolvedPolicy, state: State, history: Any, options: DecisionSet) -> Weights:
    """Returns how often the policy would play each option now.

    A policy without a case of ``probabilities`` or ``score_law`` makes 2,600 decisions for it, with
    a stream of their own.
    """
    n = len(options.rows)
    if not is_randomised(policy):
        return certain(n)
    shares = np.zeros(n)
    step, arguments = to_weigh(policy, state, history, options, shares)
    step(*arguments)
    if step is not count_choices:
        return Weights(shares, math.inf if step is exact_chances else POINTS)
    while shares.sum() < REPEATS:
        step(*to_weigh(policy, state, history, options, shares)[1])
    return Weights(shares / REPEATS, REPEATS)


def to_weigh(
    policy: ResolvedPolicy, state: State, history: Any, options: DecisionSet, shares: Vector
) -> tuple[Any, tuple[Any, ...]]:
    """Returns the kernel that fills in the shares, and its arguments."""
    kind = type(policy)
    if kind in probabilities.cases:
        return exact_chances, (policy, state, options, shares)
    if kind in score_law.cases:
        points = normal_points(min(options.rows.shape))
        return gaussian_chances, (policy, state, options, points, shares)
    # a policy that draws into its memory begins every time where it stands now
    times = 1 if kind in draw_parameter.cases else REPEATS
    apart = state._replace(memory=deepcopy(state.memory))
    rng = np.random.default_rng((REPEATS, int(state.counts[DECIDED]), int(shares.sum())))
    return count_choices, (policy, apart, history, options, rng, times, shares)
