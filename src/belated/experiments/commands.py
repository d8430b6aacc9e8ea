"""What the commands use, behind one import that fails where the extra is not installed."""

from belated.experiments import auditing, config, output, paper, simulation

__all__ = ["auditing", "config", "output", "paper", "simulation"]
