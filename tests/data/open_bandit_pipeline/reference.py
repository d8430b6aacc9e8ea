"""Writes reference.json: estimates of Open Bandit Pipeline 0.5.5 on a small log.

OBP needs Python below 3.10 and torch. Its estimators need neither: this loads their three modules
alone, from a clone, and lets an empty module stand for torch.

    git clone https://github.com/st-tech/zr-obp && cd zr-obp && git checkout 8cbd5fa
    python .../tests/data/open_bandit_pipeline/reference.py > .../reference.json
"""

import json
import sys
from types import ModuleType

import numpy as np

ROWS, ACTIONS, LIMIT = 200, 4, 1.5


def estimators():
    """Returns OBP's module of estimators, from the current folder."""
    torch = ModuleType("torch")
    torch.Tensor = torch.tensor = type("Tensor", (), {})  # named in annotations
    sys.modules["torch"] = torch
    for name in ("obp", "obp.ope"):  # packages without their __init__, which imports everything
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [name.replace(".", "/")]
    from obp.ope import estimators

    return estimators


def main():
    """Prints the log and the estimates as JSON."""
    obp = estimators()
    rng = np.random.default_rng(1)
    played, wanted = (rng.dirichlet(np.ones(ACTIONS), ROWS) for _ in range(2))
    chances = {"wanted": wanted, "certain": np.eye(ACTIONS)[rng.integers(ACTIONS, size=ROWS)]}
    action = np.array([rng.choice(ACTIONS, p=p) for p in played])
    reward, q = rng.normal(1.0, 0.5, ROWS), rng.normal(1.0, 0.2, (ROWS, ACTIONS))
    pscore = played[np.arange(ROWS), action]
    ours = {
        "ipw": obp.InverseProbabilityWeighting(),
        "clipped": obp.InverseProbabilityWeighting(lambda_=LIMIT),
        "snipw": obp.SelfNormalizedInverseProbabilityWeighting(),
        "dm": obp.DirectMethod(),
        "dr": obp.DoublyRobust(),
    }
    estimates = {}
    for name, dist in chances.items():
        used = ours | ({"rm": obp.ReplayMethod()} if name == "certain" else {})
        estimates[name] = {
            key: float(
                estimator.estimate_policy_value(
                    reward=reward,
                    action=action,
                    pscore=pscore,
                    position=np.zeros(ROWS, int),
                    action_dist=dist[:, :, np.newaxis],
                    estimated_rewards_by_reg_model=q[:, :, np.newaxis],
                )
            )
            for key, estimator in used.items()
        }
    log = {"action": action, "reward": reward, "pscore": pscore, "q": q, **chances}
    log = {name: column.tolist() for name, column in log.items()}
    print(json.dumps({"limit": LIMIT, "log": log, "estimates": estimates}))


if __name__ == "__main__":
    main()
