"""Delayed OFU-GLM: Algorithm 1 of Howson, Pike-Burke and Filippi (2023), arXiv 2207.10786."""

from typing import Annotated, Any, NamedTuple

from belated.core.arguments import (
    Flag,
    Positive,
    Probability,
    Tolerance,
    parameters,
    resolved,
    whole,
    wrong,
)
from belated.estimators import LARGEST_CUBIC_DIM, penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    radius,
    sqrt_beta,
)
from belated.model.state import State
from belated.policies.shared.constants import derive, paper_width
from belated.policies.shared.optimism import certified_width, optimistic


def _order(name: str, value: object) -> int:
    if whole(name, value) not in (2, 3):
        raise wrong(name, value, "2, 3 or None")
    return whole(name, value)


@deterministic
@parameters
class DelayedOFUGLM(NamedTuple):
    """Optimism over a confidence set built from returned rewards only.

    Plays ``argmax x'theta + radius ||x||_{W^-1}`` where theta is the penalised maximum likelihood
    estimate of the returned rewards, ``W = lam I + sum of x x'`` over the same rounds, and

        sqrt_beta = sqrt(lam) m1 + (R / kappa) sqrt(log det(W / lam) + 2 log(1 / delta)).

    With probability 1 - delta the true parameter is in the set in all rounds at once. Parameters
    that you leave open are derived from the family.

    It is of use where a guarantee for the worst case counts: few features, a known m1, means near
    the middle of their range, many rewards. The width grows with the number of features and with
    1 / kappa. For rewards of 0 or 1, 1 / kappa is 5 for m1 = 1 and 57 for m1 = 4, which allows
    means down to 2 per cent. With such rewards and dozens of features the policy explores for
    longer than pays. docs/which-policy.md has numbers.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    lam, alpha
        The ridge, as the regulariser of W or as the penalty ``alpha / 2 ||theta||^2`` of the
        log-likelihood: ``lam = alpha a(phi) / kappa``. Give one; default ``lam = 1``. The regret
        bound needs lam >= max_norm^2 / 2 (the paper: 1, for max_norm 1).
    kappa
        Least slope of the mean over ``|x'theta| <= max_norm m1``.
    R
        Sub-Gaussian scale of the noise.
    width_scale
        Factor on the width, for practitioners. The guarantee goes when it is below 1.
    constrained
        Whether the estimate is sought in the ball ``||theta|| <= m1`` (default); for this reading
        the confidence set is proved. False is the paper's unconstrained estimate, whose proof uses
        kappa outside the ball, where it does not hold. For the Gaussian family the slope is 1
        everywhere and the two readings need no distinction: the estimate is plain ridge regression.
    tol
        Largest certified distance of the estimate from the exact one, in the norm of the Hessian.
        The radius is widened by the certified distance, so the guarantee is kept.
    order
        Order of the Taylor model behind the estimate, 2 or 3; default 3 up to 30 dimensions.

    Assumptions
    -----------
    The mean reward is mu(x'theta_star) with ``||theta_star|| <= m1``. The noise is R-sub-Gaussian
    (Poisson rewards are not: they need an R of your own, and there is no guarantee then). Delays do
    not depend on the reward, given the action; they may be infinite. ``width_scale`` is 1 or more.

    With a half-life, W, its determinant and the estimate count each round by its weight w <= 1. The
    set then holds with probability 1 - delta at each time by itself, not in all rounds at once, as
    long as theta_star stays the same. Let e be the noise, S = sum of w e x, and H = kappa lam I +
    sum of w x x' times slopes between theta and theta_star. These slopes are at least kappa, so
    that H >= kappa W. Then

        H (theta - theta_star) = S - kappa lam theta_star,
        ||theta - theta_star|| <= sqrt(lam) m1 + ||S|| / kappa    in the norms of W and W^-1

    (on the ball, by the variational inequality of the estimate). With W~ = lam I + sum of w^2 x x',

        ||S|| <= R sqrt(log det(W~ / lam) + 2 log(1 / delta))    in the norm of W~^-1

    is the self-normalised bound for the actions w x: at a fixed time the weights are known in
    advance. W~ <= W because w^2 <= w, so W^-1 <= W~^-1 and det W~ <= det W: the usual width with W
    covers it.

    The usual width is wider than it must be. The determinant of W~ would do. If the mean is linear,
    H = W, and the norm of W^-1 W~ W^-1 would do in place of that of W^-1, too (Russac, Vernade,
    Cappe). For evenly spread actions and many rewards per half-life, W~ is 1 / (1 + 2^(-1/16)) =
    0.511 times W, and the width would be narrower by the root of that, 0.715, besides the
    determinant. For other means that norm would not do: H >= kappa W does not bound H^-1 W~ H^-1 by
    W^-1 W~ W^-1.

    Nothing is guaranteed for a theta_star that moves: the set is around the parameter that the
    weighted rewards point to on average.

    Cost
    ----
    A decision costs O(K d), and O(d^2) for each of the few actions that pruning leaves. A returned
    reward costs O(d^2) for Gaussian rewards. For others it costs O(d^2) at order 2 and O(d^3) at
    order 3, and now and then a pass over all n returned rewards, O(n d^2).

    Deviations
    ----------
    The estimate is sought in the ball by default; the paper's estimate is not (``constrained``).
    The radius is widened by the certified error of the estimate. R is a parameter; the paper's list
    of inputs lacks it. Delays that depend on the reward are excluded explicitly.

    References
    ----------
    B. Howson, C. Pike-Burke, S. Filippi: Delayed Feedback in Generalised Linear Bandits
    Revisited. AISTATS 2023.
    Y. Russac, C. Vernade, O. Cappe: Weighted Linear Bandits for Non-Stationary Environments.
    NeurIPS 2019.
    Y. Russac, L. Faury, O. Cappe, A. Garivier: Self-Concordant Analysis of Generalized Linear
    Bandits with Forgetting. AISTATS 2021.

    Examples
    --------
    >>> from belated import Bernoulli
    >>> DelayedOFUGLM(m1=1.0).resolve(Bernoulli(), dim=10, max_norm=1.0).R
    0.5
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    alpha: Positive | None = None
    kappa: Positive | None = None
    R: Positive | None = None
    width_scale: Positive = 1.0
    constrained: Flag = True
    tol: Tolerance = 1e-2
    order: Annotated[int, _order] | None = None

    @property
    def set_holds_weighted(self) -> bool:
        """True: see Assumptions on rewards that count for less with their age."""
        return True

    def resolve(self, family: Family, dim: int, max_norm: float) -> "DelayedOFUGLM":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        order = self.order or (3 if dim <= LARGEST_CUBIC_DIM else 2)
        return resolved(self, **derive(self, family, max_norm)._asdict(), order=order)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """Returns the estimator: penalised maximum likelihood, in the ball or not."""
        return penalised_mle(
            family,
            dim,
            max_norm,
            m1=self.m1,
            lam=self.lam,
            kappa=self.kappa,
            constrained=self.constrained,
            tol=self.tol,
            order=self.order,
        )


@sqrt_beta.case(DelayedOFUGLM)
def _sqrt_beta(policy: Any, state: State) -> float:
    return paper_width(policy, state)


@radius.case(DelayedOFUGLM)
def _radius(policy: Any, state: State) -> float:
    return policy.width_scale * certified_width(policy, state)


choose.case(DelayedOFUGLM)(optimistic)
