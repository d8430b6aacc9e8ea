"""Checks that every policy, family, delay and environment must pass: ours, and yours.

``check_policy``, ``check_family``, ``check_delay`` and ``check_environment`` run everything that
applies and raise ``AssertionError`` at the first violation, with a message on what to do.
``POLICY_CHECKS`` and its siblings list the single checks, so that a test runner can show each as a
test of its own. Stores of decisions and rewards have ``belated.ledger.checks``.

>>> from belated import Bernoulli, DelayedOFUGLM
>>> from belated.worlds.delays import Exponential
>>> check_delay(Exponential(10.0))
>>> check_family(Bernoulli())
>>> check_policy(DelayedOFUGLM(), Bernoulli())
"""

from belated.checks.delays import DELAY_CHECKS, check_delay
from belated.checks.environments import ENVIRONMENT_CHECKS, check_environment
from belated.checks.families import FAMILY_CHECKS, check_family
from belated.checks.policies import OWN_POLICY_CHECKS, POLICY_CHECKS, check_policy

__all__ = [
    "DELAY_CHECKS",
    "ENVIRONMENT_CHECKS",
    "FAMILY_CHECKS",
    "OWN_POLICY_CHECKS",
    "POLICY_CHECKS",
    "check_delay",
    "check_environment",
    "check_family",
    "check_policy",
]
