"""Days of a shop in a moment: one seed decides clock, ids, delays and everything that fails.

Two replicas share a log, in memory or on a simulated disk that loses its power. Clients send each
request until it is answered. Commits fail before or after they took effect; processes die and come
back from the log or from a snapshot; rewards come late, twice, too early, for nobody; clocks jump
back; settings, actions and subjects come and go. Every day all of it is checked.

``python tests/support/simulation.py SEED DAYS`` replays a run exactly.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec
import numpy as np

from belated import Bernoulli, DelayedOFUGLM, Gaussian, Poisson
from belated.core.events import Status
from belated.ledger import snapshots
from belated.ledger.events import START, Draft, Guardrail, Kind
from belated.ledger.ids import Ids
from belated.ledger.proposing import Ask
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.policies.adaptive_thompson import AdaptiveThompson
from belated.policies.greedy import Greedy
from belated.policies.thompson import Thompson
from support.simulated_machines import BEGINNING, SECOND, Machines
from support.simulation_checks import check_day

HOUR = 3600 * SECOND
DAY = 24 * HOUR
DIM = 2
ACTIONS = {"a": [0.9, 0.1], "b": [0.1, 0.9], "c": [0.6, 0.6]}
FIXED = AdaptiveThompson(strength=1e12)  # so large that the prior is not learnt


def _silent(hours: int, family: Any = None, policy: Any = None, **settings: Any) -> Spec:
    """Returns settings of a loop that learns from silence."""
    parts = family or Bernoulli(), policy or AdaptiveThompson()
    window = hours * 3600.0
    return Spec.of(DIM, *parts, loop="conversion", window=window, open="silence", **settings)


SPECS = [
    Spec.of(
        *(DIM, Gaussian(sd=0.5), Thompson()),
        window=48 * 3600.0,
        exploration=0.2,
        holdout=0.3,
        sticky=20 * 3600.0,
    ),
    Spec.of(DIM, Bernoulli(), FIXED, window=12 * 3600.0, late="revise"),
    Spec.of(DIM, Gaussian(sd=0.5), Greedy(), loop="conversion", window=36 * 3600.0, late="revise"),
    Spec.of(DIM, Gaussian(sd=0.5), DelayedOFUGLM(), sticky=8 * 3600.0),
    Spec.of(DIM, Bernoulli(), DelayedOFUGLM(), half_life=20.0, window=24 * 3600.0, holdout=0.5),
    Spec.of(DIM, Gaussian(sd=0.5), Thompson(), half_life=3600.0 * 24, half_life_unit="seconds"),
    Spec.of(DIM, Bernoulli(), FIXED, loop="conversion", window=8 * 3600.0, grace=6 * 3600.0),
    Spec.of(
        *(DIM, Gaussian(sd=0.5), AdaptiveThompson()),
        window=12 * 3600.0,
        grace=3600.0,
        late="revise",
    ),
    Spec.of(DIM, Gaussian(sd=0.5), Thompson(), window=20 * 3600.0, grace=3600.0, combine="sum"),
    Spec.of(DIM, Gaussian(sd=0.5), Greedy(), loop="conversion", window=6 * 3600.0, combine="last"),
    _silent(6),
    _silent(12, policy=FIXED, grace=2 * 3600.0),
    _silent(8, grace=6 * 3600.0, combine="max"),
    _silent(36, late="revise"),
    _silent(20, combine="first", half_life=30.0),
    _silent(12, family=Poisson(), combine="sum"),
]


class Result(NamedTuple):
    """Of a run: the same for the same seed."""

    digest: str  # of all that was done and answered
    days: int
    events: int
    happened: Counter[str]  # how often what


class World(Machines):
    """See the module."""

    def __init__(self, seed: int, stack: ExitStack) -> None:
        super().__init__(seed, stack)
        self.specs = dict(zip(("one", "two"), self.rng.sample(SPECS, 2), strict=True))
        self.requests = 0
        self.coming: list[tuple[int, int, bytes, float]] = []  # rewards on their way
        self.decided: dict[bytes, str] = {}  # requests by the decision they got
        self.told: list[tuple[bytes, float, Status]] = []  # of rewards
        self.cancelled: list[bytes] = []
        self.noted: list[tuple[bytes, bytes]] = []  # guardrail outcomes: decision and body
        self.forgotten: set[bytes] = set()

    # ------------------------------------------------------------------------ what clients do

    def decide(self) -> None:
        """One to three requests in a transaction, now and then with a reward that is too early."""
        name = self.rng.choice([*self.specs])
        asks = []
        for _ in range(self.rng.randrange(1, 4)):
            self.requests += 1
            context = [[self.rng.uniform(-0.7, 0.7) for _ in range(DIM)] for _ in range(3)]
            asks.append(
                Ask(
                    matrix=np.array(context) if self.rng.random() < 0.5 else None,
                    request=f"r{self.requests}",
                    digest=b"%d" % self.requests,
                    subject=self.rng.choice(["", "", "ann", "bob"]),
                )
            )
        early = self.rng.random() < 0.1

        def act(replica: Replica) -> list[tuple[bytes, Any]]:
            replica.catch_up()
            drafts = [replica.propose(name, ask).draft for ask in asks]
            if early:  # at the other replica, before the decision is there
                early_reward = Draft(Kind.REWARDED, "", drafts[0].id, self.now, 1.0)
                (outcome,) = replica.ledger.commit([early_reward])
                self.told.append((drafts[0].id, 1.0, outcome.status))
                self.note("too early", outcome.status)
            outcomes = replica.commit(drafts)
            return [
                (o.earlier.id, o.status) if o.earlier else (d.id, o.status)
                for d, o in zip(drafts, outcomes, strict=True)
            ]

        answers = self.until_answered(act)
        for ask, (id, status) in zip(asks, answers, strict=True):
            assert status in (Status.ACCEPTED, Status.DUPLICATE)
            self.note("decided", id, status)
            assert id not in self.decided
            self.decided[id] = ask.request
            self.on_its_way(name, id)

    def on_its_way(self, name: str, id: bytes) -> None:
        """Its reward comes once, twice, much too late or never."""
        rng = self.rng
        value = float(rng.random() < 0.5)
        if self.specs[name].family["type"] == "gaussian":
            value = round(rng.gauss(0.3, 0.5), 3)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            hours = rng.expovariate(1 / 8)
            heappush(self.coming, (self.now + round(hours * HOUR), rng.getrandbits(30), id, value))

    def deliver(self) -> None:
        """All that has arrived, shuffled, in batches, some of it wrong."""
        arrived = []
        while self.coming and self.coming[0][0] <= self.now:
            time, _, id, value = heappop(self.coming)
            happened, name = self.happened_at(time), self.rng.choice(["", "x", "y"])
            arrived.append((id, value, happened, name))
            if self.rng.random() < 0.05:
                arrived.append((id, 1.0 - value, happened, name))
                self.note("another value")
        if self.rng.random() < 0.1:
            arrived.append((Ids(lambda: self.now - DAY, self.rng.getrandbits(60))(), 1.0))
        self.rng.shuffle(arrived)
        while arrived:
            n = self.rng.randrange(1, 6)
            batch, arrived = arrived[:n], arrived[n:]
            statuses = self.until_answered(lambda replica, batch=batch: replica.reward(batch))
            for (id, value, *_), status in zip(batch, statuses, strict=True):
                self.note(f"reward {status.value}", id, value)
                self.told.append((id, value, status))

    def happened_at(self, time: int) -> int | None:
        """When a reward that came at ``time`` is said to have happened, if anything is said."""
        chance = self.rng.random()
        if chance < 0.5:
            return None
        if chance < 0.9:
            return time
        self.note("a wrong time")
        return self.now + self.rng.choice([-40 * DAY, 2 * HOUR])

    def about(
        self, kind: Kind, value: float | None = None, body: bytes = b""
    ) -> tuple[bytes, Status] | None:
        if not self.decided:
            return None
        lately = [id for id, _, _ in self.told[-5:] if id in self.decided]
        recent = [*self.decided][-20:]
        id = self.rng.choice(lately if lately and self.rng.random() < 0.5 else recent)
        draft = Draft(kind, "", id, self.now, value, body=body)
        (outcome,) = self.until_answered(lambda replica: replica.commit([draft]))
        self.note(f"{kind.name.lower()} {outcome.status.value}", id, value)
        return id, outcome.status

    def cancel(self) -> None:
        answer = self.about(Kind.CANCELLED)
        if answer is not None and answer[1] in (Status.ACCEPTED, Status.DUPLICATE):
            self.cancelled.append(answer[0])

    def revise(self) -> None:
        self.about(Kind.REVISED, float(self.rng.randrange(2)))

    def note_outcome(self) -> None:
        name = self.rng.choice(["complaint", "cost"])
        body = msgspec.msgpack.encode(Guardrail(name))
        answer = self.about(Kind.OUTCOME, float(self.rng.randrange(2)), body)
        if answer is not None and answer[1] in (Status.ACCEPTED, Status.EXPIRED, Status.DUPLICATE):
            self.noted.append((answer[0], body))

    def retain(self) -> None:
        before = self.now - self.rng.randrange(2 * DAY)

        def act(replica: Replica) -> Any:
            self.forgotten |= {waiting.id for waiting in replica.ledger.parked(10**9)}
            return replica.ledger.retain(before)

        self.note("retained", self.until_answered(act).decisions)

    def expire(self) -> None:
        self.note("windows closed", self.until_answered(lambda replica: replica.expire()))

    def forget(self) -> None:
        name, subject = self.rng.choice([*self.specs]), self.rng.choice(["ann", "bob"])
        gone: set[bytes] = set()

        def act(replica: Replica) -> None:
            gone.update(replica.ledger.subject(name, subject))
            replica.ledger.forget(name, subject, self.now)
            replica.catch_up()

        self.until_answered(act)
        self.forgotten |= gone
        for id in gone:
            del self.decided[id]
        self.note("forgotten", name, subject, sorted(gone))

    def configure(self) -> None:
        name = self.rng.choice([*self.specs])
        old = self.specs[name]
        changes: dict[str, Any] = {"exploration": round(self.rng.random() / 3, 2)}
        if self.rng.random() < 0.3:  # half a day, or ten decisions, or all is remembered again
            half_life = self.rng.choice(
                [(43_200.0, "seconds"), (10.0, "decisions"), (None, "seconds")]
            )
            changes |= dict(zip(("half_life", "half_life_unit"), half_life, strict=True))
        if old.window is not None:
            choices = ["keep", "revise"] if old.combine is None else ["keep"]
            changes["late"] = self.rng.choice(choices)
            if old.open == "hold":  # where silence is heard, it has to stay
                changes["grace"] = self.rng.choice([old.grace, 0.0, 2 * 3600.0])
        spec = Spec(**{field: getattr(old, field) for field in old.__struct_fields__} | changes)
        self.until_answered(lambda replica: replica.configure(name, spec))
        self.specs[name] = spec
        self.note("settings", name, changes)

    def register(self) -> None:
        name, action = self.rng.choice([*self.specs]), self.rng.choice("bcd")
        put = {action: [round(self.rng.uniform(-0.7, 0.7), 3) for _ in range(DIM)]}
        drop = [self.rng.choice("bcd")] if self.rng.random() < 0.3 else []
        self.until_answered(lambda replica: (replica.catch_up(), replica.register(name, put, drop)))
        self.note("actions", name, put, drop)

    def snapshot(self) -> None:
        replica = self.rng.choice(self.replicas)
        snapshots.save(replica, self.folder)
        self.note("snapshot", replica.position)

    def crash(self) -> None:
        self.restart(self.rng.randrange(2))

    def jump_back(self) -> None:
        self.now -= self.rng.randrange(2 * HOUR)
        self.note("clock back")

    # --------------------------------------------------------------------------------- days

    def begin(self) -> None:
        for name, spec in self.specs.items():
            self.until_answered(lambda replica, name=name, spec=spec: replica.configure(name, spec))
            while not all(name in replica.folds for replica in self.replicas):
                self.keep_up()
            self.until_answered(lambda replica, name=name: replica.register(name, ACTIONS))

    def live(self, days: int) -> Iterator[int]:
        """A day at a time."""
        self.begin()
        often, rarely = (
            [self.decide] * 3 + [self.deliver] * 4 + [self.expire] * 2,
            [
                *[self.cancel, self.revise, self.forget, self.configure, self.register],
                *[self.snapshot, self.crash, self.jump_back, self.note_outcome, self.retain],
            ],
        )
        for day in range(1, days + 1):
            end = BEGINNING + day * DAY
            while self.now < end:
                act = self.rng.choice(often if self.rng.random() < 0.8 else rarely)
                act()
                self.now += round(self.rng.expovariate(1 / 2.5) * HOUR)
            self.check()
            yield day

    def check(self) -> None:
        """With a disk that works: every replica reads to the end, and all must hold."""
        self.has_faults = False
        for digest in check_day(self):
            self.trace.update(digest.encode())
        self.has_faults = True


def simulate(seed: int, days: int) -> Result:
    """Raises where something does not hold, saying how to see it again."""
    with ExitStack() as stack:
        world = World(seed, stack)
        day = 0
        try:
            for day in world.live(days):  # noqa: B007 - told in the note below
                pass
        except BaseException as error:
            error.add_note(
                f"day {day + 1}; again: python tests/support/simulation.py {seed} {days}"
            )
            raise
        n = world.replicas[0].ledger.behind(START)
        for replica in world.replicas:
            replica.ledger.close()
        return Result(world.trace.hexdigest(), days, n, world.happened)


if __name__ == "__main__":
    print(simulate(int(sys.argv[1]), int(sys.argv[2])))
