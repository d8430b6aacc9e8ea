"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers.

Those for K arms are in plain Python: ``start`` makes the object that plays (see ``engine/own.py``).
"""

from belated.policies.beta_thompson import BetaThompson
from belated.policies.bold import BOLD
from belated.policies.conversions import ConversionsKLUCB, ConversionsUCB
from belated.policies.delayed_kl_ucb import DelayedKLUCB
from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.delayed_ucb1 import DelayedUCB1
from belated.policies.ducb_glcb import DUCBLiteral, DUCBRidge
from belated.policies.elimination import OPSE, DelayedElimination
from belated.policies.greedy import Greedy
from belated.policies.odaaf import ODAAF
from belated.policies.policy_elimination import PolicyElimination
from belated.policies.qpm_d import QPMD
from belated.policies.sbd import SBD
from belated.policies.thompson import Thompson
from belated.policies.uniform import UniformPlay

__all__ = [
    "BOLD",
    "ODAAF",
    "OPSE",
    "QPMD",
    "SBD",
    "BetaThompson",
    "ConversionsKLUCB",
    "ConversionsUCB",
    "DUCBLiteral",
    "DUCBRidge",
    "DelayedElimination",
    "DelayedKLUCB",
    "DelayedOFUGLM",
    "DelayedUCB1",
    "Greedy",
    "PolicyElimination",
    "Thompson",
    "UniformPlay",
]
