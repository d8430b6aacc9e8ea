"""Policies of other libraries as lanes, to see them under delay beside ours.

An adapter wraps what you use today and is a policy like one of your own: it goes into
``belated.simulate``, and rewards reach it when they are due and not before. Nothing of the library
changes: it learns from a reward when it is told, as it would in production.

These libraries know arms that have a number; here an action is a vector, and a round offers K new
ones. The docstring of each adapter says how it turns actions into arms. ``CobaLearner`` is the
other way round: a bandit of ours in the experiments of coba.
"""

from belated.peers.bayesianbandits import BayesianBandits
from belated.peers.coba import Coba, CobaLearner
from belated.peers.contextualbandits import ContextualBandits
from belated.peers.mabwiser import MABWiser
from belated.peers.river import River
from belated.peers.vowpalwabbit import VowpalWabbit

__all__ = [
    "BayesianBandits",
    "Coba",
    "CobaLearner",
    "ContextualBandits",
    "MABWiser",
    "River",
    "VowpalWabbit",
]
