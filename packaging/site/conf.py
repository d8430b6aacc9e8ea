"""The documentation site: pages of this repository, and references made from the code."""

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"  # a kernel is then a function with a signature
sys.path.insert(0, str(Path(__file__).parent))
import command_pages
from docutils import nodes

from belated import __version__

project, author, version = "belated", "The belated authors", __version__
copyright = author
html_title = f"belated {version}"

# Pages keep their places, so that links between them work on a forge and in the site.
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "clients/typescript/README.md",
    "notebooks/*.ipynb",
]
exclude_patterns = [".*", "dist", "src", "tests", "benchmarks", "packaging", "demo"]
html_additional_pages = {"index": "to_front_page.html"}
templates_path = ["."]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
myst_heading_anchors = 4
nb_execution_mode = "off"  # outputs are committed; tests execute notebooks
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = False

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Assumptions", "Cost", "Deviations", "Guarantee"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
default_role = "literal"  # of `words` in docstrings
maximum_signature_line_length = 78
toc_object_entries = False  # hundreds of names in every sidebar; pages begin with links to them

html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False


def skip_fields(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool:
    """Leave out fields of a NamedTuple, which the docstring of their class describes."""
    return skip or str(getattr(thing, "__doc__", "")).startswith("Alias for field number")


ANNOTATED = r"~?(?:typing\.)?Annotated\[(~?[\w.]+)(?:, <[^>]*>)+\]"


def name_types_only(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returned: str
) -> tuple[str | None, str]:
    """Leave the functions that check a parameter out of its type."""
    return signature and re.sub(ANNOTATED, r"\1", signature), returned


def set_formulas_apart(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Make literal blocks of indented lines in the text of a docstring: they are formulas."""
    titles = [i for i, line in enumerate(lines) if line and set(line) == {"-"}]
    for i in reversed(range(2, titles[0] if titles else len(lines))):
        if lines[i].startswith("    ") and not lines[i - 1] and not lines[i - 2].startswith(" "):
            lines[i:i] = [".. code-block:: text", ""]


def fill_in(app: Any, name: str, source: list[str]) -> None:
    """Add the help of all commands to their page, and links to all names to pages of modules."""
    if name == "docs/reference/commands":
        source[0] += command_pages.page()
    found = re.search(r"^```{eval-rst}\n.. automodule:: (\S+)$", source[0], re.MULTILINE)
    if found is not None:
        left_out = re.findall(r"\w+", "".join(re.findall(r":exclude-members: (.*)", source[0])))
        known = getattr(import_module(found[1]), "__all__", ())  # else the page names its members
        names = [n for n in known if n not in left_out]
        links = ", ".join(f"{{py:obj}}`{n} <{found[1]}.{n}>`" for n in names)
        source[0] = source[0][: found.start()] + links + "\n\n" + source[0][found.start() :]


def end_with_code(app: Any, page: nodes.document) -> None:
    """Cut the empty line at the end of code, which doctests need before a fence."""
    for block in page.findall(nodes.literal_block):
        if len(block) == 1:
            block.rawsource = block.astext().rstrip()
            block[0] = nodes.Text(block.rawsource)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-signature", name_types_only)
    app.connect("autodoc-process-docstring", set_formulas_apart, priority=100)  # before napoleon
    app.connect("source-read", fill_in)
    app.connect("doctree-read", end_with_code)
