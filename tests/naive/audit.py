"""The inequalities R1 to R9 of the paper, from a finished run."""

import math

import numpy as np


def audit(X, late, theta_star, centres, radii, regrets, widths, slope, gap, lam):
    """Ratios of left to right side of R1 to R9, (T, 9), for a run whose rows are X.

    ``centres`` and ``radii`` are the confidence sets when deciding; ``late`` whole rounds.
    """
    T, d = X.shape
    ratios = np.zeros((T, 9))
    M_sum = W_sum = potential = lateness = most = regret = certificate = 0.0
    for t in range(T):
        returned = np.arange(t) + late[:t] <= t - 1
        V = lam * np.eye(d) + X[:t].T @ X[:t]
        W = lam * np.eye(d) + X[:t][returned].T @ X[:t][returned]
        V_inv, W_inv, Z = np.linalg.inv(V), np.linalg.inv(W), V - W
        M, x, G = W_inv - V_inv, X[t], t - returned.sum()
        error = centres[t] - theta_star
        allowed = min(gap, 2 * slope * widths[t])
        ratios[t, 0] = math.sqrt(error @ W @ error) / radii[t]
        ratios[t, 1] = regrets[t] / allowed
        ratios[t, 2] = np.abs(W_inv - V_inv - V_inv @ Z @ W_inv).max() / 1e-8
        if G > 0:
            ratios[t, 3] = x @ Z @ x / (G * x @ x)
            ratios[t, 4] = x @ M @ x / (x @ W_inv @ x * np.trace(V_inv @ Z))
            assert np.linalg.eigvalsh(G * np.eye(d) - Z)[0] > -1e-9
            assert np.linalg.eigvalsh((1 + G / lam) * W - V)[0] > -1e-9 * (1 + G / lam)
        a, most = x @ V_inv @ x, max(most, G)
        M_sum, W_sum = M_sum + math.sqrt(max(0.0, x @ M @ x)), W_sum + math.sqrt(x @ W_inv @ x)
        potential, lateness = potential + a, lateness + min(late[t], T - t - 1) * a
        right = 0.5 * ((1 + most / lam) * potential + lateness)
        log_det = np.linalg.slogdet((V + np.outer(x, x)) / lam)[1]
        regret, certificate = regret + regrets[t], certificate + allowed
        ratios[t, 5] = M_sum / right
        ratios[t, 6] = potential / (2 * log_det)
        ratios[t, 7] = W_sum / (math.sqrt((t + 1) * potential) + right)
        ratios[t, 8] = regret / certificate
    return ratios
