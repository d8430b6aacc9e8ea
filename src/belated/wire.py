"""The requests and answers that go over the wire. A request that does not fit is refused."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from belated.core.arguments import WIDEST
from belated.core.events import Standing, Status

Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,100}\\Z", description="Name of a bandit")]
ActionName = Annotated[str, Meta(min_length=1, max_length=200)]
NO_NUL = "^[^\\x00]*$"  # PostgreSQL cannot hold it
Label = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_NUL)]
DecisionId = Annotated[str, Meta(min_length=1, max_length=100)]
LONGEST_WINDOW = 1e10  # seconds: a store holds the end of a window in microseconds, in 64 bits
Moment = float | Annotated[str, Meta(max_length=50, examples=["2026-03-31T12:00:00Z"])]
Seconds = Annotated[float, Meta(gt=0.0, le=LONGEST_WINDOW)]
LENGTH = {"unit": "seconds"}  # an option of a command takes 7d, too
# Beyond this a float is not exact, and the log cannot hold much larger numbers.
Whole = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Value = str | Whole | float | bool | None
Columns = dict[str, Value | list[Value]]  # features by name; a list for a column of tags
Vector = Annotated[list[float], Meta(min_length=1, max_length=WIDEST)]
Ends = Annotated[list[float], Meta(min_length=2, max_length=1000)]

MOST_ACTIONS = 10_000
MOST_REWARDS = 10_000
MOST_DECISIONS = 100  # of one request: they are one transaction, for which others wait
MOST_BAD_ROWS = 1_000  # of a file, that an answer names
LONGEST_PAGE, USUAL_PAGE = 10_000, 1_000  # entries of a list in one answer


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The base of everything that a caller sends."""


# --------------------------------------------------------------------------------- parameters


class BanditPath(Request):
    """The path of a bandit."""

    name: Name


class DecisionPath(Request):
    """The path of a decision."""

    id: DecisionId


class SubjectPath(Request):
    """The path of a subject, whose data are meant."""

    name: Name
    subject: Label


class KeyPath(Request):
    """The path of an API key."""

    id: Label


class Explaining(Request):
    """Asks for an explanation: what the bandit thought of every action."""

    explain: bool = False


class Watching(Request):
    """The bandit to show; the first, if none is named."""

    bandit: Name | None = None


class Paging(Request):
    """A part of a list: at most ``limit`` entries, those after what ``next`` said before."""

    limit: Annotated[int, Meta(ge=1, le=LONGEST_PAGE)] = USUAL_PAGE
    after: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


# ------------------------------------------------------------------------------------ bandits


class FeatureSettings(Request):
    """The way from columns of actions and contexts to a vector; see ``belated.Features``."""

    # lowest and highest, or, where the scale is quantile, ends of parts with equally many numbers
    numeric: dict[str, Ends] = {}
    categorical: dict[str, list[Value]] = {}  # categories
    # buckets; more are refused by ``features_of``, which names the column
    hashed: dict[str, Annotated[int, Meta(ge=1, extra_json_schema={"maximum": WIDEST})]] = {}
    interactions: list[tuple[str, str]] = []
    intercept: bool = True
    ignore: list[str] = []  # keys that are sent and that no column uses, on purpose
    optional: list[str] = []  # columns that may be missing
    strict: bool = False  # refuse what would become zeros: an unknown category, a misspelt key
    missing: list[str] = []  # numeric columns whose number may be null or absent: an indicator
    tags: dict[str, list[Value]] = {}  # categories of columns that hold a list of them
    scale: dict[str, Literal["linear", "log", "log1p", "quantile"]] = {}  # of numeric columns
    other: list[str] = []  # categorical columns and tags with a feature for unknown categories


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a bandit, declared once.

    Requests, tables ``[bandits.NAME]`` and the options of ``belated bandits create`` are derived
    from ``BanditSettings``, and what a log holds is a ``ledger.spec.Spec``. The two differ in the
    fields whose type is Any here: a caller writes them as a short text, a log holds all values.

    Attributes
    ----------
    loop
        "explicit": every decision gets a reward event, and the bandit learns on arrival.
        "conversion": no event within the window means ``default_reward``; see ``open``. Learning
        conversions on arrival and the others at the end of the window would count the early ones
        twice over.
    window
        Seconds for which a reward is waited for; None: for ever.
    grace
        Seconds for which a window stays open for uploads after its end: a reward that happened
        within the window and is handed in before window and grace are over is on time.
    default_reward
        The reward of a decision of a conversion loop whose window closed without an event. A new
        explicit loop with one is refused: its author means a conversion loop.
    late
        What a reward after the window does: "keep" it in the log only, or "revise" what was
        learnt.
    combine
        How several rewards of one decision become the one that is learnt: the "first" or "last"
        that happened, their "sum" or their "max", of those that are on time. None: a decision has
        one reward, and another value is a conflict.
    mode
        "live", or "shadow": the caller's action is played, and the bandit's own is logged.
    exploration
        With this probability the action is drawn uniformly, so that every action has a
        propensity that is known and not zero.
    baseline
        Name of the action to compare with, to play for those held out, and to play in shadow mode
        where the caller names none.
    fallback
        Name of the action to answer with while the store is down.
    log_actions
        Whether to keep the features of all actions of a request, not only of the chosen one.
    half_life
        The age of a decision at which its reward counts for half; None: nothing is forgotten.
    half_life_unit
        What ``half_life`` counts: "decisions" of this bandit, or "seconds".
    open
        What a decision of a conversion loop counts for while its window is open: "hold", nothing,
        or "silence", the more like a failure the more conversions should have come at its age.
        If a caller does not say it, ``Spec.of`` decides for a new bandit. Policies that are made
        for conversions, such as "otf-lin-ucb:window=500", need "silence".
    holdout
        The share of subjects, or of decisions without a subject, that get the baseline in place of
        the bandit's choice: its action, or one drawn uniformly where it has no name or cannot be
        played. See ``ledger/holdout.py``.
    sticky
        Seconds for which a subject gets the same action again, from its first decision on and as
        long as the action can be played; None: every decision is a choice of its own. See
        ``ledger/sticky.py``.
    """

    family: Any
    policy: Any
    dim: Any
    max_norm: Annotated[float, Meta(gt=0.0, description="Bound on the norm of an action.")] = 1.0
    features: Any = None
    loop: Annotated[
        Literal["explicit", "conversion"], Meta(description="explicit or conversion.")
    ] = "explicit"
    window: Annotated[
        Seconds | None, Meta(description="Seconds to wait for a reward.", extra=LENGTH)
    ] = None
    grace: Annotated[
        float,
        Meta(
            ge=0.0,
            le=LONGEST_WINDOW,
            description="Seconds after the window for uploads.",
            extra=LENGTH,
        ),
    ] = 0.0
    default_reward: Any = 0.0
    late: Annotated[
        Literal["keep", "revise"], Meta(description="Late rewards: keep or revise.")
    ] = "keep"
    combine: Annotated[
        Literal["first", "last", "sum", "max"] | None,
        Meta(description="Several rewards of a decision: first, last, sum or max."),
    ] = None
    mode: Annotated[Literal["live", "shadow"], Meta(description="live or shadow.")] = "live"
    exploration: Annotated[float, Meta(ge=0.0, le=1.0, description="Share of uniform draws.")] = 0.0
    baseline: Annotated[str, Meta(max_length=200, description="Action to compare with.")] = ""
    fallback: Annotated[
        str, Meta(max_length=200, description="Action while the store is down.")
    ] = ""
    log_actions: Annotated[
        bool, Meta(description="Keep the features of all actions of a request.")
    ] = False
    half_life: Annotated[
        Annotated[float, Meta(gt=0.0)] | None,
        Meta(description="Age of a decision at which its reward counts for half."),
    ] = None
    half_life_unit: Annotated[
        Literal["decisions", "seconds"], Meta(description="Of half_life: decisions or seconds.")
    ] = "decisions"
    open: Any = "hold"
    holdout: Annotated[
        float, Meta(ge=0.0, lt=1.0, description="Share of subjects kept on the baseline.")
    ] = 0.0
    sticky: Annotated[
        Seconds | None,
        Meta(description="Seconds for which a subject gets the same action again.", extra=LENGTH),
    ] = None


class BanditSettings(Settings, frozen=True, omit_defaults=True):
    """A bandit: what its rewards are like, how it chooses, and how it waits."""

    family: Annotated[str, Meta(max_length=200, examples=["bernoulli", "gaussian:sd=0.5"])]
    policy: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        Meta(examples=["thompson"], description="The rule of choice; adaptive-thompson if none."),
    ] = None
    dim: Annotated[
        # more are refused by ``refuse_wide``, which says what to do
        Annotated[int, Meta(ge=1, extra_json_schema={"maximum": WIDEST})] | None,
        Meta(description="Numbers in an action's vector."),
    ] = None
    features: Annotated[
        FeatureSettings | None,
        Meta(examples=[{"hashed": {"user": 16}}], description="Instead of dim."),
    ] = None
    groups: Annotated[
        dict[str, int] | None,
        Meta(
            examples=[{"banner": 20, "intercept": 1}],
            description="With dim: names and sizes of the groups of numbers that share a prior.",
        ),
    ] = None
    default_reward: Annotated[
        float | None,
        Meta(description="Of a closed window, only with loop = conversion; 0 if none."),
    ] = None
    open: Annotated[
        Literal["hold", "silence"] | None,
        Meta(description="Open decisions: hold or silence; silence where it can be, if none."),
    ] = None


class BanditState(msgspec.Struct):
    """A bandit, its settings and what it knows."""

    name: str
    settings: dict[str, Any]
    n_actions: int
    model_version: int
    n_decided: int
    n_observed: int
    n_pending: (
        int  # decisions that wait for their reward, as the metric belated_pending counts them
    )
    n_expired: int
    n_late: int
    n_cancelled: int
    theta: list[float]
    certified_error: float | None
    width: float | None  # radius of the confidence set; null where the policy has none
    n_held: int = 0  # rewards of a conversion loop that wait for their window to close
    waiting: str = ""  # why a conversion loop has learnt nothing yet, in words; not n_pending
    broken_assumptions: dict[str, str] = {}  # that the rewards speak against: by name, in words
    n_silent: int = 0  # open decisions of a loop that learns from silence, at its last tick, ...
    silent_failures: float = 0.0  # ... and the failures that they count for together


class HalfLifeView(msgspec.Struct):
    """The accuracy with which a half-life predicts the rewards of the last day."""

    half_life: int  # seconds
    gain: float  # nats a reward, against remembering everything
    error: float  # standard error of the gain


class ForgettingView(msgspec.Struct):
    """The answer whether forgetting would help, judged by the rewards of the last day."""

    sentence: str
    n_rewards: int = 0  # of the last day
    half_lives: list[HalfLifeView] = []


class RetrainSettings(Request):
    """Settings that a bandit is to have had all along; what is not given stays as it is."""

    policy: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        Meta(examples=["thompson"], description="Another rule of choice."),
    ] = None
    family: Annotated[
        Annotated[str, Meta(max_length=200)] | None,
        Meta(examples=["gaussian:sd=0.5"], description="Another law of rewards."),
    ] = None
    max_norm: Annotated[
        Annotated[float, Meta(gt=0.0)] | None, Meta(description="Bound on the norm of an action.")
    ] = None
    open: Annotated[
        Literal["hold", "silence"] | None, Meta(description="Open decisions: hold or silence.")
    ] = None
    window: Annotated[
        Seconds | None,
        Meta(description="Seconds to wait for rewards of later decisions.", extra=LENGTH),
    ] = None
    grace: Annotated[
        Annotated[float, Meta(ge=0.0, le=LONGEST_WINDOW)] | None,
        Meta(description="Seconds after the window for uploads.", extra=LENGTH),
    ] = None
    half_life: Annotated[
        Annotated[float, Meta(ge=0.0)] | None,
        Meta(description="Age of a decision at which its reward counts for half; 0: none."),
    ] = None
    half_life_unit: Annotated[
        Literal["decisions", "seconds"] | None,
        Meta(description="Of half_life: decisions or seconds."),
    ] = None


class Retraining(RetrainSettings):
    """A bandit with other settings, or with those before its last promotion."""

    features: FeatureSettings | None = None
    back: bool = False  # goes with no other
    request_id: Label | None = None  # a promotion may be sent again, and happens once


class LossView(msgspec.Struct):
    """The mean loss with which each model predicted rewards before it learnt them."""

    live: float
    other: float
    gain: float  # by which the other model is better
    error: float | None  # standard error of the gain


class RetrainView(msgspec.Struct):
    """A bandit beside what it would be with other settings from its first decision on."""

    bandit: str
    changed: list[str] = []  # settings that differ
    against: list[str] = []  # what speaks against a promotion, in words; empty if nothing does
    n_decisions: int = 0  # the last ones whose actions the log holds
    # The share of them in which another action would be chosen; of policies that draw, half the sum
    # of the differences of all probabilities.
    chosen_differently: float | None = None
    n_rewards: int = 0  # the last ones that are final
    log_loss: LossView | None = None  # in nats; null where those of the two cannot be compared
    squared_error: LossView | None = None
    promoted: bool = False


class LiftGroup(msgspec.Struct):
    """The bandit, or its holdout."""

    name: str
    decisions: int
    pending: int  # decisions whose reward may still come
    too_young: int  # decisions that are left out: too few of the rewards of their age have come
    rewards: int  # that came, of the others
    mean: float | None  # reward per decision, pending ones made up for; null: too early to tell


class GuardrailLift(msgspec.Struct):
    """A guardrail outcome of the bandit against that of its holdout."""

    name: str
    sentence: str
    bandit: float | None  # outcome per decision; null: too early to tell
    holdout: float | None
    difference: float | None
    low: float | None
    high: float | None


class LiftView(msgspec.Struct):
    """A bandit against its holdout."""

    sentence: str
    bandit: str
    compared: str
    since: str  # the last change of ``holdout`` or ``baseline``
    now: str
    level: float  # of all intervals together: with guardrails each of them has a higher one
    groups: list[LiftGroup]
    difference: float | None  # in reward per decision; null: too early to tell
    low: float | None  # ends of an interval that is valid at all times at which one looks
    high: float | None
    guardrails: list[GuardrailLift] = []


class BanditList(msgspec.Struct):
    """The bandits of the service, one page of them."""

    bandits: list[str]
    next: str | None = None  # the parameter ``after`` of the next page; null: this is the last


class ActionChange(Request):
    """Actions to register, with their features, and names to withdraw."""

    put: dict[ActionName, Columns | Vector] = {}
    drop: Annotated[list[ActionName], Meta(max_length=MOST_ACTIONS)] = []


class ActionList(msgspec.Struct):
    """The registered actions of a bandit, one page of them."""

    actions: dict[str, Any]
    next: str | None = None  # the parameter ``after`` of the next page; null: this is the last


# ---------------------------------------------------------------------------------- decisions


class Base64Matrix(Request):
    """Little-endian float64 numbers, row by row."""

    rows: Annotated[int, Meta(ge=1, le=MOST_ACTIONS)]
    base64: str


class ActionRow(Request):
    """An action that is not registered."""

    id: ActionName
    features: Columns | Vector


class RankingRequest(Request):
    """Rank the registered actions, ``actions``, or the rows of ``matrix``."""

    context: Columns | None = None
    eligible: Annotated[list[ActionName], Meta(min_length=1, max_length=MOST_ACTIONS)] | None = None
    actions: Annotated[list[ActionRow], Meta(min_length=1, max_length=MOST_ACTIONS)] | None = None
    matrix: (
        Base64Matrix | Annotated[list[Vector], Meta(min_length=1, max_length=MOST_ACTIONS)] | None
    ) = None


class DecisionRequest(RankingRequest):
    """Choose one of the registered actions, of ``actions``, or of the rows of ``matrix``."""

    request_id: Label | None = None
    subject: Label | None = None
    played: ActionName | None = None
    propensity: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    probabilities: bool = False


class DecisionAnswer(msgspec.Struct):
    """The action to take. ``logged`` is false where the store was down and this is the fallback."""

    action: str
    index: int
    logged: bool
    decision_id: str | None = None
    propensity: float | None = None
    score: float | None = None
    estimate: float | None = None
    width: float | None = None
    model_version: int | None = None
    proposal: str | None = None  # in shadow mode: the action that the bandit would have chosen
    retried: bool = False  # the request had been made before: this is its decision
    probabilities: list[float] | None = None  # of all actions in their order, if asked for
    held_out: bool = False  # the baseline was played, and not the bandit's choice
    repeats: str | None = None  # where decisions are sticky: the decision whose action this is


class DecisionBatch(Request):
    """Decisions to make at once, such as those of a mail campaign."""

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1, max_length=MOST_DECISIONS)]


class TopRequest(DecisionRequest, kw_only=True):
    """Choose ``top`` different actions, one after the other."""

    top: Annotated[int, Meta(ge=1, le=MOST_DECISIONS)]


class DecisionList(msgspec.Struct):
    """Decisions in the order of the requests, or of their rank."""

    decisions: list[DecisionAnswer]


class Model(msgspec.Struct, frozen=True):
    """Everything that is needed to decide without the service: a bandit at one moment.

    Arrays are base64 of little-endian float64 numbers.
    """

    format: Literal[2]  # of this document; another number means another form
    bandit: str
    time: str  # when the document was made
    version: int  # number of events that the model had taken in
    settings: dict[str, Any]  # with dim, policy, features, loop and exploration
    # Registered: names and features, in the order that indices count. A JSON object would not keep
    # it: JavaScript moves names that look like integers to the front.
    actions: list[tuple[str, Any]]
    n_observed: int  # rewards that the model rests on
    theta: str  # the mode, dim numbers
    covariance: str  # upper half, row by row; empty where the policy draws no scores


class ModelDocument(msgspec.Struct, frozen=True):
    """A model with the sha256 of its bytes: those of ``model``, just as they stand here."""

    digest: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
    model: Model


class MadeDecision(Request):
    """A decision that was made elsewhere, by a model document.

    The time of the decision is the one in its id, a UUID of version 7. ``columns`` and ``values``
    are the entries of the played action's vector that are not zero, columns in ascending order.
    """

    decision_id: DecisionId
    action: ActionName
    index: Annotated[int, Meta(ge=0, lt=MOST_ACTIONS)]
    n_actions: Annotated[int, Meta(ge=1, le=MOST_ACTIONS)]
    propensity: Annotated[float, Meta(gt=0.0, le=1.0)]
    model_version: Annotated[int, Meta(ge=0, le=2**53)]
    model_time: Moment
    dim: Annotated[int, Meta(ge=1, le=WIDEST)]
    columns: Annotated[list[Annotated[int, Meta(ge=0, lt=WIDEST)]], Meta(max_length=WIDEST)]
    values: Annotated[list[float], Meta(max_length=WIDEST)]
    score: float | None  # null where the action was drawn uniformly
    estimate: float
    context: Columns | None = None
    eligible: Annotated[list[ActionName], Meta(min_length=1, max_length=MOST_ACTIONS)] | None = None
    subject: Label | None = None


class MadeBatch(Request):
    """Decisions that were made elsewhere, in the order in which they were made."""

    decisions: Annotated[list[MadeDecision], Meta(min_length=1, max_length=MOST_DECISIONS)]


class MadeAnswer(msgspec.Struct):
    """The outcome of each decision that was made elsewhere; a reason for each invalid one."""

    statuses: list[Status]
    reasons: list[str]


class EventView(msgspec.Struct):
    """Something that happened to a decision."""

    kind: str
    time: str  # when it happened
    reward: float | None = None
    received: str | None = None  # when a reward was handed in, if that was not when it happened
    event_id: str | None = None  # of a reward, if it has one
    part: float | None = None  # what was handed in, where ``reward`` combines it with earlier ones
    outcome: str | None = None  # name of a guardrail outcome
    value: float | None = None  # of a guardrail outcome


class ActionView(msgspec.Struct):
    """The bandit's view of an action when it decided."""

    action: str
    features: list[float]
    estimate: float  # x'theta
    # how far above its estimate the truth may lie; null where the policy has no confidence set
    bonus: float | None
    mean: float  # the reward that is expected at the estimate
    # of the score that the policy draws, normal around the estimate; null where it draws no scores
    sd: float | None = None


class Explanation(msgspec.Struct):
    """The knowledge of the model when it decided."""

    n_decided: int
    n_observed: int
    n_pending: int  # decisions that waited for their reward
    theta: list[float]
    actions: list[ActionView]
    complete: bool  # whether the log holds the features of all actions
    rule: str = ""  # how the action was chosen, in words
    heard: str = ""  # of a loop that learns before windows close: what it had learnt from, in words


class DecisionStory(msgspec.Struct):
    """A decision and all that became of it."""

    decision_id: str
    bandit: str
    status: Standing
    action: str
    propensity: float | None
    model_version: int
    policy: str
    score: float | None
    estimate: float
    width: float | None
    features: list[float]
    events: list[EventView]
    context: Any = None  # as it came
    request_id: str | None = None
    subject: str | None = None
    proposal: str | None = None
    window_closes: str | None = None
    grace_ends: str | None = None  # until then a reward of the window may be handed in
    n_actions: int | None = None  # how many could be chosen
    probabilities: list[float] | None = None  # of all these, if they were asked for
    explanation: Explanation | None = None
    # Of an open decision, where silence is learnt from: the part of a failure that it counts for.
    silence: float | None = None
    held_out: bool = False  # the baseline was played, and not the bandit's choice
    repeats: str | None = None  # where decisions are sticky: the decision whose action this is


# ------------------------------------------------------------------------------------ rewards


class RewardItem(Request):
    """The reward of a decision; ``revise`` puts it in the place of an earlier one.

    ``at`` is when it happened, as RFC 3339 has it or in seconds since 1970; now, if it is left out.
    ``event_id`` tells the rewards of one decision apart, where the bandit combines several: the
    same one again is a duplicate.
    """

    decision_id: DecisionId
    reward: float
    revise: bool = False
    at: Moment | None = None
    event_id: Label | None = None


class RewardBatch(Request):
    """Rewards of any bandits."""

    rewards: Annotated[list[RewardItem], Meta(min_length=1, max_length=MOST_REWARDS)]


class OutcomeItem(Request):
    """A guardrail outcome of a decision: something to watch beside the reward, not learnt from.

    ``at`` and ``event_id`` are as of a reward. A decision may have several outcomes of one name,
    under event ids of their own: their sum is what counts.
    """

    decision_id: DecisionId
    name: Label
    value: float
    at: Moment | None = None
    event_id: Label | None = None


class OutcomeBatch(Request):
    """Guardrail outcomes of decisions of any bandits."""

    outcomes: Annotated[list[OutcomeItem], Meta(min_length=1, max_length=MOST_REWARDS)]


class RewardAnswer(msgspec.Struct, omit_defaults=True):
    """The status of each reward, or guardrail outcome, in the order they were sent.

    Where a status is ``invalid``, ``reasons`` is as long as ``statuses`` and says why: what was
    expected instead of each invalid reward, and nothing about the others. So it is where a
    ``conflict`` is a second ``event_id`` of a decision whose rewards are not combined.
    """

    statuses: list[Status]
    reasons: list[str] = []


class BadReward(msgspec.Struct):
    """A row of a file that could not be used: its line, in Parquet its row, and why."""

    line: int
    status: Status
    reason: str


class RewardsTaken(msgspec.Struct):
    """The outcome of the rewards of a file: counts by status, and of rows that are not used.

    ``bad`` has the first 1,000 of ``n_bad``.
    """

    rows: int
    statuses: dict[Status, int]
    n_bad: int
    bad: Annotated[list[BadReward], Meta(max_length=MOST_BAD_ROWS)]


class StatusAnswer(msgspec.Struct):
    """The outcome of a cancellation."""

    status: Status


class ParkedReward(msgspec.Struct):
    """A reward that came before its decision was visible here."""

    decision_id: str
    time: str  # when it happened
    reward: float


class ParkedList(msgspec.Struct):
    """Rewards that came before their decision was visible here, oldest decision first.

    ``next`` is the ``after`` of the next page, null where there may be none.
    """

    parked: list[ParkedReward]
    next: str | None = None


class Erased(msgspec.Struct, omit_defaults=True):
    """The number of decisions that were erased, and a note on those that could not be."""

    decisions: int
    note: str = ""


# --------------------------------------------------------------------------------------- keys


class KeyRequest(Request):
    """An API key to make."""

    name: Label
    scopes: Annotated[
        list[Literal["read", "decide", "reward", "admin"]], Meta(min_length=1, max_length=4)
    ]
    bandit: Name | None = None


class KeyView(msgspec.Struct):
    """An API key without its secret."""

    id: str
    name: str
    scopes: list[str]
    bandit: str | None


class NewKeyAnswer(msgspec.Struct):
    """An API key; its secret is shown here and never again."""

    id: str
    key: str


class KeyList(msgspec.Struct):
    """The API keys that are valid, one page of all that ever were."""

    keys: list[KeyView]
    next: str | None = None  # the parameter ``after`` of the next page; null: this is the last


class Health(msgspec.Struct):
    """The answer whether the service can be used."""

    status: Literal[
        "ok", "starting", "compiling", "draining", "store unavailable", "behind the log"
    ]
    events_behind: int = 0
    compiling: int = 0  # bandits whose kernels are being compiled


# ------------------------------------------------------------------------------------- errors


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong with a request, and where: in the body, or in a parameter."""

    detail: str
    pointer: str = ""  # JSON Pointer into the body, such as #/rewards/3/reward
    parameter: str = ""  # name of a path or query parameter


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """An RFC 9457 problem document. Some types add members of their own."""

    type: str
    title: str
    status: int
    detail: str
    errors: Sequence[Fault] = ()
    retry_after: int | None = None  # seconds, the same as in the header Retry-After
    x_request_id: str = ""  # the same as in the header X-Request-ID
