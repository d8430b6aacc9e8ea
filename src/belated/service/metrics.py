"""What Prometheus scrapes: counted as requests pass, read off the bandits when asked."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from belated.ledger.fold import Fold
from belated.service.running import Service

AGES = (1.0, 10.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0, 604800.0)  # seconds
COMMITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


class Histogram:
    """Counts below bounds, and the sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one more."""
        place = next((k for k, bound in enumerate(self.bounds) if value <= bound), -1)
        self.counts[place] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: everything up to a bound."""
        names = [*map(str, self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


class Metrics:
    """All metrics of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._commits = Histogram(COMMITS)
        self._registry = CollectorRegistry()
        self._registry.register(self)  # type: ignore[arg-type]

    def page(self) -> tuple[bytes, str]:
        """What to answer, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def describe(self) -> list[Metric]:
        """Nothing in advance: a registry would otherwise collect all to find out."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called by the registry when somebody scrapes."""
        yield from self._traffic()
        yield from self._store()
        yield from self._bandits(list(self.service.loop.folds.values()))

    def _traffic(self) -> Iterator[Metric]:
        tally = self.service.tally
        decisions = CounterMetricFamily(
            "belated_decisions", "Decisions made and logged by this process", labels=["bandit"]
        )
        unlogged = CounterMetricFamily(
            "belated_decisions_not_logged", "Fallback answers while the store was down", labels=["bandit"]
        )
        rewards = CounterMetricFamily(
            "belated_rewards", "Rewards handed in to this process, by what became of them",
            labels=["bandit", "status"],
        )
        for name, count in tally.decisions.items():
            decisions.add_metric([name], count)
        for name, count in tally.not_logged.items():
            unlogged.add_metric([name], count)
        for (name, status), count in tally.rewards.items():
            rewards.add_metric([name, status.value], count)
        yield from (decisions, unlogged, rewards)

    def _store(self) -> Iterator[Metric]:
        service = self.service
        seconds, service.writer.commit_seconds = service.writer.commit_seconds, []
        for value in seconds:
            self._commits.add(value)
        yield HistogramMetricFamily(
            "belated_commit_seconds", "Time to make a group of requests durable",
            self._commits.buckets(), self._commits.sum,
        )
        yield CounterMetricFamily(
            "belated_store_errors", "Times the store could not be used", service.tally.store_errors
        )
        yield GaugeMetricFamily("belated_ready", "1 when requests are served", service.ready)
        yield GaugeMetricFamily("belated_store_down", "1 while the store cannot be used", service.store_is_down)
        behind = (service.loop.clock() - service.followed_at) / 1e6
        yield GaugeMetricFamily(
            "belated_model_staleness_seconds", "Since the end of the log was last seen",
            max(0.0, behind),
        )
        yield GaugeMetricFamily(
            "belated_model_staleness_rounds", "Events in the log that the model has not taken in",
            service.events_behind(),
        )

    def _bandits(self, folds: list[Fold]) -> Iterator[Metric]:
        now = self.service.loop.clock()
        pending = GaugeMetricFamily(
            "belated_pending", "Decisions without reward, by age in seconds: all up to le", labels=["bandit", "le"]
        )
        gauges = {
            "belated_model_version": ("Events taken in", lambda f: f.version),
            "belated_rewards_learnt": ("Rewards the estimate rests on", lambda f: f.learner.n_observed),
            "belated_expired": ("Decisions whose window closed without a reward", lambda f: f.counts.expired),
            "belated_late": ("Rewards that came after their window", lambda f: f.counts.late),
        }
        for fold in folds:
            ages = Histogram(AGES)
            for p in list(fold.pending.values()):
                ages.add((now - p.time) / 1e6)
            for bound, count in ages.buckets():
                pending.add_metric([fold.name, bound], count)
        yield pending
        for name, (text, read) in gauges.items():
            gauge = GaugeMetricFamily(name, text, labels=["bandit"])
            for fold in folds:
                gauge.add_metric([fold.name], read(fold))
            yield gauge
        delays = HistogramMetricFamily("belated_delay_seconds", "From a decision to its reward", labels=["bandit"])
        for fold in folds:
            delays.add_metric([fold.name], fold.delays.buckets(), fold.delays.sum)
        yield delays
