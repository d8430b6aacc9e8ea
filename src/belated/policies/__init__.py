"""Algorithms, one file each. A policy is a NamedTuple and the kernels it registers."""

from belated.policies.delayed_ofu_glm import DelayedOFUGLM
from belated.policies.greedy import Greedy
from belated.policies.uniform import UniformPlay

__all__ = ["DelayedOFUGLM", "Greedy", "UniformPlay"]
