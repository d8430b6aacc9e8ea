"""Settings and options are declared once: what is derived from a declaration has all its fields."""

import inspect
import json
import tomllib
from dataclasses import fields

import msgspec
import pytest
import typer
from typer.testing import CliRunner

import belated as package
from belated.bandit.inputs import USUAL
from belated.commands.derived_options import options_of
from belated.commands.main import app
from belated.experiments.experiment_file import experiment_of
from belated.experiments.options import Options
from belated.ledger.promotion import MODEL
from belated.ledger.spec import Spec
from belated.service.bandits_file import BanditTable, read_config
from belated.service.settings import spec_of
from belated.wire import BanditSettings, RetrainSettings, Settings

GIVEN = """
family = "gaussian:sd=0.5"
policy = "thompson"
dim = 3
max_norm = 2.0
loop = "conversion"
window = 5.0
grace = 1.5
default_reward = 0.5
late = "keep"
combine = "last"
mode = "shadow"
exploration = 0.25
baseline = "a"
fallback = "b"
log_actions = true
half_life = 2.5
half_life_unit = "seconds"
open = "hold"
holdout = 0.125
sticky = 60.0
features = { hashed = { user = 2 } }
"""
IN_THE_LOG = (
    '{"family":{"type":"bernoulli"},"policy":{"type":"greedy"},"dim":2,"max_norm":1.0,'
    '"features":null,"loop":"explicit","window":null,"default_reward":0.0,"late":"keep",'
    '"mode":"live","exploration":0.0,"baseline":"","fallback":"","log_actions":false}'
)


def command(*path):
    found = typer.main.get_command(app)
    for name in path:
        found = found.commands[name]
    return found


def test_every_setting_is_everywhere(tmp_path):
    names = set(Settings.__struct_fields__)
    given = tomllib.loads(GIVEN)
    assert set(given) == names, "a new setting needs a value here"
    callers = names | {"groups"}  # a log keeps them with the features
    assert set(BanditSettings.__struct_fields__) == callers
    assert Spec.__struct_fields__ == Settings.__struct_fields__  # the order enters Fold.digest
    assert callers <= {parameter.name for parameter in command("bandits", "create").params}
    (tmp_path / "x.toml").write_text(f"[bandits.a]\n{GIVEN}")
    table = read_config(tmp_path / "x.toml")["a"]
    assert isinstance(table, BanditTable)
    schema = msgspec.json.schema(BanditSettings)["$defs"]["BanditSettings"]["properties"]
    assert set(schema) == callers
    assert all({"description", "examples"} & set(about) for about in schema.values())
    written = msgspec.json.decode(msgspec.json.encode(spec_of(table)))
    assert set(written) == names
    same = names - {"family", "policy", "features"}
    assert {name: written[name] for name in same} == {name: given[name] for name in same}


def test_a_bandit_in_python_has_the_defaults_of_the_declaration():
    declared = inspect.signature(BanditSettings).parameters
    assert {name: declared[name].default for name in USUAL} == USUAL


def allowed(settings):
    """Returns the values that each setting may have, as JSON schemas without null."""
    found = msgspec.json.schema(settings)["$defs"][settings.__name__]["properties"]
    for name, about in found.items():
        kind = about.get("anyOf", [about])[0]
        words = ("description", "examples", "default")
        found[name] = {key: value for key, value in kind.items() if key not in words}
    return found


def test_retraining_allows_the_values_that_a_new_bandit_allows():
    new, retrained = allowed(BanditSettings), allowed(RetrainSettings)
    assert retrained.pop("half_life") == {"type": "number", "minimum": 0.0}  # 0 takes it away
    assert retrained == {name: new[name] for name in retrained}


def test_retraining_changes_what_a_promotion_fixes():
    assert set(allowed(RetrainSettings)) == set(MODEL)


def test_lengths_of_time_are_seconds_or_durations():
    found = {}

    @options_of(RetrainSettings)
    def retrain(**given):
        found.update(given)

    named = dict.fromkeys(RetrainSettings.__struct_fields__)
    retrain(**named | {"window": "2d", "grace": "1.5"})
    assert found == {"window": 172_800.0, "grace": 1.5}
    with pytest.raises(ValueError, match="window = 'soon': expected a number and a unit"):
        retrain(**named | {"window": "soon"})
    for path in (["retrain"], ["bandits", "create"]):
        helps = {one.name: one.help for one in command(*path).params}
        assert "such as 7d" in helps["window"]
        assert "such as 7d" in helps["grace"]
        assert "such as 7d" not in helps["half_life"]


def test_windows_are_said_to_be_of_conversions_where_they_are():
    helps = {
        name: {one.name: one.help for one in command(name).params}["window"]
        for name in ("delays", "evaluate", "plan")
    }
    assert "default forever" in helps["delays"]
    for name in ("evaluate", "plan"):
        assert "needed for --loop conversion" in helps[name]
        assert "refused for explicit" in helps[name]


@pytest.mark.parametrize("name", ["delays", "evaluate", "plan"])
def test_a_file_has_no_bandits(name, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,action,reward,reward_time,propensity\n")
    further = ["--policy", "uniform"] if name == "evaluate" else []
    with pytest.raises(ValueError, match="--bandit = 'x': expected the URL of a ledger as the log"):
        CliRunner().invoke(
            app, [name, str(path), "--bandit", "x", *further], catch_exceptions=False
        )


def test_every_setting_can_be_an_option(tmp_path):
    """What the options say is what the same table of a file says."""
    given = tomllib.loads(GIVEN) | {"mode": "live"}  # in shadow mode there is no holdout
    texts = given | {"features": json.dumps(given["features"])}
    del texts["log_actions"]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in texts.items()]
    options += ["--log-actions", "--ledger", f"sqlite:///{tmp_path / 'x.db'}", "--json"]
    result = CliRunner().invoke(app, ["bandits", "create", "a", *options], catch_exceptions=False)
    table = msgspec.convert(given, BanditTable)
    assert json.loads(result.output)["settings"] == msgspec.json.decode(
        msgspec.json.encode(spec_of(table))
    )


def test_the_log_is_written_as_in_version_0_1():
    spec = Spec(family={"type": "bernoulli"}, policy={"type": "greedy"}, dim=2)
    assert msgspec.json.encode(spec.as_kept()).decode() == IN_THE_LOG
    assert msgspec.json.decode(IN_THE_LOG, type=Spec) == spec


def test_the_defaults_of_simulate_are_those_of_its_options():
    declared = {field.name: field.default for field in fields(Options)}
    python = inspect.signature(package.simulate).parameters
    assert python["policies"].default is inspect.Parameter.empty
    assert all(python[name].default == declared[name] for name in declared if name != "policies")
    helps = {parameter.name: parameter.help for parameter in command("simulate").params}
    assert helps["horizon"].endswith(f"[default: {declared['horizon']}]")
    assert helps["delays"].endswith("[default: constant:0, exponential:100]")


def test_every_option_of_simulate_is_everywhere(tmp_path):
    names = [field.name for field in fields(Options)]
    python = list(inspect.signature(package.simulate).parameters)
    assert python == [*names, "out", "threads", "executor", "progress"]
    params = {parameter.name: parameter for parameter in command("simulate").params}
    assert [name for name in params if name in names] == names
    assert all(params[name].help and params[name].default is None for name in names)
    lines = ["horizon = 20", "bayesian = true", "max_norm = 3.0", "n_actions = 7"]
    (tmp_path / "x.toml").write_text("\n".join(lines))
    experiment = experiment_of(tmp_path / "x.toml", {"horizon": 30})
    assert (experiment.horizon, experiment.bayesian, experiment.max_norm) == (30, True, 3.0)
    assert experiment.environment.n_actions == 7
