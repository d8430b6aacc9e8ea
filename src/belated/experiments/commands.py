"""What the commands use, behind one import that fails where the extra is not installed."""

from belated.experiments import comparison, config, output, paper, simulation

__all__ = ["comparison", "config", "output", "paper", "simulation"]
