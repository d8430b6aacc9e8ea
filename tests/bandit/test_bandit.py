"""The online API: what goes in, what comes out, and what is refused."""

import copy
import math
import os
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belated import (
    Bandit,
    Bernoulli,
    Binomial,
    ConflictingRewardError,
    DelayedOFUGLM,
    Features,
    Gaussian,
    Poisson,
    Tanh,
    UnknownDecisionError,
)
from belated.engine.reference import draw_world, play
from belated.worlds.delays import Exponential
from belated.worlds.environments import UnitBall

D = 3


def make_bandit(family=None, **options):
    return Bandit(D, family=family or Bernoulli(), policy=DelayedOFUGLM(), seed=7, **options)


def test_the_loop():
    bandit = make_bandit()
    first = bandit.decide(np.eye(D))
    second = bandit.decide(np.eye(D)[:2])  # K may differ
    assert (first.id, second.id) == (1, 2)
    assert (bandit.n_decided, bandit.n_observed, bandit.n_missing) == (2, 0, 2)
    assert not bandit.theta.any()
    assert bandit.learn(second.id, 1.0) == 1  # in any order
    assert bandit.theta.any()
    assert bandit.learn([(first.id, 0.0)]) == 1
    assert bandit.learn([]) == 0
    assert (bandit.n_observed, bandit.n_missing) == (2, 0)
    assert "n_missing=0" in repr(bandit)


def test_names_do_for_family_and_policy():
    named = Bandit(D, family="bernoulli", policy="delayed-ofu-glm", seed=7)
    objects = make_bandit()
    assert (named.family, named.policy) == (objects.family, objects.policy)
    assert Bandit(D, family="gaussian:0.5", policy="thompson:scale=2").policy.scale == 2.0


@pytest.mark.parametrize(
    ("family", "policy", "message"),
    [
        ("bernouli", "thompson", "family = 'bernouli': .*did you mean bernoulli?"),
        ("bernoulli", "thomson", "policy = 'thomson': .*did you mean thompson?"),
        ("bernoulli", "thompson:skale=1", "policy = .*skale.*did you mean scale?"),
        ("bernoulli", "sbd", "plays in simulations"),
    ],
)
def test_names_that_are_none(family, policy, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Bandit(D, family=family, policy=policy)


def test_a_bandit_of_names_is_saved_and_loaded(tmp_path):
    bandit = Bandit(D, family="bernoulli", policy="thompson", seed=7)
    bandit.learn(bandit.decide(np.eye(D)).id, 1)
    bandit.save(tmp_path / "bandit.npz")
    assert Bandit.load(tmp_path / "bandit.npz").policy == bandit.policy


def test_what_is_shown_cannot_be_used_to_change_it():
    bandit = make_bandit()
    for name in ("theta", "W", "V"):
        getattr(bandit, name)[:] = 7.0
        assert not (getattr(bandit, name) == 7.0).any()


def test_batch_equals_one_by_one_within_the_certificate():
    world = draw_world(UnitBall(5), D, 100, seed=1)
    one, many = make_bandit(), make_bandit()
    for actions in world.actions:
        one.decide(actions)
        many.decide(actions)
    rewards = [(s + 1, float(u > 0.4)) for s, u in enumerate(world.luck)]
    for pair in rewards:
        one.learn(*pair)
    many.learn(rewards)
    gap = one.theta - many.theta
    assert math.sqrt(gap @ one.W @ gap) <= one.certificate.slack + many.certificate.slack


def test_rewards_of_many_kinds():
    bandit = make_bandit()
    for _ in range(5):
        bandit.decide(np.eye(D))
    assert bandit.learn(np.int64(1), np.float32(1.0)) == 1
    assert bandit.learn(2, True) == 1
    assert bandit.learn(np.array([[3.0, 1.0]]).astype(int)) == 1
    assert bandit.learn({4: 0, 5: Decimal(1)}.items()) == 1 + 1


def test_the_same_reward_again_is_no_news_and_another_is_an_error():
    bandit = make_bandit()
    bandit.decide(np.eye(D))
    bandit.decide(np.eye(D))
    assert bandit.learn(1, 1.0) == 1
    before = bandit.fingerprint()
    assert bandit.learn(1, 1.0) == 0
    with pytest.raises(ConflictingRewardError, match=r"reward = 0\.0 for id = 1: expected 1\.0"):
        bandit.learn(1, 0.0)
    with pytest.raises(ConflictingRewardError):
        bandit.learn([(2, 1.0), (2, 0.0)])  # within one batch
    assert bandit.fingerprint() == before
    assert bandit.learn([(2, 1.0), (2, 1.0), (1, 1.0)]) == 1


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((0, D)), r"actions has shape \(0, 3\): expected \(K, 3\) with K >= 1"),
        (np.zeros(D), r"actions has shape \(3,\): expected \(K, 3\)"),
        (np.zeros((2, D + 1)), r"actions has shape \(2, 4\): expected \(K, 3\)"),
        (np.zeros((2, 2, D)), r"actions has shape \(2, 2, 3\)"),
        ([[0, 0, math.nan]], r"actions\[0\] = \[0\.0, 0\.0, nan\]: expected finite numbers"),
        ([[0, 0, 0], [0, -math.inf, 0]], r"actions\[1\] = .*: expected finite numbers"),
        ([[0, 0, 1.1]], r"actions\[0\] has norm 1\.1: expected at most max_norm = 1; scale"),
        ([[1e200, 0, 0]], r"actions\[0\] has norm 1e\+200: expected at most"),
        ("left", r"actions = 'left': expected an array of numbers"),
        ([["0.1", "0.2", "0.3"]], r"expected an array of numbers"),
        ([[1j, 0, 0]], r"expected an array of numbers"),
        (None, r"actions = None: expected an array of numbers"),
        ([[0, 0], [0]], r"expected an array of numbers"),
    ],
)
def test_bad_actions(actions, message):
    bandit = make_bandit()
    before = bandit.fingerprint()
    with pytest.raises(ValueError, match=message):
        bandit.decide(actions)
    assert bandit.fingerprint() == before


def test_context_needs_features():
    with pytest.raises(TypeError, match="expected None for a bandit without features"):
        make_bandit().decide(np.eye(D), {"user": 1})


@pytest.mark.parametrize(
    ("family", "reward", "expected"),
    [
        (Bernoulli(), 0.5, "a whole number from 0 to 1"),
        (Bernoulli(), 2, "a whole number from 0 to 1"),
        (Tanh(), -1.5, "a number from -1 to 1"),
        (Binomial(3), 4, "a whole number from 0 to 3"),
        (Poisson(), -1, "a whole number from 0 to 1e"),
        (Poisson(), 0.5, "a whole number from 0 to 1e"),
        (Gaussian(), math.nan, "a number from -1e"),
        (Gaussian(), -math.inf, "a number from -1e"),
    ],
)
def test_bad_rewards(family, reward, expected):
    policy = DelayedOFUGLM(R=1.0)
    bandit = Bandit(D, family=family, policy=policy)
    bandit.decide(np.eye(D))
    before = bandit.fingerprint()
    with pytest.raises(ValueError, match=f"reward .*1.* = {reward!r}: expected {expected}"):
        bandit.learn(1, reward)
    assert bandit.fingerprint() == before


@pytest.mark.parametrize(
    "call", [(1.0, 1.0), ("1", 1.0), (True, 1.0), (1, "1"), (1, 1j), (1, []), (1, None), (1, b"1")]
)
def test_rewards_that_are_none(call):
    bandit = make_bandit()
    bandit.decide(np.eye(D))
    with pytest.raises(TypeError, match="expected the id of a decision, a whole number, and a"):
        bandit.learn(*call)


def test_a_decision_is_not_an_id():
    bandit = make_bandit()
    decision = bandit.decide(np.eye(D))
    with pytest.raises(TypeError, match=r"pass decision\.id"):
        bandit.learn(decision, 1.0)


def test_features_may_not_be_longer_than_the_bandit_allows():
    features = Features(numeric=["p"], max_norm=2.0).fit([{"p": 1.0}, {"p": 3.0}])
    with pytest.raises(ValueError, match=r"max_norm = 1\.0: expected at least the max_norm of the"):
        Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)


@pytest.mark.compiled  # 60 dimensions are slow in plain Python
def test_readers_see_whole_states():
    """While one thread learns, another never sees W between two of its updates."""
    d = 60
    bandit = Bandit(d, family=Gaussian(), policy=DelayedOFUGLM())
    for k in range(400):
        bandit.decide([np.eye(d)[k % d]])
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(lambda: [bandit.learn(k + 1, 1.0) for k in range(400)])
        while not learning.done():
            n, W = bandit.n_observed, bandit.W
            assert n <= np.trace(W) - d <= bandit.n_observed


@pytest.mark.parametrize(
    "rewards", [5, None, [1, 2], [(1, 1.0, 2, 3, 4)], "ab", {1: 1.0}, (1, 1.0)]
)
def test_batches_that_are_none(rewards):
    bandit = make_bandit()
    bandit.decide(np.eye(D))
    with pytest.raises(
        TypeError, match=r"learn\(\[\(id, reward\), ...\]\)|expected the id|with ledger="
    ):
        bandit.learn(rewards)


def test_unknown_ids():
    bandit = make_bandit()
    with pytest.raises(UnknownDecisionError, match=r"id = 1: .* it has made none yet"):
        bandit.learn(1, 1.0)
    bandit.decide(np.eye(D))
    for id in (0, -1, 2, 10**30):
        with pytest.raises(UnknownDecisionError, match=f"id = {id}: .* 1 to 1"):
            bandit.learn(id, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim = 0: expected a whole number, 1 or more"),
        ({"dim": 2.5}, "dim = 2.5: expected a whole number"),
        ({"dim": None}, "dim = None: expected the number of features, or features="),
        ({"max_norm": 0.0}, "max_norm = 0.0: expected a finite number above 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Bandit(**{"dim": 2, "family": Gaussian(), "policy": DelayedOFUGLM()} | options)


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("family", Bernoulli, "a family, such as Bernoulli"),
        ("policy", DelayedOFUGLM, "a policy, such as DelayedOFUGLM"),
        ("policy", 3, "a policy, such as DelayedOFUGLM"),
        ("features", "x", "a feature map, such as Features"),
        ("seed", "abc", "a whole number, 0 or more"),
        ("seed", -1, "a whole number, 0 or more"),
        ("seed", True, "a whole number, 0 or more"),
        ("max_norm", 1e60, "a number from 1e-50 to 1e50"),
        ("max_norm", 10**400, "a number above 0"),
    ],
)
def test_wrong_kinds_of_things(argument, value, expected):
    good = {"dim": 2, "family": Bernoulli(), "policy": DelayedOFUGLM()}
    with pytest.raises((ValueError, TypeError), match=f"{argument} = .*: expected {expected}"):
        Bandit(**good | {argument: value})


def test_arrays_of_every_kind_are_one_kind():
    """Whatever its layout, an action is the same action, and nothing is compiled anew."""
    bandit = make_bandit()
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (4, D))
    frozen = rows.copy()
    frozen.flags.writeable = False
    strided = np.repeat(rows, 2, axis=0)[::2]
    kinds = [rows, frozen, np.asfortranarray(rows), strided, rows.astype(">f8"), rows.tolist()]
    assert len({bandit.decide(kind).score for kind in kinds}) == 1
    single = np.array([[0.6, 0.8, 0.0]], np.float32)
    assert bandit.decide(single).index == 0
    with pytest.raises(ValueError, match="expected an array of numbers, not MaskedArray"):
        bandit.decide(np.ma.masked_less(rows, 0.0))


def test_the_longest_allowed_action():
    """At the very edge of the tolerance an action is taken or refused, never half of each."""
    edge = 1.0 + 1e-6
    for k in range(-40, 40):
        bandit = make_bandit()
        x = np.array([[0.6, 0.64, 0.48]]) * (edge + k * 2e-17 * 10)
        try:
            assert bandit.decide(x).id == 1
        except ValueError:
            assert bandit.n_decided == 0


def test_a_copy_is_its_own_bandit():
    bandit = make_bandit()
    for _ in range(64):
        bandit.decide(np.eye(D))
    for twin in (copy.copy(bandit), copy.deepcopy(bandit), pickle.loads(pickle.dumps(bandit))):
        before = bandit.fingerprint()
        for _ in range(100):
            twin.decide(np.eye(D))
        twin.learn(1, 1.0)
        assert bandit.fingerprint() == before


@pytest.mark.filterwarnings("ignore::belated.AssumptionWarning")  # all rewards are 1
def test_threads_wait_for_each_other():
    bandit = make_bandit()

    def work(_):
        ids = [bandit.decide(np.eye(D)).id for _ in range(200)]
        return sum(bandit.learn(id, 1.0) for id in ids), ids

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(work, range(4)))
    assert sorted(id for _, ids in done for id in ids) == list(range(1, 801))
    assert bandit.n_observed == sum(n for n, _ in done) == 800


def test_features_of_a_bandit_are_its_own():
    rows = [{"p": 1.0}, {"p": 3.0}]
    features = Features(numeric=["p"]).fit(rows)
    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
    expected = bandit.decide(rows).score
    features.fit([{"p": 0.0}, {"p": 300.0}])
    assert bandit.decide(rows).score == expected


def test_features_must_give_one_row_an_action():
    class Broken:
        dim = 2

        def transform(self, actions, context=None):
            return np.zeros((1, 2))

        def to_dict(self):
            return {}

    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=Broken())
    with pytest.raises(ValueError, match="features gave 1 rows: expected 3, one per action"):
        bandit.decide([{}, {}, {}])


def test_an_error_of_the_caller_passes_through():
    bandit = make_bandit()
    bandit.decide(np.eye(D))
    with pytest.raises(ValueError, match="invalid literal for int"):
        bandit.learn((int(x), 1.0) for x in ["1", "x"])
    assert bandit.n_observed == 0


def test_interval_is_checked_too():
    bandit = make_bandit()
    with pytest.raises(ValueError, match=r"x has shape \(2,\): expected \(3,\)"):
        bandit.interval([0.0, 0.0])
    with pytest.raises(ValueError, match=r"x has norm 2: expected at most max_norm = 1"):
        bandit.interval([2.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"x = .*: expected finite numbers"):
        bandit.interval([math.nan, 0.0, 0.0])


# ------------------------------------------------------------------ good calls among bad ones

ball = st.lists(st.lists(st.floats(-0.5, 0.5), min_size=D, max_size=D), min_size=1, max_size=4).map(
    np.array
)
junk = st.sampled_from(
    [None, "x", [], {}, object(), math.nan, [[math.nan] * D], [[9.0] * D], [[0.0] * (D + 1)], 1j]
)
bad_call = st.one_of(
    st.tuples(st.just("decide"), junk),
    st.tuples(
        st.just("learn"),
        st.one_of(junk.filter(lambda j: j not in ([], {})), st.integers(-5, 10**6), st.floats()),
        st.one_of(st.floats(), st.integers(), st.text(), junk),
    ).filter(lambda call: not isinstance(call[1], int) or call[2] not in (0, 1, None)),
    st.tuples(st.just("interval"), junk),
    st.tuples(st.just("batch"), st.integers(-3, 0), st.sampled_from([0.0, 1.0])),
)
operation = st.one_of(
    st.tuples(st.just("good decide"), ball),
    st.tuples(
        st.just("good learn"), st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 1.0])
    ),
    bad_call,
    bad_call,
    bad_call,
)


@settings(max_examples=120)
@given(st.lists(operation, min_size=20, max_size=60))
def test_bad_calls_leave_no_trace(operations):
    """Thousands of bad calls between good ones, against a bandit that never saw them."""
    tried, clean = make_bandit(), make_bandit()
    for name, *args in operations:
        if name == "good decide":
            assert tried.decide(*args) == clean.decide(*args)
        elif name == "good learn":
            if clean.n_decided == 0:
                continue
            id = 1 + int(args[0] * clean.n_decided)
            known = clean._history.y[id - 1]
            y = args[1] if math.isnan(known) else known
            assert tried.learn(id, y) == clean.learn(id, y)
        else:
            if name == "batch":  # one good reward, if there can be one, and one bad id
                name, args = "learn", [[(max(1, tried.n_decided), args[1]), (args[0], 1.0)]]
            with pytest.raises((ValueError, TypeError)):
                getattr(tried, name)(*args)
    assert tried.fingerprint() == clean.fingerprint()
    assert tried.decide(np.eye(D)) == clean.decide(np.eye(D))


# ----------------------------------------------------------------------------------- size, features


@pytest.mark.compiled
def test_memory_of_the_history():
    """At most 16 d + 64 bytes a decision, all that the bandit keeps included."""
    d = 20
    bandit = Bandit(d, family=Gaussian(), policy=DelayedOFUGLM())
    actions = np.eye(d)[:1]
    tracemalloc.start()
    try:
        for _ in range(1000):  # the interpreter fills its free lists
            bandit.decide(actions)
        base, _ = tracemalloc.get_traced_memory()
        for k in range(1, 5000):
            bandit.decide(actions)
            grown = tracemalloc.get_traced_memory()[0] - base
            # new room comes in steps, of half of what there is
            assert grown <= (16 * d + 64) * (k + 1000)
    finally:
        tracemalloc.stop()
    assert grown >= 8 * d * 4000, "nothing was measured"


def test_features_in_the_loop():
    rows = [{"ad": ad, "price": p} for ad, p in [("a", 1.0), ("b", 2.0), ("c", 9.0)]]
    features = Features(numeric=["price"], categorical=["ad", "country"])
    contexts = [{"country": c} for c in ("NO", "UK", "NO")]
    features.fit(rows, contexts)
    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
    assert bandit.dim == features.dim == 7
    decision = bandit.decide(rows, {"country": "NO"})
    bandit.learn(decision.id, 1.0)
    x = features.transform(rows, {"country": "NO"})[decision.index]
    assert np.array_equal(bandit._history.x[0], x)
    low, high = bandit.interval(x)
    assert low < high
    assert bandit.interval(rows[decision.index], {"country": "NO"}) == (low, high)
    before = bandit.fingerprint()
    with pytest.raises(ValueError, match="price"):
        bandit.decide([{"ad": "a"}], {"country": "NO"})
    assert bandit.fingerprint() == before
    with pytest.raises(ValueError, match="dim = 3: expected 7"):
        Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM(), features=features)


def test_in_memory_nothing_of_a_ledger_is_imported():
    code = """
import sys
import belated.bandit
bandit = belated.bandit.Bandit(2, family="bernoulli", policy="delayed-ofu-glm")
bandit.learn(bandit.decide([[0.6, 0.0], [0.0, 0.8]]).id, 1.0)
found = [name for name in sys.modules if name.startswith("belated.ledger")]
assert not found, found
"""
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=plain)


def test_ten_thousand_rewards_drift_nowhere():
    """Rank-one updates stay near their definition, also when the first ones are violent."""
    for lam in (1.0, 1e-8):
        policy = DelayedOFUGLM(lam=lam)
        bandit = Bandit(D, family=Gaussian(), policy=policy)
        world = draw_world(UnitBall(3), D, 2500, seed=9)
        play(bandit, world, Exponential(10.0))
        state = bandit._state
        assert np.abs(state.W @ state.W_inv - np.eye(D)).max() < 1e-9
        assert state.scalars[0] == pytest.approx(np.linalg.slogdet(state.W)[1], rel=1e-10)
