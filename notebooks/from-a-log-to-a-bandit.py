# %% [markdown]
# # From a log of late conversions to a running bandit
#
# You have a log: which banner was shown to whom, and who bought, days later. Four questions, in the order in which they come up:
# how late are purchases, would another rule have earned more, what should be played, and how does one run it?

# %%
import heapq

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from belated import Bandit, Bernoulli, Features
from belated.logs.delays import delay_report
from belated.logs.evaluating import evaluate_log
from belated.logs.log_plan import make_plan
from belated.logs.log_world import facts_of
from belated.logs.plan_words import advice, rows
from belated.logs.reading_whole import read_whole

# %% [markdown]
# ## The log
#
# A week of a shop, simulated so that the truth is known: three banners, drawn at random with known probabilities; purchases come
# half a day late on average, and only purchases are reported. The last rows have had no time to convert.

# %%
DAY = 86_400.0
BANNERS, SHARES = ["boots", "map", "tent"], np.array([0.5, 0.25, 0.25])
RATES = pd.DataFrame({"phone": [0.05, 0.03, 0.06], "desktop": [0.04, 0.12, 0.06]}, index=BANNERS)
rng, n, now = np.random.default_rng(1), 6000, 1_774_915_200.0
shown = now - 7 * DAY * np.sort(rng.random(n))[::-1]
which, device = rng.choice(3, n, p=SHARES), rng.choice(["phone", "desktop"], n)
rate = RATES.to_numpy()[which, (device == "desktop").astype(int)]
bought = shown + rng.exponential(DAY / 2, n)
seen = (rng.random(n) < rate) & (bought <= now)
log = pd.DataFrame(
    {
        "time": shown,
        "action": np.array(BANNERS)[which],
        "device": device,
        "propensity": SHARES[which],
        "reward": np.where(seen, 1.0, np.nan),
        "reward_time": np.where(seen, bought, np.nan),
    }
)
log.tail(3)

# %% [markdown]
# ## How late are purchases?
#
# `belated delays` on the command line. Purchases are seen only if they are early; the law takes that into account. The mean of those
# that were seen would be too short.

# %%
late = {"loop": "conversion", "window": "2d", "now": now}
report = delay_report(log, **late)
law = report.all.best
print(f"best law: {law.law}, mean {law.mean / DAY:.2f} days; the truth is 0.5")
print(f"mean of the purchases seen: {(log.reward_time - log.time).mean() / DAY:.2f} days")

# %% [markdown]
# ## What would another rule have earned?
#
# `belated evaluate`. Maps for desktops and tents for phones: a function of contexts, asked of the same visitors. Purchases that
# are still to come are accounted for.


# %%
def by_device(context, actions):
    """Maps for desktops, tents for phones; actions in alphabetical order."""
    desktop = np.asarray(context["device"]) == "desktop"
    return np.column_stack([np.zeros(len(desktop)), desktop, ~desktop]).astype(float)


answer = evaluate_log(log, ["fixed:boots", by_device], context=["device"], **late)
for policy in answer["policies"]:
    best = policy["estimates"][-1]
    print(f"{policy['policy']:12} {best['value']:.3f} ({best['low']:.3f} to {best['high']:.3f})")
print(f"truth of the rule: {RATES.loc['map', 'desktop'] / 2 + RATES.loc['tent', 'phone'] / 2:.3f}, "
      "of which 2 in 100 are later than the window")  # fmt: skip

# %% [markdown]
# ## What should be played?
#
# `belated plan` makes worlds like that of the log and lets candidates play in them. Four copies of two thousand decisions are
# a look, and the intervals are wide. The command plays eight copies, and as many decisions as the log has.

# %%
read = read_whole(log, needs=("action", "time", "reward-time"), context=["device"], **late)
plan = make_plan(
    facts_of(read.log, read.loop, read.window), ["adaptive-thompson"], copies=4, decisions=2000
)
print(advice(plan))
pd.DataFrame(rows(plan))

# %% [markdown]
# ## Run it
#
# A `Bandit` with the window of the log, and with the default reward of a decision that got none. It does not wait for windows to
# close: a purchase is learnt when it comes, and a silent decision counts the more like a failure the older it is. With
# `ledger="sqlite:///shop.db"` everything is on disk before it is returned. The clock is ours, so that six days pass
# at once; leave it out in production.

# %%
banners = [{"banner": name} for name in BANNERS]
visitors = [{"device": "phone"}, {"device": "desktop"}]
features = Features(categorical=["banner", "device"], interactions=[("banner", "device")])
clock = now
bandit = Bandit(
    family=Bernoulli(),
    features=features.fit(banners, visitors),
    window=2 * DAY,
    default_reward=0.0,
    clock=lambda: clock,
    seed=1,
)
days, per_day, coming = 6, 800, []
chance = np.empty((days, per_day))
for decided in range(days * per_day):
    clock = now + decided / per_day * DAY
    while coming and coming[0][0] <= clock:
        at, decision_id = heapq.heappop(coming)
        bandit.learn(decision_id, 1.0, at=at)
    visitor = visitors[rng.integers(2)]
    decision = bandit.decide(banners, visitor)
    p = RATES.loc[BANNERS[decision.index], visitor["device"]]
    chance.flat[decided] = p
    if rng.random() < p:
        heapq.heappush(coming, (clock + rng.exponential(DAY / 2), decision.id))
print(f"{bandit.n_decided} decisions, {bandit.n_observed} closed or converted")

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(np.arange(days) + 0.5, chance.mean(1), "o-", label="bandit")
axes.axhline(rate.mean(), color="#d55e00", ls="--", label="as in the log")
axes.axhline(RATES.max().mean(), color="#222222", ls=":", label="best banner for each device")
axes.axvline(2, color="#222222", lw=0.8)
axes.set(xlabel="day (the first window closes after the second)", ylabel="conversions per decision")
axes.set_ylim(0, 0.1)
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# More: [conversions](../docs/how-to/conversions.md), [delays](../docs/how-to/delays.md), [evaluation](../docs/how-to/evaluate.md),
# [plans](../docs/how-to/plan.md), [the ledger](../docs/how-to/ledger.md).
