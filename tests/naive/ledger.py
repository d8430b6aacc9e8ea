"""A slow and obvious twin of the fold: what should have been learnt, from the rules alone.

The rules are those of ``Spec``: an explicit loop learns a reward when it comes, a conversion loop
when the window closes; a reward after the window is kept, or revises, as the settings say then.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np

from belated.ledger.events import Decided, Event, Kind, Reward
from belated.ledger.spec import Spec
from belated.ledger.vectors import vector_of


@dataclass
class Story:
    """What became of one decision."""

    x: np.ndarray
    time: int
    due: int | None
    closes: int | None  # the end of the window with its grace
    state: str = "pending"  # or learnt, given up, cancelled
    value: float | None = None  # held, or learnt
    window_closed: bool = False
    on_time: list[tuple[int, float]] = field(default_factory=list)  # times and values of rewards

    def is_late(self, event: Event) -> bool:
        received = event.time if event.received is None else event.received
        in_time = self.due is None or (event.time <= self.due and received <= self.closes)
        return self.window_closed or not in_time


@dataclass
class Bandit:
    """All stories of a bandit, and how often what happened."""

    spec: Spec
    stories: dict[bytes, Story] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def of_state(self, state: str) -> int:
        return sum(story.state == state for story in self.stories.values())

    def learnt(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Vectors, rewards and weights that the estimate must rest on."""
        rows = [k for k, story in enumerate(self.stories.values()) if story.state == "learnt"]
        stories = [[*self.stories.values()][k] for k in rows]
        x = np.array([story.x for story in stories]).reshape(-1, self.spec.dim)
        return x, np.array([story.value for story in stories]), self.weights()[rows]

    def weights(self) -> np.ndarray:
        """What each decision counts for: 2^(-age in half-lives), age by sixteenths."""
        length = self.spec.half_life
        if length is None:
            return np.ones(len(self.stories))
        if self.spec.half_life_unit == "decisions":
            sixteenths = [math.floor(16 * k / length) for k in range(len(self.stories))]
        else:
            milliseconds = [int.from_bytes(id[:6], "big") for id in self.stories]
            sixteenths = [1000 * ms // round(length * 62_500) for ms in milliseconds]
        return 2.0 ** ((np.array(sixteenths) - max(sixteenths, default=0)) / 16)


def read(events: list[Event]) -> dict[str, Bandit]:
    """Go through the log once."""
    bandits: dict[str, Bandit] = {}
    for event in events:
        if event.kind == Kind.CONFIGURED:
            spec = msgspec.json.decode(event.body, type=Spec)
            if event.bandit in bandits:
                bandits[event.bandit].spec = spec
            else:
                bandits[event.bandit] = Bandit(spec)
        elif event.kind == Kind.DECIDED:
            _decided(bandits[event.bandit], event)
        elif event.id and event.kind != Kind.OUTCOME:  # nothing else is left of what was erased
            _about(bandits[event.bandit], bandits[event.bandit].stories[event.id], event)
    return bandits


def _decided(bandit: Bandit, event: Event) -> None:
    if not event.id:
        bandit.counts["erased"] += 1
        return
    body = msgspec.msgpack.decode(event.body, type=Decided)
    closes = event.due if event.closes is None else event.closes
    bandit.stories[event.id] = Story(vector_of(body.x), event.time, event.due, closes)


def _about(bandit: Bandit, story: Story, event: Event) -> None:
    conversion = bandit.spec.loop == "conversion"
    if event.kind == Kind.REWARDED:
        bandit.counts["rewarded"] += 1
        if story.is_late(event):
            bandit.counts["late"] += 1
            if bandit.spec.late == "keep":
                return
        story.on_time.append((event.time, event.value))
        _reward(story, event.value, at_once=story.window_closed or not conversion)
    elif event.kind == Kind.REVISED:
        bandit.counts["revised"] += 1
        if bandit.spec.combine is not None:
            reward = msgspec.msgpack.decode(event.body, type=Reward)
            assert reward.late == story.is_late(event)
            if reward.late:
                bandit.counts["late"] += 1
                return
            story.on_time.append((event.time, reward.value))
            assert event.value == combined(bandit.spec.combine, story.on_time)
        _reward(story, event.value, at_once=story.window_closed or not conversion)
    elif event.kind == Kind.CANCELLED:
        bandit.counts["cancelled"] += 1
        story.state = "cancelled"
    elif event.kind == Kind.EXPIRED:
        assert story.due is not None
        assert event.time > story.closes, "a window was closed too early"
        story.window_closed = True
        if story.state == "pending":
            if story.value is None:
                bandit.counts["expired"] += 1
                story.value = bandit.spec.default_reward
            story.state = "learnt" if conversion else "given up"


def combined(how: str, rewards: list[tuple[int, float]]) -> float:
    """What rewards amount to, given in the order of the log as times and values."""
    if how in ("sum", "max"):
        return {"sum": sum, "max": max}[how](value for _, value in rewards)
    times = [time for time, _ in rewards]
    if how == "first":
        return rewards[times.index(min(times))][1]
    return rewards[len(times) - 1 - times[::-1].index(max(times))][1]


def _reward(story: Story, value: float | None, at_once: bool) -> None:
    story.value = value
    if at_once:
        story.state = "learnt"
