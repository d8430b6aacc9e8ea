"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers."""

from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.ducb_glcb import DUCBLiteral, DUCBRidge
from belated.policies.evill import EVILL
from belated.policies.glm_fpl import GLMFPL
from belated.policies.greedy import Greedy
from belated.policies.inflated_ts import InflatedTS
from belated.policies.lin_ts import LinTS
from belated.policies.polya_gamma import PolyaGamma
from belated.policies.thompson import Thompson
from belated.policies.uniform import UniformPlay

__all__ = [
    "EVILL",
    "GLMFPL",
    "DUCBLiteral",
    "DUCBRidge",
    "DelayedOFUGLM",
    "Greedy",
    "InflatedTS",
    "LinTS",
    "PolyaGamma",
    "Thompson",
    "UniformPlay",
]
