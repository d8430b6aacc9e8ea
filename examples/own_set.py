"""Decision sets of your own: every action has coefficients of its own for the same visitor.

An environment is a NamedTuple that says how many actions a round has, what they average to and how
long they are, and one kernel: `draw_actions` fills an array with the decision set of a round. This
one draws a visitor with m features and offers them to each of K actions in a block of its own, so
that dim = K m. Simulations take it by `belated.simulate(..., environment=Blocks(3), dims=[6])`.
"""

import math
from typing import NamedTuple

import numpy as np

from belated.extend import Matrix, Vector, Whole, check_environment, draw_actions, parameters


@parameters
class Blocks(NamedTuple):
    """The features of a visitor, uniform on the unit sphere, in the block of each action."""

    n_actions: Whole = 3

    def mean(self, dim: int) -> Vector:
        """The average action: no direction is preferred."""
        return np.zeros(dim)

    def norm_quantile(self, dim: int, u: float) -> float:
        """Quantile of the norm of an action: always 1."""
        return 1.0


@draw_actions.case(Blocks)
def _draw(environment: Blocks, actions: Matrix, rng: np.random.Generator) -> None:
    K, d = actions.shape
    m = d // K
    if m * K != d:
        raise ValueError("dim must be a multiple of n_actions")
    actions[:] = 0.0
    square = 0.0
    for i in range(m):
        actions[0, i] = rng.standard_normal()
        square += actions[0, i] ** 2
    for i in range(m):
        actions[0, i] /= math.sqrt(square)
        for k in range(1, K):
            actions[k, k * m + i] = actions[0, i]


if __name__ == "__main__":
    check_environment(Blocks(), dim=6)
    print("Blocks satisfies everything an environment must")
