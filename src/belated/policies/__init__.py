"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers.

Policies for K arms are in plain Python: ``start`` makes the object that plays (see
``model/plain_policy.py``). A policy is imported when its name is first used, and no other with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from belated import registry

if TYPE_CHECKING:  # for type checkers and editors; at run time the registry knows every home
    from belated.policies.adaptive_thompson import AdaptiveThompson as AdaptiveThompson
    from belated.policies.arms.beta_thompson import BetaThompson as BetaThompson
    from belated.policies.arms.bold import BOLD as BOLD
    from belated.policies.arms.conversions import ConversionsKLUCB as ConversionsKLUCB
    from belated.policies.arms.conversions import ConversionsUCB as ConversionsUCB
    from belated.policies.arms.delayed_kl_ucb import DelayedKLUCB as DelayedKLUCB
    from belated.policies.arms.delayed_ucb1 import DelayedUCB1 as DelayedUCB1
    from belated.policies.arms.elimination import DelayedElimination as DelayedElimination
    from belated.policies.arms.odaaf import ODAAF as ODAAF
    from belated.policies.arms.opse import OPSE as OPSE
    from belated.policies.arms.patient_bandits import PatientBandits as PatientBandits
    from belated.policies.arms.policy_elimination import PolicyElimination as PolicyElimination
    from belated.policies.arms.qpm_d import QPMD as QPMD
    from belated.policies.arms.sbd import SBD as SBD
    from belated.policies.delayed_ofu_glm import DelayedOFUGLM as DelayedOFUGLM
    from belated.policies.ducb_glcb import DUCBLiteral as DUCBLiteral
    from belated.policies.ducb_glcb import DUCBRidge as DUCBRidge
    from belated.policies.ecolog import AdaOFUECOLog as AdaOFUECOLog
    from belated.policies.evill import EVILL as EVILL
    from belated.policies.glb_omd import GLBOMD as GLBOMD
    from belated.policies.glm_fpl import GLMFPL as GLMFPL
    from belated.policies.glm_ucb import GLMUCB as GLMUCB
    from belated.policies.glm_ucb import GLMUCBPractical as GLMUCBPractical
    from belated.policies.gloc import GLOC as GLOC
    from belated.policies.greedy import Greedy as Greedy
    from belated.policies.inflated_ts import InflatedTS as InflatedTS
    from belated.policies.inverse_gap import InverseGap as InverseGap
    from belated.policies.lin_ts import LinTS as LinTS
    from belated.policies.linucb import LinUCB as LinUCB
    from belated.policies.log_ucb import LogUCB1 as LogUCB1
    from belated.policies.ofuglb import OFUGLB as OFUGLB
    from belated.policies.ofuglb import OFULogR as OFULogR
    from belated.policies.ofuglb_e import OFUGLBe as OFUGLBe
    from belated.policies.oful import OFUL as OFUL
    from belated.policies.oful import OFULRarely as OFULRarely
    from belated.policies.otf_lin import OTFLinTS as OTFLinTS
    from belated.policies.otf_lin import OTFLinUCB as OTFLinUCB
    from belated.policies.polya_gamma import PolyaGamma as PolyaGamma
    from belated.policies.thompson import Thompson as Thompson
    from belated.policies.ucb_glm import UCBGLM as UCBGLM
    from belated.policies.uniform import UniformPlay as UniformPlay

_HOMES = {name: module for module, name in (home.split(":") for home in registry.POLICIES.values())}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'belated.policies' has no attribute {name!r}")
    return getattr(import_module(f"belated.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
