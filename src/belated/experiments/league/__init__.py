"""The league: policies of ours and of other libraries in named worlds, with the same luck.

``players.py`` and ``peers.py`` say who plays and with which settings, ``playing.py`` plays. The
verdicts are reached in ``experiments/judging/lift.py``, and figures and pages are made in
``experiments/reporting``.
"""
