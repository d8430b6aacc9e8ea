"""`belated ledger compact`, and what the other commands say of a compacted ledger."""

import shutil

import apsw
import numpy as np
import pytest

from belated import Bandit, Bernoulli
from belated.core.events import UnknownDecisionError
from belated.ledger import open_ledger
from belated.ledger.ids import to_text
from belated.ledger.replica import Replica
from belated.ledger.stores.sqlite import SQLiteLedger
from belated.ledger.tools.compacting import compacted
from belated.ledger.tools.half_lives import would_forgetting_help
from belated.ledger.tools.lifting import is_it_worth_it
from belated.ledger.tools.reading import bandits_of
from belated.ledger.tools.verifying import verify
from belated.logs.from_ledger import LedgerRows
from support.shop_ledger import BEGIN, DAY, HOUR, digests, fill

CUT = BEGIN + 4 * HOUR


@pytest.fixture(scope="module")
def compacted_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("compacted") / "shop.db"
    ledger = SQLiteLedger(path)
    fill(ledger)
    assert compacted(ledger, CUT)["carried"] > 0
    assert verify(ledger, None)["sound"]
    ledger.close()
    return path


@pytest.fixture
def half(compacted_file, tmp_path):
    """A ledger whose first hours were compacted; its URL."""
    shutil.copy(compacted_file, tmp_path)
    return f"sqlite:///{tmp_path}/shop.db"


def test_compact(shop, tmp_path, ask, belated):
    before = digests(open_ledger(shop))
    code, said = ask("compact", shop, "--older-than", "400d", "--dry-run")
    assert (code, said["written"], said["deleted"]) == (0, False, 0)
    assert said["events"] > 100
    assert digests(open_ledger(shop)) == before
    assert open_ledger(shop).base() is None
    code, done = ask("compact", shop, "--older-than", "400d")
    then = {"written": True, "deleted": said["events"], "before": done["before"]}
    assert (code, done) == (0, said | then)
    assert digests(open_ledger(shop)) == before
    code, found = ask("verify", shop)
    assert (code, found["sound"], found["events"]) == (0, True, 1)
    assert found["compacted_events"] == said["events"]
    assert [c["check"] for c in found["checks"]] == [
        "store", "base", "rules of the log", "rebuilt from the base",
    ]  # fmt: skip
    assert ask("compact", shop, "--older-than", "400d")[1]["written"] is False
    assert ask("backup", shop, "--out", tmp_path / "copy.db")[1]["sound"]
    assert digests(open_ledger(f"sqlite:///{tmp_path}/copy.db")) == before
    code, _, err = belated("compact", shop, "--older-than", "soon")
    assert code == 2
    assert "--older-than = 'soon'" in err


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("delete from events where seq = (select max(seq) - 3 from events)", "events are missing"),
        ("delete from events where seq = (select seq + 1 from base)", "1 events are missing"),
        ("delete from events", "1 events are missing"),
        ("update base set seq = seq - 1", "is damaged: restore"),
        ("update base set last_id = x''", "is damaged: restore"),
        ("update base set body = x'00'", "is damaged: restore"),
        ("update base set body = cast(replace(body, 'shop', 'shup') as blob)", "is damaged"),
        ("update base set (tx, seq, last_id, digest, body) = (0, 0, x'', '', x'')", "are missing"),
        ("update base_content set content = zeroblob(9) where bandit = 'shop'", "'shop': Ledger"),
        ("delete from base_content where bandit = 'clicks'", "the base of 'clicks' is damaged"),
        ("delete from carried where seq = (select min(seq) from carried)", "events are carried"),
        ("update carried set time = time + 1", "events that are carried were changed"),
        ("update events set id = randomblob(16) where kind = 1 and id != x''", "does not hold"),
        (
            "update events set value = 1 - value where kind = 1 and id in "
            "(select id from events where kind = 1)",
            None,  # another reward that its decision could have had
        ),
    ],
)
def test_verify_tells_a_compacted_ledger_from_a_damaged_one(half, tmp_path, ask, damage, said):
    db = apsw.Connection(f"{tmp_path}/shop.db")
    db.execute(damage)
    assert db.changes() > 0
    db.close()
    code, found = ask("verify", half)
    if said is None:
        assert code == 0
        return
    assert code == 1
    assert any(said in row["violation"] for row in found["violations"]), found["violations"]


def test_a_damaged_base_is_noticed_by_whoever_reads_it(half, tmp_path, belated):
    db = apsw.Connection(f"{tmp_path}/shop.db")
    db.execute("update base_content set content = zeroblob(9) where bandit = 'shop'")
    db.close()
    code, _, err = belated("replay", half)
    assert code == 2
    assert "the base of 'shop' is damaged: restore the ledger from a backup" in err


def test_what_needs_the_whole_log_is_refused_in_words(half, tmp_path, belated, ask):
    export = tmp_path / "log.jsonl"
    for args, said in (
        (("export", half, "--out", export), "were compacted and dropped: expected --since"),
        (("replay", half, "--bandit", "shop", "--policy", "greedy"), "another model needs the"),
        (("replay", half, "--bandit", "shop", "--until", "2023-11-15"), "another model needs the"),
    ):
        code, _, err = belated(*args)
        assert code == 2
        assert said in err
    assert not export.exists()
    since = "2023-11-15T02:14:00Z"
    assert ask("export", half, "--out", export, "--since", since)[1]["rows"] > 50
    code, _, err = belated("import", half, export)
    assert code == 2
    assert "the ledger was compacted and may have had these events" in err


def test_the_other_commands_say_where_the_log_begins(half, tmp_path, ask):
    table = tmp_path / "decisions.csv"
    said = ask("export", half, "--out", table, "--joined")[1]
    assert said["log_begins_after"].startswith("2023-11-15 0")
    assert 20 < said["rows"] < 120
    assert ask("replay", half)[1]["log_begins_after"] == said["log_begins_after"]
    with pytest.warns(UserWarning, match="were compacted: only later ones are read"):
        rows = list(LedgerRows(half, "shop").rows())
    assert 0 < len(rows) < 40
    ledger = open_ledger(half)
    assert list(bandits_of(ledger)["clicks"].actions.listed) == ["a", "b", "c"]
    assert is_it_worth_it(ledger, "clicks").since > "2023-11-15T02:00"
    assert would_forgetting_help(ledger, "shop", BEGIN + DAY).sentence


def test_old_rows_are_not_imported_a_second_time(tmp_path, belated, ask):
    url, log = f"sqlite:///{tmp_path}/a.db", tmp_path / "log.csv"
    Bandit(dim=2, family=Bernoulli(), ledger=url, name="shop").close()
    lines = [f"a{k},2026-03-01T10:0{k}:00Z,x,{k % 2},0.5,0.5" for k in range(6)]
    log.write_text("\n".join(["id,time,action,reward,x0,x1", *lines]))
    command = ("import", url, log, "--vector", "x0,x1")
    assert ask(*command)[1]["decisions"] == {"accepted": 6}
    assert ask(*command)[1]["decisions"] == {"duplicate": 6}
    replica = Replica(open_ledger(url))
    replica.catch_up()
    ids = [bytes(replica.folds["shop"].ids[16 * k : 16 * k + 16]) for k in range(6)]
    bandit = Bandit(dim=2, family=Bernoulli(), ledger=url, name="shop")
    bandit.decide(np.eye(2))
    assert ask("compact", url, "--older-than", "0s")[1]["written"]
    before = digests(open_ledger(url))
    code, _, err = belated(*command)
    assert code == 2
    assert "may have been in it" in err
    with pytest.raises(UnknownDecisionError, match="were compacted, and of those only"):
        bandit.learn(to_text(ids[0]), 0.0)
    assert digests(open_ledger(url)) == before
