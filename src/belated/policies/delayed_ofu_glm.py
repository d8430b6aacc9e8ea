"""Delayed OFU-GLM: Algorithm 1 of Howson, Pike-Burke and Filippi (2023), arXiv 2207.10786."""

from typing import Any, NamedTuple

from belated.core.arguments import parameters, positive, probability, whole, wrong, wrong_type
from belated.estimators import LARGEST_CUBIC_DIM, penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    choose,
    radius,
    sqrt_beta,
)
from belated.model.state import SLACK, State
from belated.numerics.pruning import DecisionSet, most_optimistic
from belated.policies.shared.constants import checked_tolerance, derive, paper_width


@parameters
class DelayedOFUGLM(NamedTuple):
    """Optimism over a confidence set built from returned rewards only.

    Plays ``argmax x'theta + radius ||x||_{W^-1}`` where theta is the penalised maximum likelihood
    estimate of the returned rewards, ``W = lam I + sum of x x'`` over the same rounds, and

        sqrt_beta = sqrt(lam) m1 + (R / kappa) sqrt(log det(W / lam) + 2 log(1 / delta)).

    With probability 1 - delta the true parameter is in the set in all rounds at once. Parameters
    left open are derived from the family.

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
        Estimate over the ball ``||theta|| <= m1`` (default), the reading for which the confidence
        set is proved; False is the paper's unconstrained estimate, whose proof uses kappa outside
        the ball where it does not hold. For the Gaussian family the slope is 1 everywhere and
        the two readings need no distinction: the estimate is plain ridge regression.
    tol
        Largest certified distance of the estimate from the exact one, in the norm of the Hessian.
        The radius is widened by what the certificate says, so the guarantee is kept.
    order
        Of the Taylor model behind the estimate, 2 or 3; default 3 up to 30 dimensions.

    Assumptions
    -----------
    The mean reward is mu(x'theta_star) with ``||theta_star|| <= m1``. The noise is R-sub-Gaussian
    (Poisson rewards are not: they need an R of your own, and there is no guarantee then). Delays do
    not depend on the reward, given the action; they may be infinite. ``width_scale`` is 1 or more.

    Cost
    ----
    A decision: O(K d), and O(d^2) for each of the few actions that pruning leaves. A returned
    reward: O(d^2) for Gaussian rewards; for others O(d^2) at order 2 and O(d^3) at order 3, and now
    and then a pass over all n returned rewards, O(n d^2).

    Deviations
    ----------
    The estimate is sought in the ball by default, where the paper's is not (``constrained``). The
    radius is widened by the certified error of the estimate. R is a parameter, which the paper's
    list of inputs lacks. Delays that depend on the reward are excluded in so many words.

    References
    ----------
    B. Howson, C. Pike-Burke, S. Filippi: Delayed Feedback in Generalised Linear Bandits
    Revisited. AISTATS 2023.

    Examples
    --------
    >>> from belated import Bernoulli
    >>> DelayedOFUGLM(m1=1.0).resolve(Bernoulli(), dim=10, max_norm=1.0).R
    0.5
    """

    m1: float = 1.0
    delta: float = 0.05
    lam: float | None = None
    alpha: float | None = None
    kappa: float | None = None
    R: float | None = None
    width_scale: float = 1.0
    constrained: bool = True
    tol: float = 1e-2
    order: int | None = None

    @property
    def randomised(self) -> bool:
        """No random numbers are drawn."""
        return False

    def checked(self) -> "DelayedOFUGLM":
        """Raise where a parameter does not fit."""
        if self.order is not None and whole("order", self.order) not in (2, 3):
            raise wrong("order", self.order, "2, 3 or None")
        if not isinstance(self.constrained, bool):
            raise wrong_type("constrained", self.constrained, "True or False")
        return self._replace(
            m1=positive("m1", self.m1),
            delta=probability("delta", self.delta),
            lam=None if self.lam is None else positive("lam", self.lam),
            alpha=None if self.alpha is None else positive("alpha", self.alpha),
            kappa=None if self.kappa is None else positive("kappa", self.kappa),
            R=None if self.R is None else positive("R", self.R),
            width_scale=positive("width_scale", self.width_scale),
            tol=checked_tolerance(self.tol),
            order=None if self.order is None else int(self.order),
        )

    def resolve(self, family: Family, dim: int, max_norm: float) -> "DelayedOFUGLM":
        """Fill in what was left open."""
        whole("dim", dim)
        self = self.checked()
        R, kappa, lam, alpha = derive(self, family, max_norm)
        order = self.order or (3 if dim <= LARGEST_CUBIC_DIM else 2)
        return self._replace(lam=lam, alpha=alpha, kappa=kappa, R=R, order=order)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate, in the ball or not."""
        if self.lam is None:
            raise ValueError("resolve the policy first")
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


# Kernels only ever see a resolved policy, in which no parameter is None: hence Any.


@sqrt_beta.case(DelayedOFUGLM)
def _sqrt_beta(policy: Any, state: State) -> float:
    return paper_width(policy, state)


@radius.case(DelayedOFUGLM)
def _radius(policy: Any, state: State) -> float:
    return policy.width_scale * (sqrt_beta(policy, state) + state.scalars[SLACK])


@choose.case(DelayedOFUGLM)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    reach = radius(policy, state)
    return most_optimistic(state.theta, state.W_inv, state.cap, reach, actions, state.work)
