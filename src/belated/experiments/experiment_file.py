"""An experiment from a small TOML file, from options, or from both.

The keys are the parameters of ``belated.simulate``::

    policies = ["delayed-ofu-glm", "thompson"]
    families = ["bernoulli"]
    delays = ["exponential:500", "packet:0.9"]
    dims = [5, 10]
    horizon = 10000
    runs = 30
"""

import tomllib
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

from belated.core.arguments import wrong
from belated.experiments.experiment import Experiment, new_experiment

DEFAULTS: dict[str, Any] = {
    "policies": ["delayed-ofu-glm", "ducb-ridge", "thompson", "greedy"],
    "families": ["gaussian"],
    "delays": ["constant:0", "exponential:100"],
    "dims": [5],
    "horizon": 2000,
    "runs": 10,
}


def experiment_of(file: Path | None, options: dict[str, Any]) -> Experiment:
    """The experiment of a file; options that are neither None nor empty go before it."""
    settings = {**DEFAULTS, **(read_config(file) if file is not None else {})}
    settings |= {key: value for key, value in options.items() if value is not None and value != []}
    return new_experiment(**settings)


def read_config(file: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: expected TOML ({error})") from None
    known = list(signature(new_experiment).parameters)
    for key in settings:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{key} in {file}: expected one of {', '.join(known)}{hint}")
    return settings


def delta_of(experiment: Experiment) -> float:
    """The largest delta among the policies: what coverage is judged against."""
    deltas = [p.delta for p in experiment.policies.values() if hasattr(p, "delta")]
    if any(not 0.0 < delta < 1.0 for delta in deltas):
        raise wrong("delta", deltas, "numbers between 0 and 1")
    return float(max(deltas, default=0.05))
