"""What is said where a library is missing that not everybody installs: what to install, at once."""

import subprocess
import sys

import pytest

BLOCKED = "import sys; sys.modules.update(dict.fromkeys({modules!r}));"


def run_without(modules, code):
    command = [sys.executable, "-c", BLOCKED.format(modules=modules) + code]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("modules", "statement", "install"),
    [
        (["httpx2"], "import belated.client", "'belated[client]'; or pip install belated-client"),
        (["msgspec"], "from belated.client import Client", "'belated[client]'"),
        (["pyarrow"], "from belated import simulate", "'belated[experiments]'"),
        (["pandas"], "from belated import compare", "'belated[experiments]'"),
        (["numba"], "from belated import Bandit", "'belated'"),
        (["psycopg"], "import belated.ledger.stores.postgres", "'belated[postgres]'"),
        (["gymnasium"], "import belated.worlds.late_rewards", "'belated[gymnasium]'"),
        (["redis"], "import belated.streams.redis_stream", "'belated[streams]'"),
        (["confluent_kafka"], "import belated.streams.kafka_topic", "'belated[streams]'"),
    ],
)
def test_an_import_says_what_to_install(modules, statement, install):
    result = run_without(modules, statement)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert f"{modules[0]}" in last
    assert f"pip install {install}" in last


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["delay-cost", "exponential:24", "--per-day", "100", "--dim", "2"], "plots"),
        (["demo"], "plots"),
        (["reproduce"], "experiments"),
        (["simulate"], "experiments"),
        (["compare"], "experiments"),
        (["audit"], "experiments"),
    ],
)
def test_a_command_needs_its_figures_before_it_computes(arguments, extra, tmp_path):
    """What plays rounds is missing, too: nothing is played before the extra is asked for."""
    missing = ["matplotlib", "belated.engine"]
    if extra == "plots":
        missing += ["pandas", "pyarrow"]
    code = f"sys.argv[1:] = {[*arguments, '--out', str(tmp_path / 'out')]!r};"
    result = run_without(missing, f"{code} from belated.commands.main import main; main()")
    assert result.returncode == 2
    assert result.stderr == (
        "belated: import of matplotlib halted; None in sys.modules: "
        f"pip install 'belated[{extra}]'\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("plan", "pandas", "experiments"),
        ("plan", "pyarrow", "experiments"),
        ("plan --page page.html", "matplotlib", "plots"),
        ("delays", "pandas", "experiments"),
        ("delays", "pyarrow", "experiments"),
        ("delays --page page.html", "matplotlib", "plots"),
        ("evaluate --policy uniform", "pyarrow", "experiments"),
    ],
)
def test_a_command_needs_its_libraries_before_it_reads_a_log(command, missing, extra):
    """The log is not there: nobody has looked for it."""
    name, *options = command.split()
    code = f"sys.argv[1:] = {[name, 'log.csv', *options]!r};"
    result = run_without([missing], f"{code} from belated.commands.main import main; main()")
    assert result.returncode == 2
    assert result.stderr == (
        f"belated: import of {missing} halted; None in sys.modules: "
        f"pip install 'belated[{extra}]'\n"
    )
