"""Laws of the time that a reward takes to return, in rounds or any other unit.

A delay is a NamedTuple with ``mean``, ``survival`` and a ``delay_quantile`` kernel; ``sample``
draws from any of them. One uniform number per decision, pushed through the quantile function, gives
the delay, so that different laws can be compared on the same luck.

Confidence sets hold for delays that do not depend on the reward. ``Informative`` ones do, on
purpose: they show what then breaks. ``Hazard`` delays depend on the action.

>>> import numpy as np
>>> rng = np.random.default_rng(1)
>>> sample(Exponential(100.0), 3, rng).round(1)
array([ 71.7, 300.5,  15.6])
>>> quantile(Uniform(100.0), 0.5)
100.0
>>> round(expected_missing(Exponential(100.0), 100_000), 5)
100.50083
"""

from belated.worlds.delays.dependent import Hazard, Informative, Scaled
from belated.worlds.delays.drawing import arrival, expected_missing, quantile, sample
from belated.worlds.delays.laws import (
    Constant,
    Empirical,
    Exponential,
    Geometric,
    Lomax,
    Never,
    PacketLoss,
    Pareto,
    Uniform,
    WithMean,
    read_law,
)
from belated.worlds.delays.traits import (
    check_dim,
    dim_of,
    is_delay,
    is_informative,
    is_known_in_advance,
)

__all__ = [
    "Constant",
    "Empirical",
    "Exponential",
    "Geometric",
    "Hazard",
    "Informative",
    "Lomax",
    "Never",
    "PacketLoss",
    "Pareto",
    "Scaled",
    "Uniform",
    "WithMean",
    "arrival",
    "check_dim",
    "dim_of",
    "expected_missing",
    "is_delay",
    "is_informative",
    "is_known_in_advance",
    "quantile",
    "read_law",
    "sample",
]
