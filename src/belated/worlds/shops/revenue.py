"""A shop that counts money."""

from statistics import NormalDist

import numpy as np

from belated.core.types import Vector
from belated.worlds.shops.shop import DAY, Outcome, Shop, Visit

NORMAL = NormalDist()


class Revenue(Shop):
    """The shop with a linear revenue around 1 and noise of standard deviation 2."""

    decisions = DAY
    noise = 2.0
    family = "gaussian"  # the noise is ours to learn; peers are told

    def intercept(self) -> float:
        """Returns the revenue of a banner and a visitor without effects."""
        return 1.0

    def expected(self, scores: Vector) -> Vector:
        """Returns the scores."""
        return np.asarray(scores)

    def outcome(self, visit: Visit, index: int) -> Outcome:
        """Returns the expected revenue plus noise, which is the same whatever is played."""
        noise = self.noise * NORMAL.inv_cdf(max(visit.luck[0], 1e-300))
        late = super().outcome(visit, index).wait
        return Outcome(float(visit.expected[index]) + noise, late)
