"""Checks of what an estimator may do besides taking rewards in: exchange one, and start anew."""

import numpy as np

from belated.checks.trial_runs import DIM, distance, fed, trial
from belated.model.protocols import Family, Policy, remake
from belated.model.steps import REVISE


def check_revision_is_exchange(policy: Policy, family: Family) -> None:
    """A reward that is revised leaves the estimate of a bandit that got the new one at once.

    Estimators without a case of ``revise`` or ``revise_row`` are exempt, and so are those that
    learn a prior: what they have learnt depends on when that was.
    """
    bandit, run = trial(policy, family)
    if not bandit._learner.can_revise or hasattr(bandit.estimator, "grouped"):
        return
    y = bandit._history.y[: len(run.reward)].copy()
    row = int(np.nanargmax(y))
    y[row] = np.nanmin(y)
    moves, rows, last = np.array([REVISE]), np.array([row]), np.array([1])
    bandit._learner.fold(moves, np.zeros((0, DIM)), rows, y[[row]], last)
    apart, allowed = distance(bandit, fed(policy, family, bandit, y))
    assert apart <= allowed, (
        f"a reward of {run.reward[row]:g} that became {y[row]:g} gives an estimate {apart:g} from "
        f"that of {y[row]:g} at once, {allowed:g} allowed: let revise, or revise_row, take the old "
        "reward out of everything that take_in put it into, and put the new one there"
    )


def check_remaking_changes_nothing(policy: Policy, family: Family) -> None:
    """An estimate that is made anew from the history is the one that grew with it.

    Estimators without a case of ``remake`` are exempt, and those that learn a prior.
    """
    bandit, run = trial(policy, family)
    if type(bandit.estimator) not in remake.cases or hasattr(bandit.estimator, "grouped"):
        return
    grown = fed(policy, family, bandit, bandit._history.y[: len(run.reward)])
    bandit._learner.refresh()
    apart, allowed = distance(bandit, grown)
    assert apart <= allowed, (
        f"remake gives an estimate {apart:g} from that of the same rewards one by one, {allowed:g} "
        "allowed: let it compute from the history all that take_in adds up, each reward times "
        "weight_of its row"
    )
