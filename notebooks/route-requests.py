# %% [markdown]
# # Route requests among language models
#
# Three models answer your requests. The large one is best and dear, the small one is good enough for chat, and the coder is good
# at code alone. What an answer was worth you hear late: a user accepts it, edits it or complains, minutes or hours
# afterwards, and some never say anything. A bandit learns whom to ask from those reports, while the next requests
# are already being routed.
#
# The world is simulated: quality between 0 and 1, minus what the answer cost, with noise.

# %%
import heapq

import matplotlib.pyplot as plt
import numpy as np

from belated import Bandit, Features, Gaussian

MODELS = [{"model": name} for name in ("small", "large", "coder")]
KINDS = ["chat", "code", "contract"]
QUALITY = {  # by model and kind of request
    "small": {"chat": 0.70, "code": 0.30, "contract": 0.25},
    "large": {"chat": 0.80, "code": 0.70, "contract": 0.80},
    "coder": {"chat": 0.40, "code": 0.75, "contract": 0.20},
}
PRICE = {"small": 0.02, "large": 0.25, "coder": 0.08}  # per thousand tokens, in units of quality


def worth(model: str, kind: str, tokens: float) -> float:
    """What an answer is worth on average: its quality minus its price."""
    return QUALITY[model][kind] - PRICE[model] * tokens / 1000


# %% [markdown]
# ## What the bandit is told
#
# A request has a kind and a length. What a model costs depends on both, so the features have interactions: a number
# for each model and kind, and a slope in the length for each model. With `Gaussian()` it learns how noisy reports are. No
# policy is named: the default is Thompson sampling with a prior that is learnt, too.

# %%
features = Features(
    categorical=["model", "kind"],
    numeric=["thousands"],
    interactions=[("model", "kind"), ("model", "thousands")],
)
requests = [{"kind": kind, "thousands": length} for kind in KINDS for length in (0.1, 3.5)]
router = Bandit(family=Gaussian(), features=features.fit(MODELS, requests), seed=1)

# %% [markdown]
# ## Two thousand requests
#
# One request a minute. A report comes after two hours on average; every fifth never comes. The id of the decision is kept with
# the request, and the report finds its decision by it.

# %%
rng = np.random.default_rng(1)
n, on_their_way = 2000, []
earned = {"bandit": np.empty(n), "best": np.empty(n), **{m["model"]: np.empty(n) for m in MODELS}}
for minute in range(n):
    while on_their_way and on_their_way[0][0] <= minute:
        _, decision_id, report = heapq.heappop(on_their_way)
        router.learn(decision_id, report)
    kind, tokens = rng.choice(KINDS, p=[0.5, 0.3, 0.2]), rng.uniform(100, 3500)
    decision = router.decide(MODELS, {"kind": kind, "thousands": tokens / 1000})
    values = {m["model"]: worth(m["model"], kind, tokens) for m in MODELS}
    model = MODELS[decision.index]["model"]
    for name, value in {**values, "bandit": values[model], "best": max(values.values())}.items():
        earned[name][minute] = value
    if rng.random() < 0.8:
        report = values[model] + rng.normal(0.0, 0.3)
        heapq.heappush(on_their_way, (minute + rng.exponential(120), decision.id, report))
print(f"{router.n_decided} decisions, {router.n_observed} reports, {router.n_missing} missing")

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, values in earned.items():
    if name != "best":
        lost = np.cumsum(earned["best"] - values)
        axes.plot(lost, label=f"always {name}" if name != "bandit" else "bandit", lw=1.5)
axes.set(xlabel="request", ylabel="worth lost so far", title="Whom to ask?")
axes.set_ylim(0, 1.5 * np.cumsum(earned["best"] - earned["large"])[-1])
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What it has learnt
#
# `ranking` says which model is best for a request, and how sure that is. For a short contract the large model is worth its
# price; for a long one, and for a chat of this length, it is not.

# %%
for kind, thousands in [("chat", 1.0), ("code", 1.0), ("contract", 0.5), ("contract", 3.4)]:
    ranking = router.ranking(MODELS, {"kind": kind, "thousands": thousands})
    truth = max(MODELS, key=lambda m: worth(m["model"], kind, 1000 * thousands))["model"]
    best = MODELS[ranking.best.index]["model"]
    print(f"{kind:9} {thousands:.1f}k tokens: {best:6} at {ranking.best.mean:.2f}; truth: {truth}")

# %% [markdown]
# In production the router is a service, or has `ledger="sqlite:///router.db"`: decisions are then on disk before they are used, and a
# report that comes after a restart finds its decision all the same. Every decision has its `propensity`, so that a log of
# the router can say [what another rule would have earned](../docs/how-to/evaluate.md).
