"""What everything stands on: linear algebra, special functions, dispatch, compilation, cache."""

import json
import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr, ndtri

from belated import Bandit, Bernoulli, Binomial, DelayedOFUGLM, Poisson, delays, registry
from belated.engine.reference import draw_world, play
from belated.model.protocols import choose, mean, reward_quantile
from belated.numerics.linalg import (
    cholesky,
    grow,
    inverse_and_log_det,
    solve_transposed,
    solve_upper,
)
from belated.numerics.special import log_of_one_plus, logit, normal_cdf, normal_quantile, sigmoid
from belated.worlds import environments


@given(st.integers(1, 12), st.integers(0, 10**6), st.floats(0.0, 10.0))
def test_cholesky_and_solves(d, seed, shift):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((d + 3, d))
    A, b, U = X.T @ X + 0.1 * np.eye(d), rng.standard_normal(d), np.zeros((d, d))
    cholesky(A, shift, U)
    assert np.allclose(U.T @ U, A + shift * np.eye(d))
    x = b.copy()
    solve_transposed(U, x)
    assert np.allclose(U.T @ x, b)
    solve_upper(U, x)
    assert np.allclose((A + shift * np.eye(d)) @ x, b)
    inverse = np.zeros((d, d))
    for by in (0.0, shift):
        shifted = A + by * np.eye(d)
        log_det = inverse_and_log_det(A, by, inverse)
        assert log_det == pytest.approx(np.linalg.slogdet(shifted)[1], abs=1e-9)
        assert np.allclose(inverse, np.linalg.inv(shifted))
    assert np.array_equal(inverse, inverse.T)


@pytest.mark.parametrize("weight", [1e-12, 0.2, 1.0, 1e9])
@pytest.mark.parametrize("fresh", [False, True])
def test_rank_one_growth(weight, fresh):
    rng = np.random.default_rng(0)
    A, A_inv, work = 2.0 * np.eye(4), np.eye(4) / 2.0, np.empty(4)
    log_det = 4 * math.log(2.0)
    for _ in range(6):
        x = rng.standard_normal(4)
        log_det = grow(A, A_inv, log_det, weight, x, fresh, work)
        assert log_det == pytest.approx(np.linalg.slogdet(A)[1], abs=max(1e-9, 1e-15 * weight))
        assert np.abs(A_inv @ A - np.eye(4)).max() < 1e-6
        assert np.allclose(A_inv, np.linalg.inv(A), rtol=1e-6, atol=1e-14)


def test_inverse_recovers_from_violent_updates():
    """Hardly any ridge: Sherman-Morrison alone would keep an error of 1e-4 for good."""
    rng = np.random.default_rng(0)
    A, A_inv, work = 1e-12 * np.eye(4), 1e12 * np.eye(4), np.empty(4)
    for _ in range(12):
        x = rng.standard_normal(4)
        grow(A, A_inv, 0.0, 1.0, x, False, work)
    assert np.allclose(A_inv, np.linalg.inv(A), rtol=1e-12, atol=1e-13)


def test_cholesky_of_a_singular_matrix_is_finite():
    ones, U = np.ones((3, 3)), np.zeros((3, 3))
    cholesky(ones, 0.0, U)
    assert np.isfinite(U).all()
    assert np.allclose(U.T @ U, ones, atol=1e-7)


@pytest.mark.parametrize("z", [-3.0, 0.0, 2.0, math.log(800.0), math.log(3e4)])
def test_poisson_quantiles(z):
    u = [2.0**-54, 1e-6, 0.01, 0.3, 0.5, 0.9, 0.99, 1 - 1e-7]
    ours = [reward_quantile(Poisson(), z, v) for v in u]
    assert ours == stats.poisson.ppf(u, math.exp(z)).tolist()
    assert reward_quantile(Poisson(), z, 1 - 2.0**-53) < 20 + 10 * math.exp(z)
    with pytest.raises(ValueError, match="mean above 1e9 cannot be simulated"):
        reward_quantile(Poisson(), 30.0, 0.5)


@pytest.mark.parametrize("z", [-700.0, -3.0, 0.0, 4.0, 700.0])
@pytest.mark.parametrize("n", [1, 7, 1000, 50_000])
def test_binomial_quantiles(n, z):
    u = [2.0**-54, 1e-6, 0.01, 0.3, 0.5, 0.9, 0.99, 1 - 1e-7]
    ours = [reward_quantile(Binomial(n), z, v) for v in u]
    assert ours == stats.binom.ppf(u, n, 1 / (1 + math.exp(-z))).tolist()


def test_normal_quantile():
    u = np.concatenate([10.0 ** -np.arange(1, 300, 7), np.linspace(0.001, 0.999, 999)])
    ours = np.array([normal_quantile(v) for v in u])
    assert np.allclose(ours, ndtri(u), rtol=1e-13, atol=1e-15)
    assert normal_quantile(0.5) == pytest.approx(0.0, abs=1e-16)
    assert normal_quantile(0.0) == -math.inf
    assert normal_quantile(1.0) == math.inf
    z = np.linspace(-37, 8, 400)
    assert np.allclose([normal_cdf(v) for v in z], ndtr(z), rtol=1e-12)


def test_logit():
    for z in (-700.0, -30.0, -1.0, 0.0, 0.3, 20.0):
        assert logit(sigmoid(z)) == pytest.approx(z, rel=1e-6)
    assert logit(0.25) == pytest.approx(-math.log(3.0), rel=1e-15)
    assert (logit(0.0), logit(1.0)) == (-math.inf, math.inf)


def test_log_of_one_plus():
    """A series up to 1/64, then the library's: the last digits are right on both sides."""
    near = (1 / 64, math.nextafter(1 / 64, 0))
    for q in [0.0, 1e-300, 1e-17, *np.geomspace(1e-12, 1e6, 200), *near]:
        assert log_of_one_plus(q) == pytest.approx(math.log1p(q), rel=4e-16)
    assert log_of_one_plus(-0.5) == math.log1p(-0.5)


def test_sigmoid_at_the_ends():
    assert sigmoid(-800.0) == 0.0
    assert sigmoid(800.0) == 1.0
    assert sigmoid(-40.0) == pytest.approx(math.exp(-40.0), rel=1e-12)


class Unregistered(NamedTuple):
    x: float = 1.0


def test_missing_case_is_named():
    with pytest.raises(TypeError, match=r"choose has no case for Unregistered \(known: .*Delayed"):
        choose(Unregistered(), None, np.eye(2), np.random.default_rng(0))


def test_environments_have_their_law():
    """Uniform in the ball: E|x|^2 = d / (d + 2), P(|x| < r) = r^d, no direction preferred."""
    rng = np.random.default_rng(0)
    for d in (1, 2, 5):
        for kind in (environments.UnitBall(4000), environments.Sphere(4000)):
            x = environments.sample(kind, d, rng)
            r = np.linalg.norm(x, axis=1)
            assert r.max() <= 1.0 + 1e-12
            for u in (0.1, 0.5, 0.9):
                assert np.quantile(r, u) == pytest.approx(kind.norm_quantile(d, u), abs=0.03)
            assert np.abs(x.mean(0) - kind.mean(d)).max() < 0.05
        r = np.linalg.norm(environments.sample(environments.UnitBall(4000), d, rng), axis=1)
        assert (r**2).mean() == pytest.approx(d / (d + 2), abs=0.02)
    hot = environments.OneHot(3)
    assert np.array_equal(environments.sample(hot, 3, rng), np.eye(3))
    assert np.array_equal(hot.mean(3), np.full(3, 1 / 3))
    assert hot.norm_quantile(3, 0.2) == 1.0
    with pytest.raises(ValueError, match="number of arms"):
        environments.sample(hot, 2, rng)
    arms = environments.FixedArms([[1, 0], [0, 0.5]])
    assert arms.mean(2).tolist() == [0.5, 0.25]
    assert [arms.norm_quantile(2, u) for u in (0.4, 0.6)] == [0.5, 1.0]
    assert np.array_equal(environments.sample(arms, 2, rng), [[1, 0], [0, 0.5]])
    with pytest.raises(ValueError, match="number of columns of arms"):
        environments.sample(arms, 3, rng)


def test_sampled_delays_have_their_mean():
    rng = np.random.default_rng(1)
    for delay in (delays.Exponential(5.0), delays.Uniform(5.0), delays.Geometric(5.0)):
        sampled = delays.sample(delay, 20_000, rng)
        assert sampled.mean() == pytest.approx(5.0, rel=0.05)
    early = delays.sample(delays.Informative(), 4, rng, y=[1.0, 0.0, 1.0, 0.0])
    assert early.tolist() == [0.0, math.inf, 0.0, math.inf]
    assert delays.quantile(delays.Informative(threshold=0.5), 0.5, y=0.5) == math.inf  # not above


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: delays.Exponential(-1.0), "expected = -1.0: expected a finite number above 0"),
        (lambda: delays.Constant(-1.0), "value = -1.0: expected a finite number, 0 or more"),
        (lambda: delays.PacketLoss(1.5), "arrive = 1.5: expected a number strictly between"),
        (lambda: delays.Empirical([]), "expected one or more delays"),
        (lambda: delays.Empirical([-1.0]), "expected one or more delays"),
        (lambda: delays.Empirical([math.nan]), "expected one or more delays"),
        (lambda: delays.Empirical("abc"), "expected delays, as numbers"),
        (lambda: delays.quantile(delays.Never(), 1.0), "u = 1.0: expected a number in"),
        (lambda: delays.quantile(delays.Informative(), 0.5), "y = nan: expected a reward"),
        (lambda: delays.Informative(threshold=math.nan), "threshold = nan: expected a finite"),
        (lambda: delays.expected_missing(delays.Informative(), 5), "neither the reward nor"),
        (lambda: delays.expected_missing(delays.Never(), -3), "rounds = -3: expected a whole"),
        (lambda: environments.UnitBall(0), "n_actions = 0: expected a whole number"),
        (lambda: environments.FixedArms([[math.inf]]), "expected a .K, d. array of finite"),
        (lambda: environments.FixedArms("abc"), "expected an array of numbers"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_equal_means_of_one_type():
    assert delays.Exponential(9.0) == delays.Exponential(9.0)
    assert delays.Exponential(9.0) != delays.Uniform(9.0)
    assert Bernoulli() != Poisson()
    assert delays.Empirical([2.0, 1.0]) == delays.Empirical([1.0, 2.0])
    assert delays.Empirical([2.0, 1.0]) != delays.Empirical([1.0, 3.0])
    assert len({delays.Exponential(9.0), delays.Uniform(9.0), delays.Exponential(9.0)}) == 2
    assert len({delays.Empirical([2.0, 1.0]), delays.Empirical([1.0, 2.0])}) == 1


def test_bad_worlds():
    ball = environments.UnitBall(2)
    for star in ([0.0, math.nan], [0.0]):
        with pytest.raises(ValueError, match=r"theta_star = .*: expected 2 finite numbers"):
            draw_world(ball, 2, 5, 1, np.array(star))
    with pytest.raises(TypeError, match="seed = 'x': expected a whole number"):
        draw_world(ball, 2, 5, "x")
    bandit = Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM())
    with pytest.raises(ValueError, match=r"bandit\.dim = 3: expected 2, as in this world"):
        play(bandit, draw_world(ball, 2, 5, 1), delays.Never())
    with pytest.raises(TypeError, match="delay = 'late': expected a delay, such as Exponential"):
        play(bandit, draw_world(ball, 3, 5, 1), "late")
    with pytest.raises(TypeError, match=r"above = 3\.0: expected a delay, such as Constant"):
        delays.Informative(above=3.0)
    assert bandit.n_decided == 0


# ------------------------------------------------------------------------ compiled and not

PLAY = """
import json, sys
from belated import Bandit, DelayedOFUGLM, registry
from belated.registry import example_policy
from belated.worlds.delays import Exponential
from belated.engine import draw_world, play
from belated.worlds.environments import UnitBall
out = {}
for name in sys.argv[1:]:
    family = registry.load(registry.FAMILIES, name)()
    bandit = Bandit(4, family=family, policy=example_policy(DelayedOFUGLM, family), seed=1)
    run = play(bandit, draw_world(UnitBall(9), 4, 150, seed=3), Exponential(15.0))
    state = bandit._state
    out[name] = [run.index.tolist(), run.arrives.tolist(), run.reward.tolist(),
                 state.theta.tolist(), state.W_inv.tolist(), state.scalars.tolist(),
                 state.counts.tolist()]
json.dump(out, sys.stdout)
"""


def run_python(code, *args, **environment):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *args],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


USUAL = ["bernoulli", "gaussian"]
OTHERS = [name for name in registry.FAMILIES if name not in USUAL]


@pytest.mark.compiled
@pytest.mark.parametrize("names", [USUAL, pytest.param(OTHERS, marks=pytest.mark.slow)], ids=len)
def test_machine_code_equals_python(names):
    """Whole runs of every family, compiled and interpreted: the same decisions and numbers."""
    python = json.loads(run_python(PLAY, *names, NUMBA_DISABLE_JIT="1"))
    compiled = json.loads(run_python(PLAY, *names, NUMBA_DISABLE_JIT="0"))
    assert list(python) == names
    for name, (index, arrives, rewards, *numbers) in python.items():
        assert compiled[name][0] == index
        assert compiled[name][1] == arrives
        # exp, log and erfc of the two may differ in the last bit, and nothing else does
        assert np.allclose(compiled[name][2], rewards, rtol=1e-14, atol=0.0)
        for ours, theirs in zip(compiled[name][3:], numbers, strict=True):
            assert np.allclose(ours, theirs, rtol=1e-11, atol=1e-13)


POLICY_FILE = """
from typing import NamedTuple
from belated.model.protocols import choose
from belated.estimators import Ridge
from helper import favourite

class Stubborn(NamedTuple):
    "Always the same row."
    lam: float = 1.0
    def resolve(self, family, dim, max_norm):
        return self
    def estimator(self, family, dim, max_norm):
        return Ridge()

@choose.case(Stubborn)
def _choose(policy, state, actions, rng):
    return favourite(), 0.0, 0.0, 0.0
"""
HELPER_FILE = """
from belated.core.jit import kernel

@kernel
def favourite():
    return ROW
"""
USE_IT = """
import numpy as np
from stubborn import Stubborn
from belated import Bandit, Gaussian
print(Bandit(2, family=Gaussian(), policy=Stubborn()).decide(np.eye(2)).index)
"""


@pytest.mark.compiled
def test_an_edited_policy_is_not_served_from_the_cache(tmp_path):
    """Package kernels are compiled around a user's policy: its edits must reach them."""
    place = {"PYTHONPATH": str(tmp_path), "BELATED_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "helper.py").write_text(HELPER_FILE.replace("ROW", "0"))
    (tmp_path / "stubborn.py").write_text(POLICY_FILE)
    assert run_python(USE_IT, **place).strip() == "0"
    (tmp_path / "helper.py").write_text(HELPER_FILE.replace("ROW", "1"))
    assert run_python(USE_IT, **place).strip() == "1"
    (tmp_path / "stubborn.py").write_text(POLICY_FILE.replace("favourite()", "0"))
    assert run_python(USE_IT, **place).strip() == "0"
    kept = set((tmp_path / "cache").rglob("*.nbc"))
    assert kept
    typed_in = POLICY_FILE.replace("from helper import favourite", "").replace("favourite()", "1")
    use = USE_IT.replace("from stubborn import Stubborn", "")
    assert run_python(typed_in + use, **place).strip() == "1"
    assert set((tmp_path / "cache").rglob("*.nbc")) == kept, "code typed in must not be kept"


@pytest.mark.compiled
def test_without_a_place_for_the_cache(tmp_path):
    """A read-only home costs compile time, nothing else."""
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    code = "from belated.numerics.special import sigmoid; print(sigmoid(0.0))"
    assert run_python(code, BELATED_CACHE_DIR=str(blocked)).strip() == "0.5"


@pytest.mark.compiled
def test_kernels_compile_once():
    """A second bandit of the same types compiles nothing new."""
    from belated.model.steps import decide_step, learn_step

    def use(dim):
        bandit = Bandit(dim, family=Bernoulli(), policy=DelayedOFUGLM(order=2 + dim % 2))
        bandit.learn(bandit.decide(np.eye(dim)).id, 1.0)

    use(3)
    before = len(decide_step.signatures), len(learn_step.signatures)
    use(4)
    assert (len(decide_step.signatures), len(learn_step.signatures)) == before


def test_imports_are_lazy():
    code = textwrap.dedent(
        """
        import sys, belated
        heavy = {"numba", "scipy", "pandas", "matplotlib", "typer", "rich", "sklearn"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        assert sorted(belated.__all__) == sorted(dir(belated))
        from belated import Bandit
        assert not (heavy - {"numba", "scipy"}) & set(sys.modules)
        try:
            belated.Nothing
        except AttributeError as error:
            assert "'Nothing'" in str(error)
        else:
            raise AssertionError
        """
    )
    run_python(code)


def test_all_public_names_exist():
    import belated

    for name in belated.__all__:
        assert getattr(belated, name) is not None
    source = Path(belated.__file__).read_text()
    typed = re.findall(r"import (\w+) as \1$", source, re.MULTILINE)  # what type checkers see
    assert sorted(typed) == sorted(belated._HOMES)
    assert mean(Bernoulli(), 0.0) == 0.5
