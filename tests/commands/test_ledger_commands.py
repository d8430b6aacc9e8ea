"""belated ledger ...: moving, checking, rebuilding and keeping a log, as a user meets it."""

import json
import sys

import pytest

from belated import Bandit, DelayedOFUGLM, Gaussian, Transformed
from belated.ledger import open_ledger
from belated.ledger.events import START
from belated.ledger.stores.sqlite import SQLiteLedger
from support.shop_ledger import BEGIN, SECOND, content, digests

# ------------------------------------------------------------------------------------------- edges


def test_features_that_no_log_holds(tmp_path, ask, belated):
    """A fold needs none: what was played is in the log as a vector."""
    from sklearn.feature_extraction import DictVectorizer

    features = Transformed(DictVectorizer()).fit(
        [{"price": 3.0, "ad": "a"}, {"price": 1.0, "ad": "b"}]
    )
    url = f"sqlite:///{tmp_path}/a.db"
    bandit = Bandit(
        family=Gaussian(sd=1.0), policy=DelayedOFUGLM(), features=features, ledger=url, name="ads"
    )
    decision = bandit.decide([{"price": 2.0, "ad": "a"}, {"price": 1.0, "ad": "b"}])
    bandit.learn(decision.id, 0.3)
    bandit.close()
    assert ask("snapshot", url)[0] == 0
    assert ask("verify", url)[0] == 0
    code, said = ask("replay", url, "--policy", "greedy")
    assert (code, said["compared"]) == (0, 0)
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"id": 1, "time": BEGIN // SECOND, "action": "a"}))
    code, _, err = belated("import", url, file)
    assert code == 2
    assert "--vector" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("verify", "sqlite:///{tmp}/none.db"), "there is no such file"),
        (("verify", "shop.db"), "expected sqlite:///file.db"),
        (("export", "{shop}", "--out", "a.txt"), "--out = 'a.txt': expected a name that ends in"),
        (("export", "{shop}", "--out", "a.csv"), "CSV is for --joined"),
        (("export", "{shop}", "--out", "a.jsonl", "--since", "noon"), "--since = 'noon'"),
        (("export", "{shop}", "--out", "{tmp}/no/a.jsonl"), "No such file"),
        (("export", "{shop}", "--out", "a.jsonl", "--bandit", "x"), "--bandit = 'x': expected one"),
        (("import", "{shop}", "{tmp}/none.csv"), "there is no such file"),
        (("import", "{shop}", "{tmp}/log.csv"), "--bandit = None: expected one of this ledger"),
        (("import", "{shop}", "{tmp}/log.csv", "--bandit", "x"), "--bandit = 'x'"),
        (("import", "{shop}", "{tmp}/log.csv", "--map", "it=a"), "--map = 'it=a'"),
        (("import", "{shop}", "{tmp}/log.csv", "--map", "id=x"), "one of the columns id, time"),
        (("import", "{shop}", "{tmp}/log.csv", "--vector", "z"), "--map = 'z'"),
        (("import", "{shop}", "{tmp}/log.csv", "--format", "xml"), "--format = 'xml'"),
        (("import", "{shop}", "{tmp}/log.bin"), "--format = 'log.bin'"),
        (("retain", "{shop}", "--older-than", "soon"), "--older-than = 'soon'"),
        (("backup", "{shop}", "--out", "{tmp}/no/a.db"), "a folder that exists"),
        (("replay", "{shop}", "--bandit", "x"), "--bandit = 'x': expected one of"),
    ],
)
def test_mistakes_are_named_in_one_line(shop, tmp_path, belated, args, said):
    (tmp_path / "log.csv").write_text("id,time,action\n1,1700000000,a\n")
    (tmp_path / "log.bin").write_text("?")
    before = content(tmp_path)
    code, out, err = belated(*(arg.format(tmp=tmp_path, shop=shop) for arg in args))
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
    assert not out
    assert content(tmp_path) == before


def test_options_that_an_export_does_not_need(shop, tmp_path, belated):
    file = tmp_path / "log.jsonl"
    belated("export", shop, "--out", file)
    for option in (("--map", "id=a"), ("--skip-bad",), ("--bandit", "shop")):
        code, _, err = belated("import", f"sqlite:///{tmp_path}/b.db", file, *option)
        assert code == 2
        assert f"{option[0]} = " in err
        assert "taken as it is" in err


def test_parquet_without_its_library(shop, tmp_path, belated, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = belated("export", shop, "--out", tmp_path / "log.parquet")
    assert code == 2
    assert "pip install 'belated[experiments]'; or use .jsonl" in err
    assert belated("export", shop, "--out", tmp_path / "log.jsonl")[0] == 0


def test_an_interrupted_export_leaves_nothing(shop, tmp_path, belated, monkeypatch):
    def breaks(self, after, limit=0):
        if after > START:
            raise OSError("the disk is gone")
        return follow(self, after, 50)

    follow = SQLiteLedger.follow
    monkeypatch.setattr(SQLiteLedger, "follow", breaks)
    before = content(tmp_path)
    for suffix in ("jsonl", "parquet"):
        code, _, err = belated("export", shop, "--out", tmp_path / f"log.{suffix}")
        assert (code, err) == (2, "belated: the disk is gone\n")
    assert content(tmp_path) == before


def test_the_same_on_postgresql(shop, postgres, tmp_path, ask, belated):
    url, file, back = postgres.new_database("moved"), tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    ask("export", shop, "--out", file)
    n = ask("import", url, file)[1]["new"]
    assert ask("import", url, file)[1] == {
        "events": n,
        "new": 0,
        "already_there": n,
        "written": True,
    }
    moved = open_ledger(url)
    assert digests(moved) == digests(open_ledger(shop))
    assert moved.requested("shop", "r7")[1] == b"7"
    assert ask("verify", url)[0] == 0
    assert ask("snapshot", url, "--folder", tmp_path / "s")[1]["events_since_the_last"] == n
    assert ask("retain", url, "--older-than", "90d")[1]["requests"] == 48
    assert ask("verify", url, "--folder", tmp_path / "s")[0] == 0
    assert digests(moved) == digests(open_ledger(shop))
    ask("export", url, "--out", back)
    assert ask("import", f"sqlite:///{tmp_path}/back.db", back)[1]["new"] == n
    assert digests(SQLiteLedger(tmp_path / "back.db")) == digests(open_ledger(shop))
    code, _, err = belated("snapshot", url)
    assert code == 2
    assert "--folder = None" in err
    moved.close()
