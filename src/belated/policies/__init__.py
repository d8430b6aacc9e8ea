"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers.

Those for K arms are in plain Python: ``start`` makes the object that plays (see
``model/plain_policy.py``).
"""

from belated.policies.arms.beta_thompson import BetaThompson
from belated.policies.arms.bold import BOLD
from belated.policies.arms.conversions import ConversionsKLUCB, ConversionsUCB
from belated.policies.arms.delayed_kl_ucb import DelayedKLUCB
from belated.policies.arms.delayed_ucb1 import DelayedUCB1
from belated.policies.arms.elimination import OPSE, DelayedElimination
from belated.policies.arms.odaaf import ODAAF
from belated.policies.arms.patient_bandits import PatientBandits
from belated.policies.arms.policy_elimination import PolicyElimination
from belated.policies.arms.qpm_d import QPMD
from belated.policies.arms.sbd import SBD
from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.ducb_glcb import DUCBLiteral, DUCBRidge
from belated.policies.ecolog import AdaOFUECOLog
from belated.policies.evill import EVILL
from belated.policies.glb_omd import GLBOMD
from belated.policies.glm_fpl import GLMFPL
from belated.policies.glm_ucb import GLMUCB, GLMUCBPractical
from belated.policies.gloc import GLOC
from belated.policies.greedy import Greedy
from belated.policies.inflated_ts import InflatedTS
from belated.policies.lin_ts import LinTS
from belated.policies.linucb import LinUCB
from belated.policies.log_ucb import LogUCB1
from belated.policies.ofuglb import OFUGLB, OFULogR
from belated.policies.ofuglb_e import OFUGLBe
from belated.policies.oful import OFUL, OFULRarely
from belated.policies.otf_lin import OTFLinTS, OTFLinUCB
from belated.policies.polya_gamma import PolyaGamma
from belated.policies.thompson import Thompson
from belated.policies.ucb_glm import UCBGLM
from belated.policies.uniform import UniformPlay

__all__ = [
    "BOLD",
    "EVILL",
    "GLBOMD",
    "GLMFPL",
    "GLMUCB",
    "GLOC",
    "ODAAF",
    "OFUGLB",
    "OFUL",
    "OPSE",
    "QPMD",
    "SBD",
    "UCBGLM",
    "AdaOFUECOLog",
    "BetaThompson",
    "ConversionsKLUCB",
    "ConversionsUCB",
    "DUCBLiteral",
    "DUCBRidge",
    "DelayedElimination",
    "DelayedKLUCB",
    "DelayedOFUGLM",
    "DelayedUCB1",
    "GLMUCBPractical",
    "Greedy",
    "InflatedTS",
    "LinTS",
    "LinUCB",
    "LogUCB1",
    "OFUGLBe",
    "OFULRarely",
    "OFULogR",
    "OTFLinTS",
    "OTFLinUCB",
    "PatientBandits",
    "PolicyElimination",
    "PolyaGamma",
    "Thompson",
    "UniformPlay",
]
