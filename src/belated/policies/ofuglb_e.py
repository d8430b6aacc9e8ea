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
estimate. With C = 2 (1 + M Z), q the distance in the kept norm and B the last factor in 3.,
``q^2 e^-u / C - e q <= B``, hence ``q <= e^(u/2) sqrt(C B) + C error``.
"""

import math
from typing import Annotated, Any, NamedTuple

from belated.core.arguments import (
    Positive,
    Probability,
    Tolerance,
    at_least,
    derives,
    parameters,
    resolved,
)
from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.estimators.likelihood import likelihood
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    ellipsoid,
    radius,
    sqrt_beta,
)
from belated.model.state import State
from belated.policies.shared.likelihood_ratio import (
    derive_constants,
    ellipsoid_radius,
    log_ratio_bound,
)
from belated.policies.shared.optimism import optimistic


@deterministic
@derives("a_phi", "max_norm", "M")
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

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    tol: Tolerance = 1e-2
    drift: Annotated[float, at_least(1e-9)] = 0.1

    def resolve(self, family: Family, dim: int, max_norm: float) -> "OFUGLBe":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        return resolved(self, **derive_constants(self, family, max_norm))

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball."""
        return likelihood(
            family,
            dim,
            max_norm,
            m1=self.m1,
            ridge=self.lam,
            tol=self.tol,
            drift=self.drift,
        )


@kernel
def penalised_excess(policy: Any, state: State) -> float:
    """Returns a(phi) beta^2 + lam m1^2 / 2, the most that F(theta_star) exceeds F(theta) by."""
    return policy.a_phi * log_ratio_bound(policy, state) + 0.5 * policy.lam * policy.m1**2


@sqrt_beta.case(OFUGLBe)
def _sqrt_beta(policy: Any, state: State) -> float:
    C = 2.0 * (1.0 + policy.M * policy.max_norm * policy.m1)
    return math.sqrt(C * penalised_excess(policy, state))


@radius.case(OFUGLBe)
def _radius(policy: Any, state: State) -> float:
    return ellipsoid_radius(policy, state, penalised_excess(policy, state))


@ellipsoid.case(OFUGLBe)
def _ellipsoid(policy: Any, state: State) -> tuple[Matrix, Matrix, Vector]:
    return state.fit.H, state.fit.P, state.fit.cap


choose.case(OFUGLBe)(optimistic)
