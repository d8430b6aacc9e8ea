"""The commands around the service, as a user meets them."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import httpx2
import pytest

from belated.client import Client
from belated.commands.main import main
from belated.ledger import open_ledger, snapshots
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.service.bandits_file import apply_config, make_bandit, read_config
from belated.service.snapshotting import Snapshots, newest
from support.serving import CONFIG, ENVIRONMENT, ended, serving, until


def belated(*args, cwd, code=0):
    """What a command prints, on stderr where it fails. In this process, which is quick."""
    out, err, here, show = StringIO(), StringIO(), os.getcwd(), warnings.showwarning
    os.chdir(cwd)
    try:
        with (
            patch("sys.argv", ["belated", *args]),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    finally:
        os.chdir(here)
        warnings.showwarning = show
    assert (ended.value.code or 0) == code, err.getvalue()
    return err.getvalue() if code else out.getvalue()


def failure(*args, cwd):
    """What is said on stderr, which is one line."""
    said = belated(*args, cwd=cwd, code=2)
    assert len(said.splitlines()) == 1, said
    return said


# Serve
def test_serve_and_stop(tmp_path):
    (tmp_path / "bandits.toml").write_text(CONFIG)
    with serving("--config", "bandits.toml", cwd=tmp_path) as (process, url):
        assert "<title>" in httpx2.get(url).text, "the address is that of the dashboard"
        with Client(url) as client:
            answer = client.decide("shop", context={"country": "de"})
            assert answer.action in ("cheap", "dear")
            assert client.reward(answer.decision_id, 1.0) == "accepted"
        assert ended(process) == (0, "", "")
    assert (tmp_path / "belated.db").exists()
    with serving(cwd=tmp_path) as (process, url):
        with Client(url) as client:
            assert client.story(answer.decision_id).status == "rewarded"
            assert client.bandits() == ["shop", "plain"]
        assert ended(process, signal.SIGINT) == (0, "", "")


def test_requests_under_way_are_answered_at_the_end(tmp_path):
    """A request that was begun before the signal gets its answer, and is in the log."""
    (tmp_path / "bandits.toml").write_text(CONFIG)
    with serving("--config", "bandits.toml", cwd=tmp_path) as (process, url):
        port = int(url.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10.0) as connection:
            body = b'{"request_id": "last"}'
            connection.sendall(
                b"POST /v1/bandits/plain/decisions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert ended(process)[0] == 0
    decided = json.loads(answer.partition(b"\r\n\r\n")[2])
    ledger = open_ledger(f"sqlite:///{tmp_path}/belated.db")
    assert ledger.requested("plain", "last") is not None
    assert decided["logged"]
    ledger.close()


def test_a_running_service_follows_the_commands(tmp_path):
    with serving("--workers", "2", cwd=tmp_path) as (process, url):
        belated("bandits", "create", "new", "--family", "bernoulli", "--dim", "1", cwd=tmp_path)
        created = belated("keys", "create", "web", "--scope", "read", "--json", cwd=tmp_path)
        key = json.loads(created)
        headers = {"X-API-Key": key["key"]}
        until(lambda: httpx2.get(f"{url}v1/bandits").status_code == 401)
        until(lambda: httpx2.get(f"{url}v1/bandits", headers=headers).json()["bandits"] == ["new"])
        belated("keys", "revoke", key["id"], cwd=tmp_path)
        until(lambda: httpx2.get(f"{url}v1/bandits", headers=headers).status_code == 401)
        assert ended(process)[0] == 0


def decide_and_scrape(client):
    """Of the worker at the other end of a connection: its pid, its page, whether it decided."""
    code = client.post("/v1/bandits/plain/decisions", json={}).status_code
    page = client.get("/metrics").text
    return re.search(r'^belated_worker_info{pid="(\d+)"} 1\.0$', page, re.M)[1], page, code


def test_workers_count_each_under_its_own_name(tmp_path):
    """A scrape meets any of them: under one name, the counts would jump back and forth."""
    (tmp_path / "bandits.toml").write_text(CONFIG)
    pages, codes = {}, []
    with serving("--workers", "2", "--config", "bandits.toml", cwd=tmp_path) as (process, url):

        def both_met():  # the second one takes no requests before it is ready
            with httpx2.Client(base_url=url) as client:  # keeps to its worker
                pid, pages[pid], code = decide_and_scrape(client)
                codes.append(code)
            return len(pages) == 2 and len(codes) >= 40

        until(both_met)
        assert ended(process)[0] == 0
    assert set(codes) == {200}
    total = 0
    for pid, page in pages.items():
        made = rf'^belated_decisions_total{{bandit="plain",pid="{pid}"}} (\d+)'
        total += int(re.search(made, page, re.M)[1])
        assert f'belated_store_errors_total{{pid="{pid}"}} 0.0' in page
        assert re.search(rf'^belated_commit_seconds_count{{pid="{pid}"}} ', page, re.M)
        assert re.search(r'^belated_model_version{bandit="plain"} ', page, re.M)
        assert "belated_ready 1.0" in page
    assert total == len(codes)


def test_what_serve_refuses(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "port = " + port in (said := failure("serve", "--port", port, cwd=tmp_path))
        assert "one that is free at 127.0.0.1" in said
    said = failure("serve", "--port", "0", "--host", "0.0.0.0", cwd=tmp_path)
    assert "host = '0.0.0.0'" in said
    assert "belated keys create" in said
    said = failure("serve", "--port", "0", "--ledger", "mysql://x", cwd=tmp_path)
    assert "ledger = 'mysql://x': expected sqlite:///file.db" in said
    said = failure("serve", "--port", "0", "--ledger", "sqlite:///no/folder/x.db", cwd=tmp_path)
    assert "no/folder" in said
    said = failure("serve", "--port", "0", "--workers", "0", cwd=tmp_path)
    assert "workers = 0" in said
    said = failure("serve", "--port", "0", "--ledger", "memory://", "--workers", "2", cwd=tmp_path)
    assert "no process shares its memory" in said


def test_a_missing_extra_is_one_line(tmp_path):
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('No module named starlette')")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    result = subprocess.run(
        [sys.executable, "-m", "belated", "serve"],
        env={**ENVIRONMENT, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stderr.endswith("pip install 'belated[service]'\n")
    assert len(result.stderr.splitlines()) == 1


def test_an_access_log_and_a_limit(tmp_path):
    key = belated("keys", "create", "web", "--scope", "read", cwd=tmp_path).strip()
    options = ["--access-log", "--requests-per-second", "1", "--host", "127.0.0.1"]
    with serving(*options, cwd=tmp_path) as (process, url):
        headers = {"X-API-Key": key}
        codes = [httpx2.get(f"{url}v1/bandits", headers=headers).status_code for _ in range(4)]
        assert codes[:2] == [200, 200]
        assert 429 in codes[2:]
        _, _, err = ended(process)
    lines = [json.loads(line) for line in err.splitlines()]
    assert [line["status"] for line in lines if line["path"] == "/v1/bandits"] == codes
    assert key not in err


# The file
def test_config_is_applied_once(tmp_path):
    path = tmp_path / "bandits.toml"
    path.write_text(CONFIG)
    replica = Replica(open_ledger("memory://"))
    assert apply_config(replica, path) == ["shop", "plain"]
    events = replica.position.seq
    assert events == 4, "settings and actions of two bandits"
    assert replica.folds["plain"].actions.listed == {"left": [1.0, 0.0], "right": [0.0, 1.0]}
    assert replica.folds["shop"].spec.window == 600.0
    assert apply_config(replica, path) == []
    assert replica.position.seq == events, "nothing is written twice"
    replica.register("plain", {"by-hand": [0.5, 0.5]})
    changed = CONFIG.replace("window = 600", "window = 600\nexploration = 0.1")
    path.write_text(changed.replace("[0, 1]", "[0, 0.5]"))
    assert apply_config(replica, path) == ["shop", "plain"]
    assert replica.folds["shop"].spec.exploration == 0.1
    assert replica.folds["plain"].actions.listed == {
        "left": [1.0, 0.0],
        "right": [0.0, 0.5],
        "by-hand": [0.5, 0.5],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("bernoulli", "probit"), "bandits.shop: family = .* as the log has it"),
        (("gaussian:sd=0.5", "gausian"), "bandits.plain: family = 'gausian': .*mean gaussian"),
        (("window = 600", "window = -1"), r"bandits.shop.window: Expected `float` > 0"),
        (("window = 600", "wndow = 600"), "bandits.shop: Object contains unknown field `wndow`"),
        (("window = 600", "window = nan"), "number = 'nan': expected a finite one"),
        (("window = 600", "window = "), r"bandits.toml: Invalid value \(at line 6"),
        (
            ("[1, 0]", "[1, 1e200]"),
            "bandits.plain: action 'left' has norm 1e.200: expected at most",
        ),
        (("[1, 0]", "[1]"), r"bandits.plain: actions has shape \(1, 1\)"),
        (("{price = 3}", "7"), r"bandits.shop.actions\[...\]: Expected"),
        (("[bandits.plain]", "[plain]"), "'plain': expected tables"),
        (("[bandits.plain]", "[bandits.'a b']"), "bandits.a b: name = 'a b'"),
    ],
)
def test_a_bad_file_changes_nothing(tmp_path, change, message):
    path = tmp_path / "bandits.toml"
    path.write_text(CONFIG)
    replica = Replica(open_ledger("memory://"))
    apply_config(replica, path)
    digests = {name: fold.digest() for name, fold in replica.folds.items()}
    assert change[0] in CONFIG
    path.write_text(CONFIG.replace("price = 9.5", "price = 1").replace(*change))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: ") as caught:
        apply_config(replica, path)
    assert re.search(message, str(caught.value)), caught.value
    assert {name: fold.digest() for name, fold in replica.folds.items()} == digests


def test_config_errors_are_one_line(tmp_path):
    (tmp_path / "bandits.toml").write_text("[bandits.shop]\nfamily = 3\n")
    said = failure("serve", "--port", "0", "--config", "bandits.toml", cwd=tmp_path)
    assert said == "belated: bandits.toml: bandits.shop.family: Expected `str`, got `int`\n"
    trap = '[bandits.shop]\nfamily = "bernoulli"\ndim = 2\nwindow = 60\ndefault_reward = 0\n'
    (tmp_path / "bandits.toml").write_text(trap)
    said = failure("serve", "--port", "0", "--config", "bandits.toml", cwd=tmp_path)
    assert "bandits.shop: default_reward = 0.0: expected loop = 'conversion'" in said
    assert "missing.toml" in failure("serve", "--config", "missing.toml", cwd=tmp_path)
    (tmp_path / "empty.toml").write_text("")
    assert read_config(tmp_path / "empty.toml") == {}


# Bandits and keys
def test_bandits(tmp_path):
    features = json.dumps({"categorical": {"size": ["s", "l"]}})
    actions = json.dumps({"s": {"size": "s"}, "l": {"size": "l"}})
    made = belated(
        *("bandits", "create", "shop", "--family", "bernoulli", "--features", features),
        *("--actions", actions, "--loop", "conversion", "--window", "60", "--json"),
        cwd=tmp_path,
    )
    state = json.loads(made)
    assert (state["name"], state["n_actions"], state["n_decided"]) == ("shop", 2, 0)
    assert (state["settings"]["window"], state["settings"]["dim"]) == (60.0, 3)
    assert state["settings"]["open"] == "silence"
    belated("bandits", "create", "other", "--family", "gaussian", "--dim", "2", cwd=tmp_path)
    ledger = open_ledger(f"sqlite:///{tmp_path}/belated.db")
    replica = Replica(ledger)
    replica.catch_up()
    assert list(replica.folds) == ["shop", "other"]
    assert replica.folds["shop"].actions.listed == json.loads(actions)
    ledger.close()
    rows = json.loads(belated("bandits", "list", "--json", cwd=tmp_path))
    assert rows[0] == {"name": "shop", "decided": 0, "pending": 0, "learnt": 0}
    assert belated("bandits", "list", cwd=tmp_path).splitlines()[1].split()[0] == "shop"
    shown = json.loads(belated("bandits", "show", "shop", "--json", cwd=tmp_path))
    assert shown == state
    assert re.search(r"^window +60.0$", belated("bandits", "show", "shop", cwd=tmp_path), re.M)
    for arguments, message in (
        (["create", "shop", "--family", "gaussian", "--features", features], "as the log has it"),
        (["create", "new", "--family", "bernoulli"], "dim = None"),
        (["create", "new", "--family", "bernoulli", "--dim", "0"], "dim: Expected `int` >= 1"),
        (["create", "new", "--family", "bernoulli", "--features", "{"], "--features = '{'"),
        (
            ["create", "new", "--family", "bernoulli", "--dim", "2", "--default-reward", "0"],
            "default_reward = 0.0: expected loop = 'conversion'",
        ),
        (["show", "none"], "name = 'none': expected one of shop, other"),
        (["list", "--ledger", "sqlite:///typo.db"], "ledger = 'sqlite:///typo.db'"),
    ):
        assert message in failure("bandits", *arguments, cwd=tmp_path)
    assert not (tmp_path / "typo.db").exists()


def test_keys(tmp_path):
    text = belated(
        *("keys", "create", "web server", "--scope", "decide", "--scope", "reward"),
        *("--bandit", "shop"),
        cwd=tmp_path,
    ).strip()
    assert re.fullmatch(r"bel_[0-9a-f]{16}_[\w-]{43}", text)
    (row,) = json.loads(belated("keys", "list", "--json", cwd=tmp_path))
    assert row == {
        "id": text.split("_")[1],
        "name": "web server",
        "scopes": "decide,reward",
        "bandit": "shop",
    }
    log = (tmp_path / "belated.db").read_bytes()
    assert text.encode() not in log
    assert text.split("_", 2)[2].encode() not in log, "the secret is kept nowhere"
    belated("keys", "revoke", row["id"], cwd=tmp_path)
    assert json.loads(belated("keys", "list", "--json", cwd=tmp_path)) == []
    assert "there is none" in failure("keys", "revoke", row["id"], cwd=tmp_path)
    said = failure("keys", "create", "x", "--scope", "write", cwd=tmp_path)
    assert "scope = 'write': expected one of read, decide, reward, admin" in said


# Snapshots while serving
def write_decisions(url, count, prefix="x"):
    ledger = open_ledger(url)
    replica = Replica(ledger)
    replica.catch_up()
    if "b" not in replica.folds:
        make_bandit(replica, "b", {"family": "bernoulli", "dim": 1, "actions": {"a": [1.0]}})
    for k in range(count):
        ask = Ask(request=f"{prefix}{k}", digest=b"d", subject=prefix)
        replica.commit([replica.propose("b", ask).draft])
    ledger.close()


def test_snapshots_are_made_when_a_start_would_read_much(tmp_path, monkeypatch):
    monkeypatch.setattr("belated.service.snapshotting.LOOK_EVERY", 0.05)
    url, folder = f"sqlite:///{tmp_path}/b.db", tmp_path / "snapshots"
    write_decisions(url, 5)
    thread = Snapshots(url, folder, every=10)
    thread.start()
    time.sleep(0.5)
    assert not folder.exists(), "seven events are not ten"
    write_decisions(url, 5, "y")
    ledger = open_ledger(url)
    until(lambda: newest(ledger, folder).seq == 12)
    time.sleep(0.5)
    assert len(list(folder.iterdir())) == 1, "and no second one before ten more"
    thread.stop()
    replica = Replica(ledger)
    assert snapshots.load(replica, folder).seq == 12
    replayed = Replica(ledger)
    replayed.catch_up()
    assert replica.folds["b"].digest() == replayed.folds["b"].digest()
    # what was erased may be in the snapshot: the next start makes another one
    ledger.forget("b", "x", 1)
    thread = Snapshots(url, folder, every=10)
    thread.start()
    until(lambda: newest(ledger, folder).seq == 13)
    thread.stop()
    ledger.close()


def test_a_snapshot_that_fails_is_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("belated.service.snapshotting.LOOK_EVERY", 0.05)
    url = f"sqlite:///{tmp_path}/b.db"
    write_decisions(url, 1)
    (tmp_path / "file").write_text("")
    thread = Snapshots(url, tmp_path / "file" / "folder", every=1)
    thread.start()
    until(lambda: "no snapshot was made" in caplog.text)
    assert "Not a directory" in caplog.text
    thread.stop()
    assert not thread.is_alive()


def test_another_ledger_in_the_place_of_one_gets_its_own(tmp_path):
    url, folder = f"sqlite:///{tmp_path}/b.db", tmp_path / "snapshots"
    write_decisions(url, 3)
    ledger = open_ledger(url)
    replica = Replica(ledger)
    replica.catch_up()
    snapshots.save(replica, folder)
    assert newest(ledger, folder).seq == 5
    (folder / "junk").mkdir()
    (folder / "junk" / "manifest.json").write_text("{")
    assert newest(ledger, folder).seq == 5
    other = open_ledger(f"sqlite:///{tmp_path}/other.db")
    assert newest(other, folder).seq == 0
    assert newest(other, tmp_path / "none").seq == 0
    ledger.close()
    other.close()


def test_commands_and_snapshots_with_postgres(postgres, tmp_path, monkeypatch):
    monkeypatch.setattr("belated.service.snapshotting.LOOK_EVERY", 0.05)
    url = postgres.new_database("commands")
    options = ["--ledger", url]
    create = ["bandits", "create", "b", "--family", "bernoulli", "--dim", "1", *options]
    belated(*create, "--actions", '{"a": [1]}', cwd=tmp_path)
    assert belated("keys", "create", "x", "--scope", "read", *options, cwd=tmp_path)
    assert belated("bandits", "list", *options, cwd=tmp_path).splitlines()[1].startswith("b ")
    write_decisions(url, 3)
    thread = Snapshots(url, tmp_path / "snapshots", every=5)
    thread.start()
    ledger = open_ledger(url)
    until(lambda: newest(ledger, tmp_path / "snapshots").seq > 0)
    thread.stop()
    replica, replayed = Replica(ledger), Replica(ledger)
    snapshots.load(replica, tmp_path / "snapshots")
    replayed.catch_up()
    assert replica.folds["b"].digest() == replayed.folds["b"].digest()
    assert list(replica.keys) == list(replayed.keys) != []
    ledger.close()


def test_serve_makes_snapshots(tmp_path):
    url = f"sqlite:///{tmp_path}/belated.db"
    write_decisions(url, 20)
    options = ["--snapshot-every", "10", "--ledger", url]
    with serving(*options, cwd=tmp_path) as (process, _):
        until(lambda: list(tmp_path.glob("belated.db.snapshots/*/manifest.json")))
        assert ended(process) == (0, "", "")


def test_the_file_of_the_manual(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "service.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    (tmp_path / "bandits.toml").write_text(text)
    replica = Replica(open_ledger("memory://"))
    assert apply_config(replica, tmp_path / "bandits.toml") == ["shop", "trips", "prices"]
    for command in re.findall(r"^    belated (bandits create .*)$", page, re.M):
        belated(*shlex.split(command), cwd=tmp_path)
    assert "prices" in belated("bandits", "list", cwd=tmp_path)
    for command in re.findall(r"^    belated (keys create .*)$", page, re.M):
        assert belated(*shlex.split(command), cwd=tmp_path).startswith("bel_")


def test_what_is_said_where_nothing_is_there_yet(tmp_path):
    open_ledger(f"sqlite:///{tmp_path}/belated.db").close()
    said = failure("bandits", "show", "x", cwd=tmp_path)
    assert said.endswith("name = 'x': expected a bandit, and there is none yet\n"), said
    said = failure("keys", "revoke", "x", cwd=tmp_path)
    assert said.endswith("id = 'x': expected the id of a key, and there is none\n"), said
