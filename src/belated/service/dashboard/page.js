
// Fetches the data every two seconds and hands each part to its chart.
const INTERVAL = 2000;
const LOST_AFTER = 7000;
const $ = (id) => document.getElementById(id);
const THEMES = ["auto", "light", "dark"];
const page = { data: null, chosen: null, updated: null, failed: false, timer: 0 };

async function poll() {
  clearTimeout(page.timer);
  const asked = page.chosen;
  const key = sessionStorage.getItem("belated-key");
  try {
    const query = asked === null ? "" : "?bandit=" + encodeURIComponent(asked);
    const options = { headers: keyHeader(), cache: "no-store", signal: AbortSignal.timeout(10000) };
    const answer = await fetch("v1/dashboard" + query, options);
    if (answer.status === 401) return askForKey(Boolean(key));
    if (answer.status === 404 && asked !== null) page.chosen = null;  // deleted meanwhile
    if (!answer.ok) throw new Error("status " + answer.status);
    const data = await answer.json();
    if (asked === page.chosen) {
      page.data = data;
      page.updated = Date.now();
      page.failed = false;
      showAll();
    }
  } catch {
    page.failed = true;
  }
  showState();
  page.timer = setTimeout(poll, INTERVAL);
}

function keyHeader() {
  const key = sessionStorage.getItem("belated-key");
  return key ? { "X-API-Key": key } : {};
}

async function workOut(what, button) {
  const asked = page.data.bandit.name;
  let words = "This could not be worked out now.";
  button.disabled = true;
  setText(what + "-words", "Reading the log, which may take a while.");
  try {
    const path = "v1/bandits/" + encodeURIComponent(asked) + "/" + what;
    const answer = await fetch(path, { headers: keyHeader(), cache: "no-store" });
    if (answer.ok) words = inWords(await answer.json());
  } catch { /* the words say so */ }
  button.disabled = false;
  setText(what + "-words", asked === page.data.bandit?.name ? words : "");
}

function inWords({ sentence, groups = [], guardrails = [] }) {
  const counted = groups.map(({ name, decisions, pending, mean }) => {
    const earns = mean === null ? "" : number(mean) + " a decision, ";
    return name + ": " + earns + whole(decisions) + " decisions, " + whole(pending) + " waiting";
  });
  return [sentence, ...counted, ...guardrails.map((guardrail) => guardrail.sentence)].join("\n");
}

function askForKey(refused) {
  sessionStorage.removeItem("belated-key");
  $("key-form").hidden = false;
  $("content").hidden = true;
  $("key-note").textContent = refused
    ? "That key was not accepted."
    : "This service asks for a key. It is kept until this tab is closed.";
  $("status").className = "";
  setText("state", "Key needed");
  $("key").focus();
}

function setText(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;  // unchanged text is not read out again
}

function showState() {
  if (!$("key-form").hidden) return;
  const quiet = page.updated === null ? Infinity : Date.now() - page.updated;
  const never = page.updated === null;
  const lost = page.failed || quiet > LOST_AFTER;
  $("status").classList.toggle("live", !lost);
  $("status").classList.toggle("lost", lost && (page.failed || !never));
  const first = page.failed ? "No connection" : "Connecting";
  setText("state", never ? first : lost ? "Connection lost:" : "Live");
  setText("since", lost && !never ? "last update " + Math.round(quiet / 1000) + " s ago" : "");
}

function showAll() {
  const { bandits, bandit } = page.data;
  $("key-form").hidden = true;
  $("content").hidden = false;
  showChooser(bandits, bandit);
  showAlarms(bandit);
  document.querySelector(".grid").hidden = $("numbers").hidden = !bandit;
  const alarms = bandit?.alarms.length ? "(" + bandit.alarms.length + ") " : "";
  document.title = alarms + "belated" + (bandit ? ": " + bandit.name : "");
  if (!bandit) return;
  showNumbers(bandit);
  showBest(bandit.best);
  showRates(bandit.rates);
  showDelay(bandit.delay);
  showPending(bandit.pending);
  showActions(bandit.actions);
  showReward(bandit.reward);
  showWidth(bandit.width);
  $("lift").hidden = !bandit.holdout;
}

function showChooser(names, bandit) {
  const select = $("bandit");
  if (names.join("\n") !== Array.from(select.options, (option) => option.value).join("\n")) {
    select.replaceChildren(...names.map((name) => element("option", { value: name, textContent: name })));
  }
  select.parentNode.hidden = !names.length;
  if (bandit) select.value = bandit.name;
}

function showAlarms(bandit) {
  const words = { bad: "Alarm", warn: "Warning" };
  const alarms = bandit
    ? bandit.alarms.map(({ severity, sentence }) => [severity, words[severity], sentence])
    : [["warn", "", "There is no bandit yet."]];
  if (!alarms.length) alarms.push(["good", "", "No alarms."]);
  const now = JSON.stringify(alarms);
  if ($("alarms").dataset.shown === now) return;  // or a screen reader would read them every time
  $("alarms").dataset.shown = now;
  $("alarms").replaceChildren(...alarms.map(([style, word, sentence]) => {
    const label = word ? [element("b", { textContent: word })] : [];
    return element("p", { className: "alarm " + style }, [...label, sentence]);
  }));
}

function showNumbers(bandit) {
  const current = bandit.behind_seconds < 1 && !bandit.behind_decisions;
  const unseen = bandit.behind_decisions === null ? "" : ", " + number(bandit.behind_decisions) + " decisions";
  const lag = span(bandit.behind_seconds, ROUGH) + unseen;
  const silence = Math.max(page.data.time - bandit.last_reward, 0);
  const ago = bandit.last_reward === null ? "none yet" : silence < 1 ? "last just now" : "last " + span(silence, ROUGH) + " ago";
  const cells = [
    ["Decisions a second", number(bandit.decisions_a_second), "last minute"],
    ["Rewards a second", number(bandit.rewards_a_second), ago],
    ["Decisions", whole(bandit.decisions), bandit.policy],
    ["Rewards seen", whole(bandit.rewards), number(bandit.late) + " late"],
    ["Waiting", whole(bandit.missing), number(bandit.expired) + " expired"],
    ["Model version", whole(bandit.model_version), current ? "up to date" : lag + " behind"],
  ];
  $("numbers").replaceChildren(...cells.map(([name, value, note]) =>
    element("div", {}, [
      element("dt", { textContent: name }),
      element("dd", { textContent: value }, [element("small", { textContent: note })]),
    ])));
}

function setNote(id, text) {
  const note = $(id).querySelector(".note");
  if (note.textContent !== text) note.textContent = text;
}

function showBest(best) {
  const { actions } = best;
  const counted = (count, noun) => (count === null ? "uncounted " : whole(count) + " ") + noun;
  const counts = ({ decisions, rewards }) => counted(decisions, "decisions") + ", " + counted(rewards, "rewards");
  const end = (value) => (value === null ? "no bound" : number(value));
  setText("verdict", best.verdict);
  setNote("best", actions.length ? best.note : "");
  intervalChart($("best"), {
    title: "Estimated mean reward of each action, with its interval", nothing: best.note,
    rows: actions, xLabel: "mean reward",
    count: (k) => counts(actions[k]),
    detail: (k) => {
      const { name, mean, low, high } = actions[k];
      return [name, "mean reward: " + number(mean), "from " + end(low) + " to " + end(high), counts(actions[k])].join("\n");
    },
    columns: ["Action", "Mean reward", "From", "To", "Decisions", "Rewards"],
    row: (k) => {
      const { name, mean, low, high, decisions, rewards } = actions[k];
      const count = (value) => (value === null ? "" : whole(value));
      return [name, number(mean), end(low), end(high), count(decisions), count(rewards)];
    },
  });
}

function showRates(rates) {
  lineChart($("rates"), {
    title: "Decisions and rewards a second", nothing: "Nothing has happened yet.",
    x: rates.times, xTicks: clockTicks, xText: moment, xName: "Time (UTC)", xLabel: "time (UTC)",
    yText: number, tipText: number, yLabel: "a second",
    lines: [
      { name: "decisions", values: rates.decisions, style: "other" },
      { name: "rewards", values: rates.rewards, style: "" },
    ],
  });
}

function showDelay(delay) {
  const reached = [["half", delay.median], ["90 %", delay.within_90]].filter(([, time]) => time !== null);
  const words = reached.map(([name, time]) => name + " within " + span(time, ROUGH)).join(", ");
  const sample = [
    [delay.n_returned, "returned"], [delay.n_waiting, "waiting"], [delay.n_closed, "closed without a reward"],
  ].filter(([count], k) => count || !k).map(([count, name]) => whole(count) + " " + name).join(", ") + " in the sample";
  setNote("delay", delay.n_returned ? (words || "fewer than half have returned") + "; " + sample : "");
  const fit = { name: "fit: " + delay.law, short: "fit", values: delay.fit, style: "other dashed" };
  const curve = { name: "returned (Kaplan-Meier)", short: "returned", values: delay.returned, style: "", step: true };
  const [unit] = spanUnit(delay.times.at(-1) ?? 0);
  lineChart($("delay"), {
    title: "Share of rewards returned, by delay", nothing: "No reward has returned yet.",
    x: delay.times, from: 0, xTicks: spanTicks, xText: span, xName: "Delay", xLabel: "delay (" + unit + "s)",
    yText: share, tipText: share, yLabel: "returned", most: 1,
    band: { name: "95 % band", lower: delay.lower, upper: delay.upper, step: true },
    lines: delay.fit === null ? [curve] : [curve, fit],
  });
}

function showPending(pending) {
  barChart($("pending"), {
    title: "Waiting decisions by age", nothing: "No decision waits for its reward.",
    names: pending.map((bar) => bar.age), values: pending.map((bar) => bar.count),
    text: (k) => number(pending[k].count),
    detail: (k) => pending[k].age + "\n" + whole(pending[k].count) + " decisions",
    columns: ["Age", "Decisions"],
    row: (k) => [pending[k].age, whole(pending[k].count)],
  });
}

function showActions(actions) {
  const mean = (bar) => (bar.mean === null ? "no reward yet" : number(bar.mean));
  barChart($("actions"), {
    title: "Share of decisions by action", nothing: "No action has been played yet.",
    names: actions.map((bar) => bar.name), values: actions.map((bar) => bar.share),
    text: (k) => share(actions[k].share),
    detail: (k) => {
      const played = whole(actions[k].decisions) + " decisions";
      return [actions[k].name, played, "mean reward: " + mean(actions[k])].join("\n");
    },
    columns: ["Action", "Share", "Decisions", "Rewards", "Mean reward"],
    row: (k) => {
      const bar = actions[k];
      return [bar.name, share(bar.share), whole(bar.decisions), whole(bar.rewards), mean(bar)];
    },
  });
}

function showReward(reward) {
  setNote("reward", reward.note);
  const known = reward.baseline !== null;
  const own = { name: "this bandit", values: reward.total, style: "" };
  const baseline = { name: "baseline", values: reward.baseline, style: "other dashed" };
  const band = { name: "baseline, 95 %", lower: reward.lower, upper: reward.upper, style: "other" };
  lineChart($("reward"), {
    title: "Cumulative reward", nothing: "No reward has returned yet.",
    x: reward.times, xTicks: clockTicks, xText: moment, xName: "Time (UTC)", xLabel: "time (UTC)",
    yText: number, tipText: number, yLabel: "reward",
    band: known ? band : undefined,
    lines: known ? [own, baseline] : [own],
  });
}

function showWidth(width) {
  lineChart($("width"), {
    title: "Confidence width", nothing: "This policy has no confidence width, or has not decided yet.",
    x: width.times, xTicks: clockTicks, xText: moment, xName: "Time (UTC)", xLabel: "time (UTC)",
    yText: number, tipText: number, yLabel: "width",
    lines: [{ name: "width", values: width.width, style: "" }],
  });
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = "Theme: " + theme;
}

$("theme").addEventListener("click", () => {
  const now = THEMES.indexOf(document.documentElement.dataset.theme);
  const next = THEMES[(now + 1) % THEMES.length];
  setTheme(next);
  localStorage.setItem("belated-theme", next);
});
$("bandit").addEventListener("change", (event) => {
  page.chosen = event.target.value;
  setText("forgetting-words", "");
  setText("lift-words", "");
  poll();
});
$("judge").addEventListener("click", (event) => workOut("forgetting", event.target));
$("judge-lift").addEventListener("click", (event) => workOut("lift", event.target));
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("belated-key", $("key").value);
  $("key").value = "";
  $("key-form").hidden = true;
  poll();
});
addEventListener("resize", () => { if (page.data) showAll(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && $("key-form").hidden) poll(); });
setInterval(showState, 1000);
setTheme(THEMES.find((theme) => theme === localStorage.getItem("belated-theme")) ?? "auto");
poll();
