"""A sample of decisions as it was known at some time."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from belated.core.types import Integers, Vector


@dataclass(frozen=True)
class Observations:
    """The delay of each decision, or its age while it is pending; one element per decision."""

    decided: Vector  # when, in seconds since 1970
    delay: Vector  # until the reward; where there is none, until expiry or now; seconds
    returned: Any  # whether the reward came
    reward: Vector  # NaN where it did not
    action: Integers  # a number for the one that was played; -1 where that is not known

    def as_of(self, time: float) -> Self:
        """Returns the same sample as it was known at an earlier time."""
        made = self.decided <= time
        age = time - self.decided[made]
        known = self.delay[made] <= age
        return type(self)(
            self.decided[made],
            np.minimum(self.delay[made], age),
            self.returned[made] & known,
            np.where(known, self.reward[made], np.nan),
            self.action[made],
        )
