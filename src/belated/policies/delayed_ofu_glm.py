"""Delayed OFU-GLM: Algorithm 1 of Howson, Pike-Burke and Filippi (2023), arXiv 2207.10786."""

import math
from typing import Any, NamedTuple

from belated.core.arguments import parameters, positive, probability, whole, wrong, wrong_type
from belated.core.protocols import (
    Estimator,
    Family,
    choose,
    radius,
    sqrt_beta,
)
from belated.core.state import LOG_DET, SLACK, State
from belated.core.types import Matrix
from belated.estimators import LARGEST_CUBIC_DIM, penalised_mle
from belated.policies.scores import most_optimistic


@parameters
class DelayedOFUGLM(NamedTuple):
    """Optimism over a confidence set built from returned rewards only.

    Plays ``argmax x'theta + radius ||x||_{W^-1}`` where theta is the penalised maximum likelihood
    estimate of the returned rewards, ``W = lam I + sum of x x'`` over the same rounds, and

        sqrt_beta = sqrt(lam) m1 + (R / kappa) sqrt(log det(W / lam) + 2 log(1 / delta)).

    With probability 1 - delta the true parameter is in the set in all rounds at once, for delays
    that do not depend on the reward. Parameters left open are derived from the family.

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
        if positive("tol", self.tol) < 1e-12:
            raise wrong("tol", self.tol, "1e-12 or more: rounding allows no less")
        return self._replace(
            m1=positive("m1", self.m1),
            delta=probability("delta", self.delta),
            lam=None if self.lam is None else positive("lam", self.lam),
            alpha=None if self.alpha is None else positive("alpha", self.alpha),
            kappa=None if self.kappa is None else positive("kappa", self.kappa),
            R=None if self.R is None else positive("R", self.R),
            width_scale=positive("width_scale", self.width_scale),
            tol=float(self.tol),
            order=None if self.order is None else int(self.order),
        )

    def resolve(self, family: Family, dim: int, max_norm: float) -> "DelayedOFUGLM":
        """Fill in what was left open."""
        whole("dim", dim)
        self = self.checked()
        name = type(family).__name__
        R = self.R if self.R is not None else family.R
        if R is None:
            raise ValueError(
                f"R = None: {name} rewards are not sub-Gaussian, so DelayedOFUGLM has no width for "
                "them. Pass R= yourself (no guarantee then; exp(max_norm m1 / 2) is the noise "
                "scale at the largest mean), use a sub-Gaussian family (Binomial for bounded "
                "counts), or a policy whose set needs no R (OFUGLB-e, planned)"
            )
        least = family.kappa(max_norm * self.m1)
        if not least > 0.0:
            raise wrong("m1", self.m1, f"a bound at which the slope of {name} is above 0")
        kappa = self.kappa if self.kappa is not None else least
        if kappa > least * (1.0 + 1e-12):
            raise wrong("kappa", kappa, f"at most {least!r}, the least slope of {name} at this m1")
        if self.lam is not None and self.alpha is not None:
            if not math.isclose(self.lam * kappa, self.alpha * family.a_phi, rel_tol=1e-9):
                raise ValueError(
                    f"lam = {self.lam!r}, alpha = {self.alpha!r}: expected one of them, or both "
                    f"with lam = alpha a(phi) / kappa = {self.alpha * family.a_phi / kappa!r}"
                )
            lam = self.lam
        elif self.alpha is not None:
            lam = self.alpha * family.a_phi / kappa
        else:
            lam = 1.0 if self.lam is None else self.lam
        return self._replace(
            lam=lam,
            alpha=lam * kappa / family.a_phi,
            kappa=kappa,
            R=R,
            order=self.order or (3 if dim <= LARGEST_CUBIC_DIM else 2),
        )

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
    d = state.theta.shape[0]
    log_det = max(0.0, state.scalars[LOG_DET] - d * math.log(policy.lam))
    spread = math.sqrt(log_det - 2.0 * math.log(policy.delta))
    return math.sqrt(policy.lam) * policy.m1 + policy.R / policy.kappa * spread


@radius.case(DelayedOFUGLM)
def _radius(policy: Any, state: State) -> float:
    return policy.width_scale * (sqrt_beta(policy, state) + state.scalars[SLACK])


@choose.case(DelayedOFUGLM)
def _choose(
    policy: Any, state: State, actions: Matrix, rng: None
) -> tuple[int, float, float, float]:
    return most_optimistic(state.theta, state.W_inv, radius(policy, state), actions)
