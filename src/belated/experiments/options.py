"""The options of ``simulate``, declared once; imports nothing that takes time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta


@dataclass(frozen=True)
class Options:
    """The settings of a simulation; see ``simulate`` for the meaning of each field.

    The fields are parameters of ``simulate``, the keys of an experiment's TOML file and the options
    of ``belated simulate``, whose defaults these are.
    """

    policies: Annotated[
        Sequence[Any] | Mapping[str, Any],
        Meta(examples=["ducb-ridge:c=2"], extra={"option": "policy"}),
    ] = ("delayed-ofu-glm", "ducb-ridge", "thompson", "greedy")
    families: Annotated[Sequence[Any], Meta(examples=["bernoulli"], extra={"option": "family"})] = (
        "gaussian",
    )
    delays: Annotated[
        Sequence[Any], Meta(examples=["exponential:500"], extra={"option": "delay"})
    ] = ("constant:0", "exponential:100")
    dims: Annotated[Sequence[int], Meta(description="Dimension.", extra={"option": "dim"})] = (5,)
    horizon: Annotated[int, Meta(description="Rounds in a run.")] = 2000
    runs: Annotated[int, Meta(description="Runs of every setting.")] = 10
    seed: Annotated[int, Meta(description="Of all random numbers.")] = 0
    n_actions: Annotated[
        int, Meta(description="Fresh actions a round, K.", extra={"option": "actions"})
    ] = 100
    environment: Annotated[Any, Meta(examples=["sphere:50"])] = None
    checkpoints: Annotated[int | Sequence[int], Meta(description="Rounds that are recorded.")] = 64
    spacing: Annotated[str, Meta(description="Of these: linear or logarithmic.")] = "linear"
    max_norm: Annotated[float, Meta(description="Bound on the norm of an action.")] = 1.0
    feedback: Annotated[
        Any, Meta(description="identified, conversions:window=50, or aggregated.")
    ] = "identified"
    bayesian: Annotated[bool, Meta(description="Draw theta_star anew in every run.")] = False
