"""How to cite: CITATION.cff has what its format requires, and the README says the same."""

import re
import tomllib
from pathlib import Path

import yaml

import belated

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
(PAPER,) = CITATION["references"]


def bibtex():
    """Fields of the entries in the README, by kind of entry."""
    (text,) = re.findall(r"```bibtex\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    entries = re.findall(r"^@(\w+)\{\w+,\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL)
    return {kind: dict(re.findall(r"(\w+) += \{(.*)\}", fields)) for kind, fields in entries}


def plain(text):
    """A text without the braces by which BibTeX keeps capitals."""
    return re.sub(r"[{}]", "", text)


def test_the_file_has_what_its_format_requires():
    """The keys that the schema of version 1.2.0 requires, of the file and of a reference."""
    assert CITATION.keys() >= {"authors", "cff-version", "message", "title"}
    assert PAPER.keys() >= {"authors", "title", "type"}
    assert CITATION["cff-version"] == "1.2.0"
    for author in CITATION["authors"] + PAPER["authors"]:
        assert author.keys() <= {"name"} or author.keys() == {"family-names", "given-names"}


def test_it_is_this_package():
    assert CITATION["version"] == belated.__version__
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert CITATION["authors"] == PROJECT["authors"]


def test_the_readme_cites_the_same():
    software, paper = bibtex()["software"], bibtex()["inproceedings"]
    assert plain(software["title"]) == CITATION["title"]
    assert software["version"] == CITATION["version"]
    assert [{"name": plain(software["author"])}] == CITATION["authors"]
    assert plain(paper["title"]) == PAPER["title"]
    names = [f"{one['family-names']}, {one['given-names']}" for one in PAPER["authors"]]
    assert paper["author"] == " and ".join(names)
    assert PAPER["conference"]["name"] in paper["booktitle"]
    assert paper["series"] == PAPER["collection-title"]
    assert (paper["volume"], paper["year"]) == (str(PAPER["volume"]), str(PAPER["year"]))
