"""Decisions by a model document: the same code as in the service, and the same law."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from belated.core.extras import extra
from belated.core.times import SECOND
from belated.ledger.events import Decided
from belated.ledger.ids import Ids, to_text
from belated.ledger.proposing import Ask, decide
from belated.ledger.tools.model_documents import fold_of, read_document
from belated.ledger.vectors import entries_of
from belated.wire import MadeDecision


@dataclass(frozen=True, slots=True)
class EdgeDecision:
    """A decision that was made elsewhere.

    Attributes
    ----------
    id
        By which its reward is handed in.
    action, index
        The name of the action, and its place among those that could be chosen.
    propensity
        The probability with which it was chosen.
    digest
        The digest of the model document that chose it.
    """

    id: str
    action: str
    index: int
    propensity: float
    digest: str


def content_of(source: str, key: str | None = None) -> bytes:
    """Returns the bytes of a model document, from a file or, over HTTP, from a service."""
    if not source.startswith(("http://", "https://")):
        return Path(source).read_bytes()
    with extra("client"):
        import httpx2
    headers = {} if key is None else {"X-API-Key": key}
    try:
        answer = httpx2.get(source, headers=headers, timeout=60.0)
    except httpx2.HTTPError as error:
        raise ConnectionError(f"{source}: {error}") from error
    if not answer.is_success:
        raise OSError(f"{source}: {answer.status_code} {answer.text[:200]}")
    return answer.content


class Scorer:
    """A model document at work. It decides, learns nothing and writes nothing.

    Parameters
    ----------
    document
        The bytes of a document, as ``GET /v1/bandits/NAME/model`` gives them. A document whose
        digest is not that of its model is refused.
    seed
        For runs that must repeat exactly.
    """

    def __init__(self, document: bytes, *, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        self._ids = Ids(lambda: int(time.time() * SECOND), seed)
        self.renew(document)

    def renew(self, document: bytes) -> None:
        """Go on with another document; one that is refused changes nothing."""
        digest, model = read_document(document)
        self._fold = fold_of(model)
        self.digest, self.model = digest, model

    def decide(
        self,
        context: Mapping[str, Any] | None = None,
        *,
        eligible: Sequence[str] | None = None,
        subject: str | None = None,
    ) -> tuple[EdgeDecision, MadeDecision]:
        """Choose one of the model's actions; returns the decision, and what is to be posted.

        Parameters
        ----------
        context
            Features that all actions share.
        eligible
            Names of the actions to choose from; all by default.
        subject
            Whom the decision concerns.
        """
        about = None if context is None else dict(context)
        ask = Ask(context=about, eligible=None if eligible is None else list(eligible))
        body = decide(self._fold, ask, self._rng)
        id = to_text(self._ids())
        assert body.propensity is not None  # None in shadow mode only, which has no document
        made = self._to_post(id, body, about, subject)
        return EdgeDecision(id, body.action, body.index, body.propensity, self.digest), made

    def _to_post(
        self, id: str, body: Decided, context: dict[str, Any] | None, subject: str | None
    ) -> MadeDecision:
        dim, columns, values = entries_of(body.x)
        order = [int(k) for k in np.argsort(columns, kind="stable") if values[k] != 0.0]
        made = MadeDecision(
            decision_id=id,
            action=body.action,
            index=body.index,
            n_actions=body.n_actions,
            propensity=body.propensity or 1.0,
            model_version=self.model.version,
            model_time=self.model.time,
            dim=dim,
            columns=[int(columns[k]) for k in order],
            values=[float(values[k]) for k in order],
            score=body.score if math.isfinite(body.score) else None,
            estimate=body.estimate,
            context=context,
            eligible=None if body.eligible is None else list(body.eligible),
            subject=subject,
        )
        # what the service would refuse is refused now, while somebody is there to hear it
        return msgspec.convert(msgspec.to_builtins(made), MadeDecision)
