"""What the commands use, behind one import that fails where the extra is not installed."""

from belated.experiments import auditing, comparison, config, output, paper, reproducing, simulation

__all__ = ["auditing", "comparison", "config", "output", "paper", "reproducing", "simulation"]
