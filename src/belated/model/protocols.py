"""The whole extension surface on one page: functions chosen by their first argument.

A family, a policy, an estimator, a delay or an environment is a NamedTuple of parameters plus the
cases it registers here, ``@choose.case(MyPolicy)``. Whatever only Python needs (derived defaults,
names, moments) is a method of the NamedTuple, listed in the ``Protocol`` classes below.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from belated.core.arguments import checked, shown
from belated.core.generic import generic, generic_with_default
from belated.core.jit import inlined_kernel
from belated.core.sparse import SparseRows
from belated.core.types import Matrix, Vector
from belated.model.state import History, State
from belated.numerics.lowered.products import quadratic
from belated.numerics.pruning import DecisionSet

P = TypeVar("P")

# ------------------------------------------------------------------------------------- families


class Support(NamedTuple):
    """The rewards a family can produce: an interval, or the whole numbers in it."""

    low: float
    high: float
    integer: bool = False

    def contains(self, y: float) -> bool:
        """Returns whether ``y`` is a possible reward."""
        return self.low <= y <= self.high and (not self.integer or y == int(y))

    def __str__(self) -> str:
        numbers = "a whole number" if self.integer else "a number"
        return f"{numbers} from {self.low:g} to {self.high:g}"


LARGEST_REWARD = 1e9  # for families without a largest reward, unless the user allows more


class RaisableSupport(Support):
    """A support whose bound is the family's parameter ``max_reward``."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{super().__str__()}; the family's max_reward raises the bound"


class Family(Protocol):
    """Law of the reward given the linear predictor ``z = x'theta``. All bounds are on ``|z|``."""

    @property
    def support(self) -> Support:
        """The possible rewards."""

    @property
    def a_phi(self) -> float:
        """Dispersion a(phi): the variance is ``a_phi mu'(z)`` where b is the law's cumulant."""

    @property
    def R(self) -> float | None:
        """Sub-Gaussian scale of the noise; None where there is none."""

    def kappa(self, bound: float) -> float:
        """Least slope of the mean over ``|z| <= bound``."""

    def lipschitz(self, bound: float) -> float:
        """L_mu: greatest slope of the mean over ``|z| <= bound``."""

    def curvature(self, bound: float) -> float:
        """M_mu: greatest ``|mu''(z)|`` over ``|z| <= bound``."""


@generic
def derivatives(family: Any, z: float) -> tuple[float, float, float]:
    """``(mu(z), mu'(z), mu''(z))`` of the mean function."""


@generic
def cumulant(family: Any, z: float) -> float:
    """b(z), with b' = mu."""


@generic
def reward_quantile(family: Any, z: float, u: float) -> float:
    """Inverse distribution function of the reward at ``u`` in (0, 1)."""


@generic_with_default
def luck(family: Any, u: float) -> float:
    """Returns the part of ``reward_quantile`` that does not depend on ``z``, to use for many z."""
    return u


@generic_with_default
def reward_of_luck(family: Any, z: float, luck: float) -> float:
    """``reward_quantile(family, z, u)``, given ``luck(family, u)``."""
    return reward_quantile(family, z, luck)


@generic
def least_slope(family: Any, bound: float) -> float:
    """Minimum of mu' over ``|z| <= bound``: kappa, where a kernel needs it."""


@generic
def self_concordance(family: Any, bound: float) -> float:
    """M with ``|mu''| <= M mu'`` and ``|mu'''| <= M^2 mu'`` over ``|z| <= bound``."""


@generic_with_default
def concordance(family: Any, bound: float) -> tuple[float, float]:
    """M and N with ``|mu''| <= M mu'`` and ``|mu'''| <= N mu'`` over ``|z| <= bound``.

    For families that know better than M and M^2 of ``self_concordance``.
    """
    M = self_concordance(family, bound)
    return M, M * M


@generic_with_default
def silence_derivatives(family: Any, z: float, F: float) -> tuple[float, float]:
    """First two derivatives in z of -log P(silence) of a decision, F the share due at its age.

    Of the rewards other than zero the share F comes within the age of the decision, so a decision
    is silent if its reward is zero or has not come yet. A family without a case learns nothing
    from silence. Where z is at most ``RARE`` a case must be self-concordant, the second derivative
    bounding the third.
    """
    return 0.0, 0.0


RARE = -math.log(2.0)  # p = 1 / 3 for conversions, a mean of 1 / 2 for counts


@inlined_kernel
def mean(family: Any, z: float) -> float:
    """mu(z): expected reward at linear predictor ``z``."""
    return derivatives(family, z)[0]


# ----------------------------------------------------------------------------------- estimators


class Estimator(Protocol):
    """An estimator computes theta from returned rewards.

    One that never reads the history has a property ``looks_back`` that is False: a simulation
    then keeps only the decisions whose reward is pending. An estimator whose result depends on
    the order in which rewards return has a property ``order_matters`` that is True; rewards of
    one round are handed to it in the order of decisions. An estimator with a prior has a method
    ``grouped``, see ``in_groups``, if groups of features may have priors of their own.
    """

    def new_fit(self, dim: int) -> Any:
        """Returns what the estimator keeps between rewards: a NamedTuple of arrays."""


@generic
def take_in(estimator: Any, family: Any, state: State, x: Vector, y: float) -> None:
    """Updates ``state.fit`` with one returned reward. ``W`` and the history hold it already."""


@generic_with_default
def take_in_row(
    estimator: Any, family: Any, state: State, history: Any, row: int, y: float
) -> None:
    """Does the same as ``take_in`` for a row of the history, which may be sparse."""
    take_in(estimator, family, state, history.x[row], y)


@generic
def refit(estimator: Any, family: Any, state: State, history: History) -> None:
    """Bring ``state.theta`` and its certified error up to date."""


@generic_with_default
def refit_exactly(estimator: Any, family: Any, state: State, history: History, tol: float) -> None:
    """Brings ``state.theta`` to within ``tol`` of the estimate that it is certified to be near.

    Does nothing by default: an estimator in closed form has no distance to it.
    """
    return


def in_groups(estimator: Any, fit: Any, groups: Mapping[str, int]) -> Any:
    """Returns the fit without any reward with a prior for each group of features.

    ``groups`` has the size of each group of consecutive features, by name. The fit of an estimator
    without a method ``grouped(fit, groups)`` stays as it is.
    """
    grouped = getattr(estimator, "grouped", None)
    return fit if grouped is None else grouped(fit, groups)


@generic_with_default
def revise(estimator: Any, family: Any, state: State, x: Vector, old: float, new: float) -> None:
    """Corrects ``state.fit`` where the reward of a returned round was ``old`` and is ``new``.

    An estimator without a case cannot do this: the caller has to check first.
    """
    return


@generic_with_default
def revise_row(
    estimator: Any, family: Any, state: State, history: Any, row: int, old: float, new: float
) -> None:
    """Does the same as ``revise`` for a row of the history, which may be sparse."""
    revise(estimator, family, state, history.x[row], old, new)


@generic
def remake(estimator: Any, family: Any, state: State, history: Any) -> None:
    """Computes ``state.fit`` anew from the returned rewards and their weights.

    ``W`` has been made anew, ``state.theta`` is still the old estimate, and ``refit`` follows. An
    estimator with a case counts each reward by its weight everywhere: ``weight_of``.
    """


@generic
def hear(estimator: Any, family: Any, state: State, history: Any, silence: Vector) -> None:
    """Lets the silence of every decision be what ``silence`` says; ``refit`` follows.

    An estimator with a case can learn from silence.
    """


def can_hear_silence(estimator: Estimator, family: Family) -> bool:
    """Returns whether open decisions can say something to this estimator."""
    return type(estimator) in hear.cases and type(family) in silence_derivatives.cases


def can_revise(estimator: Estimator) -> bool:
    """Returns whether the estimator can exchange one reward for another."""
    return type(estimator) in revise.cases or type(estimator) in revise_row.cases


@generic
def factor_precision(fit: Any, state: State, U: Matrix) -> None:
    """``U'U`` becomes a(phi) times the Hessian of the penalised negative log-likelihood.

    An estimator with a case gives a posterior interval to every policy without a confidence set.
    """


@generic
def posterior_variances(fit: Any, rows: SparseRows, out: Vector) -> None:
    """Fills in the posterior variance of x'theta for each row x.

    An estimator that keeps the covariance itself has a case, in place of ``factor_precision``.
    """


# ------------------------------------------------------------------------------------- policies


class Policy(Protocol):
    """A policy with the parameters that a user sets.

    Constants that kernels need and nobody sets are named by ``derives`` above the class. Kernels
    get the policy from ``resolve``, which fills them in. Cases are registered on the class.

    A policy may have further attributes:

    - ``randomised``, False if it draws no random numbers: ``choose`` is then handed None for
      ``rng``, which saves a third of the time. One that does draw has a case of ``probabilities``
      or ``score_law`` if the probability of what it plays is to be had at the price of a decision.
    - ``new_memory(dim)``, which returns what the policy keeps besides the state, a NamedTuple of
      arrays that ``remember`` updates.
    - ``refuses(family)``, which returns why it cannot learn from this family, or an empty text.
    - ``horizon``, a field with the default None, if it must know the number of rounds: a simulation
      fills it in, ``resolve`` refuses None.
    - ``feedback``, the name of the feedback it learns from, if that is not identified rewards.
    - ``window``, a field with the default None, if it must know how long a conversion is waited
      for: a simulation fills it in, and refuses one that differs from that of its feedback.
    - ``needs_bound``, False if nothing is proved of it for actions of norm ``max_norm`` at most:
      features then give rows that are not shrunk to a bound.
    - ``sparse``, True if it takes rows as lists of entries, keeps the history in that form and no
      matrix W. It needs no bound on norms and has one prior per group of features. A bandit asks
      its ``probabilities``, or else its ``score_law``, which see ``SparseRows``, not its
      ``choose``.
    - ``linear_mean``, True if it estimates the mean reward itself as x'theta, whatever the mean
      function of the family.

    A policy whose draws need the rewards themselves, not only what the estimator keeps of them,
    draws in ``draw_parameter`` and leaves the draws in its memory for ``choose``.
    """

    def resolve(self, family: Family, dim: int, max_norm: float) -> Any:
        """Returns the policy with every open parameter derived from the family."""

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """Returns the estimator that a resolved policy learns with."""


class ResolvedPolicy(Policy, Protocol):
    """The policy that ``resolve`` returns: no parameter is left open."""

    @property
    def lam(self) -> float:
        """Ridge in the design matrices."""


def deterministic(policy_type: type[P]) -> type[P]:
    """Class decorator for a policy that draws no random numbers."""
    policy_type.randomised = False  # type: ignore[attr-defined]
    return policy_type


def is_randomised(policy: Any) -> bool:
    """Returns whether the policy draws random numbers. True unless it says otherwise."""
    return bool(getattr(policy, "randomised", True))


def needs_no_bound(policy_type: type[P]) -> type[P]:
    """Class decorator for a policy whose rows need no bound on their norms."""
    policy_type.needs_bound = False  # type: ignore[attr-defined]
    return policy_type


def takes_sparse_rows(policy_type: type[P]) -> type[P]:
    """Class decorator for a policy that takes rows as lists of their nonzero entries."""
    policy_type.sparse = True  # type: ignore[attr-defined]
    return needs_no_bound(policy_type)


def is_sparse(policy: Any) -> bool:
    """Returns whether the policy takes rows as lists of their nonzero entries."""
    return bool(getattr(policy, "sparse", False))


def learns_noise(policy: Any) -> bool:
    """Returns whether the policy learns the noise of Gaussian rewards where it is left out."""
    return "learns_dispersion" in getattr(policy, "derived", ())


def refusal(policy: Any, family: Family) -> str:
    """Returns why the policy cannot learn from rewards of this family; empty where it can."""
    return str(getattr(policy, "refuses", lambda family: "")(family))


def refuse_family(policy: Any, family: Family) -> None:
    """Raises where the policy cannot learn from this family."""
    reason = refusal(policy, family)
    if reason:
        raise ValueError(f"family = {shown(family)}: {type(policy).__name__} {reason}")


def accepted(policy: P, family: Family) -> P:
    """Returns the policy, its values checked again; raises if it cannot learn from the family."""
    refuse_family(policy, family)
    return checked(policy)


def feedback_of(policy: Any) -> str:
    """Returns the feedback that the policy learns from, by name, or any: ``worlds/feedback.py``."""
    return str(getattr(policy, "feedback", "identified"))


def with_horizon(policy: Any, horizon: int) -> Any:
    """Returns the policy with the number of rounds filled in, where it asks for it."""
    unknown = getattr(policy, "horizon", horizon) is None
    return policy._replace(horizon=horizon) if unknown else policy


@generic_with_default
def draw_parameter(
    policy: Any, state: State, history: History, rng: np.random.Generator | None
) -> None:
    """Draws from the history into ``state.memory`` before a decision; does nothing by default.

    The estimator of such a policy must look back: a simulation drops old rewards otherwise.
    """
    return


@generic
def choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator | None
) -> tuple[int, float, float, float]:
    """Returns the row of ``actions`` to play, its score, estimate and width.

    It must not modify anything but ``state.work``, ``actions.work`` and ``rng``.
    """


@generic
def probabilities(policy: Any, state: State, actions: DecisionSet, out: Vector) -> None:
    """Fills in the probability with which ``choose`` returns each row, where it is known exactly.

    It may modify what ``choose`` may. A policy with a case of neither this nor ``score_law`` is
    asked 2,600 times what it would play (``learner/weighing.py``).
    """


@generic
def score_law(policy: Any, state: State, actions: DecisionSet, mean: Vector, root: Matrix) -> int:
    """Fills in the law N(mean, R R') of the scores that ``choose`` draws, to play the highest.

    R is the first columns of ``root``, (K, the larger of K and d), or (K, the smaller) where the
    policy takes sparse rows; returns their number. A number that is added to all scores alike may
    be left out of R.
    """


@generic_with_default
def remember(policy: Any, state: State, x: Vector) -> None:
    """Brings ``state.memory`` up to date after ``x`` was played; does nothing by default."""
    return


@generic
def sqrt_beta(policy: Any, state: State) -> float:
    """Returns the width of the confidence set as the paper defines it."""


@generic_with_default
def radius(policy: Any, state: State) -> float:
    """Returns the width in use: ``sqrt_beta`` plus the certified slack of the estimate, scaled.

    NaN for a policy without a width. ``claims_set`` says whether the width is proved to hold.
    """
    return np.nan


def claims_set(policy: Any) -> bool:
    """Returns whether the policy, with its present parameters, claims a confidence set.

    A policy with a parameter ``guaranteed`` claims one only where that is True: with any other
    value its width is not proved.
    """
    return type(policy) in radius.cases and bool(getattr(policy, "guaranteed", True))


@generic_with_default
def ellipsoid(policy: Any, state: State) -> tuple[Matrix, Matrix, Vector]:
    """Returns the matrix for the norm of ``radius``, its inverse and the cap on that; W by default.

    Cases are for policies of this package. A kernel compiled elsewhere counts references, and the
    arrays it returned would never be freed: such a policy registers ``set_norm``, ``dual_norm`` and
    ``choose`` instead.
    """
    return state.W, state.W_inv, state.cap


@generic_with_default
def set_norm(policy: Any, state: State, error: Vector) -> float:
    """Returns ``||error||`` in the norm in which ``radius`` is measured."""
    return np.sqrt(quadratic(ellipsoid(policy, state)[0], error, state.work[1]))


@generic_with_default
def dual_norm(policy: Any, state: State, x: Vector) -> float:
    """``||x||`` in the norm of the inverse matrix: ``radius`` times that bounds the error of x."""
    return np.sqrt(quadratic(ellipsoid(policy, state)[1], x, state.work[1]))


# --------------------------------------------------------------------- delays and environments


class Delay(Protocol):
    """The law of the time that a reward takes to return, in rounds or any other unit.

    A law that looks at the reward has a property ``informative`` that is True; one that
    looks at the action has a property ``dim``, the length of an action, and a case of
    ``delay_quantile_of`` instead of ``delay_quantile``.
    """

    @property
    def mean(self) -> float:
        """Expected delay."""

    def survival(self, t: float) -> float:
        """P(delay > t)."""


@generic
def delay_quantile(delay: Any, u: float, y: float) -> float:
    """Inverse distribution function of the delay at ``u`` in (0, 1), for a reward ``y``."""


@generic_with_default
def delay_quantile_of(delay: Any, x: Vector, u: float, y: float) -> float:
    """Returns the quantile for a reward of the action ``x``, on which few laws depend."""
    return delay_quantile(delay, u, y)


class Environment(Protocol):
    """The source of decision sets."""

    @property
    def n_actions(self) -> int:
        """Returns K, the number of actions per round."""

    def mean(self, dim: int) -> Vector:
        """The average action."""

    def norm_quantile(self, dim: int, u: float) -> float:
        """Inverse distribution function of the norm of an action."""


@generic
def draw_actions(environment: Any, actions: Matrix, rng: np.random.Generator) -> None:
    """Fill ``actions`` (K, d) with the decision set of a round."""
