"""State on disk."""

import json
import os
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from belated import Bandit, Bernoulli, DelayedOFUGLM, Features, SnapshotError, Transformed
from belated.engine.reference import draw_world, play
from belated.learner.files import VERSION
from belated.worlds.delays import Exponential
from belated.worlds.environments import UnitBall


@pytest.fixture
def bandit():
    played = Bandit(3, family=Bernoulli(), policy=DelayedOFUGLM(), seed=1, max_norm=2.0)
    play(played, draw_world(UnitBall(5), 3, 100, seed=2), Exponential(10.0))
    return played


@pytest.fixture
def path(tmp_path, bandit):
    bandit.save(tmp_path / "bandit")
    return tmp_path / "bandit"


@pytest.mark.filterwarnings("ignore::belated.AssumptionWarning")  # all rewards are 1
def test_load_goes_on_byte_for_byte(bandit, path):
    twin = Bandit.load(path)
    assert twin.fingerprint() == bandit.fingerprint()
    assert (twin.policy, twin.family, twin.max_norm) == (bandit.policy, bandit.family, 2.0)
    assert twin.certificate == bandit.certificate
    for actions in draw_world(UnitBall(5), 3, 200, seed=3).actions:  # past the capacity
        decision = bandit.decide(actions)
        assert twin.decide(actions) == decision
        assert bandit.learn(decision.id, 1.0) == twin.learn(decision.id, 1.0)
    assert twin.fingerprint() == bandit.fingerprint()


def test_random_stream_is_fresh_unless_asked_otherwise(bandit, path):
    def draws(b):
        return b._backend.rng.random(3).tolist()

    saved = draws(bandit)
    assert draws(Bandit.load(path, same_stream=True)) == saved
    assert draws(Bandit.load(path)) != saved
    assert draws(Bandit.load(path)) != draws(Bandit.load(path))
    assert draws(Bandit.load(path, seed=5)) == draws(Bandit.load(path, seed=5))


def test_no_pickle_inside(path):
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            array = np.lib.format.read_array(file.open(name), allow_pickle=False)
            assert array.dtype.kind in "fiU"


def test_every_damaged_byte_is_noticed_or_harmless(bandit, path, tmp_path):
    """Flip one byte anywhere: a clear error, or the same bandit."""
    good, damaged = path.read_bytes(), tmp_path / "damaged"
    refused = 0
    for position in range(0, len(good), 97):
        broken = bytearray(good)
        broken[position] ^= 0xFF
        damaged.write_bytes(broken)
        try:
            assert Bandit.load(damaged).fingerprint() == bandit.fingerprint()
        except SnapshotError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99])
def test_cut_files(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: int(keep if keep >= 1 else keep * len(content))])
    with pytest.raises(SnapshotError, match=r"expected a file that Bandit\.save wrote"):
        Bandit.load(path)


def rewrite(path, change):
    """The same file with another header."""
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays.pop("header")))
    change(header, arrays)
    with path.open("wb") as out:
        np.savez(out, header=np.array(json.dumps(header)), **arrays)


def test_newer_format(path):
    newer = VERSION + 1
    rewrite(path, lambda header, arrays: header.update(version=newer, family="changed beyond"))
    with pytest.raises(SnapshotError, match=rf"has format version {newer}: expected {VERSION}"):
        Bandit.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, arrays: header.pop("dim"),
        lambda header, arrays: arrays.pop("fit.H"),
        lambda header, arrays: arrays.update(W=arrays["W"][:2]),
        lambda header, arrays: arrays.update(theta=arrays["theta"].astype(np.float32)),
        lambda header, arrays: arrays.update({"history.y": arrays["history.y"][:-1]}),
        lambda header, arrays: header["policy"]["values"].update(delta=-1.0),
        lambda header, arrays: header["policy"]["values"].update(new_option=1.0),
        lambda header, arrays: header.update(format="something else"),
        lambda header, arrays: header.update(dim=10**6),
        lambda header, arrays: header.update(max_norm=-1.0),
        lambda header, arrays: arrays["W"].fill(np.nan),
        lambda header, arrays: arrays["counts"].__setitem__(1, -7),
    ],
)
def test_files_that_do_not_add_up(path, change):
    rewrite(path, change)
    with pytest.raises(SnapshotError):
        Bandit.load(path)


def test_bad_arguments_are_not_blamed_on_the_file(path):
    with pytest.raises(TypeError, match="seed = 'a': expected a whole number"):
        Bandit.load(path, seed="a")
    with pytest.raises(ValueError, match="seed = 3: expected None with same_stream=True"):
        Bandit.load(path, seed=3, same_stream=True)
    with pytest.raises(TypeError, match=r"types = Bernoulli.*: expected types such as MyPolicy"):
        Bandit.load(path, types=[Bernoulli()])


def test_where_it_is_saved(bandit, path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    path.chmod(0o640)
    bandit.decide(np.eye(3))
    bandit.save(str(link))
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert Bandit.load(path).n_decided == 101
    with pytest.raises(FileNotFoundError, match="its directory does not exist"):
        bandit.save(tmp_path / "nowhere" / "bandit")
    with pytest.raises(IsADirectoryError, match="this is a directory"):
        bandit.save(tmp_path)
    bandit.save(tmp_path / ("x" * 250))


def test_other_files(tmp_path):
    np.save(tmp_path / "array.npy", np.eye(2))
    (tmp_path / "text").write_text("hello")
    for name in ("array.npy", "text"):
        with pytest.raises(SnapshotError, match=r"expected a file that Bandit\.save wrote"):
            Bandit.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Bandit.load(tmp_path / "nothing")


def test_fitted_features_are_part_of_it(tmp_path):
    rows = [{"ad": "a", "price": 1.0}, {"ad": "b", "price": 4.0}]
    features = Features(numeric=["price"], categorical=["ad"], hashed={"user": 8})
    features.fit(rows, {"user": 7})
    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
    bandit.decide(rows, {"user": 8})
    bandit.save(tmp_path / "b")
    twin = Bandit.load(tmp_path / "b")
    assert twin.decide(rows, {"user": 9}) == bandit.decide(rows, {"user": 9})
    assert twin.fingerprint() == bandit.fingerprint()
    with pytest.raises(ValueError, match="features = 3: expected None"):
        Bandit.load(tmp_path / "b", features=3)


def test_a_transformer_must_be_brought_along(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 1.0, 0.5]})
    features = Transformed(StandardScaler()).fit(frame)
    bandit = Bandit(family=Bernoulli(), policy=DelayedOFUGLM(), features=features)
    bandit.decide(frame)
    bandit.save(tmp_path / "b")
    with pytest.raises(ValueError, match="features = None: expected the fitted StandardScaler"):
        Bandit.load(tmp_path / "b")
    twin = Bandit.load(tmp_path / "b", features=features.transformer)
    assert twin.decide(frame) == bandit.decide(frame)


def test_unwanted_features(path):
    with pytest.raises(ValueError, match="expected None: the file holds the features"):
        Bandit.load(path, features=Features(numeric=["x"]))


def test_a_failed_save_leaves_the_old_file(bandit, path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        bandit.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["bandit"]


@pytest.mark.slow
@pytest.mark.compiled
def test_killed_while_saving(tmp_path):
    """kill -9 at any moment: the file is a whole bandit, old or new."""
    code = """
import sys
from belated import Bandit, Gaussian, DelayedOFUGLM
bandit = Bandit(20, family=Gaussian(), policy=DelayedOFUGLM())
while True:
    for _ in range(50):
        bandit.decide([[0.0] * 20])
    bandit.save(sys.argv[1])
    print(bandit.n_decided, flush=True)
"""
    for lines in (1, 3, 8):
        target = tmp_path / f"bandit{lines}"
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, text=True
        )
        saved = [int(child.stdout.readline()) for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert Bandit.load(target).n_decided >= saved[-1]
