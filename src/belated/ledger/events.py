"""Events, the content of a ledger. Each is written once and never rewritten.

The state of a bandit is a fold over its events, in the order of the log. Everything that one
process knows and another one needs (a bandit's settings, its actions, API keys) is an event, too.
Erasure and retention empty events; compaction drops old ones.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from belated.core.events import Status

NOBODY = b""  # the id of an event that is not about a decision
IMPORTED = "imported"  # of a decision that another program made: in place of the policy
BY_PLACE, BY_FEATURES = "place", "features"  # see ``Decided.naming``


class Kind(IntEnum):
    """The kinds of events."""

    DECIDED = 0
    REWARDED = 1
    EXPIRED = 2  # the window of a decision closed
    CANCELLED = 3  # a decision was not carried out: no reward is waited for
    REVISED = 4  # another reward takes the place of the one that was learnt
    CONFIGURED = 5  # a bandit was made, or its settings changed
    ACTIONS = 6  # actions were registered or withdrawn
    FORGOTTEN = 7  # the data of a subject were erased
    KEYS = 8  # an API key was made or revoked
    OUTCOME = 9  # a decision has a guardrail outcome, which is not learnt from
    PROMOTED = 10  # a bandit goes on as if it had had other settings all along
    QUIET = 11  # nobody decided for a while: time passes for decisions that are open


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event before it is written."""

    kind: Kind
    bandit: str  # "" for a reward, cancellation or revision, which belongs to the decision's bandit
    id: bytes  # 16 bytes, or NOBODY
    time: int  # when it happened, in microseconds since 1970
    value: float | None = None  # the reward
    due: int | None = None  # of a decision: the time at which its window closes
    body: bytes = b""  # everything that the ledger need not understand
    request: str = ""  # of a decision: the caller's name for it, unique in its bandit
    digest: bytes = b""  # digest of the request's content
    subject: str = ""  # of a decision: the person or thing it concerns
    received: int | None = None  # of a reward: when it was handed in; None: when it happened
    closes: int | None = None  # of a decision: the end of its window with grace; None: ``due``
    combine: str | None = None  # of a decision: how several rewards become one; None: one only
    event_id: str = ""  # of a reward: the caller's name for it, unique in its decision


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event of the log. Events with the same ``tx`` were committed together."""

    tx: int
    seq: int
    kind: Kind
    bandit: str
    id: bytes
    time: int
    value: float | None
    due: int | None
    body: bytes
    received: int | None = None  # as in ``Draft``
    closes: int | None = None
    combine: str | None = None

    @property
    def written(self) -> int:
        """When the event was handed in, which for a reward may be long after it happened."""
        return self.time if self.received is None else self.received


class Facts(msgspec.Struct, gc=False):
    """The facts that the log holds on a decision."""

    bandit: str
    time: int
    due: int | None
    closes: int | None = None
    value: float | None = None  # the reward it has now
    expired: bool = False
    cancelled: bool = False
    combine: str | None = None
    combined: float | None = None  # all its rewards that were on time, as one
    chosen: int = 0  # the event time of the one that counts, by "first" or "last"
    rewards: dict[str, float] = {}  # each by its event id; if not combined, the one that has one
    guardrails: dict[bytes, float] = {}  # guardrail outcomes by their bodies


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The ledger's answer to a draft."""

    status: Status
    bandit: str = ""
    earlier: Event | None = None  # for a request that was made before: the decision it got then
    facts: Facts | None = None  # for a CONFLICT over a decision's story: the facts at that time


class Waiting(NamedTuple):
    """A reward that came before its decision."""

    id: bytes
    time: int
    value: float
    received: int | None = None
    event_id: str = ""


class Position(NamedTuple):
    """A place in the log: after this event, in commit order."""

    tx: int = 0
    seq: int = 0


START = Position()


class Stretch(msgspec.Struct, array_like=True, frozen=True):
    """The time for which a subject gets the same action again, see ``ledger/sticky.py``."""

    until: int
    rank: int = 1  # the place in a ranking; 1 for a decision by itself


class Decided(msgspec.Struct, array_like=True, frozen=True):
    """Body of a DECIDED event. Fields are only ever added, at the end and with a default."""

    x: bytes  # float64, the vector of the action that was played
    action: str
    index: int  # its row among the actions that could be chosen
    propensity: float | None
    version: int  # number of events that the model had taken in
    policy: str
    score: float
    estimate: float
    width: float
    context: bytes = b""  # JSON, as it came
    eligible: tuple[str, ...] | None = None  # names among the registered actions; None: all
    proposal: str = ""  # in shadow mode: what the bandit would have played
    names: tuple[str, ...] | None = None  # names of actions that came with the request
    matrix: bytes = b""  # their features, if the bandit logs them
    request: str = ""
    subject: str = ""
    n_actions: int = 0  # how many could be chosen; 0 where a version before 0.2 decided
    probabilities: tuple[float, ...] | None = None  # of all these, if they were asked for
    held_out: bool = False  # the baseline was played, see ``ledger/holdout.py``
    stretch: Stretch | None = None  # that it begins, where decisions are sticky
    repeats: bytes = b""  # id of the decision whose action was played again for its subject
    regime: str = ""  # of the model that decided, and ...
    layout: str = ""  # ... of the features by which ``x`` was made, see ``ledger/promotion.py``
    # Of actions that came with the request without names: BY_PLACE, ``action`` is the row number,
    # or BY_FEATURES, it is made of the action's categories. Versions before 0.2 do not say it.
    naming: str = ""

    @property
    def of_registered(self) -> bool:
        """Returns whether the actions were registered ones, as far as the log says."""
        return self.names is None and not self.naming


class Reward(msgspec.Struct, array_like=True, frozen=True):
    """Body of a reward that has an event id, or that is not the first of its decision.

    A reward that is combined with earlier ones is a REVISED event: its ``value`` is the reward that
    the decision has from then on, and the body holds what was handed in.
    """

    event_id: str
    value: float
    late: bool = False  # it is kept, and does not count
    changes: bool = True  # whether the decision has another reward now


class Guardrail(msgspec.Struct, array_like=True, frozen=True):
    """Body of an OUTCOME event, whose ``value`` is the outcome.

    A decision has one outcome for each pair of a name and an event id.
    """

    name: str
    event_id: str = ""


class ActionsChange(msgspec.Struct, array_like=True, frozen=True):
    """Body of an ACTIONS event: features by name, and names to withdraw."""

    put: dict[str, Any]
    drop: tuple[str, ...] = ()


class Erasure(msgspec.Struct, array_like=True, frozen=True):
    """Body of a FORGOTTEN event."""

    decisions: int  # number of decisions that were erased
    first: Position | None  # the earliest of them


class KeyChange(msgspec.Struct, array_like=True, frozen=True):
    """Body of a KEYS event: an API key, as it is from now on."""

    id: str  # the part of the key that is not secret
    name: str
    secret_hash: str
    bandit: str  # the bandit for which the key is good; "" for all
    scopes: tuple[str, ...]
    revoked: bool = False

    def covers(self, bandit: str) -> bool:
        """Returns whether the key is for this bandit."""
        return self.bandit in ("", bandit)


def is_late(
    time: int, received: int | None, due: int | None, closes: int | None, expired: bool
) -> bool:
    """Returns whether a reward is late, given the facts of its decision.

    A reward is on time if it happened within the window and was handed in while the window, with
    its grace, was open.
    """
    if due is None or expired:
        return expired
    return time > due or (received or time) > (closes or due)


_reward = msgspec.msgpack.Decoder(Reward)


def added_reward(event: Event) -> Reward | None:
    """Returns the reward that an event added to earlier ones of its decision, if it did."""
    return _reward.decode(event.body) if event.kind is Kind.REVISED and event.body else None
