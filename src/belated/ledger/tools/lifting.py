"""The lift of a bandit: its decisions against those of its holdout, from the log.

Only decisions since the last change of ``holdout`` or ``baseline`` are compared: before, other
shares of the traffic were in the groups, and a good week of the shop would count for one of them.
Rewards after the window are left out on both sides. Where several rewards of a decision are
combined, each counts for what it adds, with a delay of its own, in a conversion loop. In a loop
with explicit rewards only decisions count whose window is over; without a window the answer says
that what comes after the first reward is not allowed for.

Guardrail outcomes are compared by the same estimator. In a loop with explicit rewards a decision
has an outcome when it is handed in, be it 0; in a conversion loop silence is 0 when the window
closes. Outcomes of one name are added up, like several rewards. With k - 1 names in the log, each
of the k intervals has the level 1 - alpha / k, so that all hold together at 1 - alpha, the
reward's too: whoever looks at guardrails looks for a reason to stop, and each is another chance to
be wrong.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.arguments import shown
from belated.core.times import iso
from belated.evaluation.holdout_lift import Decisions, Lift, lift
from belated.ledger.base import spec_of
from belated.ledger.events import (
    IMPORTED,
    Decided,
    Event,
    Guardrail,
    Kind,
    added_reward,
    is_late,
)
from belated.ledger.promotion import settings_in
from belated.ledger.protocol import Ledger
from belated.ledger.spec import Spec
from belated.ledger.standing import Ending
from belated.wire import GuardrailLift, LiftGroup, LiftView

NO_HOLDOUT = "Nobody is held out: with holdout = 0.1, say, one in ten subjects gets the baseline."
NOT_ALLOWED_FOR = (
    "Some decisions have several, and the loop has no window: the age is allowed for as if the "
    "first were all, so the group whose later ones are slower looks worse than it is"
)
_decided, _guardrail = msgspec.msgpack.Decoder(Decided), msgspec.msgpack.Decoder(Guardrail)


class _Came(NamedTuple):
    """A reward or a guardrail outcome of a decision, and when it was known."""

    value: float
    received: int


class _Made(NamedTuple):
    """A decision, in a group, with all that came of it."""

    time: int
    held_out: bool
    action: str
    unit: str | bytes  # the subject; without one, the first decision of the stretch
    ending: Ending
    rewards: list[_Came]  # what each one added
    guardrails: dict[str, list[_Came]]

    def take(self, event: Event) -> None:
        """Take in one more event about the decision, other than an outcome."""
        ending = self.ending
        before = ending.reward if ending.status == "rewarded" else None
        ending.take(event)
        if ending.status != "rewarded" or ending.reward is None or ending.reward == before:
            return
        if before is None:
            assert ending.received is not None
            self.rewards[:] = [_Came(ending.reward, ending.received)]
        elif added_reward(event) is not None:
            _add(self.rewards, ending.reward - before, event.written)
        else:  # a correction is no delay
            first = self.rewards[0]
            self.rewards[0] = first._replace(value=first.value + ending.reward - before)


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
        from belated.ledger.tools.reading import unknown_bandit  # see _read

        raise unknown_bandit(ledger, name)
    now = latest if now is None else now
    default = spec.default_reward if spec.loop == "conversion" else 0.0
    names = sorted({name for one in made for name in one.guardrails})
    each = 1.0 - (1.0 - level) / (1 + len(names))

    def compared(
        came: Callable[[_Made], list[_Came]], range: float | None = None
    ) -> tuple[Lift, bool]:
        all_came, is_conversion = [came(one) for one in made], spec.loop == "conversion"
        several = not is_conversion and any(len(each) > 1 for each in all_came)
        if several:
            all_came = [_as_one(each) for each in all_came]
        columns, place = _columns(made, now, all_came)
        found = lift(
            columns,
            conversions=is_conversion,
            window=None if spec.window is None else spec.closes_after / 1e6,
            level=each,
            range=range,
            place=place,
            closed_only=several and spec.window is not None,
        )
        return found, several and spec.window is None

    found, careful = compared(lambda one: _above(one, default), _range(spec))
    groups = [LiftGroup(*group) for group in found.groups]
    for group in groups:
        group.mean = None if group.mean is None else group.mean + default
    guardrails = {name: compared(_guardrail_of(name)) for name in names}
    sentence = _careful(_sentence(found, level), careful)
    return LiftView(
        sentence=sentence if spec.holdout else NO_HOLDOUT,
        bandit=name,
        compared=f"reward per decision of the bandit against {_baseline(spec)}",
        since=iso(since),
        now=iso(now),
        level=level,
        groups=groups,
        difference=found.difference,
        low=found.low,
        high=found.high,
        guardrails=[_guardrail_view(name, *pair) for name, pair in guardrails.items()],
    )


def _above(one: _Made, default: float) -> list[_Came]:
    """Returns the rewards that a decision has above the default, if they came in time."""
    if one.ending.status != "rewarded":
        return []
    first, *others = one.rewards
    return [first._replace(value=first.value - default), *others]


def _guardrail_of(name: str) -> Callable[[_Made], list[_Came]]:
    return lambda one: one.guardrails.get(name, [])


def _as_one(came: list[_Came]) -> list[_Came]:
    """Returns the sum of what came, known when the first was."""
    return [_Came(sum(each.value for each in came), came[0].received)] if came else []


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


def _guardrail_view(name: str, found: Lift, careful: bool) -> GuardrailLift:
    bandit, holdout = (group.mean for group in found.groups)
    ends = found.difference, found.low, found.high
    return GuardrailLift(name, _careful(_words(name, found), careful), bandit, holdout, *ends)


def _careful(sentence: str, careful: bool) -> str:
    return f"{sentence} {NOT_ALLOWED_FOR}." if careful else sentence


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
            made[event.id].take(event)
    kept = [one for one in made.values() if one.ending.status != "cancelled"]
    return spec, since, latest, kept


def _made(event: Event) -> _Made | None:
    """Returns a decision; None where another program made it, and nobody was assigned."""
    body = _decided.decode(event.body)
    if body.policy == IMPORTED:
        return None
    ending = Ending(event.due, event.closes)
    unit = body.subject or body.repeats or event.id  # retention leaves what was repeated
    return _Made(event.time, body.held_out, body.action, unit, ending, [], {})


def _take_guardrail(one: _Made, event: Event) -> None:
    """Add an outcome to those of its name."""
    ending = one.ending
    late = is_late(event.time, event.received, ending.due, ending.closes, ending.expired)
    if late or event.value is None:
        return
    name = _guardrail.decode(event.body).name
    _add(one.guardrails.setdefault(name, []), event.value, event.written)


def _add(came: list[_Came], value: float, received: int) -> None:
    """Add one more; what was known at the same time is one."""
    if came and came[-1].received == received:
        value += came.pop().value
    came.append(_Came(value, received))


def _columns(
    made: list[_Made], now: int, came: list[list[_Came]]
) -> tuple[Decisions, NDArray[np.int64]]:
    """Returns the decisions as columns, and of each row which reward of its decision it is."""
    names: dict[str, int] = {}
    units: dict[str | bytes, int] = {}
    rows = []
    for one, found in zip(made, came, strict=True):
        action = names.setdefault(one.action, len(names))
        unit = units.setdefault(one.unit, len(units))
        for place, (reward, until) in enumerate(found or [_Came(np.nan, now)]):
            # clocks may disagree
            age, waited = (max(end - one.time, 0) / 1e6 for end in (now, until))
            rows.append((one.held_out, action, unit, place, age, waited, reward))
    columns = np.array(rows, np.float64).reshape(-1, 7).T
    held_out, action_of, unit_of, place_of = columns[:4].astype(np.int64)
    return Decisions(held_out == 1, action_of, unit_of, *columns[4:]), place_of


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
