"""The paper's experiments as data: its grid, and the choices it leaves open.

T = 100,000 rounds, K = 100 actions from the unit ball, d in {5, 10, 20}, 30 runs, delta = 0.05 / 3,
linear and logistic rewards; exponential, uniform and Pareto delays of mean 100, 250, 500 and 1000.
Its text says that the actions are drawn in each round; its figures are those of one draw per run.
Choices that it does not state were found by comparing with the figures: see docs/published.md.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from belated.core.arguments import wrong
from belated.experiments.experiment import Experiment, new_experiment
from belated.experiments.labels import OFU, Labelled
from belated.experiments.options import Options
from belated.families import Bernoulli, Gaussian
from belated.policies import DelayedOFUGLM, DUCBRidge
from belated.worlds.delays import Constant, Exponential, Lomax, Pareto, Uniform
from belated.worlds.environments import UnitBall, UnitBallOnce

DUCB = "ducb-ridge"
DIMS = (5, 10, 20)
MEANS = (100.0, 250.0, 500.0, 1000.0)
LAWS: dict[str, Any] = {"exponential": Exponential, "uniform": Uniform, "pareto": Lomax}
FAMILIES = ("linear", "logistic")
DELTA = 0.05 / 3  # the paper's three events, 95 per cent together
FULL = {"horizon": 100_000, "runs": 30}
SMALL = {"horizon": 10_000, "runs": 10}
K = 100
CHECKPOINTS = 80  # among them the rounds at which the printed curves were read, and T / 16
SETS = {"per-run": UnitBallOnce(K), "per-round": UnitBall(K)}
PARETO = {"lomax": Lomax, "pareto": Pareto}


class Choices(NamedTuple):
    """The choices that the paper leaves open, or states otherwise than its figures show."""

    sets: str = "per-run"
    noise: float = 0.5
    logistic_R: float = 1.0
    m1: float = 1.0
    lam: float = 1.0
    pareto: str = "lomax"
    theta_per_run: bool = False

    def checked(self) -> "Choices":
        """Returns the choices; raises if one of them does not exist."""
        if self.sets not in SETS:
            raise wrong("sets", self.sets, "per-run (the figures) or per-round (the text)")
        if self.pareto not in PARETO:
            raise wrong("pareto", self.pareto, "lomax (mean E) or pareto (type I, mean 1 + E)")
        return self


AS_PRINTED = Choices()


def paper_experiment(
    choices: Choices = AS_PRINTED,
    *,
    only: Sequence[str] = (),
    horizon: int = FULL["horizon"],
    runs: int = FULL["runs"],
    seed: int = 1,
    others: Sequence[str] = (),
) -> Experiment:
    """Returns the grid, or the part of it that ``only`` names.

    Parameters
    ----------
    choices
        The choices that the paper leaves open; by default those that its figures were made with.
    only
        Any of ``linear``, ``logistic``, ``exponential``, ``uniform``, ``pareto``, ``d=5`` and
        ``E=100``; a kind that is not mentioned is not narrowed.
    horizon, runs, seed
        Rounds, runs, and the seed that makes them repeatable.
    others
        More policies by name, such as ``thompson``.
    """
    choices = choices.checked()
    families, laws, dims, means = narrowed(only)
    rewards = {"linear": Gaussian(sd=choices.noise), "logistic": Bernoulli()}
    kinds = {**LAWS, "pareto": PARETO[choices.pareto]}
    delays = [kinds[law](mean) for law in laws for mean in means]
    ours = DelayedOFUGLM(m1=choices.m1, delta=DELTA, lam=choices.lam)
    theirs = DUCBRidge(m1=choices.m1, delta=DELTA, lam=choices.lam)
    kappa = Bernoulli().kappa(choices.m1)
    logistic = {
        OFU: ours._replace(R=choices.logistic_R),
        DUCB: theirs._replace(R=choices.logistic_R, c=1.0 / kappa),
    }
    options = Options(
        [Labelled(OFU, ours), Labelled(DUCB, theirs), *others],
        [rewards[family] for family in families],
        [Constant(0.0), *delays],  # no delay, against which the penalty is measured
        dims=dims,
        horizon=horizon,
        runs=runs,
        seed=seed,
        environment=SETS[choices.sets],
        checkpoints=CHECKPOINTS,
        bayesian=choices.theta_per_run,
    )
    variants = {(label, "bernoulli"): policy for label, policy in logistic.items()}
    return new_experiment(options, variants)


def narrowed(
    only: Sequence[str],
) -> tuple[list[str], list[str], list[int], list[float]]:
    """Returns the families, laws, dimensions and means of the grid that ``only`` leaves.

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


def stated_choices(experiment: Experiment, choices: Choices) -> dict[str, Any]:
    """Returns what was run, for the report: a value, or a value and why it was chosen."""
    once = choices.sets == "per-run"
    theta_star = ("uniform in the unit ball, drawn once for a dimension", "as in the paper")
    if choices.theta_per_run:
        theta_star = ("uniform in the unit ball, drawn in every run", "to speak of all theta_star")
    return {
        "rounds T": experiment.horizon,
        "runs": experiment.runs,
        "actions K": experiment.environment.n_actions,
        "decision sets": (
            "drawn from the unit ball, once for a run" if once else "drawn in each round",
            "as the figures show" if once else "as the text says",
        ),
        "dimensions": list(experiment.dims),
        "policies": list(experiment.policies),
        "delays": list(experiment.delays),
        "delta": (f"{DELTA:.5f}", "0.05 / 3, as in the paper"),
        "seed": experiment.seed,
        "theta_star": theta_star,
        "noise of linear rewards": (
            f"normal, standard deviation and R {choices.noise:g}",
            "not stated; 1/2 agrees with the figures",
        ),
        "R of logistic rewards": (
            choices.logistic_R,
            "not stated; 1 agrees with the figures, 1/2 is Hoeffding's bound for rewards in [0, 1]",
        ),
        "bound m1 on the norm of theta_star": (
            choices.m1,
            "not stated; theta_star is in the unit ball",
        ),
        "ridge lam": (choices.lam, "not stated; 1 is the smallest that the theorem allows"),
        "Pareto delays": (
            "Lomax, mean E[tau]"
            if choices.pareto == "lomax"
            else "type I with x_m = 1, mean 1 + E[tau]",
            "the paper's shape (1 + E) / E gives mean E[tau] in the Lomax reading, 1 + E[tau] in "
            "that of its text",
        ),
        "competitor": (
            "DUCB-GLCB with the ridge estimate of Delayed OFU-GLM, no exploration phase, and "
            "sqrt(G) / kappa as what the bonus is inflated by",
            "reconstructed; the paper does not say which variant it ran, this one agrees with the "
            "figures (ducb-literal is another)",
        ),
        "estimate of logistic rewards": (
            "penalised maximum likelihood over the ball of radius m1",
            "the reading for which the confidence set is proved",
        ),
    }
