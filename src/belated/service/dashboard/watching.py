"""The dashboard's data of a running service, worked out at most once a second."""

import asyncio
import pickle
from typing import TYPE_CHECKING

from belated.core.events import Status
from belated.monitoring.finding_alarms import Facts
from belated.service.dashboard.data import BanditFacts, BanditView, Dashboard
from belated.service.dashboard.view import bandit_view
from belated.service.ranking import best_view
from belated.service.service import Service

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

SECOND = 1_000_000


class Watch:
    """Views of bandits, kept for a second: many may look, and each look costs some milliseconds."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._kept: dict[str, tuple[int, BanditView]] = {}
        self._contexts: dict[str, tuple[Fold, int, bytes]] = {}

    async def dashboard(self, names: list[str], name: str | None) -> Dashboard:
        """Returns the data that the page asks for."""
        now = self.service.replica.clock()
        shown = name or (names[0] if names else None)
        view = None if shown is None else await self._view(shown, now)
        return Dashboard(now / 1e6, names, view)

    async def _view(self, name: str, now: int) -> BanditView:
        made, view = self._kept.get(name, (0, None))
        if view is None or not 0 <= now - made < SECOND:
            behind = await self.service.events_behind()
            await self.service.settled()
            fold = self.service.fold(name)
            # in a thread, on a copy: the live ones change meanwhile
            statistics, about = pickle.dumps(fold.statistics), self._about(fold, now, behind)
            view = await asyncio.to_thread(_view, statistics, now, about)
            self._kept[name] = now, view
        return view

    def _about(self, fold: "Fold", now: int, behind: int | None) -> BanditFacts:
        spec, tally, replica = fold.spec, self.service.tally, self.service.replica
        conversion = spec.loop == "conversion"
        n_actions = len(fold.actions.listed)  # among which exploration draws
        facts = Facts(
            learns_on_arrival=not conversion,
            waiting=fold.waiting_words(now),
            floor=spec.exploration / n_actions if spec.exploration and n_actions else None,
            unknown=tally.refused_lately(Status.UNKNOWN, now),
            conflicts=tally.refused_lately(Status.CONFLICT, now),
            late=fold.counts.late if spec.late == "keep" else 0,
            rewards=fold.counts.rewarded,
            zeros={str(what): n for what, n in replica.unmatched[fold.name].lately().items()},
            retired={
                setting: name
                for setting, name in (("baseline", spec.baseline), ("fallback", spec.fallback))
                if name and n_actions and name not in fold.actions.listed
            },
            broken=fold.broken_assumptions(),
            behind_seconds=self.service.staleness,
            behind_decisions=behind,
        )
        return BanditFacts(
            fold.name,
            spec.policy["type"],
            fold.version,
            spec.baseline or None,
            spec.default_reward if conversion else None,
            facts,
            best_view(fold, self._context(fold, now)),
            spec.holdout,
        )

    def _context(self, fold: "Fold", now: int) -> bytes:
        """Returns the context of a recent decision, the same for a minute, to avoid flicker.

        A fold that was made anew, because somebody's data was erased, has another one.
        """
        kept, since, context = self._contexts.get(fold.name, (None, 0, b""))
        if kept is not fold or not context or not 0 <= now - since < 60 * SECOND:
            context = fold.last_context
            self._contexts[fold.name] = fold, now, context
        return context


def _view(statistics: bytes, now: int, about: BanditFacts) -> BanditView:
    return bandit_view(pickle.loads(statistics), now, about)
