"""The house is as its plan says: layers, rooms, and documents that name what exists."""

import ast
import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "src" / "belated", ROOT / "tests"
SUPPORT = {"support", "naive", "data"}  # folders of tests that hold no tests
TESTED_IN = {  # rooms that are tested with another one
    "families": "checks",  # and by tests/test_registry.py, each of them
    "ledger/checks": "checks",
    "ledger/stores/migrations": "ledger/stores",
    "numerics/lowered/builders": "numerics/lowered",
    "policies/shared": "policies",
}
LONGEST = 600  # lines of a file of tests
MEDIAN_POLICY = 120  # lines of a policy
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
CLAUSES = {"What", "Who", "Whom", "Whose", "Which", "That", "Those", "Whether", "How", "Is"}
NAMELESS = {"It", "Its", "They", "Them", "Such", "And", "Or", "So", "Before", "After", "Same"}
MEANT_TWICE = {
    *("score_bounds", "products", "third_derivative"),  # a kernel and its builder
    "fit",  # of each estimator
    *("delays", "environments"),  # a kind of thing and its checks; the public delays
    *("elimination", "one_pass"),  # policies that share something with that name
    *("events", "files", "ranking", "service"),  # a fact of the core and the work with it
    *("options", "reading"),  # of features and of experiments; of a bandit and of a ledger
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def layers() -> list[str]:
    """Lines of the contract on layers, highest first: ``client | service | experiments``."""
    (contract,) = (c for c in CONTRACTS["contracts"] if c["name"] == "imports point downwards only")
    return [line.replace("belated.", "") for line in contract["layers"]]


def test_the_picture_of_layers_is_the_contract():
    picture = re.search(r"^## Layers$.*?^```\n(.*?)^```", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    assert picture is not None, "docs/architecture.md: expected a picture under ## Layers"
    assert picture[1].splitlines() == layers()


def test_every_module_is_in_the_layer_contract():
    """A module that the contract does not name may import anything."""
    named = {name for line in layers() for name in line.split(" | ")}
    modules = {
        p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert named == modules - {"__init__", "__main__"}


def test_no_modules_import_each_other():
    """Imports inside functions count; those for type checkers do not."""
    grimp = pytest.importorskip("grimp", reason="import-linter is not installed")
    graph = grimp.build_graph("belated", cache_dir=None, exclude_type_checking_imports=True)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # raises an error that names a circle


def test_folders_of_tests_are_folders_of_the_package():
    for path in TESTS.rglob("test_*.py"):
        room = path.parent.relative_to(TESTS)
        if room.parts[:1] != ("data",):
            assert (PACKAGE / room / "__init__.py").exists(), f"tests/{room}: no such room in src"


def test_rooms_of_the_package_have_tests():
    for path in PACKAGE.rglob("__init__.py"):
        room = path.parent.relative_to(PACKAGE)
        tests = TESTS / TESTED_IN.get(room.as_posix(), room)
        assert any(tests.glob("test_*.py")), f"{room}: expected {tests.relative_to(ROOT)}/test_*.py"


def test_names_of_test_files_are_unique():
    """Folders of tests are no packages: two files of one name would be one module."""
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda p: p.stem)
def test_files_of_tests_are_short(path):
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST, f"{path.relative_to(ROOT)}: {lines} lines, at most {LONGEST}"


def test_half_of_the_policies_are_short():
    """A policy is its docstring, its parameters and its formula."""
    files = [*(PACKAGE / "policies").glob("*.py"), *(PACKAGE / "policies" / "arms").glob("*.py")]
    lines = [len(path.read_text().splitlines()) for path in files if path.stem != "__init__"]
    assert median(lines) <= MEDIAN_POLICY


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_a_docstring_begins_with_its_subject(path):
    """A relative clause without its noun is understood only by those who know the code."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, kinds)]
    for docstring in filter(None, map(ast.get_docstring, nodes)):
        first, line = docstring.split()[0], f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        assert first not in CLAUSES | NAMELESS, line
        assert not docstring.startswith("The same"), line


def test_base_names_are_unique():
    """A stranger who knows the name of a file finds the file."""
    names = Counter(path.stem for path in PACKAGE.rglob("*.py") if path.stem != "__init__")
    assert {name for name, n in names.items() if n > 1} <= MEANT_TWICE


def imported(path: Path) -> set[str]:
    """First parts of the modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
    return found


def test_the_package_imports_no_test():
    tests = {path.stem for path in TESTS.rglob("*.py")} - {"__init__"}
    ours = {name for name in tests if name.startswith("test_")} | SUPPORT | {"tests", "conftest"}
    for path in PACKAGE.rglob("*.py"):
        assert imported(path).isdisjoint(ours), path.relative_to(ROOT)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_in_documents_exist(page):
    """Paths such as ``ledger/rules.py``, from the root, from the package or from the page."""
    for path in re.findall(r"(?<![\w./-])[\w.-]+(?:/[\w.-]+)*/[\w-]+\.py\b", page.read_text()):
        places = [ROOT, ROOT / "src", PACKAGE, page.parent]
        assert any((place / path).exists() for place in places), f"{page.name}: {path}"


ROOMS = re.findall(r"^\| (`[\w/.`, ]+`) \| (.*) \|$", ARCHITECTURE, re.MULTILINE)


@pytest.mark.parametrize(("rooms", "content"), ROOMS, ids=[rooms for rooms, _ in ROOMS])
def test_rooms_of_the_architecture_exist(rooms, content):
    """Every room is there, and so is every file that its row names without a folder."""
    folders = [PACKAGE / room for room in re.findall(r"`([\w/.]+)`", rooms)]
    for folder in folders:
        assert folder.exists(), folder.relative_to(PACKAGE)
    for name in re.findall(r"`(\w+\.py)`", content):
        assert any((folder / name).exists() for folder in folders), f"{rooms}: {name}"


def test_every_room_is_in_the_architecture():
    named = {room for rooms, _ in ROOMS for room in re.findall(r"`([\w/]+)/`", rooms)}
    top = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
    assert top <= named


def test_the_engines_summary_is_of_the_run_that_is_printed_above_it():
    page = (ROOT / "docs" / "performance.md").read_text()
    lanes = re.search(r"^\| 10 \| ([\d.]+) \| ([\d.]+) \|(?: [\d.]+ \|){4}$", page, re.MULTILINE)
    linear = re.search(r"^\| a lane's round, d = 10, linear .* \| ([\d.]+) \|$", page, re.MULTILINE)
    logistic = re.search(
        r"^\| the same, logistic .*microseconds \| [\d.]+ \| ([\d.]+) \|$", page, re.MULTILINE
    )
    assert lanes is not None
    assert linear is not None
    assert logistic is not None
    assert lanes.groups() == (linear[1], logistic[1])
