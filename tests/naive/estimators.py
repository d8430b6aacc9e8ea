"""Estimates by general methods, and the certificate of the lazy ones."""

import math

import numpy as np
from scipy.optimize import brentq, minimize

from naive.families import FAMILIES


def objective(family, X, y, ridge, theta, weights=1.0):
    """F = sum of w (b(x'theta) - y x'theta), plus ridge ||theta||^2 / 2; gradient and Hessian.

    The ridge is a number, or one for each coefficient.
    """
    mu, slope, cumulant = FAMILIES[family]
    z = X @ theta
    F = (weights * (cumulant(z) - y * z)).sum() + theta @ (ridge * theta) / 2
    gradient = X.T @ (weights * (mu(z) - y)) + ridge * theta
    hessian = (X * (weights * slope(z))[:, None]).T @ X + ridge * np.eye(len(theta))
    return F, gradient, hessian


def unconstrained_mle(family, X, y, ridge, weights=1.0):
    """Newton's method from zero, damped by backtracking, to a decrement of 1e-12."""
    theta = np.zeros(X.shape[1])
    for _ in range(500):
        F, gradient, hessian = objective(family, X, y, ridge, theta, weights)
        step = -np.linalg.solve(hessian, gradient)
        decrement = math.sqrt(max(0.0, -gradient @ step))
        if decrement < 1e-12:
            break
        t = 1.0
        while (
            t > 1e-12
            and decrement > 1e-6
            and not (
                objective(family, X, y, ridge, theta + t * step, weights)[0]
                <= F - 0.25 * t * decrement**2
            )
        ):
            t /= 2
        theta = theta + t * step
    return theta


def mle(family, X, y, ridge, radius=math.inf, weights=1.0):
    """argmin of F over the ball: a larger ridge, found by root finding, where the ball binds."""
    theta = unconstrained_mle(family, X, y, ridge, weights)
    if np.linalg.norm(theta) <= radius:
        return theta

    def excess(nu):
        return np.linalg.norm(unconstrained_mle(family, X, y, ridge + nu, weights)) - radius

    upper = ridge
    while excess(upper) > 0:
        upper *= 4
    nu = brentq(excess, 0.0, upper, xtol=1e-15, rtol=8.9e-16)
    return unconstrained_mle(family, X, y, ridge + nu, weights)


def minimiser_on_ball(H, right, radius):
    """argmin of theta'H theta / 2 - right'theta over the ball, and the multiplier of the ball."""
    theta = np.linalg.solve(H, right)
    if np.linalg.norm(theta) <= radius:
        return theta, 0.0
    eigenvalues, Q = np.linalg.eigh(H)
    c = Q.T @ right
    upper = np.linalg.norm(right) / radius  # there the norm is below the radius
    nu = brentq(
        lambda nu: np.linalg.norm(c / (eigenvalues + nu)) - radius,
        *(0.0, upper),
        xtol=1e-300,
        rtol=8.9e-16,
    )
    return Q @ (c / (eigenvalues + nu)), nu


def third_derivative(X, weights):
    """Sum of w x (x) x (x) x, all d^3 numbers of it."""
    return np.einsum("n,ni,nj,nk->ijk", weights, X, X, X)


def gap(M, X, H, step, anchor):
    """Bound on ||T3[step, step] - T3[anchor, anchor]||_{H^-1} / 2, where |mu''| <= M mu'."""
    both = step + anchor
    return M * X * np.linalg.norm(step - anchor) * math.sqrt(both @ H @ both) / 2


def certificate(M, X, order, residual, step_H, step_2, lmin, gap=0.0, N=None):
    """Bound, in the norm of H, on the distance of the model's minimiser from that of F.

    -log(1 - k eps) / k with k = M X / sqrt(lmin), eps = e^u (residual + psi(u) ||step||_H) and
    u = M X ||step||. A model of order 3 has chi in place of psi. N, a bound on |mu'''| / mu', is
    M^2 unless it is given.
    """
    u = M * X * step_2
    psi = (math.exp(u) - 1 - u) / u
    chi = (psi - u / 2) * (1.0 if N is None else N / M**2)
    eps = math.exp(u) * (residual + (psi if order == 2 else chi) * step_H + gap)
    k = M * X / math.sqrt(lmin)
    return -math.log(1 - k * eps) / k if k * eps < 1 else math.inf


def proximal_point(A, start, x, pull, radius):
    """argmin over the ball of ||theta - start||_A^2 / 2 + phi(x'theta), phi' = ``pull``.

    Two nested roots: the number z = x'theta for a given multiplier nu of the ball, and nu.
    """

    def theta(nu):
        shifted = A + nu * np.eye(len(A))
        base, along = np.linalg.solve(shifted, A @ start), np.linalg.solve(shifted, x)
        a, q = x @ base, x @ along
        ends = sorted([a, a - q * pull(a)])
        z = a if ends[0] == ends[1] else brentq(lambda z: z - a + q * pull(z), *ends, xtol=1e-15)
        return base - pull(z) * along

    if np.linalg.norm(theta(0.0)) <= radius:
        return theta(0.0)
    upper = 1.0
    while np.linalg.norm(theta(upper)) > radius:
        upper *= 2
    nu = brentq(lambda nu: np.linalg.norm(theta(nu)) - radius, 0.0, upper, xtol=1e-15, rtol=1e-14)
    return theta(nu)


def perturbed_mle(family, X, y, ridge, w):
    """argmin of F(theta) + w'theta."""

    def part(which):
        linear = (lambda t: w @ t, lambda t: w, lambda t: 0.0)[which]
        return lambda t: objective(family, X, y, ridge, t)[which] + linear(t)

    start = unconstrained_mle(family, X, y, ridge)
    found = minimize(part(0), start, jac=part(1), hess=part(2), method="trust-exact", tol=1e-10)
    return found.x
