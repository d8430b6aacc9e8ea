"""`belated ledger export` and `import` of events: nothing is lost, nothing half written."""

import pytest

from belated import Gaussian
from belated.ledger import open_ledger
from belated.ledger.events import Kind
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica, outcome_draft
from belated.ledger.spec import Spec
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools import importing_events
from belated.policies.greedy import Greedy
from support.shop_ledger import contents, digests, log_of, rebuilt


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_is_imported_without_loss(shop, tmp_path, ask, suffix):
    file, copy = tmp_path / f"log.{suffix}", f"sqlite:///{tmp_path}/copy.db"
    code, said = ask("export", shop, "--out", file)
    assert code == 0
    assert said["rows"] == len(log_of(open_ledger(shop)))
    assert ask("import", copy, file, "--dry-run")[1]["new"] == said["rows"]
    assert not (tmp_path / "copy.db").exists()
    assert ask("import", copy, file)[1]["new"] == said["rows"]
    first, second = open_ledger(shop), open_ledger(copy)
    assert contents(log_of(first)) == contents(log_of(second))
    assert digests(first) == digests(second)
    assert first.requested("shop", "r7")[1] == second.requested("shop", "r7")[1] == b"7"
    assert first.subject("shop", "s1") == second.subject("shop", "s1") != []
    assert any(fold.counts.erased for fold in rebuilt(second).folds.values())
    assert ask("import", copy, file)[1] == {
        "events": said["rows"],
        "new": 0,
        "already_there": said["rows"],
        "written": True,
    }
    assert contents(log_of(second)) == contents(log_of(first))
    # and once more round: the same bytes, but for the numbers of transactions
    assert ask("verify", copy)[0] == 0


def test_outcomes_and_stretches_survive_export_and_import(tmp_path, ask):
    replica = Replica(SQLiteLedger(tmp_path / "x.db"))
    replica.configure("shop", Spec.of(2, Gaussian(sd=1.0), Greedy(), sticky=600.0, holdout=0.5))
    replica.register("shop", {"a": [0.1, 0.0], "b": [0.0, 0.1]})
    for k in range(6):
        draft = replica.propose("shop", Ask(subject=f"s{k % 4}")).draft
        replica.commit([draft])
        now = replica.clock()
        noted = [outcome_draft("", now, draft.id, name, -1.5, now) for name in ("cost", "calls")]
        again = outcome_draft("", now, draft.id, "calls", 2.0, event_id="second")
        assert [o.status for o in replica.commit([*noted, again, again])] == [
            *["accepted"] * 3,
            "duplicate",
        ]
    replica.ledger.forget("shop", "s1", replica.clock())
    replica.catch_up()
    url, copy = (f"sqlite:///{tmp_path}/{name}.db" for name in "xy")
    assert ask("verify", url)[0] == 0
    assert ask("export", url, "--out", tmp_path / "log.jsonl")[1]["rows"] == 2 + 6 * 4 + 1
    assert ask("import", copy, tmp_path / "log.jsonl")[0] == 0
    assert ask("verify", copy)[0] == 0
    second = open_ledger(copy)
    assert contents(log_of(second)) == contents(log_of(replica.ledger))
    assert digests(second)["shop"] == replica.folds["shop"].digest()
    story = [event for event in log_of(second) if event.kind == Kind.OUTCOME]
    assert [bool(event.id) for event in story].count(False) == 2 * 3  # of the erased subject
    assert all(event.body == b"" for event in story if not event.id)


def test_one_bandit_moves_to_a_ledger_of_others(shop, tmp_path, ask, belated):
    file, other = tmp_path / "clicks.jsonl", tmp_path / "other.db"
    ledger = SQLiteLedger(other)
    Replica(ledger).configure("mine", Spec.of(2, Gaussian(sd=1.0), Greedy()))
    ask("export", shop, "--out", file, "--bandit", "clicks")
    assert ask("import", f"sqlite:///{other}", file)[0] == 0
    assert digests(ledger)["clicks"] == digests(open_ledger(shop))["clicks"]
    assert set(digests(ledger)) == {"mine", "clicks"}
    rebuilt(ledger).register("clicks", {"d": [0.1, 0.0, 0.0]})
    code, _, err = belated("import", f"sqlite:///{other}", file)
    assert code == 2
    assert "the ledger has other events of 'clicks', or more" in err


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_damaged_exports_are_refused_and_nothing_is_written(shop, tmp_path, belated, suffix):
    file = tmp_path / f"log.{suffix}"
    belated("export", shop, "--out", file)
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    damaged = [whole[: len(whole) // 2], whole[:-20]]
    if suffix == "jsonl":
        damaged += [
            bytes([whole[0] ^ 1]) + whole[1:],
            b"".join(lines[:-1]),
            b"".join(lines[:9] + lines[10:]),
            whole.replace(b'"time":17', b'"time":18', 1),
            whole.replace(b'"kind":"rewarded"', b'"kind":"awarded"', 1),
            whole.replace(b'"version":2', b'"version":9', 1),
        ]
    else:
        middle = len(whole) // 3
        damaged.append(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    for content in damaged:
        file.write_bytes(content)
        code, _, err = belated("import", f"sqlite:///{tmp_path}/new.db", file)
        assert code == 2, err
        assert err.startswith("belated: ")
        assert len(err.splitlines()) == 1
        assert not (tmp_path / "new.db").exists()


def test_an_import_that_is_killed_goes_on(shop, tmp_path, ask, belated, monkeypatch):
    file, copy = tmp_path / "log.jsonl", f"sqlite:///{tmp_path}/copy.db"
    ask("export", shop, "--out", file)
    monkeypatch.setattr(importing_events, "BATCH", 50)
    commit_all, calls = SQLiteLedger.commit_all, []

    def dies_in_the_third(self, batches, accepts=None):
        calls.append(len(batches))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return commit_all(self, batches, accepts)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteLedger, "commit_all", dies_in_the_third)
        code, _, _ = belated("import", copy, file)
    assert code != 0
    n = len(log_of(open_ledger(copy)))
    assert 100 <= n < 120
    assert ask("import", copy, file)[1]["already_there"] == n
    assert digests(open_ledger(copy)) == digests(open_ledger(shop))
