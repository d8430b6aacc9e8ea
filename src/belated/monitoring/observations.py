"""What is known of a sample of decisions at some time."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from belated.core.types import Vector


@dataclass(frozen=True)
class Observations:
    """What became of each of some decisions; one element a decision."""

    decided: Vector  # when, in seconds since 1970
    delay: Vector  # until the reward; where there is none, until expiry or now; seconds
    returned: Any  # whether the reward came
    reward: Vector  # NaN where it did not

    def as_of(self, time: float) -> Self:
        """What was known at an earlier time."""
        made = self.decided <= time
        age = time - self.decided[made]
        known = self.delay[made] <= age
        return type(self)(
            self.decided[made],
            np.minimum(self.delay[made], age),
            self.returned[made] & known,
            np.where(known, self.reward[made], np.nan),
        )
