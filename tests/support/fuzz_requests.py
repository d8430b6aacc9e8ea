"""Mutated requests: valid ones with a few things changed."""

import base64
import json
import random
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from belated.ledger.ids import Ids, to_text

NOW = 1_700_000_000_000_000


class Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class File(NamedTuple):
    """A body that is no JSON."""

    media_type: bytes
    content: bytes


# ------------------------------------------------------------------------------- what is valid


def _settings(**more: Any) -> dict[str, Any]:
    return {"family": "gaussian:sd=0.5", "policy": "greedy", "dim": 2, **more}


FEATURES = {
    "numeric": {"price": [0.0, 10.0]},
    "categorical": {"ad": ["x", 3]},
    "hashed": {"user": 2},
    "interactions": [],
}
BANDITS = {
    "plain": _settings(window=3600.0, late="revise", fallback="a", holdout=0.3, sticky=60.0),
    "clicks": _settings(loop="conversion", window=60.0, exploration=0.1, log_actions=True),
    "shadow": _settings(mode="shadow", baseline="a"),
    "rich": {"family": "gaussian:sd=0.5", "policy": "greedy", "features": FEATURES},
}
VECTORS = {"put": {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.5, 0.5]}, "drop": ["z"]}
COLUMNS = {"put": {"a": {"ad": "x"}, "b": {"ad": 3}}}
MATRIX = {"rows": 2, "base64": base64.b64encode(np.eye(2).tobytes()).decode()}
DECISIONS: dict[str, list[dict[str, Any]]] = {
    "plain": [
        {},
        {"eligible": ["a", "b"], "request_id": "r", "subject": "s"},
        {"matrix": [[0.1, 0.2], [0.3, 0.4]]},
        {"matrix": MATRIX},
        {"actions": [{"id": "p", "features": [0.5, 0.5]}, {"id": "q", "features": [0.1, 0.9]}]},
    ],
    "clicks": [{"request_id": "q"}, {"matrix": MATRIX, "subject": "t"}],
    "shadow": [{"played": "b", "propensity": 0.5}, {}],
    "rich": [
        {"context": {"price": 3.5, "user": "u1"}},
        {
            "context": {"price": 2},
            "actions": [{"id": "n", "features": {"ad": "x", "user": 7}}],
        },
    ],
}
OTHER_SETTINGS = [{"policy": "uniform"}, {"window": 90.0}, {"max_norm": 2.0}, {"back": True}]
OTHER_SETTINGS += [{"half_life": 50.0, "half_life_unit": "seconds"}, {"features": FEATURES}]
MADE = {
    "action": "a",
    "index": 0,
    "n_actions": 3,
    "propensity": 0.5,
    "model_version": 2,
    "model_time": NOW / 1e6,
    "dim": 2,
    "columns": [0],
    "values": [1.0],
    "score": 0.5,
    "estimate": 0.5,
}
RANK = {
    "contextFeatures": [{"price": 3.5, "user": "u1"}],
    "actions": [{"id": "a", "features": [{"ad": "x"}]}, {"id": "b", "features": [{"ad": 3}]}],
    "excludedActions": ["c"],
    "deferActivation": False,
}
FILES = {
    "csv": b"text/csv",
    "jsonl": b"application/x-ndjson",
    "parquet": b"application/vnd.apache.parquet",
}
GETS = ["/v1/bandits", "/v1/parked", "/v1/keys", "/v1/dashboard", "/healthz", "/readyz"]
GETS += ["/metrics", "/openapi.json", "/"]


class Valid:
    """Requests that fit, about decisions that exist."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.new_id = Ids(lambda: NOW, rng.getrandbits(32))
        self.ids = [to_text(self.new_id())]

    def request(self) -> tuple[str, str, str, Any]:
        """Method, path, query and body."""
        rng = self.rng
        name, id, kind = rng.choice([*BANDITS]), rng.choice(self.ids), rng.random()
        if kind < 0.25:
            return "POST", f"/v1/bandits/{name}/decisions", "", rng.choice(DECISIONS[name])
        if kind < 0.28:
            made = [
                {**MADE, "decision_id": to_text(self.new_id())} for _ in range(rng.choice([1, 2]))
            ]
            return "POST", f"/v1/bandits/{name}/decisions/made", "", {"decisions": made}
        if kind < 0.31:
            return "POST", f"/v1/bandits/{name}/rewards", "", self.reward_file(id)
        if kind < 0.32:
            act = rng.choice(["retrain", "promote"])
            return "POST", f"/v1/bandits/{name}/{act}", "", rng.choice(OTHER_SETTINGS)
        if kind < 0.36:
            batch = {"decisions": rng.choices(DECISIONS[name], k=rng.randrange(1, 4))}
            return "POST", f"/v1/bandits/{name}/decisions/batch", "", batch
        if kind < 0.4:
            body = {**rng.choice(DECISIONS[name]), "top": 1}
            return "POST", f"/v1/bandits/{name}/decisions/top", "", body
        if kind < 0.44:
            body = rng.choice(DECISIONS[name])
            asked = ("context", "eligible", "actions", "matrix")
            options = {key: body[key] for key in asked if key in body}
            return "POST", f"/v1/bandits/{name}/ranking", "", options
        if kind < 0.47:
            return self.old_request()
        if kind < 0.52:
            noted = {"decision_id": id, "name": rng.choice("mn"), "value": rng.choice([0.0, 2])}
            return "POST", "/v1/outcomes", "", {"outcomes": [noted] * rng.randrange(1, 3)}
        if kind < 0.7:
            item = {"decision_id": id, "reward": rng.choice([0.0, 1, 0.25]), "revise": False}
            return "POST", "/v1/rewards", "", {"rewards": [item] * rng.randrange(1, 3)}
        if kind < 0.75:
            return "POST", f"/v1/decisions/{id}/cancel", "", None
        if kind < 0.8:
            return "GET", f"/v1/decisions/{id}", rng.choice(["", "", "explain=false"]), None
        if kind < 0.85:
            return "PUT", f"/v1/bandits/{name}", "", BANDITS[name]
        if kind < 0.9:
            change = COLUMNS if name == "rich" else VECTORS
            return "PATCH", f"/v1/bandits/{name}/actions", "", change
        if kind < 0.92:
            return "DELETE", f"/v1/bandits/{name}/subjects/{rng.choice('st')}", "", None
        if kind < 0.94:
            body = {"name": "k", "scopes": ["read", "decide"], "bandit": name}
            return "POST", "/v1/keys", "", body
        if kind < 0.95:
            return "DELETE", "/v1/keys/0123456789abcdef", "", None
        parts = ("", "/actions", "/lift", "/forgetting", "/model")
        gets = [*GETS, *(f"/v1/bandits/{name}{part}" for part in parts)]
        return "GET", rng.choice(gets), "", None

    def reward_file(self, id: str) -> File:
        """Some rewards of one decision."""
        rows = [{"decision_id": id, "reward": self.rng.choice([0.0, 1, 0.25])} for _ in range(2)]
        kind = self.rng.choice([*FILES])
        if kind == "csv":
            lines = ["decision_id,reward", *(f"{id},{row['reward']}" for row in rows)]
            return File(FILES[kind], "\n".join(lines).encode())
        if kind == "jsonl":
            return File(FILES[kind], b"\n".join(map(encoded, rows)))
        file = BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), file)
        return File(FILES[kind], file.getvalue())

    def old_request(self) -> tuple[str, str, str, Any]:
        """As to the Personalizer API."""
        event = self.rng.choice(["e1", "e2", "e3"])
        path = f"/personalizer/v1.0/events/{event}"
        kind = self.rng.random()
        if kind < 0.6:
            return "POST", "/personalizer/v1.0/rank", "", {**RANK, "eventId": event}
        if kind < 0.9:
            return "POST", f"{path}/reward", "", {"value": 0.5}
        return "POST", f"{path}/activate", "", None


# --------------------------------------------------------------------------------- what is not

DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
VALUES = [
    *[None, True, False, 0, -1, 1, 2, 3.0, 0.5, 1.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**63],
    *[-(2**63) - 1, 2**64, 10**30, 10**400, float("nan"), float("inf"), float("-inf"), 1e-9],
    *[
        "",
        " ",
        "a",
        "plain",
        "x" * 201,
        "x" * 5000,
        "\0",
        "a\0b",
        "é",
        "\u202e",
        "🙂" * 60,
        "\ud800",
    ],
    *["1", "nan", "null", "../..", "%00", "'; drop table events; --", "${x}", "\r\nX: y", "\x7f"],
    *[[], {}, [[]], [None], {"": 0}, {"a": {}}, [1, "a"], [0.5] * 3, [[0.1, 0.2]] * 2, DEEP],
    *[
        [1e308, 1e308],
        [float("nan")] * 2,
        {"rows": 10_000, "base64": ""},
        {"rows": 1, "base64": "!"},
    ],
    *["AAAA", "0" * 36, "00000000-0000-0000-0000-000000000000", "gaussian:sd=-1", "greedy:lam=0"],
    *[
        "bernoulli",
        "thompson",
        "poisson",
        "no-such-family",
        "delayed-ofu-glm",
        "conversion",
        "shadow",
    ],
]
PATHS = ["", "/", "//", "/..", "/%2e%2e", "/\0", "/é", "/🙂", "/" + "a" * 300, "/a/b", "\n", "?x"]
QUERIES = ["", "explain=true", "explain=1", "explain=", "x=1", "bandit=plain", "bandit=%ff", "&&"]
QUERIES += ["bandit=no", "explain=true&explain=true", "a" * 3000, "%", "bandit=%00", "=", "é=1"]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", ""]
HEADERS = [
    (b"content-type", b"text/plain"),
    (b"content-type", b""),
    (b"content-type", b"application/json; charset=utf-16"),
    (b"content-encoding", b"gzip"),
    (b"content-length", b"99999999999999999999999"),
    (b"content-length", b"-1"),
    (b"x-api-key", b""),
    (b"x-api-key", b"bel_0_\xff"),
    (b"authorization", b"Bearer \xff\xfe"),
    (b"authorization", b"Basic abc"),
]


class Mutator:
    """Changes a few things of a request."""

    def __init__(self, rng: random.Random, key: str) -> None:
        self.rng = rng
        self.headers = [(b"content-type", b"application/json"), (b"x-api-key", key.encode())]

    def request(self, method: str, path: str, query: str, body: Any) -> Request:
        rng, headers = self.rng, self.headers
        changes = rng.choice([0, 1, 1, 1, 2, 3])
        raw = b"" if body is None else None
        if isinstance(body, File):
            headers, raw = [*headers, (b"content-type", body.media_type)], body.content
        for _ in range(changes):
            kind = rng.random()
            if kind < 0.68 and raw is None:
                body = self.changed(body)
            elif kind < 0.76:
                raw = self.broken(encoded(body) if raw is None else raw)
            elif kind < 0.86:
                path = self.other_path(path)
            elif kind < 0.92:
                query = rng.choice(QUERIES)
            elif kind < 0.96:
                headers = [*headers, rng.choice(HEADERS)]
            else:
                method = rng.choice(METHODS)
        return Request(method, path, query, headers, encoded(body) if raw is None else raw)

    def changed(self, value: Any) -> Any:
        """A copy with one thing different, somewhere inside."""
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.85:
            return self._changed_object(value)
        if isinstance(value, list) and value and rng.random() < 0.8:
            k = rng.randrange(len(value))
            what = rng.randrange(5)
            if what == 0:
                return value[:k] + value[k + 1 :]
            if what == 1:
                return value * rng.choice([2, 3, 50])
            return [*value[:k], self.changed(value[k]), *value[k + 1 :]]
        if isinstance(value, str) and rng.random() < 0.3:
            k = rng.randrange(len(value) + 1)
            return value[:k] + rng.choice(["", "x", "\0", "é", "-", value]) + value[k + 1 :]
        if isinstance(value, float | int) and rng.random() < 0.3:
            return rng.choice(
                [-value, value * 10**10, value + 1, str(value), [value], str(value)[:1]]
            )
        return rng.choice(VALUES)

    def _changed_object(self, value: dict[str, Any]) -> dict[str, Any]:
        rng, key = self.rng, self.rng.choice([*value])
        what = rng.randrange(8)
        if what == 0:
            return {k: v for k, v in value.items() if k != key}
        if what == 1:
            return {**value, rng.choice(["x", "", "é", key + "s", key.upper()]): rng.choice(VALUES)}
        if what == 2:
            extra = rng.choice(["context", "eligible", "actions", "matrix", "subject", "played"])
            return {**value, extra: rng.choice(VALUES)}
        return {**value, key: self.changed(value[key])}

    def broken(self, raw: bytes) -> bytes:
        """Bytes cut off, doubled, left out or changed."""
        rng, k = self.rng, self.rng.randrange(len(raw) + 1)
        what = rng.randrange(5)
        if what == 0:
            return raw[:k]
        if what == 1:
            return raw + raw
        if what == 2:
            return raw[:k] + rng.randbytes(rng.randrange(1, 4)) + raw[k + 1 :]
        if what == 3:
            return (
                raw[:k] + rng.choice([b'"', b"{", b"[", b"}", b",", b":", b"\\", b"e9"]) + raw[k:]
            )
        return raw[:k] + raw[k + 1 :]

    def other_path(self, path: str) -> str:
        rng, parts = self.rng, path.split("/")
        k = rng.randrange(len(parts))
        if rng.random() < 0.5:
            value = rng.choice([v for v in VALUES if isinstance(v, str)])
            parts[k] = value.encode(errors="replace").decode()
            return "/".join(parts)
        return "/".join(parts[: k + 1]) + rng.choice(PATHS)


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()
