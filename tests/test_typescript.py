"""The TypeScript client: types, build, Python's numbers, and a live service."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from belated import __version__
from belated.client import Client
from belated.core.sparse import dense
from belated.estimators.laplace.fit import WAITING
from support.needed import missing, program
from support.running_service import served
from support.service_client import Client as InProcess

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "clients" / "typescript"
NO_REGISTRY = "ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT|ENETUNREACH|network"
FEATURES = {
    "numeric": {"hour": [0, 24], "price": [5, 5]},
    "categorical": {"banner": ["a", "b", "c"], "device": ["phone", 7, None]},
    "interactions": [["banner", "device"], ["banner", "hour"]],
}
BANNERS = {name: {"banner": name} for name in "abc"}
CONTEXTS = [
    {"device": "phone", "hour": 3, "price": 5.5},
    {"device": 7, "hour": 30.5, "price": 5},
    {"device": None, "hour": 0.1, "price": 4.9},
    {"device": "unknown", "hour": 12, "price": 9},
]
VECTORS = {"a": [0.6, 0.0], "10": [0.0, 0.8], "2": [0.3, 0.3]}  # JavaScript would sort them
SETTINGS = [
    {"features": FEATURES},
    {"features": FEATURES | {"intercept": False}, "exploration": 0.3},
    {"features": FEATURES, "policy": "greedy"},
    {"features": FEATURES, "loop": "conversion", "window": 600.0},
    {"dim": 2, "policy": "adaptive-thompson:scale=1"},
]
INEXACT = 2**53  # JavaScript reads the same where a ledger has 2**53 + 1
REFUSED = [  # features, an action and what is said of them
    ({"hashed": {"user": 8}}, {}, "hashed"),
    ({"tags": {"likes": ["sea"]}}, {}, "tags"),
    ({"numeric": {"x": [1, 9]}, "scale": {"x": "log"}}, {}, "scale"),
    ({"categorical": {"user": [7, INEXACT]}}, {}, f'column "user" = {INEXACT}: expected a text'),
    ({"categorical": {"user": [7]}}, {"user": -INEXACT}, f'column "user" = -{INEXACT}: expected'),
]


def learnt(settings, rounds=30):
    """A bandit that has learnt something, its document and the contexts that it knows."""
    client = InProcess()
    client("PUT", "/v1/bandits/shop", {"family": "bernoulli"} | settings, 201)
    contexts = CONTEXTS if "features" in settings else [None]
    client("PATCH", "/v1/bandits/shop/actions", {"put": BANNERS if contexts[0] else VECTORS})
    for k in range(rounds):
        made = client.decide(**({"context": contexts[k % 4]} if contexts[0] else {}))
        client.reward((made["decision_id"], float(k % 3 == 0)))
    return client, contexts


def document(client):
    return msgspec.json.encode(client("GET", "/v1/bandits/shop/model")).decode()


def golden(client, context):
    """What Python makes of a context: vectors, the law of the scores, probabilities."""
    fold = client.service.fold("shop")
    learner, spec = fold.learner, fold.spec
    rows = fold.actions.matrix(None, context, learner.is_sparse)
    X = dense(rows, learner.dim)
    S = np.zeros((learner.dim, learner.dim))
    if learner.is_sparse:
        fit = learner.state.fit
        upper = np.triu(fit.S)
        for t in range(int(fit.scalars[WAITING])):
            upper -= fit.scales[t] * np.triu(np.outer(fit.terms[t], fit.terms[t]))
        S = learner.policy.scale**2 * (upper + np.triu(upper, 1).T)
    chances = learner.choose(rows, np.random.default_rng(0), weighed=True).probabilities
    share = 1.0 if fold.spreads else spec.exploration
    return {
        "context": context,
        "names": list(fold.actions.listed),
        "rows": X.tolist(),
        "mean": (X @ learner.state.theta).tolist(),
        "covariance": (X @ S @ X.T).tolist(),
        "probabilities": (share / len(X) + (1 - share) * chances).tolist(),
    }


def write_golden(path):
    documents, refused = [], []
    for settings in SETTINGS:
        client, contexts = learnt(settings)
        cases = [golden(client, context) for context in contexts]
        documents.append({"content": document(client), "cases": cases})
    for features, action, says in REFUSED:
        client = InProcess()
        client("PUT", "/v1/bandits/shop", {"family": "bernoulli", "features": features}, 201)
        client("PATCH", "/v1/bandits/shop/actions", {"put": {"a": action}})
        refused.append({"content": document(client), "says": says})
    path.write_text(json.dumps({"documents": documents, "refused": refused}))


def test_the_lock_file_names_no_registry():
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    assert not any("resolved" in package for package in lock["packages"].values())
    project = json.loads((FOLDER / "package.json").read_text())
    assert project["version"] == lock["version"] == __version__
    assert lock["packages"][""]["devDependencies"] == project["devDependencies"]
    assert lock["packages"][""]["dependencies"] == project["dependencies"]


@pytest.mark.slow
def test_types_build_and_tests_of_node_pass(tmp_path):
    """`make typescript` runs this."""
    npm = program("npm")

    def run(*command, **more):
        done = subprocess.run(
            command, cwd=FOLDER, env={**os.environ, **more}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    if not (FOLDER / "node_modules" / "typescript").exists():
        installed = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund"], cwd=FOLDER, capture_output=True, text=True
        )
        if installed.returncode:
            assert re.search(NO_REGISTRY, installed.stderr), installed.stderr
            missing(f"npm ci needs a registry: {installed.stderr[-300:]}")
    run(sys.executable, "openapi.py", "openapi.json")
    run(npm, "run", "generate")
    run(npm, "run", "build")
    write_golden(tmp_path / "golden.json")
    with served() as (url, _), Client(url) as client:
        client.put_bandit("shop", {"family": "bernoulli", "features": FEATURES})
        client.change_actions("shop", BANNERS)
        needed = {"URL": url, "GOLDEN": tmp_path / "golden.json", "PYTHON": sys.executable}
        told = run(npm, "test", **{f"BELATED_{name}": str(needed[name]) for name in needed})
    assert "# pass 14\n# fail 0" in told
