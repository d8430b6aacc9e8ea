"""Laws of the reward. A family is a NamedTuple and the kernels it registers."""

from belated.families.gaussian import Gaussian
from belated.families.logistic import Bernoulli, Binomial, Bounded
from belated.families.poisson import Poisson
from belated.families.probit import Probit
from belated.families.tanh import Tanh

__all__ = ["Bernoulli", "Binomial", "Bounded", "Gaussian", "Poisson", "Probit", "Tanh"]
