"""Compiling ahead of time: one small job per entry of the registry."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from belated import registry
from belated.bandit import Bandit
from belated.engine.worlds import Lane, WorldSettings, play_world
from belated.learner.learner import Learner, learns_early
from belated.model.protocols import Family, Policy, cumulant, delay_quantile_of, reward_quantile
from belated.model.steps import covers
from belated.numerics.lowered.products import dot
from belated.service.bandits_file import read_config
from belated.service.settings import spec_of
from belated.worlds.delays import Constant
from belated.worlds.environments import FixedArms, UnitBall, sample

# Compiling all policies with all families would take hours; most users need only these.
COMMON = (
    registry.DEFAULT_POLICY,
    "delayed-ofu-glm",
    "ducb-ridge",
    "ducb-literal",
    "thompson",
    "greedy",
    "uniform",
)
# The paper's policies and families are compiled for the engine and for a ledger, too.
IN_THE_ENGINE = ("delayed-ofu-glm", "ducb-ridge"), ("gaussian", "bernoulli")


def jobs() -> Iterator[Callable[[], object]]:
    """Yield the calls that together compile what most users need."""
    for family_name in registry.FAMILIES:
        family = registry.load(registry.FAMILIES, family_name)()
        for policy_name in COMMON:
            policy = registry.example_policy(registry.load(registry.POLICIES, policy_name), family)
            yield partial(_use_bandit, policy, family)
            if policy_name == registry.DEFAULT_POLICY:
                yield from _jobs_of_loops(policy, family)
            if policy_name in IN_THE_ENGINE[0] and family_name in IN_THE_ENGINE[1]:
                yield partial(_use_lane, policy, family)
                yield Learner(2, family, policy, 1.0).warm_up
    yield partial(dot, np.zeros(2), np.zeros(2))  # the reference driver calls it from Python
    for name in registry.DELAYS:
        law = registry.load(registry.DELAYS, name)()
        yield partial(delay_quantile_of, law, np.zeros(2), 0.5, 0.0)
    for name in registry.ENVIRONMENTS:
        kind = registry.load(registry.ENVIRONMENTS, name)
        environment = FixedArms(np.eye(2)) if kind is FixedArms else kind(2)
        yield partial(sample, environment, 2, np.random.default_rng(0))


def jobs_of_bandits(config: Path) -> Iterator[Callable[[], object]]:
    """Yield the calls that compile what a service needs for the bandits of a config file."""
    for table in read_config(config).values():
        yield spec_of(table).learner().warm_up


def _jobs_of_loops(policy: Policy, family: Family) -> Iterator[Callable[[], object]]:
    """Yield the calls that compile what a ledger needs, with silence where it can be learnt."""
    for hears in (False, True) if learns_early(2, family, policy, 1.0) else (False,):
        yield Learner(2, family, policy, 1.0, hears=hears).warm_up


def _use_bandit(policy: Policy, family: Family) -> None:
    bandit = Bandit(2, family=family, policy=policy)
    decision = bandit.decide(np.eye(2))
    bandit.learn(decision.id, float(reward_quantile(family, 0.0, 0.5)))
    bandit.interval(np.eye(2)[0])
    cumulant(family, 0.0)
    covers(bandit.policy, bandit._state, np.zeros(2))


def _use_lane(policy: Policy, family: Family) -> None:
    lane = Lane(policy, family, Constant(0.0))
    play_world(WorldSettings(UnitBall(2), 2, 2, 0, 0, np.array([2]), (lane,)))
