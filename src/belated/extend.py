"""The one door for authors: all that a policy, family, delay, estimator or environment needs.

Each of them is a NamedTuple of parameters under ``@parameters``, with the methods of its protocol
(``Policy``, ``Family``, ``Delay``, ``Estimator``, ``Environment``) and with kernels: functions that
Numba can compile, registered as the case of a generic function for its type,
``@choose.case(MyPolicy)``. The type of a parameter says what fits (``Positive``, ``Probability``,
``Whole``, ``Flag``, or ``Positive | None``); other values are refused. The folder ``examples`` has
one of each that runs as it is:

=============  ==================================  ================================================
to write a     register cases of                   and run
=============  ==================================  ================================================
policy         ``choose``; with a confidence set   ``check_policy(MyPolicy(), family)``
               ``sqrt_beta`` and ``radius``; if
               it draws, ``probabilities`` or
               ``score_law``
estimator      ``take_in``, ``refit``; to forget,  ``check_policy`` of a policy that learns with it
               ``take_in_row`` and ``remake``;
               if theta is only certified to be
               near an estimate,
               ``refit_exactly``
family         ``derivatives``, ``cumulant``,      ``check_family(MyFamily())``
               ``least_slope``,
               ``self_concordance``,
               ``reward_quantile``; to be learnt
               from silence,
               ``silence_derivatives``; quicker,
               ``concordance``, ``luck`` and
               ``reward_of_luck``
delay          ``delay_quantile``                  ``check_delay(MyDelay())``
environment    ``draw_actions``                    ``check_environment(MyEnvironment(), dim)``
=============  ==================================  ================================================

A kernel of your own that other kernels call goes under ``@kernel``. Run with
``NUMBA_DISABLE_JIT=1`` while you write: kernels are then plain Python, with the same results.
A store of decisions and rewards has ``belated.ledger.protocol`` and ``belated.ledger.checks``.

>>> from belated import Bernoulli
>>> check_family(Bernoulli())
"""

from belated.checks import check_delay, check_environment, check_family, check_policy
from belated.core.arguments import (
    Flag,
    NotNegative,
    Positive,
    Probability,
    Whole,
    derives,
    parameters,
    resolved,
    wrong,
    wrong_type,
)
from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.estimators import LazyNewton, Ridge, penalised_mle, ridge_regression
from belated.model.protocols import (
    Delay,
    Environment,
    Estimator,
    Family,
    Policy,
    Support,
    accepted,
    choose,
    concordance,
    cumulant,
    delay_quantile,
    delay_quantile_of,
    derivatives,
    deterministic,
    draw_actions,
    draw_parameter,
    dual_norm,
    factor_precision,
    least_slope,
    luck,
    mean,
    needs_no_bound,
    probabilities,
    radius,
    refit,
    refit_exactly,
    remake,
    remember,
    revise,
    revise_row,
    reward_of_luck,
    reward_quantile,
    score_law,
    self_concordance,
    set_norm,
    silence_derivatives,
    sqrt_beta,
    take_in,
    take_in_row,
)
from belated.model.state import (
    DECIDED,
    ERROR,
    LOG_DET,
    OBSERVED,
    SLACK,
    WORK,
    History,
    State,
    counts_for,
    weight_of,
)
from belated.numerics.linalg import cholesky, solve_transposed, solve_upper
from belated.numerics.lowered.products import add_outer, dot, matvec, quadratic
from belated.numerics.pruning import DecisionSet, most_optimistic
from belated.numerics.special import logit, normal_cdf, normal_pdf, normal_quantile, sigmoid

__all__ = [
    "DECIDED",
    "ERROR",
    "LOG_DET",
    "OBSERVED",
    "SLACK",
    "WORK",
    "DecisionSet",
    "Delay",
    "Environment",
    "Estimator",
    "Family",
    "Flag",
    "History",
    "LazyNewton",
    "Matrix",
    "NotNegative",
    "Policy",
    "Positive",
    "Probability",
    "Ridge",
    "State",
    "Support",
    "Vector",
    "Whole",
    "accepted",
    "add_outer",
    "check_delay",
    "check_environment",
    "check_family",
    "check_policy",
    "cholesky",
    "choose",
    "concordance",
    "counts_for",
    "cumulant",
    "delay_quantile",
    "delay_quantile_of",
    "derivatives",
    "derives",
    "deterministic",
    "dot",
    "draw_actions",
    "draw_parameter",
    "dual_norm",
    "factor_precision",
    "kernel",
    "least_slope",
    "logit",
    "luck",
    "matvec",
    "mean",
    "most_optimistic",
    "needs_no_bound",
    "normal_cdf",
    "normal_pdf",
    "normal_quantile",
    "parameters",
    "penalised_mle",
    "probabilities",
    "quadratic",
    "radius",
    "refit",
    "refit_exactly",
    "remake",
    "remember",
    "resolved",
    "revise",
    "revise_row",
    "reward_of_luck",
    "reward_quantile",
    "ridge_regression",
    "score_law",
    "self_concordance",
    "set_norm",
    "sigmoid",
    "silence_derivatives",
    "solve_transposed",
    "solve_upper",
    "sqrt_beta",
    "take_in",
    "take_in_row",
    "weight_of",
    "wrong",
    "wrong_type",
]
