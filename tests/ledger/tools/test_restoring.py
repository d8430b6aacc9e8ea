"""`belated ledger restore --until`: a ledger as it was at a moment."""

import msgspec
import pytest

from belated.core.times import iso
from belated.ledger import open_ledger
from belated.ledger.events import NOBODY, Draft, KeyChange, Kind
from belated.ledger.replica import Replica
from support.shop_ledger import BEGIN, HOUR, SECOND, contents, digests, fill, log_of


def prefix_of(events, until):
    """All transactions before the first that was written after the moment, one by one."""
    late = [event.tx for event in events if event.written > until]
    return [event for event in events if not late or event.tx < late[0]]


@pytest.fixture
def moment():
    return BEGIN + 3 * HOUR


@pytest.mark.parametrize(
    ("store", "copied_to"),
    [
        ("sqlite", "sqlite"),
        pytest.param("sqlite", "postgres", marks=pytest.mark.slow),
        pytest.param("postgres", "sqlite", marks=pytest.mark.slow),
        pytest.param("postgres", "postgres", marks=pytest.mark.slow),
    ],
)
def test_a_fold_of_the_copy_is_a_fold_of_the_prefix(
    request, moment, tmp_path, ask, belated, store, copied_to
):
    def new_database(name):
        return request.getfixturevalue("postgres").new_database(f"{name}_{store}_{copied_to}")

    if store == "sqlite":
        shop = request.getfixturevalue("shop")
        source = open_ledger(shop)
    else:
        shop = new_database("from")
        source = open_ledger(shop)
        fill(source)
    before = log_of(source)
    file = f"sqlite:///{tmp_path}/before.db"
    out = file if copied_to == "sqlite" else new_database("to")
    code, said = ask("restore", shop, "--until", iso(moment), "--out", out, "--dry-run")
    assert (code, said["written"]) == (0, False)
    assert not (tmp_path / "before.db").exists()
    code, said = ask("restore", shop, "--until", str(moment / SECOND), "--out", out)
    expected = prefix_of(before, moment)
    assert (code, said["sound"], said["written"]) == (0, True, True)
    assert (said["events"], said["left_out"]) == (len(expected), len(before) - len(expected))
    assert 50 < said["events"] < len(before) - 50
    copy = open_ledger(out)
    assert contents(log_of(copy)) == contents(expected)
    assert max(event.written for event in expected) <= moment
    folded = Replica(copy)
    folds = {}
    for name in ("shop", "clicks"):
        mine = [event for event in expected if event.bandit == name]
        folds[name] = folded.new_fold(name, mine[0], ())
        folds[name].apply(mine)
    assert digests(copy) == {name: fold.digest() for name, fold in folds.items()}
    assert any(not event.id for event in expected if event.kind is Kind.DECIDED)  # erased since
    assert copy.identity != source.identity
    first = next(event for event in expected if event.bandit == "shop" and event.id)
    assert copy.requested("shop", "r0") == (log_of(copy)[first.seq - 1], b"0")
    assert log_of(source) == before
    assert not list(tmp_path.glob(".belated-*"))
    copy.close()
    source.close()
    code, _, err = belated("restore", shop, "--until", iso(moment), "--out", out)
    assert (code, "the name of a new" in err or "a ledger without events" in err) == (2, True)


def test_a_key_that_was_revoked_since_stays_revoked(shop, tmp_path, ask):
    ledger, moment = open_ledger(shop), BEGIN + 100 * HOUR

    def key(id, time, revoked=False):
        body = msgspec.msgpack.encode(KeyChange(id, id, "hash", "", ("read",), revoked))
        ledger.commit([Draft(Kind.KEYS, "", NOBODY, time, body=body)])

    key("old", moment)
    key("kept", moment)
    key("new", moment + SECOND)
    key("old", moment + 2 * SECOND, revoked=True)
    key("new", moment + 3 * SECOND, revoked=True)
    out = f"sqlite:///{tmp_path}/before.db"
    code, said = ask("restore", shop, "--until", iso(moment), "--out", out)
    assert (code, said["keys_revoked_since"]) == (0, 1)
    replica = Replica(open_ledger(out))
    replica.catch_up()
    assert {id: key.revoked for id, key in replica.keys.items()} == {"old": True, "kept": False}


def test_refusals(shop, tmp_path, belated):
    there = tmp_path / "there.db"
    there.write_bytes(b"?")
    for out, said in (
        (f"sqlite:///{there}", "the name of a new file"),
        (f"sqlite:///{tmp_path}/no/folder.db", "a folder that exists"),
        (shop, "the name of a new file"),
    ):
        code, _, err = belated("restore", shop, "--until", "2026-01-01T00:00:00Z", "--out", out)
        assert code == 2
        assert said in err
    code, _, err = belated("restore", shop, "--until", "noon", "--out", "sqlite:///x.db")
    assert code == 2
    assert "--until = 'noon': expected an ISO time" in err
    assert there.read_bytes() == b"?"


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_a_time_before_everything_is_refused(shop, tmp_path, belated, how):
    out = f"sqlite:///{tmp_path}/nothing.db"
    begin = iso(log_of(open_ledger(shop))[0].written)
    code, _, err = belated("restore", shop, "--until", "2001-01-01T00:00:00Z", "--out", out, *how)
    assert code == 2
    assert f"expected {begin}, when the log begins, or later" in err
    empty = f"sqlite:///{tmp_path}/empty.db"
    open_ledger(empty).close()
    code, _, err = belated("restore", empty, "--until", begin, "--out", out, *how)
    assert (code, err) == (2, "belated: there is nothing to copy: this ledger has no events\n")
    assert not (tmp_path / "nothing.db").exists()
