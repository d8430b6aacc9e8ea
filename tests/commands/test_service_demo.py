"""The demo: a page that moves, in a real browser and over the API."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect
from typer.main import get_command

from belated.client import Client
from belated.commands.demo_service import WORLDS, run_demo
from belated.commands.main import app
from belated.commands.service import demo_service
from belated.service.serving import ServeSettings

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


@pytest.mark.slow
def test_it_stops_by_itself(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "belated", "demo-service", "--port", "0", "--seconds", "3"],
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
def test_bandits_learn_and_the_alarm_shows():
    with demo("--seed", "3") as (process, url):
        with Client(url) as client:
            assert client.bandits() == ["demo-shop", "demo-newsletter", "demo-checkout"]
            before = client.bandit("demo-shop").n_decided
            deadline = time.monotonic() + 90.0
            alarms = []
            while "delay-depends-on-reward" not in alarms:
                assert time.monotonic() < deadline, alarms
                time.sleep(0.5)
                answer = httpx2.get(f"{url}v1/dashboard", params={"bandit": "demo-checkout"}).json()
                alarms = [alarm["key"] for alarm in answer["bandit"]["alarms"]]
            shop, newsletter = client.bandit("demo-shop"), client.bandit("demo-newsletter")
        assert shop.n_decided > before
        assert shop.n_observed > 0
        assert newsletter.settings["loop"] == "conversion"
        assert newsletter.n_pending > 0
        answer = httpx2.get(f"{url}v1/dashboard", params={"bandit": "demo-shop"}).json()
        assert answer["bandit"]["alarms"] == [], "a healthy loop, whose floor is shared by actions"
        metrics = httpx2.get(f"{url}metrics").text
        assert 'belated_rewards_total{bandit="demo-shop",status="accepted"}' in metrics
        assert 'status="conflict"' not in metrics
        assert 'status="unknown"' not in metrics
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")


def decided(client, bandit):
    return client.bandit(bandit).n_decided


def plays_on(client, bandit):
    """Whether the world goes on deciding."""
    before, deadline = decided(client, bandit), time.monotonic() + 30.0
    while decided(client, bandit) <= before + 5:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def documented_curl_lines(page):
    """Commands of a page; what stands in quotes may go over several lines."""
    text = page.read_text().replace("\\\n", " ")
    return re.findall(r"^ *(curl (?:'[^']*'|[^'\n])*)", text, re.MULTILINE)


PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))
WITH_CURL = {page: lines for page in PAGES if (lines := documented_curl_lines(page))}


def test_documented_curl_lines_go_to_the_port_of_the_service():
    assert {page.name for page in WITH_CURL} == {"service.md", "conversions.md"}
    port = next(p for p in get_command(app).commands["serve"].params if p.name == "port").default
    for page, lines in WITH_CURL.items():
        for line in lines:
            assert f" localhost:{port}/" in line.replace("'", " "), (page.name, line)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CURL, ids=lambda page: page.name)
def test_the_documented_curl_lines_do_it_no_harm(tmp_path, page):
    lines = WITH_CURL[page]
    Path(tmp_path, "sales.csv").write_text("decision_id,reward\n00000000000000000000000001,1\n")
    with demo() as (process, url), Client(url) as client:
        for line in lines:
            command = line.replace("localhost:8787/", url)
            answer = subprocess.run(
                ["bash", "-c", f"{command} --silent --show-error --fail"],
                cwd=tmp_path,  # one of them writes a file
                capture_output=True,
                text=True,
            )
            assert answer.returncode == 0, (line, answer.stdout, answer.stderr)
        n = sum("/decisions " in line for line in lines)
        assert decided(client, "shop") == n, "the visitor's bandit is his own"
        assert all(plays_on(client, world.name) for world in WORLDS)
        assert process.poll() is None


@pytest.mark.slow
def test_the_world_leaves_strangers_actions_alone():
    with demo() as (process, url), Client(url) as client:
        client.change_actions(
            "demo-shop", {"s": {"banner": "summer"}}, drop=client.actions("demo-shop")
        )
        assert plays_on(client, "demo-shop")
        assert client.decide("demo-shop", context={"device": "phone"}).action == "s"
        client.change_actions("demo-shop", drop=["s"])
        assert process.stdout.readline().startswith("demo-shop: 422 ")
        assert plays_on(client, "demo-checkout")
        assert process.poll() is None


def test_its_port_is_not_that_of_the_service():
    ports = [
        signature(function).parameters["port"].default for function in (run_demo, demo_service)
    ]
    assert ports == [8788, 8788]
    assert ServeSettings(ledger="memory://").port == 8787


def test_the_page_moves(browser):
    with demo() as (_, url):
        page = browser.new_page()
        page.goto(url)
        expect(page.locator("body")).to_contain_text("demo-shop")
        first = page.locator("body").inner_text()
        page.wait_for_function("first => document.body.innerText !== first", arg=first)
        page.close()


@pytest.mark.slow
def test_ctrl_c():
    with demo() as (process, _):
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
