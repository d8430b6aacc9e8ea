"""Every option of ``belated serve`` can be set by an environment variable."""

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from belated.commands.main import app
from belated.service import serving
from belated.service.http.limits import Limits
from belated.service.serving import ServeSettings

(SERVE,) = (c for c in typer.main.get_command(app).commands.values() if c.name == "serve")
OPTIONS = {p.name: p for p in SERVE.params if p.name != "help"}
VALUES = {  # none of them is the default
    "ledger": "sqlite:///shop.db",
    "host": "::1",
    "port": 9000,
    "workers": 3,
    "config": "bandits.toml",
    "without_keys": True,
    "requests_per_second": 2.5,
    "access_log": True,
    "log_format": "json",
    "snapshots": "folder",
    "snapshot_every": 70,
    "traces": True,
    "bandits": ["pages,shop", "plain"],
    "personalizer": "pages",
    "allow_host": ["a.example", "b.example"],
    "tls_certificate": "service.pem",
    "tls_key": "service.key",
} | dict.fromkeys(Limits.__struct_fields__, 5000)


@pytest.fixture
def served(monkeypatch):
    """Settings of the services that were started, with none started."""
    settings: list[ServeSettings] = []
    monkeypatch.setattr(serving, "serve", settings.append)
    return settings


def run(*args, **variables):
    texts = {
        f"BELATED_SERVE_{name.upper()}": " ".join(value) if isinstance(value, list) else str(value)
        for name, value in variables.items()
    }
    return CliRunner().invoke(app, ["serve", *args], env=texts)


def test_every_option_has_a_variable_and_shows_it():
    shown = run("--help").output.split()
    for name, option in OPTIONS.items():
        assert option.envvar == f"BELATED_SERVE_{name.upper()}"
        assert {f"{option.envvar};", f"{option.envvar}]"} & set(shown), name


def test_the_values_of_all_variables_arrive(served):
    assert VALUES.keys() == OPTIONS.keys(), "a new option needs a value here"
    result = run(**VALUES)
    assert result.exit_code == 0, result.output
    (settings,) = served
    given = msgspec.structs.asdict(settings)
    limits = msgspec.structs.asdict(given.pop("limits"))
    assert given.pop("board") is given.pop("in_force") is None
    assert given.pop("bandits") == ("pages", "shop", "plain")
    assert list(given.pop("allowed_hosts")) == VALUES["allow_host"]
    several = {name: VALUES[name] for name in ("allow_host", "bandits")}
    assert given | limits | several == VALUES


def test_an_option_wins_over_its_variable_and_an_empty_one_says_nothing(served):
    assert run("--port", "1", port=2, workers="").exit_code == 0
    assert [(settings.port, settings.workers) for settings in served] == [(1, 1)]


def test_a_text_that_is_no_value_is_named_by_its_variable(served):
    result = run(port="many")
    assert (result.exit_code, served) == (2, [])
    assert "BELATED_SERVE_PORT" in result.output


@pytest.mark.parametrize(
    ("name", "value"), [("workers", 0), ("max_body", 3), ("allow_host", ["c/d"])]
)
def test_a_value_that_is_refused_is_named_by_its_variable(name, value):
    option = name.replace("_", "-")
    refused = str(run(port=0, **{name: value}).exception)
    assert refused.startswith(f"BELATED_SERVE_{name.upper()}: {option} = "), refused


def test_a_refused_option_is_not_blamed_on_its_variable():
    refused = str(run("--workers", "0", port=0, workers=2).exception)
    assert refused.startswith("workers = 0: "), refused
