"""Asks a service in this process for whatever a bandit with the default policy does.

``python -m support.every_request`` in the folder of the tests: a process that has compiled nothing.
"""

from belated.learner.assumptions import FIRST_LOOK
from support.service_client import Client

VECTORS = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
BANNERS = {name: {"banner": name} for name in VECTORS}
WITH_FEATURES = {"features": {"categorical": {"banner": list(BANNERS)}}}


def ask_for_everything(client, url, settings, actions):
    settings = {"family": "bernoulli", "holdout": 0.3, "sticky": 60.0} | settings
    client("PUT", url, settings, 201)  # not 202: nothing is compiled
    client("PATCH", f"{url}/actions", {"put": actions})
    many = {"decisions": [{"subject": f"s{k % 60}"} for k in range(FIRST_LOOK)]}
    made = client("POST", f"{url}/decisions/batch", many)["decisions"]
    made += client("POST", f"{url}/decisions/top", {"top": 2})["decisions"]
    made.append(client("POST", f"{url}/decisions", {"probabilities": True}))
    statuses = client.reward(*[(decision["decision_id"], 0.0) for decision in made])
    assert set(statuses) == {"accepted"}
    noted = [{"decision_id": made[0]["decision_id"], "name": "calls", "value": 1.0}]
    client("POST", "/v1/outcomes", {"outcomes": noted})
    client("GET", f"{url}/lift")
    client("POST", f"{url}/ranking", {})
    assert client("GET", url)["n_observed"] == FIRST_LOOK + 3
    client("GET", "/v1/dashboard", bandit=url.split("/")[-1])


if __name__ == "__main__":
    client = Client()
    ask_for_everything(client, "/v1/bandits/vectors", {"dim": 2}, VECTORS)
    ask_for_everything(client, "/v1/bandits/features", WITH_FEATURES, BANNERS)
