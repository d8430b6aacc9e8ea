"""What must hold at the end of every simulated day."""

import math
from collections import defaultdict
from typing import Any

import msgspec
import numpy as np

import naive.estimators
import naive.families
import naive.silence
from belated.core.events import Status
from belated.estimators.laplace import Laplace
from belated.estimators.laplace.fit import DISPERSION
from belated.ledger import snapshots
from belated.ledger.events import START, Event, Kind, Reward
from belated.ledger.replica import Replica
from naive import ledger as naive_ledger

KEPT = (Status.ACCEPTED, Status.EXPIRED, Status.DUPLICATE)


def check_day(world: Any) -> list[str]:
    """Raises where something does not hold; the digests of the bandits."""
    for replica in world.replicas:
        replica.catch_up()
    events = world.replicas[0].ledger.follow(START, 10**9)[0]
    world.happened["quiet"] = sum(event.kind == Kind.QUIET for event in events)
    check_acknowledged(world, events)
    twin = naive_ledger.read(events)
    for name, bandit in twin.items():
        fold = world.replicas[0].folds[name]
        check_counts(fold, bandit)
        check_estimate(fold, bandit)
    return check_replays(world)


def check_replays(world: Any) -> list[str]:
    """All replicas, a replay from zero and one from the last snapshot are in one state."""
    zero, resumed = (Replica(world.replicas[0].ledger, clock=world.clock) for _ in range(2))
    snapshots.load(resumed, world.folder)
    digests = []
    for replica in (zero, resumed, *world.replicas):
        replica.catch_up()
        digests.append({name: fold.digest() for name, fold in replica.folds.items()})
        assert digests[-1] == digests[0]
    return [*digests[0].values()]


def check_acknowledged(world: Any, events: list[Event]) -> None:
    """What clients were told is there, once, and nothing else is."""
    ids = [event.id for event in events if event.kind == Kind.DECIDED and event.id]
    assert len(ids) == len(set(ids))
    assert set(ids) == world.decided.keys()
    parked = {waiting.id: waiting.value for waiting in world.replicas[0].ledger.parked(10**9)}
    rewards: dict[bytes, set[float | None]] = defaultdict(set)
    once = set()
    for event in events:
        if event.kind == Kind.REWARDED and event.id:
            assert event.id not in once, "two rewards for one decision"
            once.add(event.id)
        if event.kind in (Kind.REWARDED, Kind.REVISED):
            rewards[event.id].add(event.value)
            if event.body:
                reward = msgspec.msgpack.decode(event.body, type=Reward)
                rewards[event.id].add(reward.value)
    for id, value, status in world.told:
        if status == Status.PARKED:
            assert parked.get(id) == value or value in rewards[id] or id in world.forgotten
        elif status in KEPT and id in world.decided:
            assert value in rewards[id]
    noted = [(event.id, event.body) for event in events if event.kind == Kind.OUTCOME and event.id]
    assert len(noted) == len(set(noted)), "an outcome was written twice"
    assert set(noted) >= {pair for pair in world.noted if pair[0] in world.decided}
    cancelled = {event.id for event in events if event.kind == Kind.CANCELLED}
    assert cancelled >= {id for id in world.cancelled if id in world.decided}


def check_counts(fold: Any, bandit: naive_ledger.Bandit) -> None:
    """Every decision is in one state, and as many are in each as the rules say."""
    assert bandit.spec == fold.spec
    n = len(bandit.stories)
    parts = [bandit.of_state(s) for s in ("pending", "learnt", "given up", "cancelled")]
    assert sum(parts) == n == fold.learner.n_decided
    assert len(fold.pending) == parts[0]
    if fold.hearing is None:
        assert fold.learner.n_observed == parts[1]
    else:
        check_heard(fold, bandit)
    if bandit.spec.loop == "conversion":
        assert parts[2] == 0
        for story in bandit.stories.values():
            assert story.window_closed or story.state != "learnt", "learnt before its window closed"
    counts = {name: getattr(fold.counts, name) for name in fold.counts.__struct_fields__}
    assert counts == {name: bandit.counts[name] for name in counts}


def check_heard(fold: Any, bandit: naive_ledger.Bandit) -> None:
    """Each reward is learnt, or is kept for the next tick; an open decision is silent at most."""
    history, kept = fold.learner.history, fold.hearing.rewards
    for row, story in enumerate(bandit.stories.values()):
        value = kept.get(row, history.y[row])
        if story.value is None or story.state == "cancelled":
            assert np.isnan(value), "a reward that nobody gave"
        else:
            assert value == story.value
        assert np.isnan(history.y[row]) or history.silence[row] == 0.0, "silent, and rewarded"


def check_estimate(fold: Any, bandit: naive_ledger.Bandit) -> None:
    """The estimate is the fit of exactly the rewards that should have been learnt."""
    if fold.hearing is not None:
        check_stationary(fold.learner, bandit)
        return
    x, y, weights = bandit.learnt()
    learner = fold.learner
    family, policy = bandit.spec.family["type"], learner.policy
    if isinstance(learner.estimator, Laplace):
        ridge = learner.state.fit.scalars[DISPERSION] * prior_precision(learner)
        expected = naive.estimators.mle(family, x, y, ridge, weights=weights)
    elif family == "gaussian":
        expected = naive.estimators.mle("gaussian", x, y, policy.lam, weights=weights)
    else:  # the ridge is lam times the least slope of the mean, which is at the end
        kappa = naive.families.FAMILIES[family][1](policy.m1 * bandit.spec.max_norm)
        expected = naive.estimators.mle(family, x, y, policy.lam * kappa, policy.m1, weights)
    assert np.allclose(learner.exact_theta(), expected, rtol=0.0, atol=1e-7)


def check_stationary(learner: Any, bandit: naive_ledger.Bandit) -> None:
    """The gradient of the rewards, of the silence and of the prior is zero at the estimate."""
    n, family, theta = learner.n_decided, bandit.spec.family["type"], learner.exact_theta()
    y, silence = learner.history.y[:n], learner.history.silence[:n]
    x = np.array([story.x for story in bandit.stories.values()]).reshape(n, learner.dim)
    mean = naive.families.FAMILIES[family][0]
    pulls = [
        naive.silence.pull(family, z, F) if np.isnan(reward) else mean(z) - reward
        for z, reward, F in zip(x @ theta, y, silence, strict=True)
    ]
    gradient = x.T @ (bandit.weights() * pulls) + prior_precision(learner) * theta
    assert np.abs(gradient).max() < 1e-7


def prior_precision(learner: Any) -> Any:
    """Returns the precision of the prior as it was learnt last, or as it was set."""
    fit, policy = learner.state.fit, learner.policy
    precision = fit.precision[fit.group]
    if policy.strength > 1e9:  # nothing can be learnt
        sd = policy.prior_sd * math.sqrt(learner.family.a_phi)
        assert np.allclose(precision, sd**-2, rtol=1e-6, atol=0.0)
    return precision
