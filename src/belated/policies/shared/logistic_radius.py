"""The radius of Faury et al. (ICML 2020), which ``LogUCB1`` and ``OFULogR`` share."""

import math
from typing import Any

from belated.core.jit import kernel
from belated.model.state import OBSERVED, State


@kernel
def logistic_gamma(policy: Any, state: State, ridge: float) -> float:
    """Returns gamma of Section 3.2, for actions scaled to length 1."""
    d, n = state.theta.shape[0], state.counts[OBSERVED]
    root = math.sqrt(ridge) / policy.max_norm
    spread = 0.5 * d * math.log(1.0 + n / (4.0 * d * root * root)) + d * math.log(2.0)
    gamma = root * (policy.m1 * policy.max_norm + 0.5)
    return gamma + 2.0 / root * (spread - math.log(policy.delta))
