"""Policies of other libraries as lanes: what they would do by hand, and with late rewards."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from belated import checks, simulate
from belated.checks.policies import check_no_peeking
from belated.checks.trial_runs import ACTIONS
from belated.engine.plain_lane import OwnPlayer
from belated.engine.reference import draw_world, play
from belated.experiments.experiment import new_experiment
from belated.experiments.options import Options
from belated.families import Bernoulli, Gaussian
from belated.peers import BayesianBandits, ContextualBandits, MABWiser, River, VowpalWabbit
from belated.worlds.delays import Constant
from belated.worlds.environments import FixedArms, Sphere, UnitBall


def need(module):
    return pytest.importorskip(module, reason="make test-peers installs it; see CONTRIBUTING.md")


def mabwiser(arms, policy, **parameters):
    mab = need("mabwiser.mab")
    names = [f"arm {i}" for i in range(arms)]
    return MABWiser(mab.MAB(names, getattr(mab.LearningPolicy, policy)(**parameters)))


def river(policy, **parameters):
    return River(getattr(need("river.bandit"), policy)(**parameters))


def thompson():
    beta = need("river.proba").Beta()
    return river("ThompsonSampling", reward_obj=beta)


def contextualbandits(policy, arms, **parameters):
    return ContextualBandits(getattr(need("contextualbandits.online"), policy)(arms, **parameters))


def refitted(arms):
    """A policy that has to be fitted to everything again."""
    epsilon = need("contextualbandits.online").EpsilonGreedy
    return ContextualBandits(epsilon(GaussianNB(), list("abcdef"[:arms]), njobs=1))


def bayesianbandits(learner, **parameters):
    return BayesianBandits(getattr(need("bayesianbandits"), learner)(**parameters))


def vw(options):
    need("vowpalwabbit")
    return VowpalWabbit(f"--cb_explore_adf {options}")


# How to make it for K actions, and rewards that it takes.
BY_POSITION = {
    "mabwiser-ucb1": (lambda K: mabwiser(K, "UCB1", alpha=0.5), Gaussian(sd=0.3)),
    "mabwiser-thompson": (lambda K: mabwiser(K, "ThompsonSampling"), Bernoulli()),
    "river-epsilon": (lambda K: river("EpsilonGreedy", epsilon=0.1), Gaussian(sd=0.3)),
    "river-thompson": (lambda K: thompson(), Bernoulli()),
    "river-bayes": (lambda K: river("BayesUCB"), Bernoulli()),
}
BY_FEATURES = {
    "mabwiser-one-model": (lambda K: mabwiser(1, "LinUCB", alpha=0.3), Gaussian(sd=0.3)),
    "mabwiser-contexts": (lambda K: mabwiser(K, "LinUCB", alpha=0.3), Gaussian(sd=0.3)),
    "river-contexts": (lambda K: river("LinUCBDisjoint"), Gaussian(sd=0.3)),
    "contextualbandits": (lambda K: contextualbandits("LinUCB", K, alpha=0.1), Bernoulli()),
    "bayesianbandits": (
        lambda K: bayesianbandits("NormalRegressor", alpha=1.0, beta=11.0),
        Gaussian(sd=0.3),
    ),
    "bayesianbandits-sparse": (
        lambda K: bayesianbandits("EmpiricalBayesGLM", sparse=True),
        Bernoulli(),
    ),
    "vw-epsilon": (lambda K: vw("--epsilon 0.1"), Gaussian(sd=0.3)),
    "vw-squarecb": (lambda K: vw("--squarecb"), Bernoulli()),
}
REFITTED = {"contextualbandits-refitted": (refitted, Bernoulli())}
SLOW = "bayesianbandits-sparse"  # builds and factorises a sparse matrix at every reward


def marked(peers):
    """Returns the names as parameters of a test, the slow one with its mark."""
    return [pytest.param(p, marks=pytest.mark.slow if p == SLOW else ()) for p in peers]


@pytest.mark.parametrize("check", checks.OWN_POLICY_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("peer", marked({**BY_POSITION, **BY_FEATURES, **REFITTED}))
def test_shared_checks(peer, check):
    make, family = {**BY_POSITION, **BY_FEATURES, **REFITTED}[peer]
    check(make(ACTIONS), family)


@pytest.mark.parametrize("peer", marked({**BY_POSITION, **BY_FEATURES}))
def test_beside_ours_behind_delays(peer):
    """Better than chance with late rewards; and the same again with the same seed."""
    make, family = {**BY_POSITION, **BY_FEATURES}[peer]
    policy = make(3)

    def regrets(runs):
        frame = simulate(
            [policy, "uniform"],
            [family],
            ["exponential:10"],
            environment=FixedArms(np.eye(3)) if peer in BY_POSITION else Sphere(3),
            dims=[3 if peer in BY_POSITION else 2],
            horizon=200,
            runs=runs,
            seed=2,
            checkpoints=3,
        ).frame()
        return frame.pivot(index=["run", "t"], columns="policy", values="regret")

    regret = regrets(runs=3)
    last = regret.xs(200, level="t")
    assert last[policy.name].mean() < 0.7 * last["uniform"].mean()
    assert regret.loc[:0].equals(regrets(runs=1))
    assert last[policy.name].nunique() == 3


# ------------------------------------------------------------------------ the same thing by hand

SEED = np.random.SeedSequence(11)
ROUNDS, ARMS, DIM = 50, 4, 2


def played(policy, family, delay):
    """What the adapter does in a world, and the draws that a hand-driven twin has to start from."""
    world = draw_world(UnitBall(ARMS), DIM, ROUNDS, seed=3)
    run = play(OwnPlayer(policy, family, DIM, SEED), world, Constant(float(delay)))
    rng = np.random.default_rng(SEED)
    return world, run, int(rng.integers(2**31)), rng


def by_hand(world, run, delay, decide, learn):
    kept = []
    for t, actions in enumerate(world.actions):
        kept.append(decide(actions, t))
        assert kept[t][0] == run.index[t], t
        if t >= delay:
            learn(*kept[t - delay], run.reward[t - delay])


@pytest.mark.parametrize("delay", [0, 7])
def test_mabwiser_by_hand(delay):
    policy = mabwiser(ARMS, "EpsilonGreedy", epsilon=0.3)
    world, run, seed, _ = played(policy, Gaussian(), delay)
    mab = type(policy.policy)(policy.policy.arms, policy.policy.learning_policy, seed=seed)
    first = []

    def decide(actions, t):
        row = t % ARMS if t < ARMS + delay else mab.arms.index(mab.predict())
        return row, None

    def learn(row, _, y):
        first.append((mab.arms[row], y))
        if len(first) == ARMS:
            mab.fit(*map(list, zip(*first, strict=True)))
        elif len(first) > ARMS:
            mab.partial_fit([mab.arms[row]], [y])

    by_hand(world, run, delay, decide, learn)


@pytest.mark.parametrize("delay", [0, 7])
def test_mabwiser_with_one_model_by_hand(delay):
    policy = mabwiser(1, "LinTS", alpha=0.5)
    world, run, seed, rng = played(policy, Gaussian(), delay)
    mab = type(policy.policy)(["arm 0"], policy.policy.learning_policy, seed=seed)

    def decide(actions, t):
        if t <= delay:
            row = rng.integers(ARMS)
        else:
            row = np.argmax([e["arm 0"] for e in mab.predict_expectations(actions)])
        return row, actions[row]

    by_hand(
        world, run, delay, decide, lambda row, x, y: mab.partial_fit(["arm 0"], [y], x[np.newaxis])
    )


@pytest.mark.parametrize("delay", [0, 7])
def test_mabwiser_with_contexts_by_hand(delay):
    policy = mabwiser(ARMS, "LinUCB", alpha=0.5)
    world, run, seed, _ = played(policy, Gaussian(), delay)
    mab = type(policy.policy)(policy.policy.arms, policy.policy.learning_policy, seed=seed)
    first = []

    def decide(actions, t):
        context = actions.reshape(1, -1)
        row = t % ARMS if t < ARMS + delay else mab.arms.index(mab.predict(context))
        return row, context

    def learn(row, context, y):
        first.append((mab.arms[row], y, context[0]))
        if len(first) >= ARMS:
            rows = first if len(first) == ARMS else first[-1:]
            arms, rewards, contexts = zip(*rows, strict=True)
            mab.partial_fit(list(arms), list(rewards), np.array(contexts))

    by_hand(world, run, delay, decide, learn)


@pytest.mark.parametrize("delay", [0, 7])
def test_river_by_hand(delay):
    policy = river("UCB", delta=1.0, burn_in=1)
    world, run, seed, _ = played(policy, Gaussian(), delay)
    twin = type(policy.policy)(delta=1.0, burn_in=1, seed=seed)
    by_hand(
        world,
        run,
        delay,
        lambda actions, t: (twin.pull(range(ARMS)), None),
        lambda row, _, y: twin.update(row, y),
    )
    assert (run.index[: delay + 1] == 0).all()  # river counts burn-in in rewards, as documented


@pytest.mark.parametrize("delay", [0, 7])
def test_river_with_contexts_by_hand(delay):
    policy = river("LinUCBDisjoint")
    world, run, seed, _ = played(policy, Gaussian(), delay)
    twin = type(policy.policy)(seed=seed)

    def decide(actions, t):
        context = dict(enumerate(actions.ravel()))
        return twin.pull(list(range(ARMS)), context), context

    by_hand(world, run, delay, decide, twin.update)


@pytest.mark.parametrize("delay", [0, 7])
@pytest.mark.parametrize("batch", [True, False])
def test_contextualbandits_by_hand(delay, batch):
    policy = contextualbandits("LinTS", ARMS) if batch else refitted(ARMS)
    world, run, seed, _ = played(policy, Bernoulli(), delay)
    twin = contextualbandits("LinTS", ARMS).policy if batch else refitted(ARMS).policy
    twin.random_state = np.random.default_rng(seed)
    names = list(range(ARMS)) if batch else list("abcd")
    seen = []

    def decide(actions, t):
        context = actions.reshape(1, -1)
        return names.index(twin.predict(context)[0]), context

    def learn(row, context, y):
        new = context, np.array([names[row]]), np.array([y])
        seen.append(new)
        if batch:
            twin.partial_fit(*new)
        else:
            twin.fit(*map(np.concatenate, zip(*seen, strict=True)))

    by_hand(world, run, delay, decide, learn)


@pytest.mark.parametrize("delay", [0, 7])
def test_bayesianbandits_by_hand(delay):
    bandits = need("bayesianbandits")
    policy = bayesianbandits("BayesianGLM", alpha=2.0)
    world, run, seed, _ = played(policy, Bernoulli(), delay)
    learner = bandits.BayesianGLM(alpha=2.0, random_state=np.random.default_rng(seed))

    def decide(actions, t):
        row = int(np.argmax(learner.sample(actions)[0]))
        return row, actions[row]

    by_hand(
        world,
        run,
        delay,
        decide,
        lambda row, x, y: learner.partial_fit(x[np.newaxis], np.array([y])),
    )


@pytest.mark.parametrize("delay", [0, 7])
def test_vowpalwabbit_by_hand(delay):
    """With delay this holds only if each reward is learnt with its own decision's chance."""
    options = "--cb_explore_adf --epsilon 0.2 --softmax --lambda 3"
    policy = vw("--epsilon 0.2 --softmax --lambda 3")
    world, run, seed, rng = played(policy, Gaussian(), delay)
    twin = need("vowpalwabbit").Workspace(f"{options} --quiet --random_seed {seed}")

    def decide(actions, t):
        lines = [f"| 0:{x[0]} 1:{x[1]}" for x in actions]
        chances = np.array(twin.predict(lines))
        chances = chances / chances.sum()
        row = rng.choice(ARMS, p=chances)
        lines[row] = f"0:{{cost}}:{chances[row]} {lines[row]}"
        return row, lines

    def learn(row, lines, y):
        twin.learn([line.format(cost=-y) for line in lines])

    by_hand(world, run, delay, decide, learn)


# ---------------------------------------------------------------------------------------- the rest


def test_columns_that_all_actions_share_are_the_context():
    """In place of the whole decision set, for libraries with a model per arm."""
    rng = np.random.default_rng(1)
    visitor, actions = rng.normal(size=2), rng.normal(size=(3, 4))
    actions[:, [1, 3]] = visitor
    mab, linucb = need("mabwiser.mab"), need("river.bandit").LinUCBDisjoint
    several = mab.MAB([0, 1, 2], mab.LearningPolicy.LinUCB())
    for policy in (MABWiser(several, shared=[1, 3]), River(linucb(), shared=[1, 3])):
        policy.start(4, rng)
        _, kept = policy.pick(actions, 1)
        context = kept if isinstance(policy, MABWiser) else list(kept[0].values())
        assert list(context) == list(visitor)
        assert policy._asdict()["shared"] == [1, 3]
    assert "shared" not in MABWiser(several)._asdict()


def test_bayesianbandits_with_more_and_fewer_actions():
    policy = bayesianbandits("NormalRegressor", alpha=1.0, beta=11.0)
    policy.start(2, np.random.default_rng(1))
    for t, count in enumerate((3, 5, 2, 4)):
        rows = {policy.choose(np.eye(5)[:count, :2], 9 * t + i) for i in range(9)}
        assert rows <= set(range(count))
    with pytest.raises(TypeError, match="learner = 3: expected an estimator of bayesianbandits"):
        BayesianBandits(3)


@pytest.mark.parametrize(
    ("neighbours", "parameters"),
    [("KNearest", {"k": 4}), ("Radius", {"radius": 0.3}), ("TreeBandit", {})],
)
@pytest.mark.parametrize("arms", [1, ACTIONS])
def test_neighbourhoods_of_mabwiser(neighbours, parameters, arms):
    mab = need("mabwiser.mab")
    hood = getattr(mab.NeighborhoodPolicy, neighbours)(**parameters)
    policy = mab.MAB([*range(arms)], mab.LearningPolicy.UCB1(), hood)
    check_no_peeking(MABWiser(policy), Gaussian())


def test_one_action_a_round():
    """A single answer comes without a list from mabwiser."""
    world = draw_world(UnitBall(1), DIM, 10, seed=3)
    for policy in (mabwiser(1, "LinUCB"), mabwiser(1, "UCB1"), river("UCB", delta=1.0), vw("")):
        run = play(OwnPlayer(policy, Gaussian(), DIM, SEED), world, Constant(0.0))
        assert (run.index == 0).all()


def test_labels_tell_settings_apart():
    one, other = mabwiser(1, "LinUCB", alpha=0.5), mabwiser(1, "LinUCB", alpha=0.25)
    named = MABWiser(other.policy, name="mine")

    def experiment(*policies):
        options = Options(policies, ["gaussian"], ["never"], dims=[2], horizon=9, runs=1)
        return new_experiment(options)

    assert list(experiment(one, named).policies) == ["mabwiser.LinUCB", "mine"]
    both = list(experiment(one, other, mabwiser(3, "LinUCB", alpha=0.5)).policies)
    assert len(set(both)) == 3
    assert all(label.startswith("MABWiser:LinUCB(alpha=0.") for label in both)
    identities = [json.dumps(experiment(policy).identity()) for policy in (one, other, one)]
    assert identities[0] == identities[2] != identities[1]
    assert vw("--bag 3")._asdict() != vw("--bag 4")._asdict()
    assert river("UCB", delta=1.0)._asdict() != river("UCB", delta=2.0)._asdict()


def test_wrong_arms_and_rewards():
    few = [(mabwiser(2, "LinUCB"), "mab.arms"), (mabwiser(1, "UCB1"), "mab.arms")]
    for policy, name in few:
        with pytest.raises(ValueError, match=rf"{name} = \d: expected 6, one arm for each action"):
            checks.check_policy(policy, Gaussian())
    for policy in (mabwiser(6, "ThompsonSampling"), thompson(), river("BayesUCB")):
        with pytest.raises(ValueError, match=r"reward = .*: expected 0 or 1, all that .* learns"):
            checks.check_policy(policy, Gaussian())
    mab = need("mabwiser.mab")
    binary = mab.LearningPolicy.ThompsonSampling(lambda arm, reward: reward > 0.0)
    checks.check_policy(MABWiser(mab.MAB(list(range(6)), binary)), Gaussian())


def test_wrong_arms_and_rewards_of_contextualbandits():
    with pytest.raises(ValueError, match=r"nchoices = 3: expected 6, one arm for each action"):
        checks.check_policy(contextualbandits("LinUCB", 3), Bernoulli())
    with pytest.raises(
        ValueError, match=r"reward = .*: expected 0 or 1, all that context.* learns"
    ):
        checks.check_policy(contextualbandits("LinUCB", 6), Gaussian())
    with pytest.raises(TypeError, match=r"policy = 3: expected a policy of contextualbandits"):
        ContextualBandits(3)


def test_wrong_policies():
    with pytest.raises(TypeError, match=r"mab = 3: expected a MAB of mabwiser, got int"):
        MABWiser(3)
    with pytest.raises(TypeError, match=r"policy = 3: expected a policy of river\.bandit"):
        River(3)
    metric = need("river.metrics").Accuracy()
    with pytest.raises(TypeError, match=r"policy\.reward_obj = .*: expected a statistic or a dist"):
        river("UCB", delta=1.0, reward_obj=metric)
    with pytest.raises(TypeError, match=r"options = 3: expected a command line"):
        VowpalWabbit(3)
    with pytest.raises(ValueError, match=r"options = '--cb_adf': expected --cb_explore_adf among"):
        VowpalWabbit("--cb_adf")
    with pytest.raises(ValueError, match=r"options = .*: expected options .*unrecognised option"):
        vw("--eppsilon 0.1")
    with pytest.raises(ValueError, match=r"options = .*: expected no --random_seed"):
        vw("--random_seed=4")


def test_without_the_libraries():
    """The module is there; an adapter says what to install."""
    code = """
import sys
libraries = "bayesianbandits", "coba", "mabwiser", "river", "vowpalwabbit", "contextualbandits"
sys.modules.update(dict.fromkeys(libraries))
from belated import peers
for name in set(peers.__all__) - {"CobaLearner"}:
    try:
        getattr(peers, name)("--cb_explore_adf")
    except ModuleNotFoundError as error:
        print(error)
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    installs = [line.partition("pip install ")[2] for line in printed]
    assert sorted(installs) == [*["'belated[peers]'"] * 5, "'contextualbandits'"]
