"""The dashboard in a real browser, against a stub service with a simulated loop behind it."""

import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import uvicorn
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from belated.core.ranking import RankedAction
from belated.monitoring.finding_alarms import Facts
from belated.monitoring.statistics import Statistics
from belated.service.dashboard.data import BanditFacts, BestView, Dashboard
from belated.service.dashboard.page import dashboard_page
from belated.service.dashboard.view import bandit_view

HOSTILE = "<img src=x onerror=document.title='hacked'>"
NAMES = ["banner", "newsletter", "discount 10 %", HOSTILE, *(f"teaser {k}" for k in range(16))]
NOTE = "Bars are 95 % posterior intervals of the mean reward: of each action by itself and now, "
NOTE += "from the model's posterior; nothing is proved of them."
NOW_US = int(time.time() * 1e6)


def simulated(
    hours=30.0, rate=0.5, window=3600.0, slower_for=0.0, stopped_for=0.0, seed=1, never=0.1
):
    """A shop whose rewards come after some minutes; a share of ``never`` gets none."""
    rng = np.random.default_rng(seed)
    n = int(hours * 3600 * rate)
    ages = np.sort(rng.uniform(0.0, hours * 3600.0, n))[::-1]
    learnt = 1.0 - np.exp(-np.arange(n) / (0.3 * n))
    favourite = rng.integers(0, 3, n)
    action = np.where(rng.random(n) < learnt, favourite, rng.integers(0, len(NAMES), n))
    delays = rng.lognormal(np.log(240.0), 0.8, n)
    delays[ages < slower_for] *= 2.5
    delays[rng.random(n) < never] = np.inf
    rewards = (rng.random(n) < np.where(action < 3, 0.3, 0.15)).astype(float)
    decided = [NOW_US - int(1e6 * age) for age in ages]
    closed = np.minimum(delays, window)
    ids = [k.to_bytes(16, "big") for k in range(n)]
    names = [NAMES[k] for k in action]
    statistics = Statistics()
    statistics.decided(
        ids, decided, names, [0.1] * n, (0.2 + 3.0 / np.sqrt(50.0 + np.arange(n))).tolist()
    )
    come = (delays <= window) & (closed <= ages - stopped_for)
    for tell, which in (
        (statistics.returned, come),
        (statistics.expired, (delays > window) & (closed <= ages)),
    ):
        order = [k for k in np.argsort(closed - ages) if which[k]]
        batch = [ids[k] for k in order], [decided[k] for k in order]
        times = [decided[k] + int(1e6 * closed[k]) for k in order]
        extra = [[float(rewards[k]) for k in order]] if tell == statistics.returned else []
        tell(*batch, times, [names[k] for k in order], *extra)
    statistics.late(12)
    return statistics


def best(n=12):
    """A ranking as the page gets it: means fall, and the last one has no bound."""
    rows = [
        RankedAction(name, k, 0.31 - 0.01 * k, 0.25 - 0.02 * k, 0.38 + 0.01 * k, 9000 - k, 8000 - k)
        for k, name in enumerate(NAMES[:n])
    ]
    rows[-1] = RankedAction(NAMES[n - 1], n - 1, 0.1, None, None, None, None)
    sentence = "banner leads, but its interval overlaps with those of all 11 others."
    return BestView(sentence, "posterior", 0.95, rows, NOTE)


@pytest.fixture(scope="module")
def loops():
    shop = BanditFacts(
        "shop",
        policy="DelayedOFUGLM",
        model_version=48211,
        baseline="teaser 0",
        facts=Facts(unknown=37, conflicts=3),
        best=best(),
    )
    nothing = BestView(note="There is no ranking: there is no action to choose from.")
    quiet = BanditFacts("quiet", policy="LinUCB", model_version=7, best=nothing)
    return {
        "shop": (shop, simulated(slower_for=6 * 3600.0, stopped_for=2040.0)),
        HOSTILE: (BanditFacts(HOSTILE, policy="Thompson"), simulated(hours=2.0)),
        "quiet": (quiet, Statistics()),
    }


class Stub:
    """The two routes that the page needs; ``key`` and ``broken`` can be changed while it runs."""

    def __init__(self, loops):
        self.loops, self.key, self.broken = loops, None, False
        self.seen_keys = []

    def data(self, name):
        about, statistics = self.loops[name]
        view = bandit_view(statistics, NOW_US, about)
        return msgspec.to_builtins(Dashboard(NOW_US / 1e6, list(self.loops), view))

    async def worked_out(self, request):
        group = {"name": "bandit", "decisions": 1200, "pending": 30, "mean": 0.25}
        lift = {"groups": [group, group | {"mean": None}], "guardrails": [{"sentence": HOSTILE}]}
        answer = {"sentence": f"{request.path_params['name']}: {HOSTILE}"}
        return JSONResponse(answer | (lift if request.path_params["what"] == "lift" else {}))

    async def page(self, request):
        page = dashboard_page()
        return HTMLResponse(page.html, headers={"Content-Security-Policy": page.policy})

    async def answer(self, request):
        self.seen_keys.append(request.headers.get("x-api-key"))
        if self.broken:
            return Response(status_code=503)
        if self.key is not None and request.headers.get("x-api-key") != self.key:
            return JSONResponse({"title": "no key"}, status_code=401)
        if not self.loops:
            return JSONResponse(msgspec.to_builtins(Dashboard(NOW_US / 1e6, [], None)))
        return JSONResponse(self.data(request.query_params.get("bandit", next(iter(self.loops)))))


@contextmanager
def served(stub):
    routes = [Route("/", stub.page), Route("/v1/dashboard", stub.answer)]
    routes.append(Route("/v1/bandits/{name}/{what}", stub.worked_out))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(
        Starlette(routes=routes), port=port, log_level="error", ws="none", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join()


@pytest.fixture
def stub(loops):
    return Stub(loops)


@pytest.fixture
def address(stub):
    with served(stub) as url:
        yield url


@contextmanager
def opened(browser, address, **options):
    """A page that has its numbers, with everything it said and asked for."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(address)
    yield page
    context.close()


def settled(page):
    page.wait_for_selector("#content:not([hidden])")
    expect(page.locator("#state")).to_have_text("Live")
    return page


def table(page, figure):
    """The numbers of a chart as the screen reader's table has them."""
    page.locator(f"#{figure} details").evaluate("details => details.open = true")
    page.wait_for_selector(f"#{figure} table")
    return page.locator(f"#{figure} tbody tr").evaluate_all(
        "rows => rows.map(row => Array.from(row.cells, cell => cell.textContent))"
    )


def test_loads_quietly_and_only_from_its_own_origin(browser, address):
    with opened(browser, address) as page:
        settled(page)
        page.wait_for_timeout(2500)  # a second poll
        assert page.said == []
        requests = [url for url in page.asked if not url.startswith("data:")]
        assert len(requests) >= 3
        assert all(url.startswith(address) for url in requests)
        assert page.locator("html").get_attribute("lang") == "en"
        for landmark in ("header", "main", "footer"):
            assert page.locator(landmark).count() == 1


def test_values_are_those_of_the_data(browser, address, stub):
    data = stub.data("shop")["bandit"]
    with opened(browser, address) as page:
        settled(page)
        shown = [alarm.inner_text() for alarm in page.locator(".alarm").all()]
        assert len(shown) == len(data["alarms"]) >= 3
        for text, alarm in zip(shown, data["alarms"], strict=True):
            assert alarm["sentence"] in text
        assert "Rewards stopped 34 minutes ago" in shown[0]
        cells = page.locator("#numbers div").evaluate_all(
            "cells => cells.map(c => [c.children[0].textContent, c.children[1].firstChild.data])"
        )
        assert dict(cells)["Decisions"] == f"{data['decisions']:,}"
        assert dict(cells)["Waiting"] == f"{data['missing']:,}"
        assert dict(cells)["Model version"] == "48,211"
        assert dict(cells)["Rewards seen"] == f"{data['rewards']:,}"
        rows = table(page, "pending")
        assert rows == [[bar["age"], f"{bar['count']:,}"] for bar in data["pending"]]
        actions = table(page, "actions")
        assert [row[0] for row in actions] == [bar["name"] for bar in data["actions"]]
        assert [row[2] for row in actions] == [f"{bar['decisions']:,}" for bar in data["actions"]]
        assert len(actions) == 13
        assert actions[-1][0] == "8 others"
        delay = table(page, "delay")
        assert len(delay) == len(data["delay"]["times"])
        assert float(delay[-1][1].split()[0]) == pytest.approx(
            100 * data["delay"]["returned"][-1], rel=0.01
        )
        assert len(table(page, "rates")) == 60
        assert len(table(page, "reward")) == len(data["reward"]["times"])
        assert len(table(page, "width")) == len(data["width"]["times"])


def test_the_curve_is_drawn_where_the_numbers_say(browser, address, stub):
    delay = stub.data("shop")["bandit"]["delay"]
    with opened(browser, address) as page:
        settled(page)
        drawn = page.locator("#delay svg.chart path.line").first.get_attribute("d")
        numbers = [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", drawn)]
        start, end = numbers[:2], numbers[-2:]
        width = page.locator("#delay svg.chart").evaluate("svg => svg.clientWidth")
        top = min(1.0, 1.05 * max(*delay["upper"], *delay["fit"]))
        assert start == [50.0, 182.0]
        assert end[0] == pytest.approx(width - 12.0)
        assert end[1] == pytest.approx(182.0 - 158.0 * delay["returned"][-1] / top, abs=0.01)


def test_the_axis_of_delays_fits_rare_conversions(browser, address, stub):
    """Two per cent buy: the curve must fill the picture, with ticks that say per cent."""
    stub.loops = {"shop": (BanditFacts("shop"), simulated(hours=8.0, never=0.98))}
    delay = stub.data("shop")["bandit"]["delay"]
    assert 0.01 < delay["returned"][-1] < 0.03
    with opened(browser, address) as page:
        settled(page)
        numbers = page.locator("#delay svg.chart path.line").first.get_attribute("d")
        heights = [float(y) for y in re.findall(r"V(-?\d+\.?\d*)", numbers)]
        assert 182.0 - min(heights) > 0.6 * 158.0
        ticks = page.locator("#delay svg.chart text").all_text_contents()
        shares = [float(tick[:-2]) for tick in ticks if tick.endswith(" %")]
        assert len(shares) >= 3
        assert shares[0] == 0.0
        assert 1.0 <= shares[-1] <= 5.0


def test_waiting_means_that_a_reward_may_still_come(browser, address, stub):
    view = stub.data("shop")["bandit"]
    assert sum(bar["count"] for bar in view["pending"]) == view["missing"]
    delay, sample = view["delay"], stub.loops["shop"][1].followed
    assert delay["n_waiting"] == len(sample.waiting) > 0
    assert delay["n_returned"] + delay["n_waiting"] + delay["n_closed"] == len(sample.outcomes)
    assert delay["n_closed"] > delay["n_waiting"], "most without a reward are given up"
    with opened(browser, address) as page:
        settled(page)
        words = f"{delay['n_waiting']:,} waiting, {delay['n_closed']:,} closed without a reward"
        assert words in page.inner_text("#delay .note")
        assert page.inner_text("#pending h2") == "Waiting by age"
        assert "Pending" not in page.inner_text("main")
        assert "Missing" not in page.inner_text("main")


def test_whether_forgetting_would_help_is_worked_out_when_asked(browser, address):
    with opened(browser, address) as page:
        settled(page)
        assert page.inner_text("#forgetting-words") == ""
        page.click("#judge")
        expect(page.locator("#forgetting-words")).to_have_text(f"shop: {HOSTILE}")
        assert page.is_enabled("#judge")
        page.select_option("#bandit", index=1)
        expect(page.locator("#forgetting-words")).to_have_text("")


def test_a_bandit_with_a_holdout_is_compared_with_it_when_asked(browser, address, stub):
    with opened(browser, address) as page:
        assert settled(page).locator("#lift").is_hidden()
        about, statistics = stub.loops["shop"]
        stub.loops = {"shop": (replace(about, holdout=0.1), statistics)}
        page.click("#judge-lift")
        counts = "1,200 decisions, 30 waiting"
        words = f"shop: {HOSTILE} bandit: 0.25 a decision, {counts} bandit: {counts} {HOSTILE}"
        expect(page.locator("#lift-words")).to_have_text(words)


def test_which_is_best(browser, address, stub):
    data = stub.data("shop")["bandit"]["best"]
    with opened(browser, address) as page:
        settled(page)
        assert page.inner_text("#best h2") == "Which is best, and how sure?"
        assert page.inner_text("#verdict") == data["verdict"]
        assert page.inner_text("#best .note") == data["note"] == NOTE
        rows = table(page, "best")
        assert rows[0] == ["banner", "0.31", "0.25", "0.38", "9,000", "8,000"]
        assert rows[-1] == ["teaser 7", "0.1", "no bound", "no bound", "", ""]
        bars = page.locator("#best svg.chart rect.interval").evaluate_all(
            "bars => bars.map(bar => [bar.x.baseVal.value, bar.width.baseVal.value])"
        )
        means = page.locator("#best svg.chart line.mean").evaluate_all(
            "lines => lines.map(line => line.x1.baseVal.value)"
        )
        assert len(bars) == len(means) == 12
        for (start, length), mean, row in zip(bars[:-1], means, data["actions"], strict=False):
            part = (row["mean"] - row["low"]) / (row["high"] - row["low"])
            assert mean == pytest.approx(start + part * length, abs=0.01)
        assert means == sorted(means, reverse=True)
        page.locator("#best svg.chart").focus()
        page.keyboard.press("ArrowDown")
        assert page.locator("#best .tip").inner_text() == (
            "newsletter\nmean reward: 0.3\nfrom 0.23 to 0.39\n8,999 decisions, 7,999 rewards"
        )
        page.select_option("#bandit", "quiet")
        expect(page.locator("#best .empty")).to_have_text(
            "There is no ranking: there is no action to choose from."
        )
        assert page.said == []


def test_choosing_another_bandit_and_hostile_names(browser, address):
    with opened(browser, address) as page:
        settled(page)
        assert page.get_by_text(HOSTILE).count() >= 1  # an action of the shop
        page.select_option("#bandit", HOSTILE)
        expect(page.locator("#numbers")).to_contain_text("Thompson")
        assert page.locator(".alarm").inner_text() == "No alarms."
        assert "good" in page.locator(".alarm").get_attribute("class")
        assert page.title() == f"belated: {HOSTILE}"
        assert page.locator("img").count() == 0
        assert "No baseline: the bandit has no baseline action." in page.inner_text("#reward")
        page.select_option("#bandit", "quiet")
        expect(page.locator("#numbers")).to_contain_text("LinUCB")
        assert "No reward has returned yet." in page.inner_text("#delay")
        assert page.said == []


def test_no_bandit_at_all(browser, address, stub):
    stub.loops = {}
    with opened(browser, address) as page:
        settled(page)
        assert page.inner_text("#alarms") == "There is no bandit yet."
        assert page.locator("figure:visible").count() == 0
        assert page.said == []


@pytest.mark.parametrize("width", [320, 375, 390, 768, 1280])
def test_no_sideways_scrolling(browser, address, width):
    with opened(browser, address, viewport={"width": width, "height": 800}) as page:
        settled(page)
        for figure in ("best", "actions", "delay", "rates"):
            table(page, figure)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = page.evaluate(
            """() => Array.from(document.querySelectorAll('svg.chart text'))
                .filter(t => { const r = t.getBoundingClientRect(),
                                     s = t.closest('figure').getBoundingClientRect();
                               return r.left < s.left || r.right > s.right; })
                .map(t => t.textContent)"""
        )
        assert outside == []


def test_keyboard(browser, address, stub):
    data = stub.data("shop")["bandit"]
    with opened(browser, address) as page:
        settled(page)
        seen = []
        for _ in range(40):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    """() => { const e = document.activeElement, s = getComputedStyle(e);
                    return [e.id || e.closest('figure')?.id || e.className, e.tagName,
                            s.outlineStyle, parseFloat(s.outlineWidth)]; }"""
                )
            )
            if seen[-1][0] == "judge":  # the last of them
                break
        order = [name for name, _, _, _ in seen]
        assert order[:3] == ["skip", "bandit", "theme"]
        figures = ["best", "rates", "delay", "pending", "actions", "reward", "width"]
        assert order[3:] == [*(name for name in figures for _ in range(2)), "judge"]
        assert all(style != "none" and width >= 1.0 for _, _, style, width in seen)

        chart = page.locator("#pending svg.chart")
        chart.focus()
        tip = page.locator("#pending .tip")
        for k, key in enumerate(["ArrowDown", "ArrowRight", "ArrowDown"], start=1):
            page.keyboard.press(key)
            bar = data["pending"][k]
            assert tip.inner_text() == f"{bar['age']}\n{bar['count']:,} decisions"
            assert chart.get_attribute("aria-valuenow") == str(k)
        assert bar["age"] in chart.get_attribute("aria-valuetext")
        page.keyboard.press("Escape")
        assert tip.is_hidden()

        page.locator("#delay svg.chart").focus()
        page.keyboard.press("Home")
        assert "returned: " in page.locator("#delay .tip").inner_text()
        page.wait_for_timeout(2300)  # the next poll keeps the place
        assert page.locator("#delay svg.chart").get_attribute("aria-valuenow") == "0"
        assert page.locator("#delay .tip").is_visible()


def test_pointer(browser, address, stub):
    data = stub.data("shop")["bandit"]
    with opened(browser, address) as page:
        settled(page)
        chart = page.locator("#actions svg.chart")
        chart.hover(position={"x": 100, "y": 30})
        name = data["actions"][1]["name"]
        assert page.locator("#actions .tip").inner_text().startswith(name)
        page.mouse.move(0, 0)
        assert page.locator("#actions .tip").is_hidden()


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  function channels(colour) {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  }
  function luminance(colour) {
    const [r, g, b] = Array.from(channels(colour)).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function ground(e) {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (channels(colour)[3] === 255) return colour;
    }
    return 'white';
  }
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = Array.from(e.childNodes).some(n => n.nodeType === 3 && n.data.trim());
    if (!own || !e.getClientRects().length || e.closest('script, style')) continue;
    const style = getComputedStyle(e);
    const colour = e.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const [a, b] = [luminance(colour), luminance(ground(e))].sort((x, y) => y - x);
    found.push([e.tagName + ': ' + e.textContent.slice(0, 30), (a + 0.05) / (b + 0.05)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("by_button", [False, True])
def test_contrast(browser, address, stub, scheme, by_button):
    system = {"light": "dark", "dark": "light"}[scheme] if by_button else scheme
    with opened(browser, address, color_scheme=system) as page:
        settled(page)
        while by_button and page.inner_text("#theme") != f"Theme: {scheme}":
            page.click("#theme")
        page.locator("#delay svg.chart").focus()
        table(page, "actions")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 380) == (scheme == "light")
        found = page.evaluate(CONTRAST)
        stub.broken = True
        page.wait_for_selector("#status.lost")
        page.wait_for_timeout(400)
        found += page.evaluate(CONTRAST)
        stub.broken = False
        page.select_option("#bandit", HOSTILE)
        page.wait_for_selector(".alarm.good")
        found += page.evaluate(CONTRAST)
        assert len(found) > 200
        assert [pair for pair in found if pair[1] < 4.5] == []


def test_theme_is_remembered(browser, address):
    with opened(browser, address) as page:
        settled(page)
        page.click("#theme")
        page.click("#theme")
        page.reload()
        settled(page)
        assert page.inner_text("#theme") == "Theme: dark"


def test_lost_connection_is_said_and_healed(browser, address, stub):
    with opened(browser, address) as page:
        settled(page)
        stub.broken = True
        page.wait_for_selector("#status.lost")
        page.wait_for_timeout(1500)
        assert re.fullmatch(r"Connection lost: last update \d+ s ago", page.inner_text("#status"))
        assert page.locator("#numbers").is_visible()  # the last numbers stay
        stub.broken = False
        settled(page)
        assert page.inner_text("#status").strip() == "Live"


def test_alarms_are_announced_once(browser, address):
    with opened(browser, address) as page:
        settled(page)
        assert page.locator("#alarms").get_attribute("aria-live") == "polite"
        page.evaluate("""() => { window.changes = 0;
            new MutationObserver(() => window.changes++).observe(
                document.querySelector('#alarms'), { childList: true, subtree: true }); }""")
        page.wait_for_timeout(4500)
        assert page.evaluate("window.changes") == 0


def test_key(browser, address, stub):
    stub.key = "s3cret"
    with opened(browser, address) as page:
        page.wait_for_selector("#key-form:not([hidden])")
        assert page.locator("#content").is_hidden()
        page.keyboard.type("wrong")  # the field has the focus
        page.keyboard.press("Enter")
        expect(page.locator("#key-note")).to_have_text("That key was not accepted.")
        page.keyboard.type("s3cret")
        page.keyboard.press("Enter")
        settled(page)
        assert stub.seen_keys[0] is None
        assert stub.seen_keys[-1] == "s3cret"
        assert page.evaluate("JSON.stringify([localStorage, document.cookie])").count("s3cret") == 0
        assert page.evaluate("sessionStorage.getItem('belated-key')") == "s3cret"
        stub.key = "another"
        page.wait_for_selector("#key-form:not([hidden])")


def test_policy_stops_foreign_scripts():
    page = dashboard_page()
    assert "unsafe" not in page.policy
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert page.html.count("<script>") == page.html.count("<style>") == 1
    assert not re.search(r"\s(style|on\w+)=|innerHTML|https?://(?!www\.w3\.org)", page.html)


def test_data_is_small_and_can_be_read_back(loops):
    for about, statistics in loops.values():
        view = bandit_view(statistics, NOW_US, about)
        text = msgspec.json.encode(Dashboard(NOW_US / 1e6, [about.name], view))
        assert len(text) < 40_000
        assert msgspec.json.decode(text, type=Dashboard).bandit == view
        assert "NaN" not in json.dumps(msgspec.to_builtins(view))


def test_views_by_hand():
    statistics = Statistics()
    second = 1_000_000
    now = 100 * 86400 * second
    ids = [bytes([k]) * 16 for k in range(4)]
    times = [now - 100 * second, now - 90 * second, now - 80 * second, now - 5 * second]
    statistics.decided(ids, times, ["a", "b", "a", "b"], [None] * 4, [4.0, 2.0, None, 1.0])
    statistics.returned(
        *(ids[:3], times[:3], [t + 10 * second for t in times[:3]]),
        ["a", "b", "a"],
        [1.0, 5.0, 3.0],
    )
    view = bandit_view(statistics, now, BanditFacts("x", baseline="a"))
    assert (view.decisions, view.rewards, view.missing) == (4, 3, 1)
    assert [bar.count for bar in view.pending] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert [(bar.name, bar.share, bar.mean) for bar in view.actions] == [
        ("a", 0.5, 2.0),
        ("b", 0.5, 5.0),
    ]
    assert view.reward.total[-1] == 9.0
    assert view.reward.baseline[-1] == 3 * 2.0
    error = 1.96 * np.std([1.0, 3.0], ddof=1) / np.sqrt(2)
    assert view.reward.lower[-1] == pytest.approx(3 * (2.0 - error), rel=1e-5)
    assert view.width.width == [4.0, 2.0, 1.0]
    assert view.delay.times == [10.0]
    assert view.delay.median == 10.0
    assert sum(view.rates.decisions) == pytest.approx(4 / 30, rel=1e-5)
    empty = bandit_view(Statistics(), now, BanditFacts("x", baseline="a"))
    assert empty.reward.baseline is None
    assert "fewer than two rewards" in empty.reward.note
    assert empty.delay.fit is None
    with_default = bandit_view(statistics, now, BanditFacts("x", default_reward=0.5))
    assert with_default.reward.total[-1] == 9.0
    statistics.expired(ids[3:], times[3:], [now], ["b"])
    with_default = bandit_view(statistics, now, BanditFacts("x", "", 0, "b", 0.5))
    assert with_default.reward.total[-1] == 9.5
    assert with_default.reward.baseline[-1] == pytest.approx(4 * 2.75)
