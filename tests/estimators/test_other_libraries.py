"""Other libraries find the same estimates."""

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.linear_model import Ridge as SklearnRidge

from belated import DelayedOFUGLM
from belated.families import Bernoulli, Binomial, Bounded, Gaussian, Poisson, Tanh
from support.estimation import fed, stream

EXACT = {"tol": 1e-12, "constrained": False, "R": 1.0}


def logistic(X, y, ridge, weight=None):
    model = LogisticRegression(
        C=1 / ridge, fit_intercept=False, solver="newton-cholesky", tol=1e-13, max_iter=1000
    )
    return model.fit(X, y, sample_weight=weight).coef_[0]


def test_scikit_learn_agrees():
    for lam in (0.5, 2.0):
        policy = DelayedOFUGLM(lam=lam, **EXACT)

        X, y = stream(Gaussian(), 150, 4, 1.0, 1)
        ours = fed(Gaussian(), policy, X, y)
        assert np.abs(ours.theta - SklearnRidge(lam, fit_intercept=False).fit(X, y).coef_).max() < (
            1e-8
        )

        X, y = stream(Bernoulli(), 150, 4, 1.0, 2)
        ours = fed(Bernoulli(), policy, X, y)
        assert np.abs(ours.theta - logistic(X, y, lam * ours.policy.kappa)).max() < 1e-8

        # a fraction y is a success of weight y and a failure of weight 1 - y
        X, y = stream(Bounded(), 150, 4, 1.0, 3)
        ours = fed(Bounded(), policy, X, y)
        doubled, labels = np.vstack([X, X]), np.repeat([1, 0], len(y))
        theirs = logistic(doubled, labels, lam * ours.policy.kappa, np.concatenate([y, 1 - y]))
        assert np.abs(ours.theta - theirs).max() < 1e-8

        X, y = stream(Binomial(5), 150, 4, 1.0, 4)
        ours = fed(Binomial(5), policy, X, y)
        doubled, labels = np.vstack([X, X]), np.repeat([1, 0], len(y))
        theirs = logistic(doubled, labels, lam * ours.policy.kappa, np.concatenate([y, 5 - y]))
        assert np.abs(ours.theta - theirs).max() < 1e-8

        # log(2 cosh z) - y z is the logistic loss at 2 z
        X, y = stream(Tanh(), 150, 4, 1.0, 5)
        ours = fed(Tanh(), policy, X, y)
        theirs = logistic(2 * X, (y + 1) / 2, lam * ours.policy.kappa)
        assert np.abs(ours.theta - theirs).max() < 1e-8

        X, y = stream(Poisson(), 150, 4, 1.0, 6)
        ours = fed(Poisson(), policy, X, y)
        model = PoissonRegressor(
            alpha=lam * ours.policy.kappa / len(y),
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-13,
            max_iter=1000,
        )
        assert np.abs(ours.theta - model.fit(X, y).coef_).max() < 1e-8


@pytest.mark.parametrize(
    ("family", "theirs", "trials"),
    [
        (Gaussian(), sm.families.Gaussian(), None),
        (Bernoulli(), sm.families.Binomial(), None),
        (Bounded(), sm.families.Binomial(), None),
        (Binomial(5), sm.families.Binomial(), 5),
        (Poisson(), sm.families.Poisson(), None),
    ],
    ids=lambda v: type(v).__name__,
)
def test_statsmodels_agrees(family, theirs, trials):
    """Without penalty, that is with one too small to see, the estimate is the GLM's own."""
    X, y = stream(family, 300, 3, 1.0, 8)
    ours = fed(family, DelayedOFUGLM(lam=1e-9, **EXACT), X, y)
    target = y if trials is None else np.column_stack([y, trials - y])
    result = sm.GLM(target, X, family=theirs).fit(tol=1e-14, maxiter=200)
    assert np.abs(ours.theta - result.params).max() < 1e-8
