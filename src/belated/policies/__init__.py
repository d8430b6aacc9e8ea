"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers."""

from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.ducb_glcb import DUCBLiteral, DUCBRidge
from belated.policies.ecolog import AdaOFUECOLog
from belated.policies.glb_omd import GLBOMD
from belated.policies.gloc import GLOC
from belated.policies.greedy import Greedy
from belated.policies.thompson import Thompson
from belated.policies.uniform import UniformPlay

__all__ = [
    "GLBOMD",
    "GLOC",
    "AdaOFUECOLog",
    "DUCBLiteral",
    "DUCBRidge",
    "DelayedOFUGLM",
    "Greedy",
    "Thompson",
    "UniformPlay",
]
