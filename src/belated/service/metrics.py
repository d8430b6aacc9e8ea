"""What Prometheus scrapes: counted as requests pass, read off the bandits when asked."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from belated.logs.histogram import AGES, Histogram
from belated.service.running import Service

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

GAUGES: tuple[tuple[str, str, Callable[["Fold"], float]], ...] = (
    ("belated_model_version", "Events taken in", lambda f: f.version),
    ("belated_rewards_learnt", "Rewards the estimate rests on", lambda f: f.learner.n_observed),
    ("belated_expired", "Windows that closed without a reward", lambda f: f.counts.expired),
    ("belated_late", "Rewards that came after their window", lambda f: f.counts.late),
)


class Metrics:
    """All metrics of a service.

    Parameters
    ----------
    service
        Whose they are.
    one_of_many
        Whether other processes answer at the same address, and a scrape meets any one of them.
    """

    def __init__(self, service: Service, one_of_many: bool = False) -> None:
        self.service = service
        self.one_of_many = one_of_many
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._events_behind = 0

    async def page(self) -> tuple[bytes, str]:
        """What to answer, and its media type."""
        self._events_behind = await self.service.events_behind()  # a registry cannot wait for it
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> list[Metric]:
        """Nothing in advance: a registry would otherwise collect all to find out."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by the registry when somebody scrapes."""
        yield InfoMetricFamily("belated_worker", "The process that answered", {"pid": _pid()})
        yield from self._counted_here([*self._traffic(), *self._commits()])
        yield from self._store()
        yield from self._bandits(list(self.service.loop.folds.values()))

    def _traffic(self) -> Iterator[Metric]:
        tally, bandit = self.service.tally, ["bandit"]
        decisions = CounterMetricFamily(
            "belated_decisions", "Decisions made and logged by this process", labels=bandit
        )
        unlogged = CounterMetricFamily(
            "belated_decisions_not_logged", "Answers while the store was down", labels=bandit
        )
        rewards = CounterMetricFamily(
            "belated_rewards", "Rewards by what became of them", labels=[*bandit, "status"]
        )
        for name, count in tally.decisions.items():
            decisions.add_metric([name], count)
        for name, count in tally.not_logged.items():
            unlogged.add_metric([name], count)
        for (name, status), count in tally.rewards.items():
            rewards.add_metric([name, status.value], count)
        yield from (decisions, unlogged, rewards)

    def _counted_here(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        """What this process counts; under its own name, where it is one of many.

        Otherwise the count would seem to jump back and forth from one scrape to the next, and
        Prometheus takes every step back for a new start from zero.
        """
        own = {"pid": _pid()} if self.one_of_many else {}
        for metric in metrics:
            metric.samples = [s._replace(labels={**s.labels, **own}) for s in metric.samples]
            yield metric

    def _commits(self) -> Iterator[Metric]:
        seconds = self.service.writer.commit_seconds
        commit = HistogramMetricFamily(
            "belated_commit_seconds", "Time to make a group of requests durable"
        )
        commit.add_metric([], seconds.buckets(), seconds.sum)
        yield commit
        errors = self.service.tally.store_errors
        yield CounterMetricFamily("belated_store_errors", "Store could not be used", errors)

    def _store(self) -> Iterator[Metric]:
        service = self.service
        stale = max(0.0, (service.loop.clock() - service.followed_at) / 1e6)
        for name, text, value in (
            ("belated_ready", "1 when requests are served", float(service.ready)),
            ("belated_store_down", "1 while the store fails", float(service.store_is_down)),
            ("belated_model_staleness_seconds", "Since the end of the log was seen", stale),
            (
                "belated_model_staleness_rounds",
                "Events in the log that the model has not taken in",
                float(self._events_behind),
            ),
        ):
            yield GaugeMetricFamily(name, text, value)

    def _bandits(self, folds: "list[Fold]") -> Iterator[Metric]:
        now = self.service.loop.clock()
        pending = GaugeMetricFamily(
            "belated_pending", "Decisions without reward, of this age", labels=["bandit", "le"]
        )
        delays = HistogramMetricFamily(
            "belated_delay_seconds", "From a decision to its reward", labels=["bandit"]
        )
        for fold in folds:
            for bound, count in pending_by_age(fold, now).buckets():
                pending.add_metric([fold.name, bound], count)
            delays.add_metric([fold.name], fold.delays.buckets(), fold.delays.sum)
        yield from (pending, delays)
        for name, text, read in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["bandit"])
            for fold in folds:
                gauge.add_metric([fold.name], read(fold))
            yield gauge


def _pid() -> str:
    return str(os.getpid())


def pending_by_age(fold: "Fold", now: int) -> Histogram:
    """Ages of decisions that wait for a reward, in seconds. There may be millions of them."""
    waiting = [pending for pending in fold.pending.values() if pending.held is None]
    times = np.fromiter((pending.time for pending in waiting), np.int64, len(waiting))
    counts = np.bincount(np.searchsorted(AGES, (now - times) / 1e6), minlength=len(AGES) + 1)
    return Histogram(AGES, counts.tolist())
