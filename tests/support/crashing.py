"""``kill -9`` of a server under load, again and again: what it had acknowledged must be there.

The log is examined on a copy of the files, so that the server does its own recovery when it
starts again. A file is used for some lives and then replaced: replaying it takes longer each time.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import msgspec

from belated.ledger import snapshots
from belated.ledger.events import START, Decided, Event, Kind, Position, added_reward
from belated.ledger.ids import from_text
from belated.ledger.replica import Replica
from belated.ledger.stores.sqlite import SQLiteLedger
from support.live_server import Caller, Gone, LiveServer

CLIENTS = 16
LIVES_OF_A_FILE = 10
SETTINGS = {
    "clicks": {
        "family": "bernoulli",
        "dim": 3,
        "loop": "conversion",
        "window": 0.2,
        "exploration": 0.2,
    },
    "sales": {"family": "gaussian:sd=0.5", "dim": 3, "holdout": 0.3, "sticky": 0.5},
    "baskets": {
        "family": "bernoulli",
        "dim": 3,
        "loop": "conversion",
        "window": 0.2,
        "grace": 0.2,
        "open": "silence",
        "combine": "max",
    },
}
ACTIONS = {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0], "c": [0.5, 0.5, 0.5]}


@dataclass
class Acknowledged:
    """What clients were told, and what they asked without hearing of it any more."""

    decisions: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Bandit, request, id and action."""
    rewards: list[tuple[str, float]] = field(default_factory=list)
    answered: list[tuple[str, float]] = field(default_factory=list)
    """Rewards, whatever became of them."""
    cancelled: list[str] = field(default_factory=list)
    outcomes: list[tuple[str, float]] = field(default_factory=list)
    open_decisions: list[tuple[str, str]] = field(default_factory=list)
    open_rewards: list[tuple[str, float]] = field(default_factory=list)

    def add(self, other: "Acknowledged") -> None:
        self.decisions += other.decisions
        self.rewards += other.rewards
        self.cancelled += other.cancelled
        self.outcomes += other.outcomes


@dataclass
class Report:
    """Of a whole campaign."""

    kills: int = 0
    decisions: int = 0  # acknowledged
    rewards: int = 0
    retried: int = 0  # requests that were not answered and were sent again
    committed_unanswered: int = 0  # of those: the log had them all the same
    digests: int = 0  # states of a live server that a replay gave again
    lost: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.decisions} decisions and {self.rewards} rewards "
            f"acknowledged, {self.lost} lost; {self.retried} unanswered requests sent again, "
            f"{self.committed_unanswered} of them in the log already; {self.digests} states of a "
            "live server replayed, all equal"
        )


# ------------------------------------------------------------------------------------- the load


class Client(Thread):
    """Decides and rewards until the server is gone."""

    def __init__(self, port: int, seed: int, known: list[str]) -> None:
        super().__init__()
        self.port, self.rng = port, random.Random(seed)
        self.told = Acknowledged()
        self.known = list(known)  # decisions of earlier lives
        self.error: BaseException | None = None

    def run(self) -> None:
        caller = Caller(self.port)
        try:
            while True:
                self._act(caller)
        except Gone:
            pass
        except BaseException as error:
            self.error = error
        finally:
            caller.close()

    def _act(self, caller: Caller) -> None:
        rng, told = self.rng, self.told
        kind = rng.random()
        if kind < 0.5 or not self.known:
            bandit, request = rng.choice([*SETTINGS]), f"{rng.getrandbits(64):x}"
            told.open_decisions = [(bandit, request)]
            told.decisions.append(decide(caller, bandit, request))
            told.open_decisions = []
            self.known.append(told.decisions[-1][2])
        elif kind < 0.55:
            id, value = rng.choice(self.known), rng.random()
            if note_outcome(caller, id, value) in ("accepted", "expired"):
                told.outcomes.append((id, value))
        elif kind < 0.95:
            id = rng.choice(self.known)
            value = float(rng.random() < 0.4)
            told.open_rewards = [(id, value)]
            if reward(caller, id, value, ago=rng.choice([0.0, 0.1, 0.3])) == "accepted":
                told.rewards.append((id, value))
            told.answered.append((id, value))
            told.open_rewards = []
        else:
            id = rng.choice(self.known)
            answer = caller("POST", f"/v1/decisions/{id}/cancel")
            assert answer.status == 200, answer
            if answer.body["status"] == "accepted":
                told.cancelled.append(id)


def decide(caller: Caller, bandit: str, request: str) -> tuple[str, str, str, str]:
    body = {"request_id": request, "subject": f"s{int(request, 16) % 7}"}
    answer = caller("POST", f"/v1/bandits/{bandit}/decisions", body)
    assert answer.status == 200, answer
    assert answer.body["logged"]
    return bandit, request, answer.body["decision_id"], answer.body["action"]


def note_outcome(caller: Caller, id: str, value: float) -> str:
    """Hand in a guardrail outcome; each decision can have one."""
    given = {"decision_id": id, "name": "calls", "value": value}
    answer = caller("POST", "/v1/outcomes", {"outcomes": [given]})
    assert answer.status == 200, answer
    (status,) = answer.body["statuses"]
    return str(status)


def reward(caller: Caller, id: str, value: float, ago: float = 0.0) -> str:
    """Hand in a reward; one of 1 says that it happened some seconds ago, one of 0 happened now.

    Where rewards are combined, the two are two events of a decision.
    """
    given = {"decision_id": id, "reward": value, "event_id": f"of {value:g}"}
    given |= {"at": time.time() - ago} if value else {}
    answer = caller("POST", "/v1/rewards", {"rewards": [given]})
    assert answer.status == 200, answer
    return answer.body["statuses"][0]


def load_until_killed(
    server: LiveServer, rng: random.Random, decisions: int, known: list[str]
) -> tuple[Acknowledged, tuple[Position, dict[str, str]]]:
    """What clients were told before the server was killed, and a state of it on the way."""
    clients = [Client(server.port, rng.getrandbits(64), known) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    wait_for_decisions(clients, rng.randint(0, decisions))
    state = live_state(server)
    wait_for_decisions(clients, decisions)
    time.sleep(rng.uniform(0.0, 0.01))  # so that the kill may fall into any moment of a request
    server.kill()
    told = Acknowledged()
    for client in clients:
        client.join()
        if client.error is not None:
            raise client.error
        told.add(client.told)
        told.open_decisions += client.told.open_decisions
        told.open_rewards += client.told.open_rewards
    return told, state


def wait_for_decisions(clients: list[Client], decisions: int) -> None:
    """Wait until so many were acknowledged, however slow the machine is, or a client has ended."""
    while sum(len(client.told.decisions) for client in clients) < decisions:
        if any(client.error is not None or not client.is_alive() for client in clients):
            return
        time.sleep(0.001)


def live_state(server: LiveServer) -> tuple[Position, dict[str, str]]:
    position, digests = server.digests()
    return Position(*position), digests


# --------------------------------------------------------------------------------- the campaign


def crash(kills: int, seed: int, progress: Callable[[int], None] = lambda _: None) -> Report:
    """Raises where anything was lost, doubled, or came back another way."""
    report, rng = Report(), random.Random(seed)
    while report.kills < kills:
        lives = min(LIVES_OF_A_FILE, kills - report.kills)
        with TemporaryDirectory() as folder:
            path = Path(folder, "ledger.db")
            with LiveServer(f"sqlite:///{path}") as server:
                for name, settings in SETTINGS.items():
                    assert server.call("PUT", f"/v1/bandits/{name}", settings).status == 201
                    put = server.call("PATCH", f"/v1/bandits/{name}/actions", {"put": ACTIONS})
                    assert put.status == 200, put
                for _ in _lives(server, path, lives, rng, report):
                    progress(report.kills)
    return report


def _lives(
    server: LiveServer, path: Path, lives: int, rng: random.Random, report: Report
) -> Iterator[None]:
    told, states = Acknowledged(), []
    for life in range(lives):
        known = [id for _, _, id, _ in told.decisions[-50:]]
        more, state = load_until_killed(server, rng, rng.randint(1, 80), known)
        told.add(more)
        states = [*states[-1:], state]
        _examine(path, told, states, report, with_snapshot=life % 2 == 1)
        server.start()
        states.append(live_state(server))
        _send_again(server, path, more, told, report)
        report.kills += 1
        yield
    report.decisions += len(told.decisions)
    report.rewards += len(told.rewards)


def _examine(
    path: Path,
    told: Acknowledged,
    states: list[tuple[Position, dict[str, str]]],
    report: Report,
    with_snapshot: bool,
) -> None:
    """The log as the killed server left it, on a copy."""
    copy = path.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in (path, path.with_name(path.name + "-wal")):
        if file.exists():
            shutil.copy(file, copy)
    ledger = SQLiteLedger(copy / path.name)
    try:
        assert list(ledger._db.execute("pragma integrity_check")) == [("ok",)]
        events = whole(ledger)
        report.lost += check_acknowledged(events, told)
        check_states(ledger, events, states)
        report.digests += len(states)
        if with_snapshot:
            check_snapshot(ledger, events, path.parent / "snapshots")
    finally:
        ledger.close()


def whole(ledger: SQLiteLedger) -> list[Event]:
    return ledger.follow(START, 10**9)[0]


def check_acknowledged(events: list[Event], told: Acknowledged) -> int:
    """Everything is there, and once."""
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]
    decided: dict[tuple[str, str], tuple[bytes, str]] = {}
    rewarded, cancelled, noted = set(), set(), dict[bytes, float | None]()
    for event in events:
        if event.kind == Kind.DECIDED:
            body = msgspec.msgpack.decode(event.body, type=Decided)
            assert (event.bandit, body.request) not in decided, "a request got two decisions"
            decided[event.bandit, body.request] = event.id, body.action
        elif event.kind in (Kind.REWARDED, Kind.REVISED):
            given = event.id, handed_in(event)
            assert given not in rewarded, "a reward came twice"
            again = any((event.id, value) in rewarded for value in (0.0, 1.0))
            assert again == (event.kind == Kind.REVISED), "a reward was not combined"
            combines = "combine" in SETTINGS[event.bandit]
            assert combines or not again, "a decision has two rewards"
            rewarded.add(given)
        elif event.kind == Kind.CANCELLED:
            assert event.id not in cancelled
            cancelled.add(event.id)
        elif event.kind == Kind.OUTCOME:
            assert event.id not in noted, "an outcome came twice"
            noted[event.id] = event.value
    lost: list[Any] = [
        (bandit, request)
        for bandit, request, id, action in told.decisions
        if decided.get((bandit, request)) != (from_text(id), action)
    ]
    lost += [given for given in told.rewards if (from_text(given[0]), given[1]) not in rewarded]
    lost += [id for id in told.cancelled if from_text(id) not in cancelled]
    lost += [id for id, value in told.outcomes if noted.get(from_text(id) or b"") != value]
    assert lost == [], "acknowledged, and not in the log"
    return len(lost)


def handed_in(event: Event) -> float | None:
    """Returns the reward that a caller handed in, which may have been combined with others."""
    added = added_reward(event)
    return event.value if added is None else added.value


def check_states(
    ledger: SQLiteLedger, events: list[Event], states: list[tuple[Position, dict[str, str]]]
) -> None:
    """A fresh replica that reads as far as the live server had read is in the same state."""
    replica = Replica(ledger)
    for position, digests in states:
        part = [event for event in events if replica.position < (event.tx, event.seq) <= position]
        replica.take_in(part, position)
        assert {name: fold.digest() for name, fold in replica.folds.items()} == digests


def check_snapshot(ledger: SQLiteLedger, events: list[Event], folder: Path) -> None:
    """From the last snapshot, or from zero: the same; then a new snapshot is taken."""
    zero, resumed = Replica(ledger), Replica(ledger)
    zero.catch_up()
    snapshots.load(resumed, folder)
    resumed.catch_up()
    assert zero.position == resumed.position
    for name, fold in zero.folds.items():
        assert fold.digest() == resumed.folds[name].digest()
    snapshots.save(zero, folder)


def _send_again(
    server: LiveServer, path: Path, more: Acknowledged, told: Acknowledged, report: Report
) -> None:
    """Requests that were not answered: the same body gets one decision, another one a 409."""
    ledger = SQLiteLedger(path.parent / "copy" / path.name)
    caller = Caller(server.port)
    for bandit, request in more.open_decisions:
        before = ledger.requested(bandit, request)
        first, second = (decide(caller, bandit, request) for _ in range(2))
        assert first == second
        if before is not None:
            assert from_text(first[2]) == before[0].id
            report.committed_unanswered += 1
        told.decisions.append(first)
        other = {"request_id": request, "eligible": ["a"]}
        answer = caller("POST", f"/v1/bandits/{bandit}/decisions", other)
        assert (answer.status, answer.body["type"]) == (409, "/problems/request-id-reused")
    for id, value in more.open_rewards:
        story = ledger.story(from_text(id) or b"")
        known = [handed_in(e) for e in story if e.kind in (Kind.REWARDED, Kind.REVISED)]
        status = reward(caller, id, value)
        assert status in ("accepted", "duplicate", "conflict", "expired")
        if value in known:
            assert status == "duplicate"
            report.committed_unanswered += 1
        if status == "accepted":
            told.rewards.append((id, value))
    report.retried += len(more.open_decisions) + len(more.open_rewards)
    caller.close()
    ledger.close()
