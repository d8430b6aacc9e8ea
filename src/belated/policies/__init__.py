"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers."""

from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.ducb_glcb import DUCBLiteral, DUCBRidge
from belated.policies.ecolog import AdaOFUECOLog
from belated.policies.evill import EVILL
from belated.policies.glb_omd import GLBOMD
from belated.policies.glm_fpl import GLMFPL
from belated.policies.gloc import GLOC
from belated.policies.greedy import Greedy
from belated.policies.inflated_ts import InflatedTS
from belated.policies.lin_ts import LinTS
from belated.policies.polya_gamma import PolyaGamma
from belated.policies.thompson import Thompson
from belated.policies.uniform import UniformPlay

__all__ = [
    "EVILL",
    "GLBOMD",
    "GLMFPL",
    "GLOC",
    "AdaOFUECOLog",
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
