"""The laws of delay under their public name; they live in ``belated.worlds.delays``."""

from belated.worlds.delays import *  # noqa: F403
from belated.worlds.delays import __all__ as __all__
