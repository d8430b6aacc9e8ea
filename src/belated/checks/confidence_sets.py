"""Checks of a confidence set: does it hold the truth, and do its widths follow from it?"""

import math

import numpy as np

from belated.bandit import Bandit
from belated.checks.trial_runs import DIM, LATE, trial, trial_world
from belated.core.types import Vector
from belated.model.protocols import Family, Policy, claims_set, dual_norm, set_norm

RUNS, DIRECTIONS = 10, 300
ROOM = 1.05  # the best of so many directions in three dimensions comes this close to the width


def check_set_holds_the_truth(policy: Policy, family: Family) -> None:
    """theta_star is in the set in all rounds of nearly all runs, with late rewards.

    A set may fail with probability ``delta``; this catches one that fails far more often. Policies
    that claim no set are exempt.
    """
    if not claims_set(policy):
        return
    runs = [trial(policy, family, LATE, trial_world(seed))[1] for seed in range(RUNS)]
    failed = sum(not run.covered.all() for run in runs)
    expected = RUNS * float(getattr(policy, "delta", 0.0))
    most = math.floor(expected + 4.0 * math.sqrt(expected))
    assert failed <= most, (
        f"theta_star was outside of the confidence set in {failed} of {RUNS} runs, at most {most} "
        "allowed: let radius bound set_norm of the error of theta, the slack of the estimate "
        "included, or have a parameter guaranteed that is False"
    )


def check_widths_follow_from_the_set(policy: Policy, family: Family) -> None:
    """``|x'e| <= set_norm(e) dual_norm(x)`` for all errors e, and some error nearly attains it.

    An interval is ``radius`` times ``dual_norm`` wide. Policies that claim no set are exempt, and
    those whose set is no ellipsoid: twice the error has another norm than twice that of the error.
    """
    if not claims_set(policy):
        return
    bandit, _ = trial(policy, family)
    rng = np.random.default_rng(2)
    errors = rng.standard_normal((DIRECTIONS, DIM))
    norms = _norms(bandit, errors)
    if not np.allclose(_norms(bandit, 2.0 * errors), 2.0 * norms):
        return
    for x in np.vstack([np.eye(DIM), rng.standard_normal((3, DIM))]):
        needed = float((abs(errors @ x) / norms).max())
        width = float(dual_norm(bandit.policy, bandit._state, x))
        assert needed / (1.0 + 1e-9) <= width <= needed * ROOM, (
            f"for x = {x.round(2)} dual_norm is {width:g}, but the largest |x'e| / set_norm(e) of "
            f"{DIRECTIONS} errors e is {needed:g}: let dual_norm belong to the inverse of the "
            "matrix of set_norm"
        )


def _norms(bandit: Bandit, errors: Vector) -> Vector:
    return np.array([set_norm(bandit.policy, bandit._state, error) for error in errors])
