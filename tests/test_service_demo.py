"""The demo: a page that moves, in a real browser and over the API."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx2
from playwright.sync_api import expect, sync_playwright

from belated.client import Client
from test_dashboard import FLAGS

ENVIRONMENT = {**os.environ, "NUMBA_DISABLE_JIT": "1"}


@contextmanager
def demo(*args):
    """The process and its URL; what is in the temporary folder goes with it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "belated", "demo-service", "--port", "0", *args],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "bandits" in process.stdout.readline()
        line = process.stdout.readline()
        found = re.fullmatch(r"dashboard: (http://127.0.0.1:\d+/) \(Ctrl-C stops\)\n", line)
        assert found, (line, process.poll(), process.poll() and process.stderr.read())
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_it_stops_by_itself(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "belated", "demo-service", "--port", "0", "--seconds", "3"],
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_the_page_moves_and_the_alarm_shows():
    chromium = shutil.which("chromium")
    with demo("--seed", "3") as (process, url):
        with Client(url) as client:
            assert client.bandits() == ["shop", "newsletter", "checkout"]
            before = client.bandit("shop").n_decided
            deadline = time.monotonic() + 90.0
            alarms = []
            while "delay-depends-on-reward" not in alarms:
                assert time.monotonic() < deadline, alarms
                time.sleep(0.5)
                answer = httpx2.get(f"{url}v1/dashboard", params={"bandit": "checkout"}).json()
                alarms = [alarm["key"] for alarm in answer["bandit"]["alarms"]]
            shop, newsletter = client.bandit("shop"), client.bandit("newsletter")
        assert shop.n_decided > before
        assert shop.n_observed > 0
        assert newsletter.settings["loop"] == "conversion"
        assert newsletter.n_pending > 0
        answer = httpx2.get(f"{url}v1/dashboard", params={"bandit": "shop"}).json()
        assert answer["bandit"]["alarms"] == [], "a healthy loop, whose floor is shared by actions"
        metrics = httpx2.get(f"{url}metrics").text
        assert 'belated_rewards_total{bandit="shop",status="accepted"}' in metrics
        assert 'status="conflict"' not in metrics
        assert 'status="unknown"' not in metrics
        if chromium is not None:
            look(chromium, url)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")


def look(chromium, url):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page()
        page.goto(url)
        expect(page.locator("body")).to_contain_text("shop")
        first = page.locator("body").inner_text()
        page.wait_for_function("first => document.body.innerText !== first", arg=first)
        browser.close()


def test_ctrl_c():
    with demo() as (process, _):
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
