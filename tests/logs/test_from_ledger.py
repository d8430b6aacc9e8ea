"""A ledger is read as its joined export is."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from belated import DelayedOFUGLM, Gaussian
from belated.ledger import open_ledger
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.tools.exporting import Selection, export
from belated.ledger.tools.joining import joined
from belated.logs.bad_rows import BadRows
from belated.logs.chunks import open_log
from belated.logs.from_ledger import LedgerRows, cells_of, combined_rewards
from belated.logs.reading_whole import read_whole


@pytest.mark.parametrize(
    ("bandit", "loop", "n_cancelled"), [("shop", "explicit", 0), ("clicks", "conversion", 6)]
)
def test_as_the_joined_export(bandit, loop, n_cancelled, shop, tmp_path):
    path = Path(tmp_path / "joined.csv")
    ledger = open_ledger(shop)
    export(ledger, path, Selection(bandit), as_joined=True, dry_run=False)
    ledger.close()
    bad = BadRows()
    (ours,) = open_log(shop, bandit=bandit).chunks(bad, loop=loop)
    (theirs,) = open_log(path).chunks(BadRows(), loop=loop)
    cancelled = ~np.isin(theirs.decided, ours.decided)
    assert cancelled.sum() == n_cancelled  # the export says so in a column that is not read
    assert (bad.total, bad.n_cancelled) == (0, n_cancelled)
    for field in ("decided", "returned", "reward", "propensity", "action"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field)[~cancelled])
    assert ours.line.tolist() == list(range(1, len(ours.decided) + 1))
    assert np.isnan(ours.reward).any()
    assert not np.isnan(ours.reward).all()


def test_a_ledger_knows_its_loop(shop):
    found = LedgerRows(shop, "clicks")
    assert (found.loop, found.window) == ("conversion", 3600.0)
    with pytest.raises(ValueError, match="--bandit = None: expected one of this ledger: shop, cli"):
        open_log(shop)


def test_certain_play_of_a_baseline_has_no_propensity(shop):
    """It would count as evidence for policies that play something else."""
    ledger = open_ledger(shop)
    row = next(joined(ledger, lambda event: event.bandit == "shop", lambda steps: None))
    ledger.close()
    held_out = replace(row, held_out=True, propensity=1.0)
    assert cells_of(held_out)["propensity"] is None
    assert cells_of(replace(held_out, propensity=0.25))["propensity"] == 0.25
    assert cells_of(replace(held_out, held_out=False))["propensity"] == 1.0
    assert cells_of(replace(row, repeats=row.id, propensity=1.0))["propensity"] is None


def test_conversions_whose_failures_are_not_zero_are_refused(tmp_path):
    """Silence would count as 0 in every estimate, whatever the bandit learns from it."""
    url = f"sqlite:///{tmp_path}/costs.db"
    ledger = open_ledger(url)
    spec = Spec.of(
        2, Gaussian(), DelayedOFUGLM(), loop="conversion", window=60.0, default_reward=-1.0
    )
    Replica(ledger, seed=1).configure("costs", spec)
    ledger.close()
    with pytest.raises(ValueError, match=r"--loop = 'conversion': .* that of this one is -1: here"):
        read_whole(url, needs=("action",))


@pytest.mark.parametrize(
    ("combine", "said"), [(None, ""), ("first", ""), ("sum", "combine = 'sum'")]
)
def test_several_rewards_of_a_decision_are_warned_of(combine, said, tmp_path):
    """A row has the time of the first one alone."""
    url = f"sqlite:///{tmp_path}/several.db"
    ledger = open_ledger(url)
    spec = Spec.of(2, Gaussian(), DelayedOFUGLM(), combine=combine)
    Replica(ledger, seed=1).configure("shop", spec)
    ledger.close()
    found = combined_rewards(url, "shop")
    assert found == "" if not said else said in found
    assert combined_rewards("log.csv", None) == ""
