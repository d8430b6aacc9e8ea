"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers."""

from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.ducb_glcb import DUCBLiteral, DUCBRidge
from belated.policies.glm_ucb import GLMUCB, GLMUCBPractical
from belated.policies.greedy import Greedy
from belated.policies.linucb import LinUCB
from belated.policies.log_ucb import LogUCB1
from belated.policies.oful import OFUL, OFULRarely
from belated.policies.thompson import Thompson
from belated.policies.ucb_glm import UCBGLM
from belated.policies.uniform import UniformPlay

__all__ = [
    "GLMUCB",
    "OFUL",
    "UCBGLM",
    "DUCBLiteral",
    "DUCBRidge",
    "DelayedOFUGLM",
    "GLMUCBPractical",
    "Greedy",
    "LinUCB",
    "LogUCB1",
    "OFULRarely",
    "Thompson",
    "UniformPlay",
]
