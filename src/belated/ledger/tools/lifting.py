"""Is the bandit worth it? Its decisions against those of its holdout, from the log.

Only decisions since the last change of ``holdout`` or ``baseline`` are compared: before, other
shares of the traffic were in the groups, and a good week of the shop would count for one of them.
Rewards after the window are left out on both sides; where several are combined, what has come so
far is the reward, and its delay is that of the first.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from belated.core.arguments import shown, wrong
from belated.core.times import iso
from belated.evaluation.holdout_lift import Decisions, Lift, lift
from belated.ledger.events import IMPORTED, Decided, Event, Kind
from belated.ledger.protocol import Ledger
from belated.ledger.spec import Spec
from belated.ledger.standing import Ending
from belated.wire import LiftGroup, LiftView

NO_HOLDOUT = "Nobody is held out: with holdout = 0.1, say, one in ten subjects gets the baseline."
_decided = msgspec.msgpack.Decoder(Decided)


class _Made(NamedTuple):
    """A decision, in a group."""

    time: int
    held_out: bool
    action: str
    subject: str
    ending: Ending


def is_it_worth_it(
    ledger: Ledger, name: str, now: int | None = None, level: float = 0.95
) -> LiftView:
    """Returns what a bandit earns above its holdout, in reward per decision.

    Parameters
    ----------
    ledger
        The log. It is read once.
    name
        Name of the bandit.
    now
        In microseconds since 1970; default the latest time in the log.
    level
        Of the interval, which is valid at all times at which one looks.
    """
    spec, since, latest, made = _read(ledger, name)
    if spec is None:
        raise wrong("name", name, "a bandit of this ledger")
    now = latest if now is None else now
    default = spec.default_reward if spec.loop == "conversion" else 0.0
    window = None if spec.window is None else spec.closes_after / 1e6
    found = lift(
        _columns(made, now, default),
        conversions=spec.loop == "conversion",
        window=window,
        level=level,
    )
    groups = [LiftGroup(*group) for group in found.groups]
    for group in groups:
        group.mean = None if group.mean is None else group.mean + default
    return LiftView(
        sentence=_sentence(found, level) if spec.holdout else NO_HOLDOUT,
        bandit=name,
        compared=f"reward per decision of the bandit against {_baseline(spec)}",
        since=iso(since),
        now=iso(now),
        level=level,
        groups=groups,
        difference=found.difference,
        low=found.low,
        high=found.high,
    )


def _read(ledger: Ledger, name: str) -> tuple[Spec | None, int, int, list[_Made]]:
    """Returns the settings, since when they hold, the latest time, and the decisions since."""
    from belated.ledger.tools.reading import events_of  # a service need not wait for Numba

    spec: Spec | None = None
    since = latest = 0
    made: dict[bytes, _Made] = {}
    for event in events_of(ledger):
        if event.bandit != name:
            continue
        latest = max(latest, event.written)
        if event.kind == Kind.CONFIGURED:
            new = msgspec.json.decode(event.body, type=Spec)
            if spec is None or (spec.holdout, spec.baseline) != (new.holdout, new.baseline):
                made, since = {}, event.time
            spec = new
        elif event.kind == Kind.DECIDED and event.id:
            decision = _made(event)
            if decision is not None:
                made[event.id] = decision
        elif event.id in made:
            made[event.id].ending.take(event)
    kept = [one for one in made.values() if one.ending.status != "cancelled"]
    return spec, since, latest, kept


def _made(event: Event) -> _Made | None:
    """Returns a decision; None where another program made it, and nobody was assigned."""
    body = _decided.decode(event.body)
    if body.policy == IMPORTED:
        return None
    ending = Ending(event.due, event.closes)
    return _Made(event.time, body.held_out, body.action, body.subject, ending)


def _columns(made: list[_Made], now: int, default: float) -> Decisions:
    """Returns the decisions as columns; rewards are what they have above the default."""
    names: dict[str, int] = {}
    units: dict[Any, int] = {}
    rows = []
    for k, (time, held_out, action, subject, ending) in enumerate(made):
        reward, until = np.nan, now
        if ending.status == "rewarded" and ending.reward is not None:
            assert ending.received is not None
            reward, until = ending.reward - default, ending.received
        place = names.setdefault(action, len(names))
        unit = units.setdefault(subject or k, len(units))
        age, waited = (max(end - time, 0) / 1e6 for end in (now, until))  # clocks may disagree
        rows.append((held_out, place, unit, age, waited, reward))
    columns = np.array(rows, np.float64).reshape(-1, 6).T
    whole = columns[:3].astype(np.int64)
    return Decisions(whole[0] == 1, whole[1], whole[2], columns[3], columns[4], columns[5])


def _baseline(spec: Spec) -> str:
    uniform = "an action drawn uniformly"
    if not spec.baseline:
        return uniform
    return f"the action {shown(spec.baseline)} ({uniform} where it cannot be played)"


def _sentence(found: Lift, level: float) -> str:
    if found.difference is None:
        return f"Too early to tell: {found.reason}."
    low, high = found.low, found.high
    assert low is not None
    assert high is not None
    span = f"{low:+.3g} to {high:+.3g} a decision ({level:.0%} interval, valid whenever you look)"
    if low > 0.0:
        return f"The bandit earns more than its holdout: {span}."
    if high < 0.0:
        return f"The bandit earns less than its holdout: {span}."
    return f"Too early to tell: the difference is {found.difference:+.3g}, and may be {span}."
