"""Tests of the tests: for each check of a store a broken one that it must catch, and say why."""

import pytest
from msgspec.structs import replace

from belated.ledger import checks as ledger_checks
from belated.ledger.checks import LEDGER_CHECKS
from belated.ledger.events import Kind
from belated.ledger.stores.memory import MemoryLedger


def store(**methods):
    """A ledger in memory with other methods. Each gets the ledger and the honest method."""

    def replaced(name, method):
        honest = getattr(MemoryLedger, name)
        return lambda self, *args, **options: method(self, honest, *args, **options)

    members = {name: replaced(name, method) for name, method in methods.items()}
    return type("BrokenLedger", (MemoryLedger,), members)


def without_due(self, follow, after, limit=100_000):
    events, position = follow(self, after, limit)
    return [replace(event, due=None) for event in events], position


def without_receipt(self, follow, after, limit=100_000):
    events, position = follow(self, after, limit)
    return [replace(event, received=None) for event in events], position


def torn(self, follow, after, limit=100_000):
    events = [event for seq, event in self._events.items() if seq > after.seq][:limit]
    return events, type(after)(events[-1].tx, events[-1].seq) if events else after


def signed(self, follow, after, limit=100_000):
    events, position = follow(self, after, limit)
    return [replace(e, value=-0.0) for e in events], position


def backwards(self, commit, drafts, follower=None):
    return commit(self, drafts[::-1], follower)[::-1]


def forgetful(self, commit, drafts, follower=None):
    self._parked.clear()
    return commit(self, drafts, follower)


def nameless(self, commit, drafts, follower=None):
    return commit(self, [replace(draft, event_id="") for draft in drafts], follower)


def bodiless(self, commit, drafts, follower=None):
    about = [replace(d, body=b"") if d.kind is Kind.OUTCOME else d for d in drafts]
    return commit(self, about, follower)


def asking_nobody(self, commit, drafts, follower=None):
    return commit(self, drafts)


def asking_too_late(self, commit, drafts, follower=None):
    outcomes = commit(self, drafts)
    if follower is not None:
        follower.approve(outcomes)
    return outcomes


def credulous(self, commit, drafts, follower=None):
    for id in follower.open_decisions({draft.id for draft in drafts}) if follower else ():
        del self._places[id][1:]
    return commit(self, drafts, follower)


def in_pieces(self, commit, drafts, follower=None):
    pieces = [drafts[k : k + 1000] for k in range(0, len(drafts), 1000)]
    return [outcome for piece in pieces for outcome in commit(self, piece, follower)]


def as_one(self, commit_all, batches, follower=None):
    outcomes = iter(self.commit([draft for batch in batches for draft in batch], follower))
    return [[next(outcomes) for _ in batch] for batch in batches]


BROKEN_LEDGERS = {
    "log_keeps_everything": (store(follow=without_due), "follow must return the due"),
    "follow_is_exact": (store(follow=torn), "must not end within a transaction"),
    "rewards": (lambda: MemoryLedger(park_for=10**18), "must not be parked"),
    "event_time": (store(follow=without_receipt), "and when it was handed in, if it differs"),
    "several_rewards": (store(commit=nameless), "an event id again is a duplicate"),
    "guardrails": (store(commit=bodiless), "an outcome is one by its body"),
    "zeros_have_no_sign": (store(follow=signed), "write 0.0 for -0.0"),
    "one_batch": (store(commit=backwards), "in the light of those before it"),
    "endings": (
        store(story=lambda self, story, id: story(self, id)[:2]),
        "a reward can be revised|changes nothing|is a duplicate",
    ),
    "parking": (store(commit=forgetful), "a parked reward must be remembered"),
    "parked_pages": (
        store(parked=lambda self, parked, limit=0, after=b"": parked(self)),
        "must return the next rewards after an id",
    ),
    "requests": (
        store(requested=lambda self, requested, bandit, request: requested(self, "shop", request)),
        "another may have it too",
    ),
    "invalid_rewards": (store(commit=asking_nobody), "ask follower.accepts"),
    "stale_memory": (store(commit=credulous), "judge by the log"),
    "approval": (store(commit=asking_too_late), "nothing may be written when follower.approve"),
    "forgetting": (
        store(forget=lambda self, forget, *who: len(self.subject(*who[:2]))),
        "forget must blank|must write that something",
    ),
    "many": (store(commit=in_pieces), "a batch of 3000 must be one transaction"),
    "batches": (store(commit_all=as_one), "each batch as a transaction of its own"),
    "retention": (
        store(retain=lambda self, retain, before, dry_run=False: retain(self, before)),
        "nothing in a dry run",
    ),
    "compaction": (store(drop=lambda self, drop: 0), "drop must delete the events before the base"),
}


@pytest.mark.parametrize("name", BROKEN_LEDGERS)
def test_broken_ledger(name):
    new, message = BROKEN_LEDGERS[name]
    with pytest.raises(AssertionError, match=message):
        next(check for check in LEDGER_CHECKS if check.__name__ == f"check_{name}")(new)


def test_every_check_is_listed_and_has_something_broken_to_catch():
    names = {check.__name__ for check in LEDGER_CHECKS}
    written = {name for name in vars(ledger_checks) if name.startswith("check_")}
    assert names == {f"check_{name}" for name in BROKEN_LEDGERS}
    assert written - names == {"check_ledger"}
