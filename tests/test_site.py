"""The documentation site: no warnings, links that lead somewhere, nothing from other hosts."""

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.browser import browser  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[1]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
OTHERWISE = ("commands", "service")  # modules that the API reference leaves out
ON_A_PHONE = (
    "index",
    "how-to/run-a-bandit",
    "concepts/waiting",
    "reference/api/belated",
    "glossary",
)


class Page(HTMLParser):
    """The ids of a page, the links on it, and the addresses that a browser loads by itself."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(LOADED.get(tag)):
            self.loaded.append(given[LOADED[tag]])


def test_every_page_has_its_place_in_the_site():
    """A page that no table of contents names is a warning of ``make site``."""
    index = ROOT / "docs" / "index.md", ROOT / "docs" / "reference" / "api" / "index.md"
    tables = [
        block for i in index for block in re.findall(r"\{toctree\}(.*?)```", i.read_text(), re.S)
    ]
    named = {word.strip("<>") for table in tables for word in table.split()}
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix("")
        names = {place.as_posix(), place.as_posix().removeprefix("reference/api/")}
        assert names & named or place.name == "index", f"{page.name}: not in docs/index.md"
    for source in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"../notebooks/{source.stem}" in named


def test_what_the_pages_import_is_in_the_reference():
    """Commands have a reference of their own, and a service is used over HTTP."""
    pages = [page.read_text() for page in (ROOT / "docs" / "reference" / "api").glob("*.md")]
    described = {
        name for page in pages for name in re.findall(r"auto(?:module|class):: ([\w.]+)", page)
    }
    for page in (ROOT / "docs" / "how-to").glob("*.md"):
        # imported, or named for somebody who imports it: "belated.worlds.late_rewards:NAME"
        imported = set(re.findall(r'(?:from |")(belated[\w.]*)(?: import|:)', page.read_text()))
        left = {name for name in imported - described if name.split(".")[1] not in OTHERWISE}
        assert not left, f"{page.name}: not in docs/reference/api"


@pytest.mark.slow
def test_site(tmp_path, request):
    folder = tmp_path / "site"
    options = ("-q", "-W", "--keep-going", "-c", "packaging/site")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    pages = {path: Page(path) for path in folder.rglob("*.html")}
    assert len(pages) > 50
    check_links(pages)
    check_that_nothing_comes_from_elsewhere(folder, pages)
    api = (folder / "docs/reference/api/belated.html").read_text()
    (signature,) = re.findall(r'<dt [^>]*id="belated.Bandit.learn">(.*?)</dt>', api, re.DOTALL)
    shown = re.sub(r"\s+", "", unescape(re.sub("<[^>]*>", "", signature)))
    assert "event_id:str|None=None" in shown, "types are a part of signatures"
    assert "→int" in shown
    policies = (folder / "docs/reference/api/policies.html").read_text()
    assert " at 0x" not in policies, "an address in place of a type"
    commands = (folder / "docs/reference/commands.html").read_text()
    assert "belated ledger verify sqlite:///shop.db" in commands
    look_at_it(request.getfixturevalue("browser"), folder / "docs")


def check_links(pages):
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if not parts.scheme:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                assert target.exists(), f"{path.name}: {link}"
                if parts.fragment and target in pages:
                    assert unquote(parts.fragment) in pages[target].ids, f"{path.name}: {link}"


def check_that_nothing_comes_from_elsewhere(folder, pages):
    for path, page in pages.items():
        for address in page.loaded:
            assert not urlsplit(address).netloc, f"{path.name}: {address}"
    for style in folder.rglob("*.css"):
        assert not re.search(r"(url\(|@import)[\s\"']*(https?:)?//", style.read_text()), style.name


def look_at_it(browser, docs):  # noqa: F811
    """From disk: search finds pages, no other host is asked, a phone need not scroll aside."""
    tab = browser.new_page(viewport={"width": 390, "height": 800})
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(f"{docs.parent.as_uri()}/search.html?q=certificate")
    tab.wait_for_selector("#search-results li a")
    titles = [link.inner_text() for link in tab.query_selector_all("#search-results li a")]
    assert "What a certificate is" in titles
    for name in ON_A_PHONE:
        tab.goto(f"{docs.as_uri()}/{name}.html")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}
    tab.close()
