"""The documents name things that exist."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_how_to_pages_are_run_but_for_the_two_that_the_readme_speaks_of():
    pages = (ROOT / "docs" / "how-to").glob("*.md")
    assert {p.stem for p in pages if ">>>" not in p.read_text()} == {
        "deploy",
        "reproduce-the-paper",
    }


def test_paper_to_code_names_what_exists():
    text = (ROOT / "docs" / "paper-to-code.md").read_text()
    code = re.findall(r"`(belated[\w.]*):(\w+)`", text)
    assert len(code) > 20
    for module, name in code:
        assert hasattr(import_module(module), name), f"{module}:{name}"
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(tests) > 10
    for file, name in tests:
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name
