"""Files into a ledger: every row is checked before anything is written.

An import that is run again after an interruption goes on where it stopped: events that the ledger
holds already change nothing.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from belated.core.arguments import wrong
from belated.core.files import refuse_missing
from belated.ledger import open_ledger
from belated.ledger.stores.memory import MemoryLedger
from belated.ledger.tools.event_files import SUFFIXES, is_event_file
from belated.ledger.tools.importing_events import check_events, write_events
from belated.ledger.tools.importing_logs import Options, import_log
from belated.ledger.tools.mapping import parse_mapping
from belated.ledger.tools.reading import is_new, opened


def import_file(url: str, path: Path, options: Options) -> tuple[dict[str, Any], bool]:
    """Import a file; returns what was found and done, and whether something was wrong."""
    refuse_missing("file", str(path), path)
    if options.format is None and path.suffix in SUFFIXES and is_event_file(path):
        return _import_export(url, path, options), False
    mapping = parse_mapping(options.columns, options.vector, options.context)
    with opened(url) as ledger:
        result = import_log(ledger, path, mapping, options)
    refused = result["rows_bad"] > 0 and not (options.skip_bad and result["written"])
    conflicts = [
        status
        for which in ("decisions", "rewards")
        for status in result.get(which, {})
        if status not in ("accepted", "duplicate", "late")
    ]
    return result, refused or bool(conflicts)


def _import_export(url: str, path: Path, options: Options) -> dict[str, Any]:
    for name, value in options._replace(dry_run=False)._asdict().items():
        if value:
            option = {"columns": "--map"}.get(name, f"--{name.replace('_', '-')}")
            raise wrong(option, value, "nothing: the file is an export of belated, taken as it is")
    if is_new(url):  # a ledger is made once its content is known
        plan = check_events(MemoryLedger(), path)
    else:
        with opened(url) as ledger:
            plan = check_events(ledger, path)
    if not options.dry_run:
        with closing(open_ledger(url)) as ledger:
            write_events(ledger, path, plan)
    return {**plan.described(), "written": not options.dry_run}
