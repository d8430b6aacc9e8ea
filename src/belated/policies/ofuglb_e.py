"""OFUGLB-e: optimism over an ellipsoid around the maximum likelihood estimate, free of kappa.

Why the set holds, for any theta0 in the ball S = m1 (all sums over returned rewards; Z = max_norm
m1 bounds |x'theta|, M is the self-concordance constant there, L the negative log-likelihood):

1. With probability 1 - delta, in all rounds at once, ``L(theta_star) - L(theta0) <= beta^2``, where
   ``beta^2 = log(1 / delta) + min over c in (0, 1] of d log(1 / c) + 2 S Lip c``. The likelihood
   ratio, averaged over theta uniform in the ball, is a supermartingale in the order of arrival; the
   part of the average within ``(1 - c) theta0 + c ball`` bounds it from below.
2. Let F = a(phi) L + (lam / 2) ||theta||^2 and H its Hessian at theta0. Self-concordance gives
   ``F(theta_star) - F(theta0) >= F'(theta0) (theta_star - theta0) + ||theta_star - theta0||_H^2 /
   (2 (1 + M Z))``, since ``int (1 - v) mu'(z + v D) dv >= mu'(z) / (2 + M |D|)`` and |D| <= 2 Z.
3. Where theta0 minimises F over the ball, the first term is not negative. So
   ``||theta_star - theta0||_H^2 <= 2 (1 + M Z) (a(phi) beta^2 + lam S^2 / 2)``.

The estimate at hand misses the minimum by a gradient of norm e, e <= error e^-u, in the norm of the
inverse of the Hessian at ref that is kept, and that Hessian is at most e^u times the one at the
estimate. With C = 2 (1 + M Z), q the distance in the kept norm and B what 3. has in parentheses,
``q^2 e^-u / C - e q <= B``, hence ``q <= e^(u/2) sqrt(C B) + C error``.
"""

import math
from typing import Any, NamedTuple

from belated.core.arguments import parameters, positive, probability, whole, wrong
from belated.core.jit import kernel
from belated.core.types import Vector
from belated.estimators.likelihood import drift_of, likelihood
from belated.model.protocols import (
    Estimator,
    Family,
    choose,
    dual_norm,
    radius,
    self_concordance,
    set_norm,
    sqrt_beta,
)
from belated.model.state import ERROR, State
from belated.numerics.lowered.products import quadratic
from belated.numerics.pruning import DecisionSet, most_optimistic

LARGEST_BOUND = 700.0  # of |x'theta|: beyond, e^z overflows


@parameters
class OFUGLBe(NamedTuple):
    """Optimism over an ellipsoid that needs neither kappa nor a sub-Gaussian scale.

    Plays ``argmax x'theta + radius ||x||_{H^-1}`` where theta is the penalised maximum likelihood
    estimate in the ball, H the Hessian there, ``sum of mu'(x'theta) x x' + lam I``, and

        radius^2 = 2 (1 + M Z) (a(phi) beta^2 + lam m1^2 / 2),      Z = max_norm m1,
        beta^2 = log(1 / delta) + d log(2 e m1 Lip / d),
        Lip = max_norm / a(phi) * sum of max |mu(z) - y| over |z| <= Z.

    (Where 2 m1 Lip < d that number stands for the second term of beta^2.) M is the
    self-concordance constant of the mean: 1 for logistic and Poisson means, 0 for linear ones. All
    sums are over returned rewards.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    lam
        Ridge of the Hessian and of the penalty ``lam / 2 ||theta||^2``. Default
        ``2 a(phi) / m1^2``: then radius^2 is ``2 a(phi) (1 + M Z) (1 + beta^2)``.
    tol
        Largest certified distance of the estimate from the exact one, in the norm of the Hessian.
    drift
        The Hessian in use is that at a point near the estimate, within the factors ``e^-drift`` and
        ``e^drift``; the radius is widened by ``e^(drift / 2)`` at most, so the guarantee is kept.
        Smaller values take more passes over the data.
    a_phi, max_norm, M
        Filled in from the bandit.

    Assumptions
    -----------
    ``||theta_star|| <= m1``, delays that do not depend on the reward, and rewards whose law has
    the family's cumulant b, or a smaller one: ``E exp(s y) <= exp((b(z + a(phi) s) - b(z)) /
    a(phi))``. That holds for every family here: with equality for the exponential ones, for rewards
    in [0, 1] or [-1, 1] by convexity, for probit means because mu' >= mu (1 - mu).

    Cost
    ----
    A decision O(K d) and O(d^2) for each of a few actions. A returned reward O(d^2), O(d^3) with
    the third derivative (d <= 30), and now and then a pass over the data, O(n d^2).

    Deviations
    ----------
    The paper's estimate is not penalised. Ours is, by the ridge that the Hessian needs anyway; the
    set is proved for it at the top of this file. Its constant, lam m1^2 / 2, is sharper than that
    of the unpenalised estimate with a ridge added, 2 lam m1^2 / (1 + M Z) and more, up to M Z = 3.
    Lip is the exact maximum instead of the paper's bounds on it. Lee et al. (2024) could not be
    read; the formulas are from the authors' code and a later paper.

    References
    ----------
    J. Lee, S.-Y. Yun, K.-S. Jun: A Unified Confidence Sequence for Generalized Linear Models, with
    Applications to Bandits. NeurIPS 2024.

    Examples
    --------
    >>> from belated import Poisson
    >>> OFUGLBe(m1=2.0).resolve(Poisson(), dim=10, max_norm=1.0).lam
    0.5
    """

    m1: float = 1.0
    delta: float = 0.05
    lam: float | None = None
    tol: float = 1e-2
    drift: float = 0.1
    a_phi: float | None = None
    max_norm: float | None = None
    M: float | None = None

    @property
    def randomised(self) -> bool:
        """No random numbers are drawn."""
        return False

    def checked(self) -> "OFUGLBe":
        """Raise where a parameter does not fit."""
        return checked_likelihood(self)._replace(drift=at_least("drift", self.drift, 1e-9))

    def resolve(self, family: Family, dim: int, max_norm: float) -> "OFUGLBe":
        """Fill in what was left open."""
        whole("dim", dim)
        return resolved_likelihood(self.checked(), family, max_norm)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball."""
        if self.lam is None:
            raise ValueError("resolve the policy first")
        return likelihood(
            family,
            dim,
            max_norm,
            m1=self.m1,
            ridge=self.lam,
            tol=self.tol,
            drift=self.drift,
        )


def at_least(name: str, value: object, least: float) -> float:
    """``value`` as a finite float, not so small that rounding would drown it."""
    result = positive(name, value)
    if result < least:
        raise wrong(name, value, f"{least:g} or more: rounding allows no less")
    return result


def checked_likelihood(policy: Any) -> Any:
    """What policies with a set of likelihood ratios have in common."""
    return policy._replace(
        m1=positive("m1", policy.m1),
        delta=probability("delta", policy.delta),
        lam=None if policy.lam is None else positive("lam", policy.lam),
        tol=at_least("tol", policy.tol, 1e-12),
    )


def resolved_likelihood(policy: Any, family: Family, max_norm: float) -> Any:
    """The ridge and the constants of the family."""
    bound = policy.m1 * max_norm
    if bound > LARGEST_BOUND:
        raise wrong("m1", policy.m1, f"{LARGEST_BOUND:g} / max_norm at most")
    a_phi = float(family.a_phi)
    lam = 2.0 * a_phi / policy.m1**2 if policy.lam is None else policy.lam
    least = 1e-9 * max_norm**2
    if not least <= lam < 1e100:
        raise wrong("lam", lam, f"a number from {least:g} to 1e100")
    M = float(self_concordance(family, bound))
    return policy._replace(lam=lam, a_phi=a_phi, max_norm=max_norm, M=M)


@kernel
def log_ratio_bound(policy: Any, state: State) -> float:
    """beta^2: bound on log-likelihood ratios to theta_star."""
    d = state.theta.shape[0]
    spread = 2.0 * policy.m1 * policy.max_norm * state.fit.reach[0] / policy.a_phi
    cost = d * (1.0 + math.log(spread / d)) if spread >= d else spread
    return cost - math.log(policy.delta)


@kernel
def ellipsoid_radius(policy: Any, state: State, excess: float) -> float:
    """Radius, in the norm of ``fit.H``, of what holds the level set of F at ``F(theta) + excess``.

    Within the ball. C = 2 (1 + M Z): see the top of this file.
    """
    C = 2.0 * (1.0 + policy.M * policy.max_norm * policy.m1)
    widened = math.exp(0.5 * drift_of(policy.M, state)) * math.sqrt(C * excess)
    return widened + C * state.scalars[ERROR]


@kernel
def penalised_excess(policy: Any, state: State) -> float:
    """a(phi) beta^2 + lam m1^2 / 2: how far F(theta_star) may lie above F(theta)."""
    return policy.a_phi * log_ratio_bound(policy, state) + 0.5 * policy.lam * policy.m1**2


@sqrt_beta.case(OFUGLBe)
def _sqrt_beta(policy: Any, state: State) -> float:
    C = 2.0 * (1.0 + policy.M * policy.max_norm * policy.m1)
    return math.sqrt(C * penalised_excess(policy, state))


@radius.case(OFUGLBe)
def _radius(policy: Any, state: State) -> float:
    return ellipsoid_radius(policy, state, penalised_excess(policy, state))


@set_norm.case(OFUGLBe)
def _set_norm(policy: Any, state: State, error: Vector) -> float:
    return math.sqrt(quadratic(state.fit.H, error, state.work[1]))


@dual_norm.case(OFUGLBe)
def _dual_norm(policy: Any, state: State, x: Vector) -> float:
    return math.sqrt(quadratic(state.fit.P, x, state.work[1]))


@choose.case(OFUGLBe)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    fit, reach = state.fit, radius(policy, state)
    return most_optimistic(state.theta, fit.P, fit.cap, reach, actions, state.work)
