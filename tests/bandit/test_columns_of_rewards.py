"""learn(ids, rewards): two columns of one length are the same as pairs."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from belated import Bandit, Bernoulli
from belated.ledger.stores.memory import MemoryLedger

ACTIONS = np.eye(3)


def made(ledger):
    """A bandit that has made eight decisions, and their ids."""
    bandit = Bandit(3, family=Bernoulli(), seed=1, ledger=MemoryLedger() if ledger else None)
    return bandit, [bandit.decide(ACTIONS).id for _ in range(8)]


REWARDS = [1.0, 0.0, 0.0, 1.0]
COLUMNS = {
    "lists": list,
    "tuples": tuple,
    "arrays": np.array,
    "objects": lambda column: np.array(column, object),
    "pandas": pd.Series,
    "polars": pl.Series,
}


@pytest.mark.parametrize("ledger", [False, True])
@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_columns_are_pairs(column, ledger):
    (one, ids), (other, same) = made(ledger), made(ledger)
    assert one.learn(column(ids[::2]), column(REWARDS)) == 4
    assert one.learn(column(ids[::2]), column(REWARDS)) == 0
    assert other.learn(list(zip(same[::2], REWARDS, strict=True))) == 4
    assert one.fingerprint() == other.fingerprint()


def test_empty_columns_teach_nothing():
    bandit, _ = made(False)
    assert bandit.learn([], []) == 0
    assert bandit.learn(np.array([], int), np.array([])) == 0


@pytest.mark.parametrize("ledger", [False, True])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda ids: (ids[:3], [1.0, 0.0]), r"rewards = \[1.0, 0.0\]: expected 3 of them"),
        (lambda ids: (ids[:2], 1.0), "rewards = 1.0: expected a list"),
        (lambda ids: (ids[:2], "10"), "rewards = '10': expected a list"),
        (lambda ids: (np.array([ids[:2]]), [[1.0, 0.0]]), "(?s)ids = .*: expected a list"),
        (lambda ids: (ids[:2], np.eye(2)), "(?s)rewards = .*: expected a list"),
        (lambda ids: (ids[:2], [1.0, 0.5]), r"reward \(of id = .*\) = 0.5: expected"),
        (lambda ids: (ids[:2], [1.0, np.nan]), r"reward \(of id = .*\) = nan: expected"),
        (lambda ids: (set(ids[:2]), [1.0, 0.0]), "expected"),
        (lambda ids: ([ids[0], ids[0]], [1.0, 0.0]), "reward = 0.0"),
    ],
)
def test_nothing_is_learnt_of_columns_that_do_not_fit(ledger, wrong, said):
    bandit, ids = made(ledger)
    before = bandit.fingerprint()
    with pytest.raises((TypeError, ValueError), match=said):
        bandit.learn(*wrong(ids))
    assert bandit.fingerprint() == before


def test_times_go_with_pairs():
    bandit, ids = made(True)
    with pytest.raises(ValueError, match=r"at, event_id = .*: expected none with many rewards"):
        bandit.learn(ids[:2], [1.0, 0.0], at=5.0)
    assert bandit.n_observed == 0


def test_an_array_without_a_dimension_is_one_id():
    bandit, ids = made(False)
    assert bandit.learn(np.array(ids[0]), np.array(1.0)) == 1
