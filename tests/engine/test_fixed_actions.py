"""Lanes that meet the same actions in every round, for every compiled policy."""

import numpy as np
import pytest

from belated import registry
from belated.engine import worlds as engine_worlds
from belated.engine.worlds import Lane, WorldSettings, play_world
from belated.families import Bernoulli, Gaussian
from belated.model.plain_policy import is_own
from belated.model.protocols import feedback_of
from belated.worlds.delays import Exponential
from belated.worlds.environments import UnitBallOnce

ROUNDS = 120


def players():
    """Every compiled policy that learns from identified rewards, with a family that it accepts."""
    for name in registry.POLICIES:
        kind = registry.load(registry.POLICIES, name)
        for family in (Bernoulli(), Gaussian(0.5)):
            policy = registry.example_policy(kind, family)
            refuses = getattr(policy, "refuses", lambda family: "")
            if is_own(policy) or feedback_of(policy) == "conversions" or refuses(family):
                continue
            if "horizon" in policy._fields:
                policy = policy._replace(horizon=ROUNDS)
            yield pytest.param(policy, family, id=name)
            break


@pytest.mark.parametrize(("policy", "family"), list(players()))
def test_what_is_remembered_of_fixed_actions_changes_nothing(policy, family, monkeypatch):
    """Also where the matrix of the widths follows the estimate and may shrink."""
    lane = Lane(policy, family, Exponential(5.0))
    world = WorldSettings(UnitBallOnce(40), 3, ROUNDS, 0, 3, np.array([60, ROUNDS]), (lane,))
    remembering = play_world(world)
    monkeypatch.setattr(engine_worlds, "stays", lambda environment: False)
    assert np.array_equal(play_world(world), remembering, equal_nan=True)
