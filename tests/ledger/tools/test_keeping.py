"""`belated ledger snapshot`, `backup` and `retain`."""

import apsw
import msgspec
from msgspec.structs import replace

from belated.ledger import open_ledger, snapshots
from belated.ledger.events import START, Decided
from belated.ledger.replica import Replica
from belated.ledger.stores.sqlite import SQLiteLedger
from support.shop_ledger import content, digests, log_of, rebuilt


def test_snapshots_go_on_from_the_last(shop, tmp_path, ask, belated):
    code, said = ask("snapshot", shop, "--dry-run")
    assert (code, said["snapshot"]) == (0, None)
    assert not (tmp_path / "shop.db.snapshots").exists()
    first = ask("snapshot", shop)[1]
    assert ask("snapshot", shop)[1] == first | {"events_since_the_last": 0}
    rebuilt(open_ledger(shop)).register("clicks", {"d": [0.1, 0.0, 0.0]})
    second = ask("snapshot", shop, "--folder", tmp_path / "shop.db.snapshots")[1]
    assert second["events_since_the_last"] == 1
    fresh = Replica(open_ledger(shop))
    assert snapshots.load(fresh, tmp_path / "shop.db.snapshots") > START
    assert {n: f.digest() for n, f in fresh.folds.items()} == digests(open_ledger(shop))
    code, _, err = belated("snapshot", "memory://")
    assert code == 2
    assert "--folder = None" in err


def test_backup(shop, tmp_path, ask, belated):
    out = tmp_path / "copy.db"
    assert ask("backup", shop, "--out", out, "--dry-run")[1]["written"] is False
    assert not out.exists()
    ask("snapshot", shop)
    writer = SQLiteLedger(tmp_path / "shop.db")  # in use
    code, said = ask("backup", shop, "--out", out)
    assert (code, said["sound"], said["events"]) == (0, True, len(log_of(writer)))
    copy = SQLiteLedger(out)
    assert log_of(copy) == log_of(writer)
    assert digests(copy) == digests(writer)
    assert copy.identity != writer.identity
    strangers = Replica(
        copy
    )  # its log may go on differently: snapshots of the first are not its own
    assert snapshots.load(strangers, tmp_path / "shop.db.snapshots") == START
    copy.close()
    code, _, err = belated("backup", shop, "--out", out)
    assert code == 2
    assert "the name of a new file" in err
    assert not list(tmp_path.glob(".belated-*"))
    url = "postgresql://me:secret@db.example/shop?password=secret"
    code, _, err = belated("backup", url, "--out", "shop.dump")
    assert code == 2
    assert "--file=shop.dump postgresql://me@db.example/shop" in err
    assert "secret" not in err


def test_a_backup_that_is_not_sound_is_not_kept(shop, tmp_path, ask):
    db = apsw.Connection(f"{tmp_path}/shop.db")
    db.execute("update events set body = x'00' where seq = 4")
    db.close()
    code, said = ask("backup", shop, "--out", tmp_path / "copy.db")
    assert (code, said["written"]) == (1, False)
    assert not (tmp_path / "copy.db").exists()


def test_retention_changes_no_state(shop, tmp_path, ask):
    ledger = open_ledger(shop)
    before, log = digests(ledger), log_of(ledger)
    ledger.close()
    files = content(tmp_path)
    code, said = ask("retain", shop, "--older-than", "90d", "--dry-run")
    assert (code, said["decisions"], said["written"]) == (0, 48, False)
    assert content(tmp_path) == files
    ask("snapshot", shop)
    said = ask("retain", shop, "--older-than", "1h")[1]
    assert (said["decisions"], said["requests"], said["written"]) == (48, 48, True)
    assert ask("retain", shop, "--older-than", "1h")[1]["decisions"] == 0
    after = open_ledger(shop)
    assert digests(after) == before
    assert after.requested("shop", "r7") is None
    assert after.subject("shop", "s1") == []
    changed = [(a, b) for a, b in zip(log, log_of(after), strict=True) if a != b]
    assert len(changed) == 48  # those of "shop" that were not erased
    for a, b in changed:
        assert replace(a, body=b"") == replace(b, body=b"")
        old, new = (msgspec.msgpack.decode(e.body, type=Decided) for e in (a, b))
        assert (new.x, new.action, new.propensity) == (old.x, old.action, old.propensity)
        assert (new.context, new.subject, new.request, new.matrix) == (b"", "", "", b"")
    assert ask("verify", shop)[0] == 0  # the snapshot, too, still leads to the same state
