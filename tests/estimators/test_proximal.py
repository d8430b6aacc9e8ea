"""The one step of a policy that sees every reward once."""

import math

import numpy as np
import pytest

from belated.estimators import proximal
from belated.estimators.proximal import POINT, TOWARDS, Pull, proximal_point
from belated.families import Bernoulli
from belated.model.state import WORK


def stepped(A, start, x, pull, family, radius):
    work = np.zeros((WORK + len(x), len(x)))
    work[TOWARDS] = np.linalg.solve(A, x)
    z = proximal_point(pull, family, A, np.linalg.inv(A), start, x, radius, work)
    theta = work[POINT].copy()
    assert z == pytest.approx(x @ theta, abs=1e-12)
    return theta


@pytest.mark.parametrize("large", [1.0, 1e3])
def test_the_step_is_optimal(large):
    """A (theta - start) + phi'(x'theta) x = -nu theta with nu >= 0, and nu = 0 inside the ball."""
    rng = np.random.default_rng(0)
    inside = on_sphere = 0
    for k in range(400):
        d = 1 + k % 6
        B = rng.standard_normal((d, d))
        A = large * (B @ B.T + 0.1 * np.eye(d))
        x = rng.standard_normal(d) / math.sqrt(d)
        start = rng.standard_normal(d) / math.sqrt(d)
        start *= min(1.0, 1.0 / np.linalg.norm(start))
        scale = large * rng.exponential()
        pull = [
            Pull(scale * rng.standard_normal(), 0.0, 0.0),
            Pull(scale * rng.standard_normal(), scale, 0.0),
            Pull(-scale * float(k % 2), 0.0, scale),
            Pull(-scale, 0.0, 2 * scale),
        ][k % 4]
        theta = stepped(A, start, x, pull, Bernoulli(), 1.0)
        z = x @ theta
        force = pull.level + pull.rise * z + pull.weight / (1 + math.exp(-z))
        left = A @ (theta - start) + force * x
        size = 1e-10 * large * (1 + scale / large) * np.linalg.norm(B, 2) ** 2 + 1e-10 * large
        if np.linalg.norm(theta) < 1 - 1e-9:
            inside += 1
            assert np.linalg.norm(left) <= size
        else:
            on_sphere += 1
            assert np.linalg.norm(theta) <= 1 + 1e-12
            nu = -left @ theta
            assert nu >= -size
            assert np.linalg.norm(left + nu * theta) <= size
    assert min(inside, on_sphere) > 50


def test_both_ways_onto_the_sphere(monkeypatch):
    """The fixed point, O(d^2), and Newton's method find the same point; each is needed."""
    rng, ways, found = np.random.default_rng(1), [], []
    settle = proximal._settle_on_sphere

    def watched(*args):
        ways.append(settle(*args)[0])
        return ways[-1], 0.0

    problems = []
    for k in range(60):
        B = rng.standard_normal((4, 4))
        A = B @ B.T + (30.0 if k % 2 else 0.01) * np.eye(4)
        start = rng.standard_normal(4)
        start /= np.linalg.norm(start)
        problems.append((A, start, start + 0.1 * rng.standard_normal(4), Pull(-1.0, 0.0, 0.5)))
    monkeypatch.setattr(proximal, "_settle_on_sphere", getattr(settle, "py_func", settle))
    settle = proximal._settle_on_sphere
    point = getattr(proximal_point, "py_func", proximal_point)
    for way in (watched, lambda *args: (False, 0.0)):
        monkeypatch.setattr(proximal, "_settle_on_sphere", way)
        for A, start, x, pull in problems:
            work = np.zeros((WORK + 4, 4))
            work[TOWARDS] = np.linalg.solve(A, x)
            point(pull, Bernoulli(), A, np.linalg.inv(A), start, x, 1.0, work)
            found.append(work[POINT].copy())
    assert min(ways.count(True), ways.count(False)) > 5
    assert np.allclose(found[:60], found[60:], rtol=0, atol=1e-11)
