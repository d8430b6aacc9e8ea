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
from dataclasses import fields
from pathlib import Path
from typing import Any

from belated.core.arguments import wrong
from belated.experiments.experiment import Experiment, new_experiment
from belated.experiments.options import Options
from belated.registry import hint


def experiment_of(file: Path | None, given: dict[str, Any]) -> Experiment:
    """Returns the experiment of a file; the options in ``given`` take precedence over the file."""
    settings = read_config(file) if file is not None else {}
    return new_experiment(Options(**settings | given))


def read_config(file: Path) -> dict[str, Any]:
    """Returns the settings in a TOML file."""
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: expected TOML ({error})") from None
    known = [field.name for field in fields(Options)]
    for key in settings:
        if key not in known:
            expected = f"one of {', '.join(known)}{hint(key, known)}"
            raise ValueError(f"{key} in {file}: expected {expected}")
    return settings


def delta_of(experiment: Experiment) -> float:
    """Returns the largest delta among the policies, against which coverage is judged."""
    deltas = [p.delta for p in experiment.policies.values() if hasattr(p, "delta")]
    if any(not 0.0 < delta < 1.0 for delta in deltas):
        raise wrong("delta", deltas, "numbers between 0 and 1")
    return float(max(deltas, default=0.05))
