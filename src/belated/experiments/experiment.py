"""An experiment as data: its policies, its worlds, and what is recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from belated import registry
from belated.core.arguments import positive, refuse_wide, whole, wrong, wrong_type
from belated.core.extremes import refuse_extremes
from belated.core.types import Integers
from belated.engine.conversion_lane import as_served
from belated.engine.worlds import LONGEST_HORIZON, Lane, WorldSettings
from belated.experiments.labels import labelled, listed, policies_by_label
from belated.experiments.options import Options
from belated.model.plain_policy import holds_parameters_only, is_own, started
from belated.model.protocols import (
    Delay,
    Environment,
    Family,
    derivatives,
    draw_actions,
    learns_noise,
    with_horizon,
)
from belated.worlds.delays import check_dim, is_delay
from belated.worlds.environments import UnitBall
from belated.worlds.feedback import Feedback, check_feedback, feedback_named, with_window

SPACINGS = ("linear", "logarithmic")


@dataclass(frozen=True)
class Experiment:
    """Every policy with every family and delay, in every dimension, ``runs`` times.

    All lanes of a dimension and run share one world: decision sets, luck and lateness. theta_star
    is drawn once per dimension and fixed over runs, as in the paper, unless ``bayesian``.
    """

    policies: dict[str, Any]  # by label
    families: dict[str, Family]
    delays: dict[str, Delay]
    dims: tuple[int, ...]
    horizon: int
    runs: int
    seed: int
    environment: Environment
    checkpoints: Integers
    max_norm: float
    feedback: Feedback
    bayesian: bool = False
    # By labels of policy and family: a policy that plays such lanes in place of the labelled one.
    variants: Mapping[tuple[str, str], Any] = field(default_factory=dict)

    def policy(self, label: str, family: str) -> Any:
        """Returns the policy of a label as it plays a family."""
        return self.variants.get((label, family), self.policies[label])

    def tasks(self) -> list["WorldTask"]:
        """Returns one world per dimension and run."""
        return [WorldTask(self, dim, run) for dim in self.dims for run in range(self.runs)]

    def lanes(self) -> list[tuple[str, str, str]]:
        """Returns the labels of the lanes of a world: policy, family, delay."""
        return [(p, f, d) for p in self.policies for f in self.families for d in self.delays]

    def identity(self) -> dict[str, Any]:
        """Returns the settings that make two experiments the same, as JSON; runs are left out."""
        identity = {
            "policies": {k: _described("POLICIES", v) for k, v in self.policies.items()},
            "families": {k: _described("FAMILIES", v) for k, v in self.families.items()},
            "delays": {k: _described("DELAYS", v) for k, v in self.delays.items()},
            "environment": _described("ENVIRONMENTS", self.environment),
            "dims": list(self.dims),
            "horizon": self.horizon,
            "seed": self.seed,
            "checkpoints": self.checkpoints.tolist(),
            "max_norm": self.max_norm,
            "feedback": _described("FEEDBACK", self.feedback),
        }
        # These are absent if unused, so that folders of earlier versions can still be resumed.
        if self.bayesian:
            identity["bayesian"] = True
        if self.variants:
            described = {" ".join(k): _described("POLICIES", v) for k, v in self.variants.items()}
            identity["variants"] = described
        return identity


@dataclass(frozen=True)
class WorldTask:
    """One world of an experiment, small enough to be sent to another machine."""

    experiment: Experiment
    dim: int
    run: int

    @property
    def name(self) -> str:
        """Name of the world's part of the results."""
        return f"d{self.dim}-run{self.run:04d}"

    @property
    def work(self) -> float:
        """Number of rounds times the rough cost of one."""
        return self.experiment.horizon * (1.0 + self.dim**2 / 40.0)

    def settings(self) -> WorldSettings:
        """Returns the settings that the engine needs."""
        e = self.experiment
        lanes = [Lane(e.policy(p, f), e.families[f], e.delays[d]) for p, f, d in e.lanes()]
        return WorldSettings(
            e.environment,
            self.dim,
            e.horizon,
            self.run,
            e.seed,
            e.checkpoints,
            tuple(lanes),
            e.max_norm,
            feedback=e.feedback,
            bayesian=e.bayesian,
        )


def new_experiment(
    options: Options, variants: Mapping[tuple[str, str], Any] | None = None
) -> Experiment:
    """Returns the experiment of these options, after everything was checked.

    ``variants``: see ``Experiment``.
    """
    T = whole("horizon", options.horizon)
    if T > LONGEST_HORIZON:
        raise wrong("horizon", T, f"at most {LONGEST_HORIZON}")
    dims = [whole("dims", dim) for dim in listed("dims", options.dims)]
    if len(set(dims)) < len(dims):
        raise wrong("dims", dims, "each dimension once")
    environment = registry.parsed(registry.ENVIRONMENTS, options.environment)
    if environment is None:
        environment = UnitBall(whole("n_actions", options.n_actions))
    policies = policies_by_label(options.policies)
    families = labelled("families", registry.FAMILIES, options.families, _is_family)
    if not any(map(learns_noise, policies.values())):
        families = {label: _with_known_noise(family) for label, family in families.items()}
    experiment = Experiment(
        policies,
        families,
        labelled("delays", registry.DELAYS, options.delays, is_delay),
        tuple(dims),
        T,
        whole("runs", options.runs),
        whole("seed", options.seed, least=0),
        environment,
        _rounds(options.checkpoints, options.spacing, T),
        positive("max_norm", options.max_norm),
        feedback_named(options.feedback),
        bool(options.bayesian),
        dict(variants or {}),
    )
    _check_fit(experiment)
    return experiment


def _is_family(value: Any) -> bool:
    return type(value) in derivatives.cases


def _with_known_noise(family: Any) -> Any:
    """Returns a family whose noise is known, so that folders of version 0.1 can be resumed."""
    return family._replace(learns_sd=False) if getattr(family, "learns_sd", False) else family


def _rounds(checkpoints: int | Sequence[int], spacing: str, T: int) -> Integers:
    """Returns the rounds after which totals are recorded; the last is always among them."""
    if spacing not in SPACINGS:
        raise wrong("spacing", spacing, " or ".join(SPACINGS))
    if isinstance(checkpoints, int | np.integer) and not isinstance(checkpoints, bool):
        n = whole("checkpoints", checkpoints)
        if spacing == "linear":
            rounds = np.ceil(T * np.arange(1, n + 1) / n)
        else:
            rounds = np.rint(np.geomspace(1, T, n)) if n > 1 else np.array([T])
    else:
        rounds = np.array([whole("checkpoints", c) for c in listed("checkpoints", checkpoints)])
        if rounds.max() > T:
            raise wrong("checkpoints", int(rounds.max()), f"at most the horizon, {T}")
    return np.unique(np.append(rounds, T)).astype(np.int64)


def _check_fit(experiment: Experiment) -> None:
    """Raises for combinations that would fail in the middle of a run."""
    environment, max_norm = experiment.environment, experiment.max_norm
    if type(environment) not in draw_actions.cases:
        raise wrong_type("environment", environment, "an environment, such as UnitBall(100)")
    for dim in experiment.dims:
        columns = np.shape(getattr(environment, "arms", np.empty((1, dim))))[1]
        if columns != dim:
            raise wrong("dims", dim, f"{columns}, the length of the arms of the environment")
        longest = environment.norm_quantile(dim, 1.0)
        if longest > max_norm:
            raise wrong("max_norm", max_norm, f"at least {longest:g}, the longest action")
        for delay in experiment.delays.values():
            check_dim(delay, dim)
        for label in experiment.policies:
            for family_label, family in experiment.families.items():
                policy = experiment.policy(label, family_label)
                reason = why_not(
                    policy, family, dim, experiment.horizon, max_norm, experiment.feedback
                )
                if reason:
                    raise ValueError(f"{label} with {family_label}, d = {dim}: {reason}")


def why_not(
    policy: Any, family: Family, dim: int, horizon: int, max_norm: float, feedback: Feedback
) -> str:
    """Says why the policy cannot play such a world; empty if it can."""
    try:
        refuse_extremes(policy, family)
        policy = as_served(policy, family, dim, max_norm, feedback)
        check_feedback(policy, family, feedback)
        told = with_window(with_horizon(policy, horizon), feedback)
        if holds_parameters_only(policy):
            started(told, dim, np.random.SeedSequence(0))
        elif not is_own(policy):
            refuse_wide(dim)
            told.resolve(family, dim, max_norm).estimator(family, dim, max_norm)
    except ValueError as error:
        return str(error)
    return ""


def _described(kind: str, thing: Any) -> dict[str, Any]:
    """Returns type and values, as JSON can hold them."""
    name = registry.name_of(getattr(registry, kind), thing)
    if name is None:
        name = f"{type(thing).__module__}.{type(thing).__qualname__}"
    values = registry.values_of(thing)
    return {"type": name, "values": {field: _plain(value) for field, value in values.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return [type(value).__name__, *map(_plain, value)]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no such value
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
