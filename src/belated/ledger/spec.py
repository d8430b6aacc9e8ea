"""The settings of a bandit, as they are written into the log."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin, get_type_hints

import msgspec

from belated import registry
from belated.core.arguments import shown, wrong
from belated.core.extremes import refuse_extremes
from belated.features import FeatureMap, Features
from belated.features.growing import grown
from belated.wire import LONGEST_WINDOW, Settings

if TYPE_CHECKING:  # a service without bandits need not wait for Numba
    from belated.learner.forgetting import HalfLife
    from belated.learner.learner import Learner
    from belated.model.protocols import Family, Policy

# Settings that version 0.1 did not have. At their defaults they are left out of digests.
LATER = ("grace", "combine", "half_life", "half_life_unit", "open", "holdout", "sticky")
# Another value would give the past another meaning, so it needs a new bandit.
FIXED = (
    *("family", "policy", "dim", "max_norm", "features"),
    *("loop", "default_reward", "combine", "open"),
)
COMBINE = ("first", "last", "sum", "max")
# Values of Gaussian rewards. Before ``sd`` could be null, a log said the same by ``learns_sd``.
NOISE = ("sd", "learns_sd")


LARGEST_NORM = 1e6  # of an action, for policies that need no bound


def vectors_in(groups: Mapping[str, int] | None) -> dict[str, Any] | None:
    """Returns the ``features`` of a bandit whose actions are vectors with these groups."""
    return None if groups is None else {"kind": "vectors", "groups": dict(groups)}


class Spec(Settings, frozen=True):
    """Settings of a bandit as the log holds them.

    Attributes
    ----------
    family, policy
        Type and values, as ``files.describe`` returns them.
    features
        ``to_dict`` of a feature map, or ``vectors_in`` groups; None where actions are vectors of
        one group. Categories may be added.
    open
        As in ``Settings``; a log that does not say it means "hold".
    """

    family: dict[str, Any]
    policy: dict[str, Any]
    dim: int
    features: dict[str, Any] | None = None
    default_reward: float = 0.0
    open: Literal["hold", "silence"] = "hold"

    @classmethod
    def of(
        cls,
        dim: int,
        family: "Family",
        policy: "Policy",
        *,
        open: str | None = "hold",
        **settings: Any,
    ) -> Self:
        """Returns the checked settings of a bandit of these parts.

        ``open`` is None where a new bandit is to have the usual value.
        """
        from belated.learner import files

        refuse_extremes(family, policy)
        described: dict[str, Any] = {
            "family": files.describe("FAMILIES", family),
            "policy": files.describe("POLICIES", policy),
        }
        for name, part in described.items():
            if _plain(part) != part:  # JSON has no infinite numbers
                raise wrong(name, part, "values that JSON can hold")
        spec = cls(dim=dim, **described, **settings)
        own = [type(family), type(policy)]
        if open is None:
            # Of one reward, or of the first of several, all is known when it comes.
            open = "silence" if spec.combine in (None, "first") and spec.can_hear(own) else "hold"
        return msgspec.structs.replace(spec, open=open)

    def can_hear(self, types: Iterable[type] = ()) -> bool:
        """Returns whether ``open = "silence"`` goes with the other settings."""
        from belated.learner import files
        from belated.learner.learner import learns_early

        if self.loop != "conversion" or self.default_reward != 0.0:
            return False
        family = files.rebuild("FAMILIES", self.family, types)
        policy = files.rebuild("POLICIES", self.policy, types)
        return learns_early(self.dim, family, policy, self.max_norm)

    def feature_map(self, given: Any = None) -> FeatureMap | None:
        """Returns the map from actions to vectors: ``given``, if a log cannot hold it."""
        from belated.learner import files

        if given is not None and not _can_grow(self.features):
            unbounded = (self.features or {}).get("bounded") is False
            return given.unbounded() if unbounded else given
        return files.rebuild_features({"features": self.features}, None)

    def law(self, types: Iterable[type] = ()) -> "Family":
        """Returns the law of the rewards."""
        from belated.learner import files

        family: Family = files.rebuild("FAMILIES", self.family, types)
        return family

    def possible(self, types: Iterable[type] = ()) -> Callable[[float], bool]:
        """Returns whether the log may hold a reward; a ``max_reward`` may be younger than that."""
        from belated.learner import files

        family: Any = files.rebuild("FAMILIES", self.family, types)
        if "max_reward" in family._fields:
            family = family._replace(max_reward=1e100)
        possible: Callable[[float], bool] = family.support.contains
        return possible

    def learner(self, types: Iterable[type] = ()) -> "Learner":
        """Returns a learner that knows nothing yet, after all settings were checked.

        Parameters
        ----------
        types
            Policy and family types that are not part of belated.
        """
        from belated.learner import files
        from belated.learner.learner import Learner
        from belated.model.protocols import feedback_of

        own = list(types)
        family = files.rebuild("FAMILIES", self.family, own)
        policy = files.rebuild("POLICIES", self.policy, own)
        learner = Learner(
            *(self.dim, family, policy),
            *(self.assumed_norm, self._groups()),
            half_life=self.forgetting,
            hears=self.open == "silence" and feedback_of(policy) != "conversions",
        )
        self._check_policy(learner)
        self._check_loop(learner)
        return learner

    @property
    def forgetting(self) -> "HalfLife | None":
        """The age at which the reward of a decision counts for half; None: nothing is forgotten."""
        from belated.learner.forgetting import half_life_of

        return half_life_of(self.half_life, self.half_life_unit)

    @property
    def assumed_norm(self) -> float:
        """The norm that the policy is told: ``max_norm``, or that of rows which need no bound."""
        if self.is_sparse or self._declared("needs_bound", True) or not _can_grow(self.features):
            return self.max_norm
        return max(self.max_norm, Features.from_dict(self.features or {}).longest)

    @property
    def bound(self) -> float:
        """Bound on the norm of an action; next to none for vectors of a policy that needs none."""
        free = not self._declared("needs_bound", True)
        if free and (self.is_sparse or not _can_grow(self.features)):
            return LARGEST_NORM
        return self.assumed_norm

    @property
    def is_sparse(self) -> bool:
        """Returns whether the policy takes rows as lists of their nonzero entries."""
        return self._declared("sparse", False)

    def _declared(self, name: str, usual: bool) -> bool:
        """Returns what the policy declares under this name; False for a policy from elsewhere."""
        policy = self.policy["type"]
        return policy in registry.POLICIES and bool(
            getattr(registry.load(registry.POLICIES, policy), name, usual)
        )

    def window_at(self, now: int) -> tuple[int | None, int | None]:
        """Returns the ``due`` and ``closes`` of a decision that is made at ``now``."""
        if self.window is None:
            return None, None
        due = now + round(self.window * 1e6)
        return due, due + round(self.grace * 1e6)

    @property
    def closes_after(self) -> int:
        """Window and grace together, in microseconds; only for a bandit with a window."""
        due, closes = self.window_at(0)
        assert due is not None
        assert closes is not None
        return closes

    def sticky_until(self, now: int) -> int | None:
        """Returns the end of a stretch that begins at ``now``; None where nothing is sticky."""
        return None if self.sticky is None else now + round(self.sticky * 1e6)

    def as_kept(self) -> dict[str, Any]:
        """Returns all settings, without those that no log of version 0.1 has and nobody set."""
        kept = msgspec.structs.asdict(self)
        defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
        return {
            name: value
            for name, value in kept.items()
            if not (name in LATER and value == defaults[name])
        }

    def _groups(self) -> dict[str, int] | None:
        """Returns the groups of the features, which grow with them, or of vectors."""
        described = self.features or {}
        if _can_grow(described):
            return Features.from_dict(described).groups
        return described.get("groups")

    def _check_policy(self, learner: "Learner") -> None:
        from belated.model.protocols import draw_parameter, feedback_of

        policy, feedback = learner.policy, feedback_of(learner.policy)
        if feedback == "conversions" and self.loop == "conversion":
            # At the close of a window there is nothing to learn that it has not counted before.
            name = type(policy).__name__
            if self.open != "silence":
                counts = "counts a decision without a conversion as zero from the start"
                raise wrong("open", self.open, f"'silence': {name} {counts}")
            if self.combine is not None:
                learns = "learns a conversion when it comes, and cannot take it back"
                raise wrong("combine", self.combine, f"None: {name} {learns}")
        elif feedback not in ("identified", "any"):
            expected = "one that learns from identified rewards"
            if feedback == "conversions":
                expected += ", or loop = 'conversion' (a default_reward of 0)"
            raise wrong("policy", policy, expected)
        if type(policy) in draw_parameter.cases:
            raise wrong("policy", policy, "one whose draws do not depend on its earlier draws")

    def _check_loop(self, learner: "Learner") -> None:
        for name, values in CHOICES.items():
            if getattr(self, name) not in values:
                raise wrong(name, getattr(self, name), " or ".join(map(repr, values)))
        if self.window is not None and not 0.0 < self.window <= LONGEST_WINDOW:
            expected = f"a positive number of seconds, {LONGEST_WINDOW:g} at most"
            raise wrong("window", self.window, expected)
        if not 0.0 <= self.grace <= LONGEST_WINDOW:
            expected = f"a number of seconds, {LONGEST_WINDOW:g} at most"
            raise wrong("grace", self.grace, expected)
        if self.grace > 0.0 and self.window is None:
            raise wrong("grace", self.grace, "0 without a window: nothing ever closes")
        if self.loop == "conversion":
            if self.window is None:
                raise wrong("window", None, "seconds to wait for a conversion")
            support = learner.family.support
            if not support.contains(self.default_reward):
                raise wrong("default_reward", self.default_reward, str(support))
        if self.open == "silence":
            if self.loop != "conversion":
                raise wrong("open", self.open, "'hold' in a loop with explicit rewards")
            if self.default_reward != 0.0:
                raise wrong("default_reward", self.default_reward, "0 where open = 'silence'")
        if self.late == "revise" and not learner.can_revise:
            raise ValueError(
                f"late = 'revise': {type(learner.policy).__name__} learns in one pass and cannot "
                "take a reward back; expected 'keep', or another policy"
            )
        self._check_combine(learner)
        if not 0.0 <= self.exploration <= 1.0:
            raise wrong("exploration", self.exploration, "a probability from 0 to 1")
        if not 0.0 <= self.holdout < 1.0:
            raise wrong("holdout", self.holdout, "a share from 0 to below 1")
        if self.holdout > 0.0 and self.mode == "shadow":
            raise wrong("holdout", self.holdout, "0 in shadow mode, where the caller plays")
        if self.sticky is not None:
            if not 0.0 < self.sticky <= LONGEST_WINDOW:
                expected = f"a positive number of seconds, {LONGEST_WINDOW:g} at most, or None"
                raise wrong("sticky", self.sticky, expected)
            if self.mode == "shadow":
                raise wrong("sticky", self.sticky, "None in shadow mode, where the caller plays")

    def _check_combine(self, learner: "Learner") -> None:
        if self.combine is None:
            return
        if self.combine not in COMBINE:
            raise wrong("combine", self.combine, f"{' or '.join(map(repr, COMBINE))}, or None")
        if self.late == "revise":
            expected = "None with late = 'revise': what is combined is what was on time"
            raise wrong("combine", self.combine, expected)
        if self.loop == "explicit" and not learner.can_revise:
            raise ValueError(
                f"combine = {self.combine!r}: {type(learner.policy).__name__} learns in one pass "
                "and cannot take a reward back; expected None, loop = 'conversion', or another "
                "policy"
            )

    def _lasting(self, name: str) -> Any:
        """Returns a setting for comparison; a bound on rewards does not change what was learnt."""
        value = _plain(getattr(self, name))
        if name == "family":
            value.get("values", {}).pop("max_reward", None)
        return value

    def noise_kept(self, new: "Spec") -> "Spec":
        """Returns ``new`` with the noise of Gaussian rewards as it is here, if it leaves it out."""
        old, wanted = self.family, new.family
        left_out = wanted.get("values", {}).get("sd", 1.0) is None
        if not (left_out and old["type"] == wanted["type"] == "gaussian"):
            return new
        noise = {name: old["values"][name] for name in NOISE if name in old["values"]}
        return msgspec.structs.replace(
            new, family={**wanted, "values": {**wanted["values"], **noise}}
        )

    def changed_to(self, new: "Spec") -> "Spec":
        """Returns the settings of this bandit after a change to ``new`` was asked for.

        Features may get further categories; the old ones keep their places. Noise that ``new``
        leaves out stays as it is. Raises if ``new`` would give the past another meaning.
        """
        new = self.noise_kept(new)
        may_grow = _can_grow(self.features) and _can_grow(new.features)
        # what was heard of silence is kept in shares of the window
        for name in (*FIXED, "window", "grace") if self.open == "silence" else FIXED:
            if may_grow and name in ("dim", "features"):
                continue
            old, wanted = (spec._lasting(name) for spec in (self, new))
            if old != wanted:
                raise ValueError(
                    f"{name} = {shown(wanted)}: expected {shown(old)}, as the log has it; what "
                    "was learnt would mean something else. Make a bandit of another name"
                )
        if not may_grow:
            return new
        try:
            features = grown(*(Features.from_dict(spec.features or {}) for spec in (self, new)))
        except ValueError as error:
            raise ValueError(f"{error}. Make a bandit of another name") from None
        return msgspec.structs.replace(new, features=features.to_dict(), dim=features.dim)


# A log that holds any other value cannot be read.
CHOICES = {
    name: get_args(kind)
    for name, kind in get_type_hints(Spec).items()
    if get_origin(kind) is Literal
}


def _plain(value: Any) -> Any:
    """Returns a value as it comes back from the log, for a fair comparison."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _can_grow(features: dict[str, Any] | None) -> bool:
    """Returns whether the log holds every category of these features."""
    return features is not None and features.get("kind") == "features"
