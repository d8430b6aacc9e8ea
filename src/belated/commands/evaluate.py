"""``belated evaluate``: heavy imports are inside, so that help is quick."""

from typing import Annotated, Any

import typer

from belated.commands.derived_options import options_of
from belated.commands.ledger import AsJson
from belated.commands.logs import (
    Context,
    Log,
    WholeReading,
    named_in,
    of_bad_rows,
    with_bad_file,
)

MOST_ACTIONS = 20  # in a table of overlap; --json has all


@options_of(WholeReading)
def evaluate(
    log: Log,
    policy: Annotated[
        list[str],
        typer.Option(
            help="uniform, fixed:ACTION, MODULE:FUNCTION, FILE.py:FUNCTION, a saved bandit's file, "
            "or a policy of `belated list policies`; several times for several."
        ),
    ],
    context: Context = "",
    interval: Annotated[
        str, typer.Option(help="normal, bootstrap, bernstein or anytime.")
    ] = "normal",
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    clip: Annotated[
        float | None, typer.Option(help="Largest weight of clipped IPS; default sqrt(rows).")
    ] = None,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="The smallest and the largest reward that there can be; default those of the log."
        ),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="A function returns scores: play the highest.")
    ] = False,
    replays: Annotated[
        int, typer.Option(help="Of a policy that learns: how many times it plays the log.")
    ] = 10,
    seed: Annotated[int, typer.Option(help="Of bootstraps and of policies that learn.")] = 1,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Say what other policies would have earned, from a log with propensities."""
    from belated.logs.evaluating import evaluate_log
    from belated.logs.policy_values import Options

    found = evaluate_log(
        log,
        policy,
        context=named_in(context),
        options=Options(interval, level, clip, scores, seed, reward_range, replays),
        **with_bad_file(log, reading),
    )
    _show(found, as_json)
    if not all(answer["answered"] for answer in found["policies"]):
        raise typer.Exit(1)


def _show(found: dict[str, Any], as_json: bool) -> None:
    from belated.ledger.tools.showing import show
    from belated.logs.evaluation_report import lines_before

    if as_json:
        show(found, True)
        return
    typer.echo("\n".join(lines_before(found)))
    show(of_bad_rows(found), False)
    for answer in found["policies"]:
        typer.echo(f"\n{answer['policy']}: {answer['words']}")
        for reason in answer["refusals"]:
            typer.echo(f"No answer. {reason}")
        show(_tables(answer["estimates"]), False)
        most = sorted(answer["overlap"], key=lambda line: -line["target"])
        show({"overlap": most[:MOST_ACTIONS]}, False)
        if len(most) > MOST_ACTIONS:
            typer.echo(f"{len(most) - MOST_ACTIONS:,} further actions are in --json.")
    typer.echo("Assumed:")
    for sentence in found["assumptions"]:
        typer.echo(f"- {sentence}")


def _tables(estimates: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the values, and what they are above the mean reward of the policy that was played."""
    gains = [
        {
            "estimator": line["estimator"],
            "gain": line["gain"],
            "low": line["gain_low"],
            "high": line["gain_high"],
        }
        for line in estimates
        if line["estimator"] != "mean reward"
    ]
    values = [
        {name: cell for name, cell in line.items() if not name.startswith("gain")}
        for line in estimates
    ]
    return {"estimates": values, "gains_over_the_policy_of_the_log": gains}
