"""What the commands use, behind one import that fails where the extra is not installed."""

from belated.experiments import auditing, comparison, paper, reproducing, simulation
from belated.experiments import experiment_file as config
from belated.experiments.judging import claims
from belated.experiments.reporting import output

__all__ = [
    "auditing",
    "claims",
    "comparison",
    "config",
    "output",
    "paper",
    "reproducing",
    "simulation",
]
