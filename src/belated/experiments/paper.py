"""The paper's experiments as data: its grid, and the choices it leaves open.

T = 100,000 rounds, K = 100 actions from the unit ball, d in {5, 10, 20}, 30 runs, delta = 0.05 / 3,
linear and logistic rewards; exponential, uniform and Pareto delays of mean 100, 250, 500 and 1000.
"""

from collections.abc import Sequence
from typing import Any

from belated.core.arguments import wrong
from belated.delays import Constant, Exponential, Lomax, Pareto, Uniform
from belated.experiments.settings import Experiment, new_experiment
from belated.families import Bernoulli, Gaussian
from belated.policies import DelayedOFUGLM, DUCBRidge

DIMS = (5, 10, 20)
MEANS = (100.0, 250.0, 500.0, 1000.0)
LAWS: dict[str, Any] = {"exponential": Exponential, "uniform": Uniform, "pareto": Lomax}
FAMILIES = ("linear", "logistic")
DELTA = 0.05 / 3  # the paper's three events, 95 per cent together
FULL = {"horizon": 100_000, "runs": 30}
SMALL = {"horizon": 10_000, "runs": 10}


def paper_experiment(
    *,
    only: Sequence[str] = (),
    horizon: int = FULL["horizon"],
    runs: int = FULL["runs"],
    seed: int = 1,
    noise: float = 1.0,
    m1: float = 1.0,
    lam: float = 1.0,
    pareto: str = "lomax",
    others: Sequence[str] = (),
) -> Experiment:
    """The grid, or the part of it that ``only`` names.

    Parameters
    ----------
    only
        Any of ``linear``, ``logistic``, ``exponential``, ``uniform``, ``pareto``, ``d=5`` and
        ``E=100``; what is not mentioned of a kind is not narrowed.
    horizon, runs, seed
        Rounds, runs, and what makes them repeatable.
    noise, m1, lam, pareto
        Choices the paper does not state; see ``stated_choices``.
    others
        More policies by name, such as ``thompson``.
    """
    if pareto not in ("lomax", "pareto"):
        raise wrong("pareto", pareto, "lomax (mean E) or pareto (type I, mean 1 + E)")
    families, laws, dims, means = narrowed(only)
    rewards = {"linear": Gaussian(sd=noise), "logistic": Bernoulli()}
    kinds = {**LAWS, "pareto": Lomax if pareto == "lomax" else Pareto}
    delays = [kinds[law](mean) for law in laws for mean in means]
    policies = [
        DelayedOFUGLM(m1=m1, delta=DELTA, lam=lam),
        DUCBRidge(m1=m1, delta=DELTA, lam=lam),
    ]
    return new_experiment(
        [*policies, *others],
        [rewards[family] for family in families],
        [Constant(0.0), *delays],  # no delay: what the penalty is measured against
        dims=dims,
        horizon=horizon,
        runs=runs,
        seed=seed,
    )


def narrowed(
    only: Sequence[str],
) -> tuple[list[str], list[str], list[int], list[float]]:
    """Families, laws, dimensions and means of the grid that ``only`` leaves.

    >>> narrowed(["linear", "E=100", "E=250", "d=5"])
    (['linear'], ['exponential', 'uniform', 'pareto'], [5], [100.0, 250.0])
    """
    known: dict[str, list[str]] = {
        "family": list(FAMILIES),
        "law": list(LAWS),
        "dim": [f"d={d}" for d in DIMS],
        "mean": [f"E={mean:g}" for mean in MEANS],
    }
    every = [name for names in known.values() for name in names]
    wanted = [part.strip() for text in only for part in text.split(",")]
    for part in wanted:
        if part not in every:
            raise wrong("only", part, f"any of {', '.join(every)}")
    kept = {
        kind: [name for name in names if name in wanted] or names for kind, names in known.items()
    }
    dims = [int(name[2:]) for name in kept["dim"]]
    return kept["family"], kept["law"], dims, [float(name[2:]) for name in kept["mean"]]


def stated_choices(
    experiment: Experiment, *, noise: float, m1: float, lam: float, pareto: str
) -> dict[str, Any]:
    """What was run, for the report: a value, or a value and why it was chosen."""
    lomax = pareto == "lomax"
    return {
        "rounds T": experiment.horizon,
        "runs": experiment.runs,
        "actions K": experiment.environment.n_actions,
        "dimensions": list(experiment.dims),
        "policies": list(experiment.policies),
        "delays": list(experiment.delays),
        "delta": (f"{DELTA:.5f}", "0.05 / 3, as in the paper"),
        "seed": experiment.seed,
        "theta_star": ("uniform in the unit ball, drawn once for a dimension", "as in the paper"),
        "noise of linear rewards": (
            f"normal, standard deviation {noise:g}",
            "not stated; 1 makes the paper's penalty and its ridge coincide",
        ),
        "bound m1 on the norm of theta_star": (m1, "not stated; theta_star is in the unit ball"),
        "ridge lam": (lam, "not stated; 1 is the smallest that the theorem allows"),
        "R of logistic rewards": (0.5, "not stated; Hoeffding's bound for rewards in [0, 1]"),
        "Pareto delays": (
            "Lomax, mean E[tau]" if lomax else "type I with x_m = 1, mean 1 + E[tau]",
            "the paper's shape (1 + E) / E gives mean E[tau] in the Lomax reading, 1 + E[tau] in "
            "that of its text",
        ),
        "competitor": (
            "DUCB-GLCB with the ridge estimate of Delayed OFU-GLM, no exploration phase",
            "reconstructed from memory of Zhou, Xu and Blanchet; the paper does not say which "
            "variant it ran (ducb-literal is the other)",
        ),
        "estimate of logistic rewards": (
            "penalised maximum likelihood over the ball of radius m1",
            "the reading for which the confidence set is proved",
        ),
    }
