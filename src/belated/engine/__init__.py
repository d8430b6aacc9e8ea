"""Playing bandits against simulated worlds: one in plain Python, or many lanes, compiled."""

from belated.engine.reference import Rounds as Rounds
from belated.engine.reference import draw_world as draw_world
from belated.engine.reference import play as play
