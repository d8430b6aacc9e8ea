"""LinUCB: ridge regression and a bonus, in the form of Chu, Li, Reyzin and Schapire (2011)."""

import math
from typing import Any, NamedTuple

from belated.core.arguments import (
    Flag,
    NotNegative,
    Positive,
    Probability,
    Whole,
    parameters,
    resolved,
)
from belated.estimators import ridge_regression
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    needs_no_bound,
)
from belated.model.state import State
from belated.numerics.pruning import DecisionSet, most_optimistic
from belated.policies.shared.constants import known_horizon


@needs_no_bound
@deterministic
@parameters
class LinUCB(NamedTuple):
    """Ridge regression plus a multiple of the standard error, ``x'theta + alpha ||x||_{W^-1}``.

    ``theta = W^-1 sum of y x`` and ``W = lam I + sum of x x'`` over the rounds whose reward has
    returned. The multiplier is the one of Chu et al. by default,

        alpha = sqrt(log(2 T K / delta) / 2),

    with T rounds and the K actions of the round at hand. It learns from every family: the reward is
    regressed on x, whatever its mean function. There is no confidence set.

    Parameters
    ----------
    alpha
        Multiplier of the bonus, fixed; None for the formula.
    delta
        Probability in the formula.
    horizon
        T, in the formula. A simulation fills it in.
    lam
        Ridge; 1 in the paper.
    counts_actions
        Whether ``log(K) / 2`` is added to ``alpha^2`` in every round: with the formula it is, with
        an alpha that was given it is not by default.

    Assumptions
    -----------
    None: no guarantee is claimed. That of the paper is for SupLinUCB, which splits the rounds into
    stages of independent rewards, with rewards in [0, 1] and a mean that is linear.

    Cost
    ----
    A decision O(K d) and O(d^2) for each of the few actions that are scored; a returned reward
    O(d^2).

    Deviations
    ----------
    Sums run over returned rewards. The formula is from memory of Chu et al. (2011), which could not
    be read. K may change from round to round.

    References
    ----------
    W. Chu, L. Li, L. Reyzin, R. Schapire: Contextual Bandits with Linear Payoff Functions.
    AISTATS 2011.
    L. Li, W. Chu, J. Langford, R. Schapire: A Contextual-Bandit Approach to Personalized News
    Article Recommendation. WWW 2010.
    """

    alpha: NotNegative | None = None
    delta: Probability = 0.05
    horizon: Whole | None = None
    lam: Positive = 1.0
    counts_actions: Flag | None = None

    @property
    def linear_mean(self) -> bool:
        """True: rewards themselves are regressed on actions."""
        return True

    def resolve(self, family: Family, dim: int, max_norm: float) -> "LinUCB":
        """Derives the part of the multiplier that does not depend on the number of actions."""
        self = accepted(self, family)
        if self.alpha is not None:
            return resolved(self, counts_actions=bool(self.counts_actions))
        alpha = math.sqrt(0.5 * math.log(2.0 * known_horizon(self) / self.delta))
        return resolved(self, alpha=alpha, counts_actions=True)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """Ridge regression, whatever the family."""
        return ridge_regression(max_norm, self.lam)


@choose.case(LinUCB)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    alpha = policy.alpha
    if policy.counts_actions:
        alpha = math.sqrt(alpha * alpha + 0.5 * math.log(actions.rows.shape[0]))
    return most_optimistic(state.theta, state.W_inv, state.cap, alpha, actions, state.work)
