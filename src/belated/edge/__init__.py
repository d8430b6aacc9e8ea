"""Deciding elsewhere: a model document decides without the service, and decisions are posted later.

The promise is weaker than that of the service. A decision is on the disk of this machine when
``decide`` returns, and not in the ledger: if that disk is lost before ``post``, so is the decision,
and its reward finds nobody. A model that is old decides as if all rewards since were late: its age
is one more delay, which the service counts by ``belated_edge_model_age_seconds``.
"""

from belated.edge.posting import Edge
from belated.edge.scoring import EdgeDecision, Scorer

__all__ = ["Edge", "EdgeDecision", "Scorer"]
