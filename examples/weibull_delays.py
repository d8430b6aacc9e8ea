"""A delay of your own: Weibull, many quick answers and a long tail for shape below 1.

A delay is a NamedTuple with its mean and its survival function, and one kernel: the quantile.
"""

import math
from typing import NamedTuple

from belated.extend import Positive, check_delay, delay_quantile, parameters


@parameters
class Weibull(NamedTuple):
    """P(tau > t) = exp(-(t / scale)^shape)."""

    scale: Positive = 50.0
    shape: Positive = 0.7

    @property
    def mean(self) -> float:
        """Scale times Gamma(1 + 1 / shape)."""
        return self.scale * math.gamma(1.0 + 1.0 / self.shape)

    def survival(self, t: float) -> float:
        """P(tau > t)."""
        return math.exp(-((max(t, 0.0) / self.scale) ** self.shape))


@delay_quantile.case(Weibull)
def _quantile(delay: Weibull, u: float, y: float) -> float:
    return delay.scale * (-math.log1p(-u)) ** (1.0 / delay.shape)


if __name__ == "__main__":
    check_delay(Weibull())
    print("Weibull satisfies everything a delay must")
