"""Vowpal Wabbit's contextual bandits as a lane."""

import shlex
from typing import Any

import numpy as np

from belated.core.arguments import wrong, wrong_type
from belated.core.types import Matrix
from belated.peers.adapter import Adapter, library


class VowpalWabbit(Adapter):
    """Vowpal Wabbit with ``--cb_explore_adf``: features for each action, one model for all.

    This is the natural reading of a round: its K actions are the K lines of an example. Vowpal
    Wabbit answers with a chance for each, and one is drawn. A late reward is learnt with the
    chance that its decision had when it was made, as a cost of minus the reward.

    Only ``--cb_explore_adf`` fits, with any of its ways to explore (``--epsilon``, ``--bag``,
    ``--cover``, ``--squarecb``, ``--regcb``, ``--softmax``, ``--rnd``, ...). Its numbers have 32
    bits.

    Parameters
    ----------
    options : str
        The command line. ``--quiet`` and ``--random_seed``, drawn for each run, are added.
    name : str, optional
        Its label in results.

    Examples
    --------
    >>> VowpalWabbit("--cb_explore_adf --squarecb").name
    'vowpalwabbit'
    """

    def __init__(self, options: str, name: str | None = None) -> None:
        if not isinstance(options, str):
            raise wrong_type("options", options, "a command line of Vowpal Wabbit")
        words = shlex.split(options)
        if "--cb_explore_adf" not in words:
            raise wrong("options", options, "--cb_explore_adf among them")
        if any(word.startswith("--random_seed") for word in words):
            raise wrong("options", options, "no --random_seed: every run has its own")
        super().__init__(options, name or "vowpalwabbit")
        try:
            self._workspace(seed=0).finish()
        except RuntimeError as error:
            raise wrong("options", options, f"options of Vowpal Wabbit ({error})") from None

    def _workspace(self, seed: int) -> Any:
        vw = library("vowpalwabbit")
        words = [*shlex.split(self.policy), "--quiet", "--random_seed", str(seed)]
        return vw.Workspace(arg_list=words)

    def begin(self, seed: int) -> None:
        """Makes a new workspace."""
        self.live = self._workspace(seed)

    def pick(self, actions: Matrix, t: int) -> tuple[int, Any]:
        """Draw a row from the chances that Vowpal Wabbit answers with."""
        return self.pick_line(
            ["| " + " ".join(f"{i}:{v}" for i, v in enumerate(x)) for x in actions.tolist()]
        )

    def pick_line(self, lines: list[str]) -> tuple[int, Any]:
        """Draws a row of actions in Vowpal Wabbit's own format, after a shared line or not.

        The row counts actions: a line that begins with "shared" is none.
        """
        chances = np.array(self.live.predict(lines), float)
        chances /= chances.sum()  # some ways to explore leave ties, or rounding, to the caller
        row = int(self.rng.choice(len(chances), p=chances))
        return row, (lines, chances[row])

    def learn(self, row: int, kept: Any, y: float) -> None:
        """Learns the example of the decision with a label: action:cost:chance."""
        lines, chance = kept
        line = row + lines[0].startswith("shared")
        self.live.learn([*lines[:line], f"0:{-y}:{chance} {lines[line]}", *lines[line + 1 :]])

    def _asdict(self) -> dict[str, Any]:
        return {"options": self.policy}
