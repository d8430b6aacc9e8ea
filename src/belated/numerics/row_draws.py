"""A row drawn with given probabilities."""

from belated.core.jit import kernel
from belated.core.types import Vector


@kernel
def drawn_row(shares: Vector, u: float) -> int:
    """Returns a row with the probability that is its share, ``u`` being uniform in [0, 1).

    A share of zero is never drawn, whatever the shares add up to after rounding.
    """
    row = 0
    for a in range(shares.shape[0]):
        if shares[a] > 0.0:
            row = a
            u -= shares[a]
            if u < 0.0:
                break
    return row
