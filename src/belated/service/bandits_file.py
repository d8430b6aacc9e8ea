"""The TOML file of ``belated serve --config``: bandits and their actions, and limits."""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from belated.core.arguments import shown, wrong
from belated.ledger.actions import Actions
from belated.ledger.events import NOBODY, ActionsChange, Draft, Kind
from belated.ledger.replica import Replica
from belated.ledger.spec import Spec
from belated.service.http.limits import Limits
from belated.service.settings import spec_of, state_of
from belated.wire import ActionName, BanditSettings, BanditState, Columns, Vector


class BanditTable(BanditSettings, frozen=True):
    """A table ``[bandits.NAME]``: settings as the API has them, and actions to register."""

    actions: dict[ActionName, Columns | Vector] = msgspec.field(default_factory=dict)


def read_config(path: Path) -> dict[str, BanditTable]:
    """The bandits of a file, by name; errors say where in the file they are."""
    return {name: _table(path, name, table) for name, table in _tables(path, "bandits").items()}


def read_limits(path: Path, options: Limits) -> Limits:
    """The limits of a file, and those of the ``options`` where it names none; raises as above."""
    table = _tables(path, "limits")
    for name in table.keys() - set(Limits.__struct_fields__):
        known = ", ".join(Limits.__struct_fields__)
        raise ValueError(f"{path}: limits.{name}: expected one of {known}")
    try:
        limits = msgspec.convert({**msgspec.to_builtins(options), **table}, Limits)
        limits.check()
    except ValueError as error:  # among them msgspec's ValidationError
        raise ValueError(f"{path}: limits: {error}") from None
    return limits


def _tables(path: Path, asked: str) -> dict[str, Any]:
    """The tables ``[asked.NAME]`` of a file, or the entries of its table ``[asked]``."""
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file, parse_float=_finite)
    except (ValueError, UnicodeDecodeError) as error:  # among them TOMLDecodeError
        raise ValueError(f"{path}: {error}") from None
    for key in tables.keys() - {"bandits", "limits"}:
        raise ValueError(f"{path}: {shown(key)}: expected tables [bandits.NAME] and [limits] alone")
    found = tables.get(asked, {})
    if not isinstance(found, dict):
        expected = "tables [bandits.NAME]" if asked == "bandits" else "a table [limits]"
        raise ValueError(f"{path}: {asked} = {shown(found)}: expected {expected}")
    return found


def _table(path: Path, name: str, table: Any) -> BanditTable:
    try:
        return msgspec.convert(table, BanditTable)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise ValueError(f"{path}: bandits.{name}{where.rstrip('`')}: {what}") from None


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise wrong("number", text, "a finite one")
    return float(text)


def apply_config(replica: Replica, path: Path) -> list[str]:
    """Let the bandits be as the file says, or raise and change nothing; returns what changed.

    Actions that the file does not name stay as they are: others may have registered them.
    """
    replica.catch_up()
    drafts = config_drafts(replica, path)
    if drafts:
        replica.commit(drafts)
    return list(dict.fromkeys(draft.bandit for draft in drafts))


def config_drafts(replica: Replica, path: Path) -> list[Draft]:
    """Returns the drafts that let the bandits be as a file says; raises where they cannot be.

    Bandits that the replica does not follow are left to those who do.
    """
    tables = {name: t for name, t in read_config(path).items() if replica.follows(name)}
    drafts: list[Draft] = []
    for name, table in tables.items():
        try:
            drafts += bandit_drafts(replica, name, _spec(replica, name, table), table.actions)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: bandits.{name}: {error}") from None
    return drafts


def make_bandit(replica: Replica, name: str, given: Mapping[str, Any]) -> BanditState:
    """Make or change one bandit, with settings as in a table of the file."""
    try:
        table = msgspec.convert(given, BanditTable)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise ValueError(f"{where.rstrip('`')}: {what}" if where else what) from None
    spec = _spec(replica, name, table)
    drafts = bandit_drafts(
        replica, name, spec, table.actions
    )  # checks all before anything is written
    replica.configure(name, spec)
    replica.commit([draft for draft in drafts if draft.kind == Kind.ACTIONS])
    return state_of(replica.fold(name), replica.clock())


def _spec(replica: Replica, name: str, table: BanditTable) -> Spec:
    known = replica.folds.get(name)
    return spec_of(table, None if known is None else known.spec)


def bandit_drafts(
    replica: Replica, name: str, spec: Spec, actions: Mapping[str, Any]
) -> list[Draft]:
    """Returns the drafts that give a bandit these settings and actions; none if it has them."""
    settings = replica.settings_draft(name, spec)
    Actions(spec.dim, spec.feature_map()).check(actions, spec.bound)
    known = replica.folds[name].actions.listed if name in replica.folds else {}
    new = {action: given for action, given in actions.items() if known.get(action) != given}
    drafts = [] if settings is None else [settings]
    if new:
        body = msgspec.msgpack.encode(ActionsChange(new))
        drafts.append(Draft(Kind.ACTIONS, name, NOBODY, replica.clock(), body=body))
    return drafts
