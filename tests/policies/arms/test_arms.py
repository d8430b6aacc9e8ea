"""K-armed policies under delay, in plain Python."""

import inspect
import math
import re
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pytest

import naive.arms
from belated import Bernoulli, Gaussian, registry, simulate
from belated.engine.plain_lane import OwnPlayer
from belated.experiments.experiment import new_experiment
from belated.experiments.options import Options
from belated.families import Bounded
from belated.model.plain_policy import started
from belated.policies import (
    BOLD,
    ODAAF,
    OPSE,
    QPMD,
    SBD,
    BetaThompson,
    ConversionsKLUCB,
    ConversionsUCB,
    DelayedElimination,
    DelayedKLUCB,
    DelayedUCB1,
    PolicyElimination,
)
from belated.policies.shared.arms import bernoulli_index, poisson_index
from belated.worlds.delays import Constant, Informative, Never
from belated.worlds.environments import FixedArms
from belated.worlds.feedback import feedback_for
from support.arms import LATE, OURS, SEED, THETA_STAR, K, T, played, returned, untried

BASES = ["ucb1", "kl-ucb:c=3", "beta-thompson"]


# -------------------------------------------------------------------------------- without delay


def twin_of(base):
    if base == "beta-thompson":
        return naive.arms.BetaThompson(K, np.random.default_rng(SEED))
    return naive.arms.UCB1(K) if base == "ucb1" else naive.arms.KLUCB(K, 3.0)


@pytest.mark.parametrize(
    ("policy", "twin"),
    [
        (DelayedUCB1(), lambda: naive.arms.UCB1(K)),
        (DelayedKLUCB(), lambda: naive.arms.KLUCB(K, 0.0)),
        (DelayedKLUCB(c=3.0), lambda: naive.arms.KLUCB(K, 3.0)),
        (BetaThompson(), lambda: twin_of("beta-thompson")),
        (DelayedElimination(horizon=T), lambda: naive.arms.SuccessiveElimination(K, T)),
        (OPSE(horizon=T), lambda: naive.arms.SuccessiveElimination(K, T)),
        (ConversionsUCB("constant:0", eps=3.0), lambda: naive.arms.UCB1(K)),
        (ConversionsUCB("constant:0", window=0.0, eps=3.0), lambda: naive.arms.UCB1(K)),
        (ConversionsKLUCB("constant:0"), lambda: naive.arms.PoissonKLUCB(K, 0.1)),
        *[(kind(base), lambda b=base: twin_of(b)) for kind in (QPMD, BOLD, SBD) for base in BASES],
    ],
    ids=lambda value: repr(value) if isinstance(value, tuple) else "",
)
def test_without_delay(policy, twin):
    """Action by action what the formulas say, recomputed from all rewards in every round."""
    if isinstance(policy, DelayedElimination | OPSE):  # so far apart that one is dropped by then
        run, _ = played(policy, Constant(0.0), theta_star=4.0 * THETA_STAR)
    else:
        run, _ = played(policy, Constant(0.0))
    slow = twin()
    for t in range(1, T + 1):
        arm = slow.select(t)
        assert run.index[t - 1] == arm, t
        slow.update(arm, run.reward[t - 1])
    assert len(set(run.index[T // 2 :])) > 1
    assert np.bincount(run.index).max() > T / K + 1  # it has learnt something


def test_fractions_are_coins():
    """Thompson sampling turns a reward of 0.3 into a success three times of ten."""
    player = started(BetaThompson(), 1, SEED)
    for t in range(1, 2001):
        player.choose(np.eye(1), t)
        player.observe(np.ones(1), 0.3, t)
    assert player.observed[0] == 2000
    assert player.total[0] == int(player.total[0])
    assert abs(player.total[0] / 2000 - 0.3) < 0.05
    run, player = played(BetaThompson(), family=Bounded())
    arrived = run.arrives <= T
    assert 0.0 < player.total.sum() < arrived.sum()


@pytest.mark.parametrize("policy", [DelayedUCB1(c=1.3), DelayedKLUCB(c=1.0)], ids=repr)
def test_indices_rest_on_what_has_returned(policy):
    run, _ = played(policy)
    for t in range(1, T + 1):
        rows = returned(run, t)
        n = np.bincount(run.index[rows], minlength=K)
        total = np.bincount(run.index[rows], run.reward[rows], K)
        arm = untried(n, run, t)
        if arm is None and isinstance(policy, DelayedUCB1):
            arm = np.argmax(total / n + np.sqrt(1.3 * math.log(t) / n))
        elif arm is None:
            slow = naive.arms.KLUCB(K, 1.0)
            arm = np.argmax([slow.index(s / m, m, t) for s, m in zip(total, n, strict=True)])
        assert run.index[t - 1] == arm, t
    assert run.missing.max() > 5


def test_indices_of_kl_ucb():
    player = started(DelayedKLUCB(c=2.0), K, SEED)
    player.meet(K)
    player.observed[:], player.total[:] = [1, 9, 40, 5], [1.0, 3.7, 0.0, 5.0]
    slow = naive.arms.KLUCB(K, 2.0)
    for t in (2, 3, 5, 100, 10**6):
        expected = [slow.index(*pair, t) for pair in ((1.0, 1), (3.7 / 9, 9), (0.0, 40), (1.0, 5))]
        assert player.indices(t) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("level", [1e-12, 1e-3, 0.7, 30.0, 800.0])
def test_indices_reach_their_level(level):
    """Divergence at the index is the level, up to rounding, for means from 0 to 1."""
    p = np.array([0.0, 1e-9, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-9, 1.0])
    allowed = np.full(len(p), level)
    bernoulli, poisson = bernoulli_index(p, allowed), poisson_index(p, allowed)
    for mean, q, r in zip(p, bernoulli, poisson, strict=True):
        assert mean <= q + 2e-16 < 1 + 3e-16
        beyond = min(1 - 1e-16, q + 1e-9 * (1 - q) + 1e-12)
        assert naive.arms.bernoulli_kl(mean, max(q - 3e-16, 1e-300)) <= level * (1 + 1e-6) + 1e-15
        assert q > 1 - 1e-15 or naive.arms.bernoulli_kl(mean, beyond) >= level * (1 - 1e-6)
        far = r * (1 + 1e-9)
        assert (mean * math.log(mean / r) if mean else 0.0) + r - mean <= level * (1 + 1e-6) + 1e-15
        assert (mean * math.log(mean / far) if mean else 0.0) + far - mean >= level * (1 - 1e-3)


def test_arms_without_rewards_are_played_in_turn():
    for policy in (DelayedUCB1(), DelayedKLUCB(), ConversionsUCB(Constant(50.0))):
        run, _ = played(policy, Never(), rounds=3 * K)
        assert run.index.tolist() == 3 * list(range(K)), policy


def test_beta_thompson_draws_from_the_posterior_of_what_has_returned():
    policy = BetaThompson(successes=0.5, failures=2.0)
    run, _ = played(policy)
    rng = np.random.default_rng(SEED)
    for t in range(1, T + 1):
        rows = returned(run, t)
        n = np.bincount(run.index[rows], minlength=K)
        total = np.bincount(run.index[rows], run.reward[rows], K)
        assert run.index[t - 1] == np.argmax(rng.beta(0.5 + total, 2.0 + n - total)), t


class Spy:
    """UCB1 that keeps what it was asked and told."""

    def __init__(self):
        self.told, self.asked = [], []
        self.ucb = started(DelayedUCB1(), K, SEED)

    def choose(self, actions, t):
        assert len(self.asked) == len(self.told), "asked again before the reward was told"
        self.asked.append(self.ucb.choose(actions, t))
        return self.asked[-1]

    def observe(self, x, y, t):
        assert t == len(self.asked)
        self.told.append((int(np.argmax(x)), y))
        self.ucb.observe(x, y, t)


@pytest.mark.parametrize("delay", [Constant(0.0), LATE, Never()], ids=repr)
def test_qpm_d_feeds_its_base_a_run_without_delay(delay):
    run, player = played(QPMD(Spy()), delay)
    spy = player.base
    assert [arm for arm, _ in spy.told] == spy.asked[: len(spy.told)]
    assert len(spy.asked) - len(spy.told) == 1
    slow = naive.arms.UCB1(K)
    for t, (arm, y) in enumerate(spy.told, 1):
        assert slow.select(t) == arm
        slow.update(arm, y)
    for arm in range(K):  # rewards of an arm reach the base in the order in which they returned
        mine = np.flatnonzero((run.index == arm) & (run.arrives <= T - 1))
        in_order = run.reward[mine[np.argsort(run.arrives[mine], kind="stable")]].tolist()
        told = [y for a, y in spy.told if a == arm]
        assert told == in_order[: len(told)]
        if arm == spy.asked[-1]:
            assert told == in_order  # else it would have been asked for the next arm
    if delay == LATE:
        assert 10 < len(spy.told) < T


@pytest.mark.parametrize("delay", [Constant(0.0), Constant(7.0), LATE], ids=repr)
@pytest.mark.parametrize("base", ["ucb1", "beta-thompson"])
def test_bold_has_as_many_copies_as_it_needs(base, delay):
    run, player = played(BOLD(base), delay)
    pending_before = np.append(0, run.missing[:-1])
    assert len(player.copies) == 1 + pending_before.max()
    assert sum(copy.rounds for copy in player.copies) == T
    assert len(player.waiting) == run.missing[-1]
    for copy in player.copies:  # each plays a game without delay
        assert copy.base.pulls.sum() - copy.base.observed.sum() <= 1


def test_bold_returns_rewards_to_the_copy_that_decided():
    run, _ = played(BOLD("ucb1"))
    free, owner = [], {}
    for t in range(1, T + 1):
        made, slow, n = free.pop(0) if free else (t, naive.arms.UCB1(K), 1)
        assert run.index[t - 1] == slow.select(n), t
        owner[t] = made, slow, n
        for s in range(1, t + 1):
            if run.arrives[s - 1] == t:
                made, slow, n = owner.pop(s)
                slow.update(run.index[s - 1], run.reward[s - 1])
                free.append((made, slow, n + 1))
                free.sort(key=itemgetter(0))


@pytest.mark.parametrize("first", [0, 1])
def test_bold_picks_a_copy_whatever_the_order_of_returns(first):
    """Algorithm 1: independently of past predictions, of which an order of returns may tell."""
    player, actions = BOLD(Spy()).start(2, np.random.default_rng(0)), np.eye(2)
    rows = [player.choose(actions, 1), player.choose(actions, 2)]
    for k in (first, 1 - first):
        player.observe(actions[rows[k]], 1.0, k + 1)
    player.choose(actions, 3)
    assert [copy.rounds for copy in player.copies] == [2, 1]


@pytest.mark.parametrize("base", BASES)
def test_sbd_with_a_cap_of_nothing_is_qpm_d(base):
    """All chance is on the arm that the base waits for."""
    one, other = played(SBD(base, cap=0))[0], played(QPMD(base))[0]
    assert np.array_equal(one.index, other.index)
    free = played(SBD(base))[0]
    assert not np.array_equal(free.index, other.index)


def test_sbd_waits_for_its_base_and_keeps_to_its_cap():
    cap = 6
    run, player = played(SBD(Spy(), cap=cap))
    assert player.longest == max(
        run.arrives[run.arrives <= T] - 1 - np.flatnonzero(run.arrives <= T)
    )
    spy, used, told, wanted = player.base, np.zeros(K, int), 0, None
    drawn = 0
    for t in range(1, T + 1):
        rows = returned(run, t)
        pulls = np.bincount(run.index[: t - 1], minlength=K)
        seen = np.bincount(run.index[rows], minlength=K)
        wanted = spy.asked[told]
        while told < len(spy.told) and seen[wanted] > used[wanted]:
            used[wanted] += 1
            told += 1
            wanted = spy.asked[told]
        arm = run.index[t - 1]
        if pulls[wanted] == seen[wanted]:
            assert arm == wanted, t
        elif arm != wanted:
            drawn += 1
            assert pulls[arm] - used[arm] < cap, t  # missing or queued: pulled and not used
    assert drawn > 20


# -------------------------------------------------------------------------------------- the whole


def settings_of(name):
    horizon = {"odaaf": 3000, "policy-elimination": 3000}.get(name, 1000)
    policy = registry.example_policy(registry.load(registry.POLICIES, name), Bernoulli())
    return policy._replace(horizon=None) if "horizon" in policy._fields else policy, horizon


class Anything(NamedTuple):
    """Uniform, whatever is seen."""

    feedback: str
    name: str = "anything"

    def start(self, dim, rng):
        class Player:
            def choose(self, actions, t):
                return rng.integers(len(actions))

            def observe(self, x, y):
                pass

            def observe_total(self, y, t):
                pass

        return Player()


@pytest.mark.parametrize("name", OURS)
def test_better_than_chance(name):
    policy, horizon = settings_of(name)
    frame = simulate(
        [policy, Anything(getattr(policy, "feedback", "identified"))],
        ["bernoulli"],
        ["exponential:8"],
        environment=FixedArms(6.0 * np.eye(2)),
        max_norm=6.0,
        dims=[2],
        horizon=horizon,
        runs=2,
        seed=2,  # theta_star = (0.67, -0.5): means 0.98 and 0.05
        checkpoints=1,
        feedback=feedback_for(policy),
    ).frame()
    last = frame.pivot(index="run", columns="policy", values="regret")
    assert list(last) == sorted([name, "anything"])  # the label is the registry's
    assert (last[name] < 0.8 * last["anything"]).all()


@pytest.mark.parametrize("name", OURS)
def test_documented(name):
    """Every policy says what it assumes, costs and takes from memory, under the same headings."""
    kind = registry.load(registry.POLICIES, name)
    headings = re.findall(r"^(\w+)\n-+$", inspect.getdoc(kind), re.MULTILINE)
    assert headings == ["Parameters", "Assumptions", "Cost", "Deviations", "References"]
    section = inspect.getdoc(kind).split("----------\n")[1]
    for field in kind._fields:
        assert re.search(rf"^(\w+, )*{field}(, \w+)*$", section, re.MULTILINE), field


# ---------------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize("name", OURS)
def test_the_number_of_arms_is_fixed(name):
    if name == "bold":
        name = "delayed-ucb1"  # its copies refuse
    policy = registry.example_policy(registry.load(registry.POLICIES, name), Bernoulli())
    player = started(policy, 3, SEED)
    player.choose(np.eye(3), 1)
    message = r"actions in round 2 = 4 rows: expected 3, as in the first round: to \w+ a row is"
    with pytest.raises(ValueError, match=message):
        player.choose(np.ones((4, 3)), 2)


@pytest.mark.parametrize("kind", [ODAAF, DelayedElimination, OPSE])
def test_the_horizon_must_be_known(kind):
    with pytest.raises(ValueError, match=r"horizon = None: expected the number of rounds, which"):
        kind(**{"expected_delay": 1.0} if kind is ODAAF else {}).start(2, None)


@pytest.mark.parametrize("name", OURS)
def test_rewards_must_fit(name):
    policy = registry.example_policy(registry.load(registry.POLICIES, name), Bernoulli())
    with pytest.raises(
        ValueError, match=rf"family = .*: {type(policy).__name__} learns from rewar"
    ):
        OwnPlayer(policy, Gaussian(), 2, SEED)
    if not hasattr(policy, "feedback") and name not in ("qpm-d", "bold", "sbd"):
        player = started(policy, 2, SEED)
        player.choose(np.eye(2), 1)
        with pytest.raises(ValueError, match=r"reward = 1\.5: expected a number from 0 to 1 for"):
            player.observe(np.ones(2), 1.5, 1)


def test_wrappers_take_what_their_base_takes():
    class Any:
        def choose(self, actions, t):
            return 0

        def observe(self, x, y):
            pass

    for kind in (QPMD, BOLD):
        OwnPlayer(kind(Any()), Gaussian(), 2, SEED)
    with pytest.raises(ValueError, match="SBD learns from rewards in"):
        OwnPlayer(SBD(Any()), Gaussian(), 2, SEED)


def test_refused_before_the_first_round():
    def experiment(policy, **changes):
        settings = {"dims": [2], "horizon": 9, "runs": 1, **changes}
        return new_experiment(Options([policy], ["bernoulli"], ["never"], **settings))

    for policy, feedback, message in [
        (
            "odaaf",
            "aggregated",
            r"odaaf with bernoulli, d = 2: expected_delay = None: expected the",
        ),
        ("conversions-ucb", "conversions", r"delay = None: expected the law of the delay, which"),
        (
            "conversions-ucb:never,window=3",
            "conversions:window=2",
            r"window = 3.*: expected 2 as",
        ),
        ("odaaf:2", "identified", r"ODAAF learns from aggregated feedback"),
        (PolicyElimination(np.ones((1, 2, 3))), "identified", r"decision sets with 2 columns"),
    ]:
        with pytest.raises(ValueError, match=message):
            experiment(policy, feedback=feedback)
    labels = list(experiment("bold:base=kl-ucb:c=3").policies)
    assert labels == ["bold"]
    assert experiment("bold:base=kl-ucb:c=3").policies["bold"] == BOLD("kl-ucb:c=3")
    both = ["delayed-ucb1", "delayed-ucb1:3"]
    options = Options(both, ["bernoulli"], ["never"], dims=[2], horizon=9, runs=1)
    given = new_experiment(options)
    assert list(given.policies) == both


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DelayedUCB1(-1.0), r"c = -1\.0: expected"),
        (lambda: DelayedKLUCB(math.nan), r"c = nan: expected"),
        (lambda: BetaThompson(0.0), r"successes = 0\.0: expected"),
        (lambda: BetaThompson(failures="a"), r"failures = 'a': expected"),
        (lambda: QPMD("ucb2"), r"base = 'ucb2': expected ucb1, kl-ucb, beta-thompson or a policy"),
        (lambda: BOLD("kl-ucb:c=-1"), r"base = 'kl-ucb:c=-1': expected .*c = -1: expected"),
        (lambda: BOLD(3), r"base = 3: expected ucb1, .* got int"),
        (lambda: BOLD("thompson"), r"base = 'thompson': expected ucb1, .* plain Python"),
        (lambda: SBD("odaaf"), r"base = 'odaaf': expected .* learns from single rewards"),
        (lambda: SBD(DelayedUCB1), r"base = .*DelayedUCB1.*: expected .* plain Python"),
        (lambda: SBD(cap=-1), r"cap = -1: expected a whole number, 0 or more"),
        (lambda: ODAAF(-1.0), r"expected_delay = -1\.0: expected"),
        (lambda: ODAAF(1.0, 0), r"horizon = 0: expected a whole number"),
        (lambda: ODAAF(1.0, max_delay=1.0, variance=1.0), r"variance = 1\.0: expected None where"),
        (lambda: ConversionsUCB(3.0), r"delay = 3\.0: expected a delay"),
        (lambda: ConversionsUCB("exponental"), r"did you mean exponential"),
        (
            lambda: ConversionsUCB(Informative()),
            r"delay = Informative.*: expected a delay that",
        ),
        (lambda: ConversionsKLUCB(LATE, -1.0), r"window = -1\.0: expected"),
        (lambda: ConversionsKLUCB(LATE, eps=-1.0), r"eps = -1\.0: expected"),
        (lambda: OPSE(1.5), r"horizon = 1\.5: expected a whole number"),
        (lambda: DelayedElimination(-3), r"horizon = -3: expected a whole number"),
        (lambda: PolicyElimination(np.ones((2, 2))), r"contexts = [^:]*: expected an array \(con"),
        (lambda: PolicyElimination(policies=[[0.5]]), r"policies = .*: expected an array \(pol"),
        (lambda: PolicyElimination(policies=[[0, 1]]), r"policies = .*: expected an array \(pol"),
        (
            lambda: PolicyElimination(np.ones((1, 2, 2)), [[2]]),
            r"policies = \[\[2\]\]: expected .* whole numbers from 0 to 2 - 1",
        ),
        (lambda: PolicyElimination(weights=[0.5]), r"weights = \[0\.5\]: expected 1 chances"),
        (lambda: PolicyElimination(delta=1.0), r"delta = 1\.0: expected"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
