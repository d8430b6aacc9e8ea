"""What the commands use, behind one import that fails where the extra is not installed."""

from belated.experiments import config, output, paper, simulation

__all__ = ["config", "output", "paper", "simulation"]
