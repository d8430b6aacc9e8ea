"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers."""

from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.ducb_glcb import DUCBLiteral, DUCBRidge
from belated.policies.greedy import Greedy
from belated.policies.otf_lin import OTFLinTS, OTFLinUCB
from belated.policies.thompson import Thompson
from belated.policies.uniform import UniformPlay

__all__ = [
    "DUCBLiteral",
    "DUCBRidge",
    "DelayedOFUGLM",
    "Greedy",
    "OTFLinTS",
    "OTFLinUCB",
    "Thompson",
    "UniformPlay",
]
