"""Checks that every environment must pass."""

from collections.abc import Callable

import numpy as np

from belated.core.types import Matrix
from belated.model.protocols import Environment, draw_actions

SETS = 2000
TOLERANCE = 0.05  # of a mean, or of a probability, estimated from so many decision sets


def check_environment(environment: Environment, dim: int) -> None:
    """Run every check of an environment; raise ``AssertionError`` at the first violation."""
    for check in ENVIRONMENT_CHECKS:
        check(environment, dim)


def _drawn(environment: Environment, dim: int, sets: int, start: float = 0.0) -> Matrix:
    """Returns decision sets (sets, K, d), each written over an array that is full of ``start``."""
    rng, K = np.random.default_rng(1), environment.n_actions
    drawn = np.full((sets, K, dim), start)
    for actions in drawn:
        draw_actions(environment, actions, rng)
    return drawn


def check_actions_are_drawn(environment: Environment, dim: int) -> None:
    """Every number of a decision set is written, is finite, and depends on the seed alone."""
    first, again = _drawn(environment, dim, 20), _drawn(environment, dim, 20, start=7.0)
    assert np.isfinite(first).all(), (
        "an action has NaN or infinity in it: draw_actions must write finite numbers"
    )
    assert np.array_equal(first, again), (
        "two draws with one seed differ: draw_actions must write every entry of actions, and draw "
        "from the rng it is handed and from nothing else"
    )


def check_moments_match_the_draws(environment: Environment, dim: int) -> None:
    """``mean`` and ``norm_quantile`` describe the actions that are drawn."""
    drawn = _drawn(environment, dim, SETS).reshape(-1, dim)
    claimed, found = environment.mean(dim), drawn.mean(axis=0)
    assert np.shape(claimed) == (dim,) and np.allclose(claimed, found, atol=TOLERANCE), (  # noqa: PT018
        f"mean({dim}) is {claimed}, but actions average to {found}: return the average action"
    )
    norms = np.linalg.norm(drawn, axis=1)
    longest = environment.norm_quantile(dim, 1.0)
    assert norms.max() <= longest + 1e-9, (
        f"an action is {norms.max():g} long, but norm_quantile({dim}, 1.0) is {longest:g}: return "
        "the length of the longest action that can be drawn"
    )
    for u in (0.1, 0.5, 0.9):
        q = environment.norm_quantile(dim, u)
        below, within = (norms < q - 1e-9).mean(), (norms <= q + 1e-9).mean()
        assert below - TOLERANCE <= u <= within + TOLERANCE, (
            f"norm_quantile({dim}, {u}) is {q:g}, but {within:.0%} of all actions are not longer: "
            "return the inverse distribution function of an action's length"
        )


ENVIRONMENT_CHECKS: list[Callable[[Environment, int], None]] = [
    check_actions_are_drawn,
    check_moments_match_the_draws,
]
