"""A scorer that keeps its decisions on disk and posts them to the service, now and then."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self

from belated.client import Client, ServiceError
from belated.core.arguments import positive
from belated.core.events import Status
from belated.edge.scoring import EdgeDecision, Scorer
from belated.edge.spool import Spool
from belated.wire import MOST_DECISIONS, MadeAnswer

log = logging.getLogger("belated.edge")


def post(client: Client, bandit: str, spool: Spool) -> dict[Status, int]:
    """Post the decisions that wait in a spool; returns how many there were of each status.

    Those that the service refuses go to the spool's ``bad`` file, each with its reason; a batch
    that is too large for it is posted in parts. Raises where the service cannot be reached: what
    was not answered waits on.
    """
    counts, most = Counter[Status](), MOST_DECISIONS
    while True:
        made, place = spool.next(most)
        if not made:
            return dict(counts)
        try:
            answer = client.made(bandit, made)
        except ServiceError as error:
            if error.problem.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            most = len(made) // 2  # vectors or contexts are wide
            if most:
                continue
            answer, most = MadeAnswer([Status.INVALID], [error.problem.detail]), MOST_DECISIONS
        counts.update(answer.statuses)
        for decision, status, reason in zip(made, answer.statuses, answer.reasons, strict=True):
            if status not in (Status.ACCEPTED, Status.DUPLICATE):
                spool.refuse(decision, reason or status)
        spool.posted(place)


class Edge:
    """Decides by the model of a service, without asking it, and posts the decisions later.

    A decision is on the disk of this machine when ``decide`` returns; it is in the ledger when
    ``post`` has sent it. Hand in its reward after that: a reward that comes first is kept for two
    minutes from the decision, and is unknown later.

    Parameters
    ----------
    client
        A client of the service, which posts decisions and fetches models.
    bandit
        Name of the bandit.
    spool
        The file in which decisions wait. Decisions of an earlier process that wait there are
        posted, too. Those that the service refuses go to ``SPOOL.bad``, each with its reason.
    every
        Seconds between posts, each of which also fetches a new model, in a thread; None: only when
        ``post`` and ``renew`` are called.
    document
        A model document to begin with, where the service need not be reached; else it is fetched.
    seed
        For runs that must repeat exactly.
    """

    def __init__(
        self,
        client: Client,
        bandit: str,
        spool: str | Path,
        *,
        every: float | None = 5.0,
        document: bytes | None = None,
        seed: int | None = None,
    ) -> None:
        self._client, self._bandit = client, bandit
        self._every = None if every is None else positive("every", every)
        self.scorer = Scorer(client.model(bandit) if document is None else document, seed=seed)
        self._deciding, self._posting, self._ended = Lock(), Lock(), Event()
        self._spool = Spool(Path(spool))
        self._thread = Thread(target=self._live, daemon=True)
        if every is not None:
            self._thread.start()

    def decide(
        self,
        context: Mapping[str, Any] | None = None,
        *,
        eligible: Sequence[str] | None = None,
        subject: str | None = None,
    ) -> EdgeDecision:
        """Choose an action; the decision is on the disk of this machine when this returns."""
        with self._deciding:
            decision, made = self.scorer.decide(context, eligible=eligible, subject=subject)
            self._spool.add(made)
        return decision

    def renew(self) -> None:
        """Fetch the present model of the service, and decide by it from now on."""
        document = self._client.model(self._bandit)
        with self._deciding:
            self.scorer.renew(document)

    def post(self) -> dict[Status, int]:
        """Post the decisions that wait; returns how many there were of each status.

        Raises where the service cannot be reached: what was not answered waits on.
        """
        with self._posting:
            return post(self._client, self._bandit, self._spool)

    def _live(self) -> None:
        while not self._ended.wait(self._every):
            try:
                self.post()
                self.renew()
            except (OSError, ServiceError) as error:
                log.warning("tried again in %g s: %s", self._every, error)

    def close(self) -> None:
        """Post what waits, if the service can be reached, and let go of the spool."""
        self._ended.set()
        if self._every is not None:
            self._thread.join()
        try:
            self.post()
        except (OSError, ServiceError) as error:
            log.warning("decisions wait in the spool: %s", error)
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
