"""Generalised linear bandits with delayed feedback.

>>> import numpy as np
>>> from belated import Bandit, Bernoulli, DelayedOFUGLM
>>> bandit = Bandit(dim=2, family=Bernoulli(), policy=DelayedOFUGLM(m1=1.0, delta=0.05), seed=7)
>>> decision = bandit.decide([[0.6, 0.8], [0.1, 0.0]])
>>> decision.index
0
>>> bandit.n_missing
1
>>> bandit.learn(decision.id, 1.0)
1
>>> bandit.n_missing
0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from belated.bandit import Bandit as Bandit
    from belated.core.events import Certificate as Certificate
    from belated.core.events import ConflictingRewardError as ConflictingRewardError
    from belated.core.events import Decision as Decision
    from belated.core.events import UnknownDecisionError as UnknownDecisionError
    from belated.core.ranking import RankedAction as RankedAction
    from belated.core.ranking import Ranking as Ranking
    from belated.experiments.comparison import Comparison as Comparison
    from belated.experiments.comparison import compare as compare
    from belated.experiments.simulation import Results as Results
    from belated.experiments.simulation import simulate as simulate
    from belated.families import Bernoulli as Bernoulli
    from belated.families import Binomial as Binomial
    from belated.families import Bounded as Bounded
    from belated.families import Gaussian as Gaussian
    from belated.families import Poisson as Poisson
    from belated.families import Probit as Probit
    from belated.families import Tanh as Tanh
    from belated.features import Features as Features
    from belated.features import Transformed as Transformed
    from belated.learner.assumptions import AssumptionWarning as AssumptionWarning
    from belated.learner.files import SnapshotError as SnapshotError
    from belated.policies import DelayedOFUGLM as DelayedOFUGLM

__version__ = "0.1.0"

# Where each public name lives. Loaded on first use: importing belated costs no Numba.
_HOMES = {
    "AssumptionWarning": "learner.assumptions",
    "Bandit": "bandit",
    "Bernoulli": "families",
    "Binomial": "families",
    "Bounded": "families",
    "Certificate": "core.events",
    "Comparison": "experiments.comparison",
    "ConflictingRewardError": "core.events",
    "Decision": "core.events",
    "DelayedOFUGLM": "policies",
    "Features": "features",
    "Gaussian": "families",
    "Poisson": "families",
    "Probit": "families",
    "RankedAction": "core.ranking",
    "Ranking": "core.ranking",
    "Results": "experiments.simulation",
    "SnapshotError": "learner.files",
    "Tanh": "families",
    "Transformed": "features",
    "UnknownDecisionError": "core.events",
    "compare": "experiments.comparison",
    "simulate": "experiments.simulation",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'belated' has no attribute {name!r}")
    try:
        home = import_module(f"belated.{_HOMES[name]}")
    except ModuleNotFoundError as error:  # an extra is missing, or all but the client
        whole = "belated[experiments]" if "experiments" in _HOMES[name] else "belated"
        message = f"belated.{name} needs more: {error}: pip install '{whole}'"
        raise ModuleNotFoundError(message, name=error.name) from error
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
