"""`belated ledger verify` finds damage, and only damage."""

from pathlib import Path

import apsw
import numpy as np
import pytest
from msgspec.structs import replace

from belated import Bernoulli, DelayedOFUGLM
from belated.ledger import open_ledger
from belated.ledger.events import Kind
from belated.ledger.ids import time_of
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.tools.invariants import Rules
from support.shop_ledger import BEGIN, DAY, HOUR, Clock, fill, log_of


def test_verify_finds_nothing_wrong_with_a_sound_ledger(shop, tmp_path, ask, belated):
    assert ask("snapshot", shop)[1]["events_since_the_last"] > 100
    code, said = ask("verify", shop)
    assert (code, said["sound"], said["violations"]) == (0, True, [])
    names = [check["check"] for check in said["checks"]]
    assert names[:3] == ["store", "rules of the log", "rebuilt from zero"]
    assert len(names) == 4
    assert said["checks"][1]["looked_at"] == said["events"] == len(log_of(open_ledger(shop)))
    code, out, _ = belated("verify", shop)
    assert code == 0
    assert "rules of the log" in out


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("delete from events where seq = 40", "1 events are missing"),
        ("update events set tx = 12345 where seq = (select max(seq) from events)", "first event"),
        ("update events set body = x'00' where seq = 4", "body that cannot be read"),
        ("update events set time = 0 where seq = 20", "has the time 1970"),
        ("update events set time = time - 172800000000 where seq = 4", "has an id made at"),
        ("update events set time = time + 172800000000, due = null where seq = 9", "an id made at"),
        ("update events set time = time - 172800000000 where kind = 1", "long before its decision"),
        ("update events set bandit = 'clicks' where kind = 1 and bandit = 'shop'", "does not hold"),
        ("update events set value = 0.5 where kind = 1", "is no reward that this bandit can have"),
        ("update events set value = null where kind = 1 and id != x''", "has no reward"),
        ("update events set kind = 1, value = 1.0 where kind = 3 and id != x''", None),
        ("update events set kind = 3, value = null where kind = 1", "contradicts"),
        ("update events set bandit = 'ghost' where seq = 20", "not made before it"),
        ("update requests set id = x'00'", "requests have no decision"),
        ("delete from events where kind = 5", "events are missing"),
        ("update events set due = 0 where kind = 0 and id != x''", "closes before it opens"),
    ],
)
def test_verify_finds_damage(shop, tmp_path, ask, damage, said):
    db = apsw.Connection(f"{tmp_path}/shop.db")
    db.execute(damage)
    assert db.changes() > 0
    db.close()
    code, found = ask("verify", shop)
    if said is None:  # a cancelled decision could as well have been rewarded
        assert code == 0
        return
    assert code == 1
    assert any(said in row["violation"] for row in found["violations"]), found["violations"]


def test_verify_finds_a_damaged_file(shop, tmp_path, ask, belated):
    path = tmp_path / "shop.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + bytes(4096) + whole[12288:])
    code, found = ask("verify", shop)
    assert code == 1
    assert found["violations"]
    path.write_bytes(b"no database" * 1000)
    code, _, err = belated("verify", shop)
    assert code == 2
    assert "no SQLite file" in err


def test_verify_finds_a_snapshot_that_lies(shop, tmp_path, ask):
    path = Path(ask("snapshot", shop)[1]["snapshot"])
    assert path.parent == tmp_path / "shop.db.snapshots"
    x = np.load(path / "0.npy", mmap_mode="r+")
    x[0, 0] += 1e-9
    x.flush()
    code, found = ask("verify", shop)
    assert code == 1
    assert "'shop' is not what the log says; delete it" in found["violations"][0]["violation"]
    (path / "manifest.json").write_text("?")
    code, found = ask("verify", shop)
    assert code == 1
    assert "cannot be read" in found["violations"][0]["violation"]


def test_the_rules_hold_for_every_log_that_the_stores_write():
    """The rulebook of the stores and that of the check are one."""
    ledger = MemoryLedger()
    fill(ledger, rounds=200, late="revise")
    rules = Rules(BEGIN + 400 * HOUR)
    assert [said for e in log_of(ledger) if (said := rules.problem(e))] == []


def jumping_log(erased=False):
    """A clock that is set back by three days, while decisions wait and ids go on."""
    ledger, clock = MemoryLedger(), Clock()
    replica = Replica(ledger, clock=clock, seed=1)
    replica.configure("shop", Spec.of(2, Bernoulli(), DelayedOFUGLM()))

    def decide(subject=""):
        draft = replica.propose("shop", Ask(matrix=np.eye(2), subject=subject)).draft
        replica.commit([draft])
        return draft.id

    clock.now += 4 * DAY
    waiting = [decide("she")] if erased else [decide(), decide()]
    clock.now -= 3 * DAY
    if erased:
        ledger.forget("shop", "she", clock())
        waiting = []
    else:
        replica.reward([(waiting.pop(), 1.0)])  # the first thing that happens then
    waiting.append(decide())
    clock.now += HOUR
    replica.reward([(id, 0.0) for id in waiting])
    return log_of(ledger)


@pytest.mark.parametrize("erased", [False, True])
def test_a_clock_that_is_set_back_is_no_damage(erased):
    log, rules = jumping_log(erased), Rules(BEGIN + 5 * DAY)
    ahead = [time_of(e.id) - e.time for e in log if e.kind == Kind.DECIDED and e.id]
    assert max(ahead) == 3 * DAY  # or this would be no test
    assert [said for event in log if (said := rules.problem(event))] == []


def test_ids_ahead_of_the_clock_need_one_they_went_on_from():
    log = jumping_log()
    first = next(k for k, e in enumerate(log) if e.kind == Kind.DECIDED)
    log[first] = replace(log[first], time=log[first].time - 3 * DAY)  # its id is now the first
    rules = Rules(BEGIN + 5 * DAY)
    found = [said for event in log if (said := rules.problem(event))]
    assert "has an id made at" in found[0]
