"""Rewards with Gaussian (or any sub-Gaussian) noise around the linear predictor."""

from typing import Any, NamedTuple

from belated.core.arguments import parameters, positive, wrong
from belated.model.protocols import (
    LARGEST_REWARD,
    RaisableSupport,
    Support,
    cumulant,
    derivatives,
    least_slope,
    luck,
    reward_of_luck,
    reward_quantile,
    self_concordance,
)
from belated.numerics.special import normal_quantile


@parameters
class Gaussian(NamedTuple):
    """Identity mean, noise of standard deviation ``sd``.

    The paper's assumption is read as sub-Gaussian noise of scale R = sd; the bound ``|noise| <= R``
    printed beside it would exclude the Gaussian.

    Where ``sd`` is left out, a policy that can learn the noise from the rewards does so:
    ``AdaptiveThompson``, the default, and ``InverseGap``. Other policies, and simulated rewards,
    have sd = 1 then.
    ``Gaussian(sd=1.0)`` is noise that is known.

    A reward beyond ``max_reward`` is refused: sums in which one number is a billion times as large
    as the others have lost the others' digits for good.

    >>> from belated.model.protocols import mean
    >>> mean(Gaussian(), 0.25), Gaussian(sd=0.5).R
    (0.25, 0.5)
    """

    sd: Any = None  # kernels need a number: None becomes 1 with learns_sd
    max_reward: float = LARGEST_REWARD
    learns_sd: bool = False  # nobody sets it: whether ``sd`` was left out

    def checked(self) -> "Gaussian":
        """Raises where a parameter does not fit; noise that is to be learnt is 1 to begin with."""
        if self.sd is None:
            return self._replace(sd=1.0, learns_sd=True).checked()
        if not 1e-100 <= positive("sd", self.sd) <= 1e100:
            raise wrong("sd", self.sd, "a number from 1e-100 to 1e100")
        if not positive("max_reward", self.max_reward) <= 1e100:
            raise wrong(
                "max_reward", self.max_reward, "a number up to 1e100, whose square is finite"
            )
        return self._replace(sd=float(self.sd), max_reward=float(self.max_reward))

    def as_set(self) -> dict[str, Any]:
        """Returns the parameters as a user sets them; None is an ``sd`` that was left out."""
        return {"sd": None if self.learns_sd else self.sd, "max_reward": self.max_reward}

    def __repr__(self) -> str:
        return f"Gaussian({', '.join(f'{name}={v!r}' for name, v in self.as_set().items())})"

    @property
    def support(self) -> Support:
        """Every number up to ``max_reward``."""
        return RaisableSupport(-self.max_reward, self.max_reward)

    @property
    def a_phi(self) -> float:
        """a(phi) = sd^2."""
        return float(self.sd**2)

    @property
    def R(self) -> float:
        """Sub-Gaussian scale of the noise."""
        return float(self.sd)

    def kappa(self, bound: float) -> float:
        """Slope 1 everywhere."""
        return 1.0

    def lipschitz(self, bound: float) -> float:
        """Slope 1 everywhere."""
        return 1.0

    def curvature(self, bound: float) -> float:
        """None."""
        return 0.0


@derivatives.case(Gaussian)
def _derivatives(family: Gaussian, z: float) -> tuple[float, float, float]:
    return z, 1.0, 0.0


@cumulant.case(Gaussian)
def _cumulant(family: Gaussian, z: float) -> float:
    return 0.5 * z * z


@luck.case(Gaussian)
def _luck(family: Gaussian, u: float) -> float:
    return normal_quantile(u)


@reward_of_luck.case(Gaussian)
def _reward_of_luck(family: Gaussian, z: float, luck: float) -> float:
    return z + family.sd * luck


@reward_quantile.case(Gaussian)
def _reward_quantile(family: Gaussian, z: float, u: float) -> float:
    return z + family.sd * normal_quantile(u)


@least_slope.case(Gaussian)
def _least_slope(family: Gaussian, bound: float) -> float:
    return 1.0


@self_concordance.case(Gaussian)
def _self_concordance(family: Gaussian, bound: float) -> float:
    return 0.0
