"""Names for the arrays that travel between the layers."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Coarse: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.integer[Any]]
