"""What version 0.1 wrote is read by the present code, which says the same of it.

The data and what version 0.1 said of them are in ``data/version_0_1``, written by ``make.py``
there. Nothing is imported here but what users import, so that modules may move.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_name

from belated import Bandit, Bernoulli, ConflictingRewardError, DelayedOFUGLM, Features, Gaussian
from belated.ledger import open_ledger
from belated.policies import OFUL

DATA = Path(__file__).parent / "data" / "version_0_1"
SAID = json.loads((DATA / "said.json").read_text())
SAYS = SAID["plain" if numba.config.DISABLE_JIT else "compiled"]
# BLAS adds in another order on another processor, so that all bits agree on one like that of the
# data only. Anywhere else digests cannot be compared, and numbers agree to nine digits.
WHERE = {"cpu": get_host_cpu_name(), "numpy": version("numpy"), "numba": version("numba")}
EXACT = SAID["where"] == WHERE
DIGESTS = ("fingerprint", "digest")


def same(found, said):
    """Whether a dict, list, number or text is what version 0.1 said."""
    if isinstance(said, dict):
        keys = [key for key in said if EXACT or key not in DIGESTS]
        return found.keys() == said.keys() and all(same(found[key], said[key]) for key in keys)
    if isinstance(said, list):
        return len(found) == len(said) and all(map(same, found, said))
    if EXACT or isinstance(said, int):
        return found == said
    if isinstance(said, str) and "0x" in said:
        return float.fromhex(found) == pytest.approx(float.fromhex(said), rel=1e-9, abs=1e-9)
    if isinstance(said, float):  # The command line shows six digits.
        return found == pytest.approx(said, abs=2e-6)
    return found == said


def hexes(numbers):
    return [float(number).hex() for number in np.ravel(numbers)]


def shown(decision):
    return [decision.index, *hexes([decision.score, decision.estimate, decision.width])]


def knowledge(bandit):
    return {
        "theta": hexes(bandit.theta),
        "fingerprint": bandit.fingerprint(),
        "n_observed": bandit.n_observed,
        "n_missing": bandit.n_missing,
    }


# --------------------------------------------------------------------------------- saved bandits


def check_saved_bandit(name):
    said = SAYS["bandits"][name]
    bandit = Bandit.load(DATA / f"{name}.bandit", same_stream=True)
    assert same(knowledge(bandit), said["known"])
    decisions = [shown(bandit.decide(**said["asked"])) for _ in said["decisions"]]
    assert same(decisions, said["decisions"])
    assert bandit.learn([(id, 1.0) for id in said["open"]]) == len(said["open"])
    assert same(knowledge(bandit), said["learnt"])


@pytest.mark.parametrize("name", SAYS["bandits"])
def test_saved_bandit(name):
    check_saved_bandit(name)


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("name", SAYS["bandits"])
def test_saved_bandit_compiled(name):
    check_saved_bandit(name)


@pytest.mark.parametrize("name", SAYS["bandits"])
def test_saved_again(name, tmp_path):
    """What was read and is saved again is the same file, array for array, with the same header."""
    Bandit.load(DATA / f"{name}.bandit", same_stream=True).save(tmp_path / "again")
    with np.load(DATA / f"{name}.bandit") as old, np.load(tmp_path / "again") as new:
        assert old.files == new.files
        for key in set(old.files) - {"header"}:
            assert old[key].dtype == new[key].dtype
            assert old[key].tobytes() == new[key].tobytes()
        assert json.loads(str(old["header"])) == json.loads(str(new["header"]))


# ------------------------------------------------------------------------------------ the ledger


@pytest.fixture
def url(tmp_path):
    """Of a copy of the ledger, with its snapshot beside it: opening a ledger may write to it."""
    shutil.copy(DATA / "shop.db", tmp_path)
    shutil.copytree(DATA / "shop.db.snapshots", tmp_path / "shop.db.snapshots")
    return f"sqlite:///{tmp_path}/shop.db"


def command(*words):
    done = subprocess.run(
        [sys.executable, "-m", "belated", "ledger", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_replay(url):
    bandits = command("replay", url)["bandits"]
    assert [bandit["bandit"] for bandit in bandits] == ["offers", "prices"]
    for found in bandits:
        assert same(found, SAYS["ledger"][found["bandit"]]["replay"])


def test_replay(url):
    """The same events come to the same state, down to the digest of all that is known."""
    check_replay(url)


@pytest.mark.slow
@pytest.mark.compiled
def test_replay_compiled(url):
    check_replay(url)


def test_verify(url, tmp_path):
    """The log is sound."""
    # The snapshot was made by compiled code: in plain Python its last bits are others.
    found = command("verify", url, "--folder", str(tmp_path / "none"))
    assert found["sound"]
    assert "rebuilt from zero" in [check["check"] for check in found["checks"]]


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.skipif(not EXACT, reason="a processor or library unlike that of the data")
def test_verify_compiled(url):
    """The snapshot leads to the state that the log gives, bit for bit."""
    checks = [check["check"] for check in command("verify", url)["checks"]]
    assert [check for check in checks if check.startswith("rebuilt from")][1:] == [
        f"rebuilt from {path.name}" for path in (DATA / "shop.db.snapshots").iterdir()
    ]


def test_snapshot_is_used(url, tmp_path):
    """A start from it takes in the rest of the log only; `verify` passes over one of no use."""
    events = command("verify", url, "--folder", str(tmp_path / "none"))["events"]
    going_on = command("snapshot", url, "--dry-run")
    assert going_on["bandits"] == 2
    assert 0 < going_on["events_since_the_last"] < events / 2


def test_export_and_import(url, tmp_path):
    """A log that is exported and imported anew comes to what version 0.1 said."""
    command("export", url, "--out", str(tmp_path / "log.jsonl"))
    again = f"sqlite:///{tmp_path}/again.db"
    command("import", again, str(tmp_path / "log.jsonl"))
    check_replay(again)


def open_bandit(url, name):
    features = None
    if name == "offers":
        features = Features(
            numeric=["price"],
            categorical=["aisle", "hour"],
            hashed={"brand": 2},
            interactions=[("price", "hour")],
            intercept=False,
        ).fit(
            [
                {"price": price, "aisle": aisle, "brand": "b0", "hour": hour}
                for price, aisle in ((1.0, "fruit"), (7.0, "bread"))
                for hour in ("morning", "evening")
            ]
        )
    policy, family = {
        "offers": (DelayedOFUGLM(), Bernoulli()),
        "prices": (OFUL(), Gaussian(sd=0.5)),
    }[name]
    return Bandit(
        None if features else 3,
        family=family,
        policy=policy,
        features=features,
        ledger=url,
        name=name,
    )


@pytest.mark.parametrize("name", ["offers", "prices"])
def test_bandit_goes_on(url, name):
    """A bandit of the ledger closes its windows, decides, and learns from that, as in 0.1."""
    said = SAYS["ledger"][name]
    bandit = open_bandit(url, name)
    assert same(knowledge(bandit), said["known"])
    assert same(shown(bandit.decide(**said["asked"])), said["decision"])
    assert same(knowledge(bandit), said["closed"])
    bandit.close()


def as_id(digits):
    parts = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]
    return "-".join(parts)


def test_rewards_of_old_decisions(url):
    story, bandit = SAID["story"], open_bandit(url, "prices")
    with pytest.raises(ConflictingRewardError, match="cancelled"):
        bandit.learn(as_id(story["cancelled"]), 0.5)
    before = bandit.n_missing
    assert bandit.learn(as_id(story["open"]), 0.5) == 1
    assert bandit.learn(as_id(story["open"]), 0.5) == 0
    with pytest.raises(ConflictingRewardError, match="already has"):
        bandit.learn(as_id(story["open"]), 0.25)
    assert bandit.n_missing == before - 1
    bandit.close()


def test_what_the_store_knows(url):
    ledger = open_ledger(url)
    assert len(ledger.parked()) == SAYS["ledger"]["parked"]
    assert ledger.problems() == []
    # The decisions of one customer were erased at the twentieth of 48; those after it are there.
    assert len(ledger.subject("offers", "ann")) == 16
    assert len(ledger.subject("offers", "bob")) == 9
    ledger.close()
