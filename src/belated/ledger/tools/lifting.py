"""Is the bandit worth it? Its decisions against those of its holdout, from the log.

Only decisions since the last change of ``holdout`` or ``baseline`` are compared: before, other
shares of the traffic were in the groups, and a good week of the shop would count for one of them.
Rewards after the window are left out on both sides; where several are combined, what has come so
far is the reward, and its delay is that of the first.

Guardrail outcomes are compared by the same estimator. In a loop with explicit rewards a decision
has an outcome when it is handed in, be it 0; in a conversion loop silence is 0 when the window
closes. Outcomes of one name are added up. With k - 1 names in the log, each of the k intervals has
the level 1 - alpha / k, so that all hold together at 1 - alpha, the reward's too: whoever looks
at guardrails looks for a reason to stop, and each is another chance to be wrong.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from belated.core.arguments import shown, wrong
from belated.core.times import iso
from belated.evaluation.holdout_lift import Decisions, Lift, lift
from belated.ledger.base import spec_of
from belated.ledger.events import IMPORTED, Decided, Event, Guardrail, Kind, is_late
from belated.ledger.promotion import settings_in
from belated.ledger.protocol import Ledger
from belated.ledger.spec import Spec
from belated.ledger.standing import Ending
from belated.wire import GuardrailLift, LiftGroup, LiftView

NO_HOLDOUT = "Nobody is held out: with holdout = 0.1, say, one in ten subjects gets the baseline."
_decided, _guardrail = msgspec.msgpack.Decoder(Decided), msgspec.msgpack.Decoder(Guardrail)


class _Came(NamedTuple):
    """A reward or a guardrail outcome of a decision, and when it was known."""

    value: float
    received: int


class _Made(NamedTuple):
    """A decision, in a group."""

    time: int
    held_out: bool
    action: str
    unit: str | bytes  # the subject; without one, the first decision of the stretch
    ending: Ending
    guardrails: dict[str, _Came]


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
        Of all intervals together, which are valid at all times at which one looks.
    """
    spec, since, latest, made = _read(ledger, name)
    if spec is None:
        raise wrong("name", name, "a bandit of this ledger")
    now = latest if now is None else now
    default = spec.default_reward if spec.loop == "conversion" else 0.0
    names = sorted({name for one in made for name in one.guardrails})
    each = 1.0 - (1.0 - level) / (1 + len(names))

    def compared(came: Callable[[_Made], _Came | None], range: float | None = None) -> Lift:
        return lift(
            _columns(made, now, came),
            conversions=spec.loop == "conversion",
            window=None if spec.window is None else spec.closes_after / 1e6,
            level=each,
            range=range,
        )

    found = compared(lambda one: _reward(one, default), _range(spec))
    groups = [LiftGroup(*group) for group in found.groups]
    for group in groups:
        group.mean = None if group.mean is None else group.mean + default
    guardrails = {name: compared(_guardrail_of(name)) for name in names}
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
        guardrails=[_guardrail_view(*pair) for pair in guardrails.items()],
    )


def _reward(one: _Made, default: float) -> _Came | None:
    """Returns the reward that a decision has above the default, if it came in time."""
    ending = one.ending
    if ending.status != "rewarded" or ending.reward is None:
        return None
    assert ending.received is not None
    return _Came(ending.reward - default, ending.received)


def _guardrail_of(name: str) -> Callable[[_Made], _Came | None]:
    return lambda one: one.guardrails.get(name)


def _range(spec: Spec) -> float | None:
    """Returns by how much two rewards can differ; None where the family does not bound them."""
    from belated.learner.files import SnapshotError
    from belated.model.protocols import RaisableSupport

    try:
        support = spec.law().support
    except SnapshotError:  # a family that is not part of belated
        return None
    raisable = isinstance(support, RaisableSupport)  # what a user allows is no bound by nature
    return None if raisable else support.high - support.low


def _guardrail_view(name: str, found: Lift) -> GuardrailLift:
    bandit, holdout = (group.mean for group in found.groups)
    ends = found.difference, found.low, found.high
    return GuardrailLift(name, _words(name, found), bandit, holdout, *ends)


def _read(ledger: Ledger, name: str) -> tuple[Spec | None, int, int, list[_Made]]:
    """Returns the settings, since when they hold, the latest time, and the decisions since."""
    from belated.ledger.tools.reading import events_of  # a service need not wait for Numba

    base = ledger.base()
    based = [] if base is None else [known for known in base.bandits if known.name == name]
    spec = spec_of(based[0]) if based else None
    since = latest = 0 if base is None or not based else base.until
    made: dict[bytes, _Made] = {}
    for event in events_of(ledger):
        if event.bandit != name:
            continue
        latest = max(latest, event.written)
        if event.kind in (Kind.CONFIGURED, Kind.PROMOTED):
            new = settings_in(event)
            if spec is None or (spec.holdout, spec.baseline) != (new.holdout, new.baseline):
                made, since = {}, event.time
            spec = new
        elif event.kind == Kind.DECIDED and event.id:
            decision = _made(event)
            if decision is not None:
                made[event.id] = decision
        elif event.kind == Kind.OUTCOME and event.id in made:
            _take_guardrail(made[event.id], event)
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
    unit = body.subject or body.repeats or event.id  # retention leaves what was repeated
    return _Made(event.time, body.held_out, body.action, unit, ending, {})


def _take_guardrail(one: _Made, event: Event) -> None:
    """Add an outcome to those of its name; their delay is that of the first."""
    ending = one.ending
    late = is_late(event.time, event.received, ending.due, ending.closes, ending.expired)
    if late or event.value is None:
        return
    name = _guardrail.decode(event.body).name
    known = one.guardrails.get(name, _Came(0.0, event.written))
    one.guardrails[name] = known._replace(value=known.value + event.value)


def _columns(made: list[_Made], now: int, came: Callable[[_Made], _Came | None]) -> Decisions:
    """Returns the decisions as columns."""
    names: dict[str, int] = {}
    units: dict[str | bytes, int] = {}
    rows = []
    for one in made:
        found = came(one)
        reward, until = (np.nan, now) if found is None else found
        place = names.setdefault(one.action, len(names))
        unit = units.setdefault(one.unit, len(units))
        # clocks may disagree
        age, waited = (max(end - one.time, 0) / 1e6 for end in (now, until))
        rows.append((one.held_out, place, unit, age, waited, reward))
    columns = np.array(rows, np.float64).reshape(-1, 6).T
    whole = columns[:3].astype(np.int64)
    return Decisions(whole[0] == 1, whole[1], whole[2], columns[3], columns[4], columns[5])


def _baseline(spec: Spec) -> str:
    uniform = "an action drawn uniformly"
    if not spec.baseline:
        return uniform
    return f"the action {shown(spec.baseline)} ({uniform} where it cannot be played)"


def _sentence(found: Lift, level: float) -> str:
    if found.low is None or found.high is None:
        return f"Too early to tell: {found.reason}."
    span = _span(found, f" a decision ({level:.0%} interval, valid whenever you look)")
    if found.low > 0.0:
        return f"The bandit earns more than its holdout: {span}."
    if found.high < 0.0:
        return f"The bandit earns less than its holdout: {span}."
    return f"Too early to tell: the difference is {found.difference:+.3g}, and may be {span}."


def _words(name: str, found: Lift) -> str:
    """Says how a guardrail outcome differs; whether more of it is good, nobody has said."""
    if found.low is None or found.high is None:
        return f"{name}: too early to tell: {found.reason}."
    span = _span(found, " a decision")
    if found.low > 0.0 or found.high < 0.0:
        more = "more" if found.low > 0.0 else "less"
        return f"{name}: {more} with the bandit than in its holdout: {span}."
    return f"{name}: no difference is seen: {found.difference:+.3g}, and may be {span}."


def _span(found: Lift, unit: str) -> str:
    return f"{found.low:+.3g} to {found.high:+.3g}{unit}"
