"""Files for deployments name what exists. No container runtime is needed, and none is used."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from platform import machine

import httpx2
import pytest
import typer
import yaml
from packaging.requirements import Requirement

from belated import __version__
from belated.client import Client
from belated.commands.main import app
from belated.commands.warm import jobs_of_bandits
from belated.edge import Scorer
from belated.registry import DEFAULT_POLICY
from belated.service.bandits_file import read_config
from belated.service.settings import spec_of
from support.command import belated
from support.needed import program
from support.running_service import served

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
IMAGE, COMPOSE = PACKAGING / "image", PACKAGING / "compose"
UNIT = PACKAGING / "systemd" / "belated.service"
NOT_RUN = {"client", "__pycache__"}
FILES = [p for p in PACKAGING.rglob("*") if p.is_file() and p.parent.name not in NOT_RUN]
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
METRIC = r"belated_\w+"


@pytest.fixture(scope="module")
def steps():
    """The module that `make image-steps` runs."""
    spec = spec_from_file_location("image_steps", PACKAGING / "image_steps.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_yaml_file_can_be_read():
    for path in PACKAGING.rglob("*.y*ml"):
        assert all(isinstance(page, dict) for page in yaml.safe_load_all(path.read_text())), path


def test_what_the_image_copies_is_there_and_sent_to_the_builder(steps):
    ignored, *sent = (IMAGE / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored == "*"
    copied = [rest.split()[:-1] for word, rest in steps.instructions() if word == "COPY"]
    sources = {one for some in copied if not some[0].startswith("--from") for one in some}
    assert {f"!{source}" for source in sources} == set(sent) - {"**/__pycache__"}
    for source in sources:
        assert (ROOT / source).exists(), source


def test_the_image_has_the_locked_versions(steps, tmp_path):
    """The command of the Dockerfile leaves lines that pip takes as constraints, and no hashes."""
    (command,) = (rest for word, rest in steps.instructions() if word == "RUN" and "sed" in rest)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    lines = (tmp_path / "constraints.txt").read_text().splitlines()
    locked = [Requirement(line) for line in lines if line.strip()[:1] not in ("", "#")]
    assert {"numba", "uvicorn", "psycopg"} <= {one.name for one in locked}
    assert all(str(one.specifier).startswith("==") and not one.extras for one in locked)


def test_the_image_does_not_run_as_root(steps):
    words = [word for word, _ in steps.instructions()]
    last = len(words) - 1 - words[::-1].index("FROM")
    (made,) = re.findall(r"useradd --uid (\d+)", (IMAGE / "Dockerfile").read_text())
    assert ["USER", made] in steps.instructions()[last:]
    deployment = list(yaml.safe_load_all((PACKAGING / "kubernetes/belated.yaml").read_text()))[1]
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == int(made)


def test_the_steps_of_the_image_run_in_a_scratch_folder(steps, tmp_path, monkeypatch):
    """`make image-steps` runs them; here they are read: nothing is outside the folder."""
    monkeypatch.setenv("BELATED_SERVE_PORT", "1")
    *build, start = steps.steps(tmp_path)
    commands = [step.command for step in build]
    asked = ("cp -r", "sed -e", "cp -r", "cp -r", "python -m venv", "cp -r", "belated cache warm")
    assert len(commands) == len(asked)
    assert all(map(str.startswith, commands, asked))
    assert f"{tmp_path}/opt/belated/bin/pip install" in commands[4]
    outside = re.compile(r"(?<![\w.])/(?:build|opt|var)/")
    assert not any(outside.search(command.replace(str(tmp_path), ".")) for command in commands)
    assert (start.command, start.folder) == ("exec belated serve", tmp_path / "var/lib/belated")
    serve = {k: v for k, v in start.environment.items() if k.startswith("BELATED_")}
    assert serve == {
        "BELATED_CACHE_DIR": f"{tmp_path}/var/cache/belated",
        "BELATED_SERVE_HOST": "0.0.0.0",
        "BELATED_SERVE_LEDGER": f"sqlite:///{tmp_path}/var/lib/belated/belated.db",
    }
    assert start.environment["PATH"].startswith(f"{tmp_path}/opt/belated/bin:")
    assert "BELATED_SERVE_HOST" not in build[0].environment
    assert build[4].environment["EXTRAS"] == "service,postgres"
    monkeypatch.setenv("EXTRAS", "service")  # as --build-arg does
    assert list(steps.steps(tmp_path))[4].environment["EXTRAS"] == "service"


def test_the_image_has_extras_that_there_are(steps):
    """The default ones, and those that the page tells people to ask for."""
    (told,) = re.findall(r"--build-arg EXTRAS=([\w,]+)", PAGE.read_text())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (default,) = (rest for word, rest in steps.instructions() if rest.startswith("EXTRAS="))
    for names in (told, default.removeprefix("EXTRAS=")):
        assert set(names.split(",")) <= set(extras), names


@pytest.mark.slow
def test_the_image_has_the_bytecode_of_pythons_library(steps, tmp_path):
    """Its command, with another place for what it writes."""
    (rest,) = (rest for word, rest in steps.instructions() if "compileall" in rest)
    *_, command = rest.split("&&")
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    subprocess.run(command, shell=True, check=True, env=environment)
    names = {path.name.partition(".")[0] for path in tmp_path.rglob("asyncio/*.pyc")}
    assert {"base_events", "selector_events"} <= names
    words = [word for word, _ in steps.instructions()]
    made = steps.instructions().index(["RUN", rest])
    assert made < words.index("USER"), "the user of the service may not write there"
    assert made > len(words) - 1 - words[::-1].index("FROM"), "another stage has another Python"


def test_a_start_that_works_for_long_is_refused(steps, monkeypatch, capsys):
    """By what it worked: the clock would measure what else the machine does."""
    monkeypatch.setattr(steps, "steps", lambda scratch: [None])
    monkeypatch.setattr(steps, "start", lambda step, port: steps.ASKED)
    steps.main()
    monkeypatch.setattr(steps, "start", lambda step, port: steps.ASKED + 0.1)
    with pytest.raises(SystemExit, match=r"expected 3.0 CPU seconds at most"):
        steps.main()


def test_the_size_of_the_image_is_that_of_its_files(steps, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.so").write_bytes(b"1" * 1_500_000)
    (tmp_path / "two.py").write_bytes(b"2" * 500_000)
    (tmp_path / "link").symlink_to(tmp_path / "two.py")
    assert steps.megabytes(tmp_path) == 2.0
    copied = (IMAGE / "Dockerfile").read_text()
    assert all(f"/{part}" in copied for part in (steps.LIBRARIES, steps.KERNELS))


def test_volumes_of_the_compose_file_are_there():
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    mounted = [v.split(":")[0] for one in services.values() for v in one["volumes"]]
    for path in (path for path in mounted if path.startswith(".")):
        assert (COMPOSE / path).is_file(), path
    build = services["belated"]["build"]
    assert (COMPOSE / build["context"] / build["dockerfile"]).resolve() == IMAGE / "Dockerfile"


def test_the_conda_recipe_is_that_of_the_package():
    """Version, Python, dependencies with their bounds, build tools, command and words."""
    recipe = yaml.safe_load((PACKAGING / "conda" / "recipe.yaml").read_text())
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = whole["project"]
    assert recipe["context"]["version"] == __version__
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    needs = {"python" + project["requires-python"], *project["dependencies"]}
    assert set(map(Requirement, recipe["requirements"]["run"])) == set(map(Requirement, needs))
    host = set(map(Requirement, recipe["requirements"]["host"][1:]))
    assert host == {Requirement("pip"), *map(Requirement, whole["build-system"]["requires"])}
    assert recipe["requirements"]["host"][0] == "python 3.11.*"
    commands = [f"{name} = {where}" for name, where in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands
    assert (PACKAGING / "conda" / recipe["source"]["path"]).resolve() == ROOT
    for module in recipe["tests"][0]["python"]["imports"]:
        import_module(module)
    for command in recipe["tests"][1]["script"]:
        belated(*command.split()[1:])


def options_exist(words):
    """Words after `belated` name a command and options that it has."""
    found, rest = typer.main.get_command(app), list(words)
    while rest and rest[0] in getattr(found, "commands", {}):
        found = found.commands[rest.pop(0)]
    assert len(rest) < len(words), words
    known = {"--help", *(name for parameter in found.params for name in parameter.opts)}
    assert {word.split("=")[0] for word in rest if word.startswith("-")} <= known, words


@pytest.mark.parametrize("path", [*FILES, PAGE], ids=lambda p: p.name)
def test_commands_options_and_variables_exist(path):
    text = path.read_text().replace("\\\n", " ")
    commands = typer.main.get_command(app).commands
    named = re.findall(rf"(?<![\w-])belated ((?:{'|'.join(commands)})\b.*)", text)
    shell = re.findall(r"^    (?:\S*/bin/)?belated (.*)", text, re.M) if path == PAGE else []
    for line in (*named, *shell):
        options_exist(re.split("[`']", line)[0].split())
    variables = {parameter.envvar for parameter in commands["serve"].params}
    assert set(re.findall(r"BELATED_SERVE_[A-Z_]+\b", text)) <= variables


def test_what_is_started_is_a_command(steps):
    """By the image, by Kubernetes and by the unit, each with its options."""
    (image,) = (json.loads(rest) for word, rest in steps.instructions() if word == "CMD")
    deployment = list(yaml.safe_load_all((PACKAGING / "kubernetes/belated.yaml").read_text()))[1]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (unit,) = re.findall(r"^ExecStart=/opt/belated/bin/belated (.*)$", UNIT.read_text(), re.M)
    for words in (image, container["args"], unit.split()):
        options_exist(words)
    with pytest.raises(AssertionError):
        options_exist(["sevre"])
    with pytest.raises(AssertionError):
        options_exist(["serve", "--prot=1"])


# The image
def test_the_image_has_the_kernels_of_bandits_that_name_no_policy():
    """The default policy, in an explicit loop and in one that learns from silence."""
    specs = [spec_of(table) for table in read_config(IMAGE / "kernels.toml").values()]
    assert [spec.policy["type"] for spec in specs] == [DEFAULT_POLICY] * 2
    assert [spec.learner().hears for spec in specs] == [False, True]
    for job in jobs_of_bandits(IMAGE / "kernels.toml"):
        job()


COMPILED = """
import os, sys
from pathlib import Path
from platform import machine
import llvmlite.binding
if "ANOTHER_CPU" in os.environ:
    llvmlite.binding.get_host_cpu_name = lambda: os.environ["ANOTHER_CPU"]
    llvmlite.binding.get_host_cpu_features = lambda: llvmlite.binding.targets.FeatureMap(sse2=True)
from belated.service.bandits_file import read_config
from belated.service.settings import spec_of
tables = read_config(Path(sys.argv[1])).values()
print([spec_of(table).learner().is_compiled for table in tables])
"""


@pytest.mark.slow
@pytest.mark.compiled
def test_after_warming_nothing_is_left_to_compile(tmp_path, monkeypatch):
    monkeypatch.setenv("BELATED_CACHE_DIR", str(tmp_path))
    asked = [sys.executable, "-c", COMPILED, str(IMAGE / "kernels.toml")]
    assert subprocess.check_output(asked, text=True) == "[False, False]\n"
    belated("cache", "warm", "--config", str(IMAGE / "kernels.toml"))
    assert subprocess.check_output(asked, text=True) == "[True, True]\n"


@pytest.mark.slow
@pytest.mark.compiled
def test_kernels_for_a_named_cpu_are_those_of_other_machines(tmp_path, monkeypatch):
    """With the two variables of Numba, nothing that is kept depends on who compiled it."""
    explicit = (IMAGE / "kernels.toml").read_text().partition("[bandits.conversions]")[0]
    (tmp_path / "kernels.toml").write_text(explicit)
    monkeypatch.setenv("BELATED_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v3" if machine() == "x86_64" else "generic")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    warm = ("cache", "warm", "--config", str(tmp_path / "kernels.toml"))
    belated(*warm)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    assert kept
    belated(*warm)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == kept
    asked = [sys.executable, "-c", COMPILED, str(tmp_path / "kernels.toml")]
    assert subprocess.check_output(asked, text=True) == "[True]\n"
    monkeypatch.setenv("ANOTHER_CPU", "x86-64" if machine() == "x86_64" else "generic")
    assert subprocess.check_output(asked, text=True) == "[True]\n"
    monkeypatch.delenv("NUMBA_CPU_NAME")
    monkeypatch.delenv("NUMBA_CPU_FEATURES")
    assert subprocess.check_output(asked, text=True) == "[False]\n"


def test_the_health_check_tells_a_service_that_runs_from_one_that_does_not(steps, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # where nobody is
    with served() as (url, _):
        _, flag, script = steps.health_check(int(url.rpartition(":")[2]))
        assert subprocess.run([sys.executable, flag, script]).returncode == 0
    assert subprocess.run([sys.executable, flag, script], capture_output=True).returncode == 1


def test_a_start_may_take_ten_minutes_wherever_that_is_asked(steps):
    (check,) = (rest for word, rest in steps.instructions() if word == "HEALTHCHECK")
    assert "--start-period=600s" in check
    deployment = list(yaml.safe_load_all((PACKAGING / "kubernetes/belated.yaml").read_text()))[1]
    probe = deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 600
    (group,) = yaml.safe_load((ROOT / "examples" / "alerts.yml").read_text())["groups"]
    (alert,) = (rule for rule in group["rules"] if rule["alert"] == "BelatedNotReady")
    assert alert["for"] == "10m"


# What watches it
@pytest.fixture(scope="module")
def metrics():
    """Names of metrics, with the labels of those that have a sample."""
    with served() as (url, _), Client(url) as client:
        client.put_bandit("shop", {"family": "bernoulli", "dim": 1})
        client.change_actions("shop", {"a": [1.0]})
        client.reward(client.decide("shop").decision_id, 1.0)
        client.made("shop", [Scorer(client.model("shop")).decide()[1]])
        page = httpx2.get(f"{url}/metrics").text
    names = dict.fromkeys(re.findall(rf"^# TYPE ({METRIC}) ", page, re.M), frozenset())
    for name, labels in re.findall(rf"^({METRIC})(?:{{(.*?)}})? ", page, re.M):
        names[name] = frozenset(re.findall(r"(\w+)=", labels))
    return names


def test_the_dashboard_shows_metrics_that_the_service_has(metrics):
    dashboard = json.loads((COMPOSE / "grafana/belated.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["title"] for panel in panels}) == len(panels) > 5
    for target in (target for panel in panels for target in panel["targets"]):
        used = re.findall(rf"({METRIC})(?:{{(.*?)}})?", target["expr"])
        assert used, target
        for name, labels in used:
            assert name in metrics, name
            if metrics[name]:
                assert set(re.findall(r"(\w+)=", labels)) <= metrics[name], target
        by = {
            name
            for names in re.findall(r"by \((.*?)\)", target["expr"])
            for name in names.split(", ")
        }
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= by, target
    (variable,) = dashboard["templating"]["list"]
    name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
    assert label in metrics[name]
    source = yaml.safe_load((COMPOSE / "grafana/datasource.yml").read_text())["datasources"][0]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}


# A machine without containers
def test_systemd_accepts_the_unit(tmp_path):
    analyze = program("systemd-analyze")
    unit = UNIT.read_text()
    assert unit.count("/opt/belated/bin/belated") == 1
    (tmp_path / "belated.service").write_text(
        unit.replace("/opt/belated/bin/belated", f"{sys.executable} -m belated")
    )
    verify = [analyze, "verify", "--man=no", str(tmp_path / "belated.service")]
    result = subprocess.run(verify, capture_output=True, text=True)
    assert "belated.service" not in result.stderr, result.stderr


def test_every_extra_has_a_reason():
    """The architecture page has a row for each library of an extra, and for no other."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {Requirement(line).name for lines in extras.values() for line in lines} - {"belated"}
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Why each extra\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    assert {name for cell in cells for name in cell.split(", ")} - {"library"} == names
