"""Rankings: which action of a bandit is best, and how sure that is."""

import heapq
from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import msgspec

from belated.core.ranking import Ranking
from belated.ledger.proposing import Ask, options
from belated.monitoring.action_totals import OTHERS
from belated.service.dashboard.data import BestView
from belated.service.deciding import ask_of
from belated.service.http.problems import INVALID, Problem
from belated.service.service import Service
from belated.wire import DecisionRequest, RankingRequest

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.ledger.fold import Fold

MOST_RANKED, MOST_SHOWN = 200, 12  # on the dashboard, which everybody may poll


def rank(service: Service, name: str, request: RankingRequest) -> Ranking:
    """Rank the actions that a request names; nothing is decided or written."""
    fold = service.fold(name)
    try:
        return _ranking(fold, ask_of(DecisionRequest(*msgspec.structs.astuple(request))))
    except (TypeError, ValueError) as error:
        raise Problem(INVALID, str(error)) from None


def _ranking(fold: "Fold", ask: Ask) -> Ranking:
    from belated.learner.action_intervals import ranking

    names, matrix = options(fold, ask)
    unnamed = ask.matrix is not None and ask.names is None
    played = [(None, None) if unnamed else _played(fold, name) for name in names]
    return ranking(fold.learner, names, matrix, played)


def _played(fold: "Fold", name: str) -> tuple[int | None, int | None]:
    """Decisions for an action, in all contexts, and how many of their rewards are known."""
    by_name = fold.statistics.actions.by_name
    if name in by_name:
        conversion = fold.spec.loop == "conversion"
        known, _, _ = by_name[name].known(fold.spec.default_reward if conversion else None)
        return by_name[name].decided, known
    return (None, None) if OTHERS in by_name else (0, 0)  # among the others it cannot be told


# ------------------------------------------------------------------------------- the dashboard


def best_view(fold: "Fold", context: bytes) -> BestView:
    """The ranking of the registered actions, with ``context`` as JSON, small enough to poll."""
    about: Any = msgspec.json.decode(context) if context else None
    try:
        ranking = _ranking(fold, Ask(context=about, eligible=_played_most(fold)))
    except (TypeError, ValueError) as error:
        return BestView(note=f"There is no ranking: {error}.")
    return BestView(
        verdict=ranking.verdict,
        kind=ranking.kind,
        level=ranking.level,
        actions=ranking.actions[:MOST_SHOWN],
        note=" ".join(_notes(fold, ranking, about)),
    )


def _played_most(fold: "Fold") -> Sequence[str] | None:
    """None: all registered actions; else the most that can be ranked every second."""
    listed, totals = fold.actions.listed, fold.statistics.actions.by_name
    if len(listed) <= MOST_RANKED:
        return None
    decided = {name: totals[name].decided for name in listed if name in totals}
    return heapq.nlargest(MOST_RANKED, listed, key=lambda name: decided.get(name, 0))


def _notes(fold: "Fold", ranking: Ranking, context: Any) -> list[str]:
    """For which context the ranking is, which actions are in it, and what the intervals are."""
    notes = []
    if context:
        columns = getattr(fold.actions.features, "columns", context)  # others are of no effect
        words = ", ".join(f"{key} = {context[key]}" for key in columns if key in context)
        notes.append(f"In the context of a recent decision: {shorten(words, 200)}.")
    elif fold.actions.features is not None:
        notes.append("Without a context.")
    if len(ranking) < len(fold.actions.listed):
        notes.append(f"Of the {MOST_RANKED} actions that were played most.")
    if len(ranking) > MOST_SHOWN:
        notes.append(f"The first {MOST_SHOWN} of {len(ranking)} are shown.")
    if fold.spec.loop == "conversion":
        notes.append("A window that closed without a conversion counts as a reward that is known.")
    if words := fold.heard_words():
        notes.append(f"{words.capitalize()}.")
    level = "" if ranking.level is None else f"{100.0 * ranking.level:g} % "
    holds = {
        "confidence": "proved for all times and actions at once, if the policy's assumptions hold",
        "posterior": "of each action by itself and now, from the model's posterior; nothing is "
        "proved of them",
    }
    notes.append(
        f"Bars are {level}{ranking.kind} intervals of the mean reward: {holds[ranking.kind]}."
    )
    return notes
