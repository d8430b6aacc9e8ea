"""Thompson sampling from the exact logistic posterior, by Gibbs sampling with Polya-Gamma numbers.

A Polya-Gamma number PG(1, z) is a quarter of J(z / 2), where the law J(c) has the density

    cosh(c) exp(-c^2 x / 2) sum over n >= 0 of (-1)^n a_n(x),          x > 0,
    a_n(x) = pi (n + 1/2) (2 / (pi x))^(3/2) exp(-2 (n + 1/2)^2 / x)   or, equally,
             pi (n + 1/2) exp(-(n + 1/2)^2 pi^2 x / 2).

With the first form up to x = 0.64 and the second beyond, a_n(x) falls with n. So a candidate drawn
in proportion to a_0(x) exp(-c^2 x / 2), and u uniform on (0, a_0(x)), the partial sums come from
both sides and decide after a few terms whether u lies below the sum (Devroye's series method). The
candidate is exponential beyond 0.64, inverse Gaussian of mean 1 / c and shape 1 below.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import Positive, Whole, derives, parameters, resolved
from belated.core.jit import kernel
from belated.core.types import Vector
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    draw_parameter,
    needs_no_bound,
)
from belated.model.state import DECIDED, WORK, History, State
from belated.numerics.linalg import cholesky, solve_transposed, solve_upper
from belated.numerics.lowered.products import add_outer, dot
from belated.numerics.pruning import DecisionSet
from belated.numerics.special import normal_cdf
from belated.policies.shared.constants import is_logistic
from belated.policies.shared.sampling import fill_normal, play_best, unconfined_mle

CUT = 0.64  # where one form of the series gives way to the other
RIGHT, NORMAL = 1, 2  # rows of State.work


class Chain(NamedTuple):
    """The state of the Gibbs sampler."""

    sample: Vector  # (d,) the parameter last drawn


@needs_no_bound
@derives("lam")
@parameters
class PolyaGamma(NamedTuple):
    """Thompson sampling from the exact posterior of logistic rewards: slow, for reference.

    The prior is N(0, prior_sd^2 I). A sweep of the Gibbs sampler draws, for every returned reward,
    a number omega_i from PG(1, x_i'theta~), and then theta~ from N(m, V) with

        V^-1 = sum of omega_i x_i x_i' + I / prior_sd^2,    m = V sum of (y_i - 1/2) x_i.

    The posterior is what the sweeps leave unchanged. Every decision goes ``sweeps`` sweeps on from
    the parameter drawn for the decision before. Compare with ``Thompson``, which takes Laplace's
    approximation. No confidence set.

    Parameters
    ----------
    prior_sd
        Standard deviation of each coordinate of theta_star before any reward.
    sweeps
        Sweeps of the sampler before each decision. With more, a draw depends less on the last.

    Assumptions
    -----------
    None: no guarantee is claimed. With theta_star drawn from the prior and independent draws, that
    of posterior sampling in Bayesian regret would hold.

    Cost
    ----
    A decision O(sweeps n d^2), n the rewards returned: it grows with time. A returned reward as in
    ``Thompson``.

    Deviations
    ----------
    DTS-GLCB, from memory of Blanchet et al. (2024), which could not be read, with Gibbs sampling:
    draws of successive rounds are dependent, and the chain follows a posterior that moves as
    rewards return, ``sweeps`` sweeps behind. The posterior mode is kept beside it, as the estimate
    that is reported; it does not enter the choice.

    References
    ----------
    N. G. Polson, J. G. Scott, J. Windle: Bayesian Inference for Logistic Models Using Polya-Gamma
    Latent Variables. JASA 2013.
    L. Devroye: On exact simulation algorithms for some distributions related to Jacobi theta
    functions. Statistics and Probability Letters 2009.
    J. Blanchet, R. Xu, Z. Zhou: Delay-Adaptive Learning in Generalized Linear Contextual Bandits.
    Math. Oper. Res. 2024.
    """

    prior_sd: Positive = 1.0
    sweeps: Whole = 3

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: it takes 0 and 1 with a logistic mean."""
        fits = is_logistic(family) and family.support == (0.0, 1.0, True)
        return "" if fits else "has the posterior of rewards 0 or 1 with a logistic mean only"

    def resolve(self, family: Family, dim: int, max_norm: float) -> "PolyaGamma":
        """Derive the ridge from the prior."""
        self = accepted(self, family)
        return resolved(self, lam=1.0 / self.prior_sd**2)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The posterior mode."""
        return unconfined_mle(family, dim, max_norm, self.lam)

    def new_memory(self, dim: int) -> Chain:
        """Returns the chain at its start: zero, the mode of the prior."""
        return Chain(np.zeros(dim))


@kernel
def _exponential(rng: np.random.Generator) -> float:
    return -math.log1p(-rng.random())


@kernel
def _inverse_gaussian_below_cut(c: float, rng: np.random.Generator) -> float:
    """Draws an inverse Gaussian of mean 1 / c and shape 1, given that it is at most ``CUT``.

    The density is in proportion to ``x^(-3/2) exp(-1/(2x)) exp(-c^2 x / 2)``. With a large mean,
    the first two factors are the law of 1 / N^2, N normal in the tail beyond CUT^(-1/2), drawn from
    an exponential; the last is the chance to accept. With a small mean the restriction costs
    little: draw without it (Michael, Schucany and Haas 1976) until it holds.
    """
    if c * CUT < 1.0:
        while True:
            e = _exponential(rng)
            if CUT * e * e <= 2.0 * _exponential(rng):
                x = CUT / (1.0 + CUT * e) ** 2
                if rng.random() <= math.exp(-0.5 * c * c * x):
                    return x
    mean = 1.0 / c
    while True:
        n = rng.standard_normal()
        y = 0.5 * mean * n * n
        x = mean / (1.0 + y + math.sqrt(y * (2.0 + y)))  # the smaller root, without cancellation
        if rng.random() * (mean + x) > mean:
            x = mean * mean / x
        if x <= CUT:
            return x


@kernel
def _coefficient(n: int, x: float) -> float:
    """Returns a_n(x)."""
    k = n + 0.5
    if x > CUT:
        return math.pi * k * math.exp(-0.5 * k * k * math.pi * math.pi * x)
    return math.pi * k * (2.0 / (math.pi * x)) ** 1.5 * math.exp(-2.0 * k * k / x)


@kernel
def _areas(c: float) -> tuple[float, float]:
    """Returns the areas under ``a_0(x) exp(c - c^2 x / 2)`` beyond the cut and below it."""
    rate, root = math.pi * math.pi / 8.0 + 0.5 * c * c, math.sqrt(CUT)
    beyond = 0.5 * math.pi / rate * math.exp(c - rate * CUT)
    below = 2.0 * normal_cdf((c * CUT - 1.0) / root)
    if c < 50.0:  # later it is 0 to double precision, and e^(2c) overflows in the end
        below += 2.0 * math.exp(2.0 * c) * normal_cdf(-(c * CUT + 1.0) / root)
    return beyond, below


@kernel
def _lies_below_series(u: float, x: float) -> bool:
    """Returns whether ``u`` is below the alternating sum of all a_n(x); partial sums enclose it."""
    total, n = _coefficient(0, x), 0
    while True:
        n += 1
        if n % 2 == 1:
            total -= _coefficient(n, x)
            if u <= total:
                return True
        else:
            total += _coefficient(n, x)
            if u > total:
                return False


@kernel
def polya_gamma(z: float, rng: np.random.Generator) -> float:
    """Returns a draw from PG(1, z), whose mean is tanh(z / 2) / (2 z)."""
    c = 0.5 * abs(z)
    beyond, below = _areas(c)
    while True:
        if rng.random() * (beyond + below) < beyond:
            x = CUT + _exponential(rng) / (math.pi * math.pi / 8.0 + 0.5 * c * c)
        else:
            x = _inverse_gaussian_below_cut(c, rng)
        if _lies_below_series(rng.random() * _coefficient(0, x), x):
            return 0.25 * x


@draw_parameter.case(PolyaGamma)
def _draw_parameter(policy: Any, state: State, history: History, rng: np.random.Generator) -> None:
    sample, right, normal = state.memory.sample, state.work[RIGHT], state.work[NORMAL]
    d, U = sample.shape[0], state.work[WORK:]
    for _ in range(policy.sweeps):
        for i in range(d):
            right[i] = 0.0
            for j in range(d):
                U[i, j] = policy.lam if i == j else 0.0
        for row in range(state.counts[DECIDED]):
            y = history.y[row]
            if y == y:  # returned
                x = history.x[row]
                add_outer(U, polya_gamma(dot(x, sample), rng), x)
                for i in range(d):
                    right[i] += (y - 0.5) * x[i]
        cholesky(U, 0.0, U)
        fill_normal(normal, rng)
        solve_transposed(U, right)
        for i in range(d):
            sample[i] = right[i] + normal[i]
        solve_upper(U, sample)  # U^-1 (U^-T right + normal)


@choose.case(PolyaGamma)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    row, score, estimate = play_best(state.memory.sample, state, actions)
    return row, score, estimate, 0.0
