"""Values of target policies on a log: estimates with intervals, overlap, or a refusal."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import positive, probability, whole, wrong
from belated.core.types import Integers, Vector
from belated.evaluation import off_policy
from belated.evaluation.anytime import (
    ROUNDING,
    Known,
    anytime_errors,
    anytime_interval,
    least_reach,
)
from belated.evaluation.confidence import (
    bernstein_interval,
    bootstrap_values,
    normal_interval,
    percentiles,
    slopes,
    standard_error,
)
from belated.evaluation.off_policy import Terms
from belated.evaluation.overlap import (
    Overlap,
    all_alike,
    effective_rows,
    met_too_often,
    overlap,
    refusals,
    too_young,
    unlikely_weights,
)
from belated.evaluation.reward_model import CrossFitted
from belated.ledger.tools.progress import progress
from belated.logs.learning_targets import Player
from belated.logs.seen_rewards import SeenRewards
from belated.logs.targets import Target, learns, policy_name, target_of
from belated.logs.whole_log import WholeLog, context_features
from belated.numerics.student import student_quantile

BLOCK = 65_536  # rows whose probabilities are in memory at a time
INTERVALS = ("normal", "bootstrap", "bernstein", "anytime")


class Options(NamedTuple):
    """The user's choices; see ``belated evaluate --help``."""

    interval: str = "normal"
    level: float = 0.95
    clip: float | None = None  # None: the square root of the number of rows
    scores: bool = False
    seed: int = 1
    reward_range: tuple[float, float] | None = None  # None: as in the log
    replays: int = 10  # of a policy that learns

    def checked(self) -> "Options":
        """Returns the options, or raises."""
        if self.interval not in INTERVALS:
            raise wrong("--interval", self.interval, f"one of {', '.join(INTERVALS)}")
        probability("--level", self.level)
        if self.clip is not None:
            positive("--clip", self.clip)
        whole("--replays", self.replays, least=2)
        return self


class Estimated(NamedTuple):
    """One line of the answer."""

    estimator: str
    value: float
    low: float | None  # None: this kind of interval is not for this estimator
    high: float | None
    effective_rows: float | None  # None: no row is weighted
    gain: float  # over the policy that was played, on the same rows
    gain_low: float | None
    gain_high: float | None


class Answer(NamedTuple):
    """The answer for one target."""

    policy: str
    words: str
    estimates: list[Estimated]
    overlap: list[Overlap]
    refusals: list[str]


class _Candidate(NamedTuple):
    """An estimator with what its interval needs."""

    name: str
    terms: Terms
    weight: Vector | None  # of each row
    bounded: bool  # whether its terms are bounded by the weight times a reward


class _Asked(NamedTuple):
    """A target with what its estimates are made of."""

    answer: Answer  # without estimates
    candidates: Sequence[_Candidate] = ()  # none: it is refused
    weight: Any = 1.0  # of each row
    replayed: Sequence[float] = ()  # values of the replays of a policy that learns


def policy_values(
    log: WholeLog, seen: SeenRewards, policies: Sequence[Any], column: str, options: Options
) -> list[Answer]:
    """Returns the answer for the policy that was played and for each of ``policies``.

    Parameters
    ----------
    log
        The log; all rows have a propensity.
    seen
        Its rewards, and the shares that are seen at each age.
    policies
        The words of ``--policy``, or functions.
    column
        The column of the log that holds the action.
    options
        Further choices.
    """
    reasons = too_young(len(seen.used) / seen.n_rows) or all_alike(seen.range)
    if reasons:
        names = ["as played", *map(policy_name, policies)]
        return [Answer(name, "not evaluated", [], [], reasons) for name in names]
    # all are made before any is played: a wrong name at the end must not cost the other answers
    targets = [
        Player(log, policy, seen.window, options.seed)
        if learns(policy)
        else target_of(policy, log.names, column, options.scores)
        for policy in policies
    ]
    asked = [
        _as_played(seen),
        *(
            _of_learner(seen, policy, target, options)
            if isinstance(target, Player)
            else _of_target(log, seen, policy_name(policy), target, options)
            for policy, target in zip(policies, targets, strict=True)
        ),
    ]
    drawn = _replicates(asked, seen, options)
    of_mean, *_ = drawn[0]
    return [
        one.answer._replace(estimates=_with_intervals(one, own, of_mean, seen, options))
        for one, own in zip(asked, drawn, strict=True)
    ]


def _as_played(seen: SeenRewards) -> _Asked:
    answer = Answer("as played", "the policy of the log", [], [], [])
    return _Asked(answer, [_mean_reward(seen)], np.ones(len(seen.used)))


def _mean_reward(seen: SeenRewards) -> _Candidate:
    ones = np.ones(len(seen.used))
    return _Candidate("mean reward", off_policy.self_normalised(ones), ones, False)


def _of_target(
    log: WholeLog, seen: SeenRewards, name: str, target: Target, options: Options
) -> _Asked:
    played = _Played(log, seen, target)
    action, propensity, subject = _drawn(log, seen)
    weight = played.chance / propensity
    found = overlap(log.names, action, propensity, weight, played.mean_chances)
    rewards = seen.rewards
    reasons = refusals(found, weight, rewards.counted, rewards.earned)
    reasons = reasons or unlikely_weights(found, action, weight, subject)
    if reasons:
        return _Asked(Answer(name, target.words, [], found, reasons))
    candidates = _candidates(seen, played, weight, options.clip)
    return _Asked(Answer(name, target.words, [], found, []), candidates, weight)


class _Played:
    """The target's probabilities on the rows of the log, and the rewards that a model predicts."""

    def __init__(self, log: WholeLog, seen: SeenRewards, target: Target) -> None:
        action, n = log.action[seen.used], len(seen.used)
        context = {name: column[seen.used] for name, column in log.context.items()}
        x = context_features(context, n)
        self.model = CrossFitted(x, action, len(log.names), seen.rewards)
        self.chance = np.empty(n)
        total = np.zeros(len(log.names))
        for start in range(0, n, BLOCK):
            rows = slice(start, min(start + BLOCK, n))
            part = {name: values[rows] for name, values in context.items()}
            chances = target.chances(rows.stop - start, part)
            self.chance[rows] = chances[np.arange(len(chances)), action[rows]]
            self.model.add_target(start, chances)
            total += chances.sum(axis=0)
        self.mean_chances = total / n


def _candidates(
    seen: SeenRewards, played: _Played, weight: Vector, clip: float | None
) -> list[_Candidate]:
    model = played.model
    limit = float(np.sqrt(len(weight))) if clip is None else clip
    clipped = np.minimum(weight, limit)
    by_model = off_policy.direct(model.q_target, model.of_fit(), model.q_fit, seen.rewards)
    return [
        _Candidate("IPS", off_policy.inverse_propensity(weight), weight, True),
        _Candidate("clipped IPS", off_policy.inverse_propensity(clipped), clipped, True),
        _Candidate("SNIPS", off_policy.self_normalised(weight), weight, False),
        _Candidate("direct method", by_model, None, False),
        _Candidate(
            "doubly robust",
            off_policy.doubly_robust(weight, model.q_action, model.q_target),
            weight,
            False,
        ),
    ]


def _of_learner(seen: SeenRewards, text: str, player: Player, options: Options) -> _Asked:
    with progress(f"replaying {text}", options.replays * seen.n_rows) as told:
        paths = np.zeros((options.replays, seen.n_rows))
        for number, path in enumerate(paths):
            path[player.kept_rows(number, told)] = 1.0
    first, *_ = paths = paths[:, seen.used]
    words = (
        f"learns as it goes, from rewards when they came: its first {int(first.sum()):,} "
        f"decisions, by {options.replays} replays with rejection"
    )
    rewards = seen.rewards
    reasons = refusals([], first, rewards.counted, rewards.earned) or _uneven(player.log, seen)
    if reasons:
        return _Asked(Answer(text, words, [], [], reasons))
    terms = off_policy.self_normalised(paths.mean(axis=0))
    values = [off_policy.estimate(off_policy.self_normalised(p), rewards).value for p in paths]
    replay = _Candidate("replay", terms, first, False)
    return _Asked(Answer(text, words, [], [], []), [replay], first, values)


def with_luck(line: Estimated, values: Sequence[float], n_rows: int, options: Options) -> Estimated:
    """Returns a line whose intervals hold the luck of a path, too, by ``values`` of replays.

    All replays share the rows of one log, so the luck of their mean is less than that of a single
    one, and nobody knows by how much. The variance of a single one is added to that of the rows.
    """
    errors = student_quantile(0.5 + 0.5 * options.level, len(values) - 1)
    if options.interval == "anytime":
        errors = max(errors, anytime_errors(n_rows, options.level))
    luck = errors * float(np.std(values, ddof=1))

    def wider(value: float, low: float | None, high: float | None) -> Any:
        if low is None or high is None:
            return None, None
        return value - math.hypot(value - low, luck), value + math.hypot(high - value, luck)

    low, high = wider(line.value, line.low, line.high)
    gain_low, gain_high = wider(line.gain, line.gain_low, line.gain_high)
    return line._replace(low=low, high=high, gain_low=gain_low, gain_high=gain_high)


def _uneven(log: WholeLog, seen: SeenRewards) -> list[str]:
    """Returns a reason where rejection by propensities does not make the draws of actions even."""
    action, propensity, subject = _drawn(log, seen)
    k = len(log.names)
    weight, even = 1.0 / (k * propensity), np.full(k, 1.0 / k)
    return met_too_often(
        overlap(log.names, action, propensity, weight, even), action, weight, subject
    )


def _drawn(log: WholeLog, seen: SeenRewards) -> tuple[Integers, Vector, Integers | None]:
    """Returns the action, the propensity and the subject of the rows that count."""
    subject = None if log.subject is None else log.subject[seen.used]
    return log.action[seen.used], log.propensity[seen.used], subject


def _replicates(asked: Sequence[_Asked], seen: SeenRewards, options: Options) -> list[Vector]:
    """Returns for each target the values of its candidates in every replicate of the log.

    There is a row for each candidate. Without a bootstrap, rows are empty.
    """
    terms = [candidate.terms for one in asked for candidate in one.candidates]
    drawn = np.empty((0, len(terms)))
    if options.interval == "bootstrap":
        drawn = _bootstrapped(terms, seen, options.seed)
    ends = np.cumsum([len(one.candidates) for one in asked])
    return np.split(drawn.T, ends[:-1])


def _with_intervals(
    asked: _Asked, drawn: Vector, of_mean: Vector, seen: SeenRewards, options: Options
) -> list[Estimated]:
    """Returns the estimates of a target, and of its gains over the policy of the log.

    Rows that are all alike have no standard error, and yet the next one may differ: no interval is
    shorter than that of as many such rows as the weights of the target are worth.
    """
    played = _mean_reward(seen)
    mean, mean_slopes = _estimated(played, seen)
    floor, floor_of_gain = _floors(asked.weight, seen, options.level)
    result = []
    for candidate, values in zip(asked.candidates, drawn, strict=True):
        value, by_row = _estimated(candidate, seen)
        bounds = _interval(candidate, value, by_row, values, seen, options)
        gain = value - mean
        of_gain = gain, by_row - mean_slopes, values - of_mean
        gain_bounds = _interval(candidate._replace(bounded=False), *of_gain, seen, options)
        if standard_error(of_gain[1]) <= ROUNDING * max(abs(value), abs(mean)):
            gain_bounds = _at_least(floor_of_gain, gain, *gain_bounds)
        own = candidate.weight
        rows = None if own is None else effective_rows(own * seen.rewards.counted)
        ends = _at_least(floor, value, *bounds)
        line = Estimated(candidate.name, value, *ends, rows, gain, *gain_bounds)
        luck = asked.replayed
        result.append(with_luck(line, luck, seen.n_rows, options) if luck else line)
    return result


def _floors(weight: Vector, seen: SeenRewards, level: float) -> tuple[float, float]:
    """Returns how far a value may be from rows that are all alike, and how far a gain may be."""
    target, log = effective_rows(weight * seen.said), effective_rows(seen.said)
    floor = least_reach(target, seen.range, level)
    if np.ptp(weight) == 0.0:  # the target is the policy of the log, and there is no gain
        return floor, 0.0
    both = (least_reach(rows, seen.range, 0.5 + 0.5 * level) for rows in (target, log))
    return floor, sum(both)


def _at_least(
    reach: float, value: float, low: float | None, high: float | None
) -> tuple[float | None, float | None]:
    """Returns both ends of an interval that reaches so far to both sides, or further."""
    if low is None or high is None:
        return low, high
    return min(low, value - reach), max(high, value + reach)


def _estimated(candidate: _Candidate, seen: SeenRewards) -> tuple[float, Vector]:
    """Returns the value of a candidate and its slopes."""
    found = off_policy.estimate(candidate.terms, seen.rewards)
    return found.value, slopes(found, seen.law, seen.used)


def _bootstrapped(terms: Sequence[Terms], seen: SeenRewards, seed: int) -> Vector:
    """Returns the values of all estimators, one column each, in every replicate of the log."""
    without_law = seen.with_shares(np.ones(len(seen.used)))
    recounted = off_policy.Recounted(terms, without_law)

    def values(counts: Vector) -> Vector:
        return recounted.values(counts[seen.used], seen.law.shares(counts))

    return bootstrap_values(values, seen.n_rows, seed)


def _interval(
    candidate: _Candidate,
    value: float,
    by_row: Vector,
    replicates: Vector,
    seen: SeenRewards,
    options: Options,
) -> tuple[float | None, float | None]:
    """Returns both ends of the interval that the user chose, or None where there is none."""
    if options.interval == "bootstrap":
        return percentiles(replicates, options.level)
    if options.interval == "bernstein":
        if not candidate.bounded:
            return None, None
        return bernstein_interval(value, by_row, seen.widest(candidate.weight), options.level)
    error = standard_error(by_row)
    if options.interval == "anytime":
        return anytime_interval(Known(value, error, seen.n_rows), options.level)
    return normal_interval(value, error, options.level)
