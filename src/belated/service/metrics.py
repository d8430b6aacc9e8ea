"""Metrics for Prometheus: counted as requests pass, and read off the bandits at a scrape."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import nan
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from belated.service.service import Service

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

GAUGES: tuple[tuple[str, str, Callable[["Fold"], float]], ...] = (
    ("belated_model_version", "Events taken in", lambda f: f.version),
    ("belated_rewards_learnt", "Rewards the estimate rests on", lambda f: f.learner.n_observed),
    ("belated_expired", "Windows that closed without a reward", lambda f: f.counts.expired),
    ("belated_late", "Rewards that came after their window", lambda f: f.counts.late),
    (
        "belated_silent",
        "Open decisions of a loop that learns from silence",
        lambda f: f.hearing.n_open if f.hearing else 0,
    ),
    (
        "belated_silent_failures",
        "Failures that these count for together",
        lambda f: f.hearing.failures if f.hearing else 0.0,
    ),
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
        self._events_behind: int | None = None

    async def page(self) -> tuple[bytes, str]:
        """Returns the page of metrics and its media type."""
        self._events_behind = await self.service.events_behind()
        await self.service.settled()  # a registry cannot wait
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> list[Metric]:
        """Returns nothing: a registry would otherwise collect everything to find out."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by the registry when somebody scrapes."""
        yield InfoMetricFamily("belated_worker", "The process that answered", {"pid": _pid()})
        yield from self._counted_here([*self._traffic(), *self._commits()])
        yield from self._store()
        yield from self._bandits(list(self.service.replica.folds.values()))

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
        ended = CounterMetricFamily(
            "belated_parked_ended", "Parked rewards whose decision never came", tally.parked_ended
        )
        ages = HistogramMetricFamily(
            "belated_edge_model_age_seconds",
            "Decisions made elsewhere, by the age of the model document that made them",
            labels=bandit,
        )
        for name, histogram in tally.model_ages.items():
            ages.add_metric([name], histogram.buckets(), histogram.sum)
        yield from (decisions, unlogged, rewards, ended, ages, self._unmatched())

    def _unmatched(self) -> Metric:
        """Yields counts by kind, not by value: people may send any number of values."""
        zeros = CounterMetricFamily(
            "belated_unmatched_features",
            "Decisions in which a feature became zeros: unknown category, unused key, missing",
            labels=["bandit", "kind", "column"],
        )
        for name, unmatched in self.service.replica.unmatched.items():
            by_column = Counter[tuple[str, str]]()
            for what, count in list(unmatched.counts.items()):
                by_column[what.kind, str(what.column)] += count
            for labels, count in by_column.items():
                zeros.add_metric([name, *labels], count)
        return zeros

    def _counted_here(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        """Yields the counts of this process; under its own name if it is one of many workers.

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
        errors = self.service.outage.errors
        yield CounterMetricFamily("belated_store_errors", "Store could not be used", errors)

    def _store(self) -> Iterator[Metric]:
        service, behind = self.service, self._events_behind
        for name, text, value in (
            ("belated_ready", "1 when requests are served", float(service.ready)),
            ("belated_store_down", "1 while the store fails", float(service.outage.is_on)),
            (
                "belated_model_staleness_seconds",
                "Since the end of the log was seen",
                service.staleness,
            ),
            (
                "belated_model_staleness_rounds",
                "Events in the log that the model has not taken in; NaN while the store fails",
                nan if behind is None else float(behind),
            ),
        ):
            yield GaugeMetricFamily(name, text, value)

    def _bandits(self, folds: "list[Fold]") -> Iterator[Metric]:
        now = self.service.replica.clock()
        pending = GaugeMetricFamily(
            "belated_pending",
            "Decisions without reward, by age in whole seconds",
            labels=["bandit", "le"],
        )
        delays = HistogramMetricFamily(
            "belated_delay_seconds", "From a decision to its reward", labels=["bandit"]
        )
        broken = GaugeMetricFamily(
            "belated_assumption_broken",
            "1 for each assumption that the rewards speak against; the dashboard says more",
            labels=["bandit", "assumption"],
        )
        for fold in folds:
            for assumption in fold.broken_assumptions():
                broken.add_metric([fold.name, assumption], 1.0)
            for bound, count in fold.pending.by_age(now).buckets():
                pending.add_metric([fold.name, bound], count)
            delays.add_metric([fold.name], fold.delays.buckets(), fold.delays.sum)
        yield from (pending, delays, broken)
        for name, text, read in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["bandit"])
            for fold in folds:
                gauge.add_metric([fold.name], read(fold))
            yield gauge


def _pid() -> str:
    return str(os.getpid())
