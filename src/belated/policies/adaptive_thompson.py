"""The default: Thompson sampling whose prior is learnt, one variance per group of features."""

from typing import Any, NamedTuple

from belated.core.arguments import NotNegative, Positive, Tolerance, derives, parameters, resolved
from belated.core.types import Matrix, Vector
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    score_law,
    takes_sparse_rows,
)
from belated.model.state import State
from belated.policies.shared.learnt_prior import laplace, noise_of
from belated.policies.shared.posterior_scores import fill_posterior_scores, highest_drawn


@takes_sparse_rows
@derives("learns_dispersion", "dispersion")
@parameters
class AdaptiveThompson(NamedTuple):
    """Thompson sampling with a prior that is learnt; the default, because it earns.

    Plays argmax of the scores x'theta, theta drawn from Laplace's approximation N(m, S) to the
    posterior given the rewards that have returned: m is the mode, S the inverse Hessian near it.
    Each group of features (a column, an interaction) has one prior variance, learnt from the same
    rewards: where banners hardly differ, differences between banners are soon taken for noise, and
    play goes where it matters. The constant has a wide prior of its own. No confidence set.

    Parameters
    ----------
    prior_sd
        Standard deviation of a coefficient before any reward, on the scale of x'theta (log odds for
        conversions); for Gaussian rewards as a multiple of ``sd``, or of their own standard
        deviation where that is learnt.
    strength
        The number of coefficients that ``prior_sd`` counts for when a variance is learnt from those
        of a group; next to 0 leaves all to the data, a large number fixes the prior.
    scale
        Factor on the standard deviation of a draw; 1 is posterior sampling, 0 is greedy. In the
        worlds of docs/league.md posterior sampling explores for much longer than pays: with rare
        rewards there is no end to it. Half of it earned a quarter more in the shop.
    tol
        Largest certified distance of the estimate to the mode, in the norm of the Hessian, where
        passes over the data can reach it: a share of a posterior standard deviation.

    Assumptions
    -----------
    None: no guarantee is claimed. With theta_star drawn from the prior and Gaussian rewards that
    return at once, that of posterior sampling in Bayesian regret holds for the prior it began with.

    Cost
    ----
    With rows of s nonzero entries, a decision O(K s u + u^2 + min(K, u)^3), u the number of
    distinct columns in which actions differ, whatever d is, and 1,024 min(K, u) K for propensities;
    a returned reward O(d^2), taken in by blocks. When the number of rewards has grown by half,
    O(d^3 + n s^2) for a new Hessian and prior. Actions that have a column each are best counted in
    hundreds, because the cube is that of their number. ``actions`` may have 4,096 rows, or
    4,096^2 / d where that is more.

    Deviations
    ----------
    Scores are drawn, not parameters, where that is cheaper: X theta is N(X m, X S X'), so K numbers
    with that covariance have the same law. What all actions of a decision share (the constant, the
    context by itself) is not drawn, since it moves all scores alike; the estimate includes it. The
    Hessian is that at the mode of when it was last
    renewed, over all rewards.

    References
    ----------
    O. Chapelle, L. Li: An Empirical Evaluation of Thompson Sampling. NeurIPS 2011 (they
    reshape the posterior by the same factor, there called alpha).
    D. MacKay: Bayesian Interpolation. Neural Computation 1992.
    M. Tipping: Sparse Bayesian Learning and the Relevance Vector Machine. JMLR 2001.
    """

    prior_sd: Positive = 0.5
    strength: Positive = 1.0
    scale: NotNegative = 0.5
    tol: Tolerance = 0.1

    def resolve(self, family: Family, dim: int, max_norm: float) -> "AdaptiveThompson":
        """Derive from the family whether its dispersion is learnt."""
        return resolved(accepted(self, family), **noise_of(family))

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """Laplace's posterior."""
        return laplace(self)


choose.case(AdaptiveThompson)(highest_drawn)


@score_law.case(AdaptiveThompson)
def _score_law(policy: Any, state: State, actions: Any, mean: Vector, root: Matrix) -> int:
    return fill_posterior_scores(state, actions, policy.scale, mean, root)
