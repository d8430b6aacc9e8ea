"""One page with the results of an experiment, the paper's claims, and what was run.

The page stands for itself: figures are inside it, and it asks for no other file, script or font.
Verdicts come first, then figures, then the claims one by one; it can be read on a phone.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from numbers import Integral, Real
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from belated.experiments.judging.claims import Claim
from belated.experiments.judging.curves import Row
from belated.experiments.reporting.figures import captions

TITLE = "Delayed feedback in generalised linear bandits: the experiments, run again"
LONG = 12  # rows; a longer table is folded away
# Colours of verdicts, by the words with which they begin.
CLASSES = {
    "holds": "holds",
    "supported": "holds",
    "does not hold": "fails",
    "mixed": "fails",
    "contradicted": "fails",
    "": "open",
}
HEADINGS = {
    "delays": "E[τ]",
    "dim": "d",
    "n_actions": "K",
    "expected": "E[τ]",
    "low": "95% from",
    "high": "95% to",
    "growth, low": "95% from",
    "growth, high": "95% to",
    "bend, low": "95% from",
    "bend, high": "95% to",
    "E[min(tau, T)]": "E[min(τ, T)]",
}


def write_report(
    frame: pd.DataFrame,
    claims: Sequence[Claim],
    figures: Sequence[Path],
    settings: Mapping[str, Any],
    path: Path,
    rule: str = "",
    sections: str = "",
) -> None:
    """Write the page about one experiment.

    Parameters
    ----------
    frame : pandas.DataFrame
        Results, one row per setting, run and checkpoint.
    claims : sequence of Claim
        The claims with their verdicts; empty if the experiment is not of the paper's kind.
    figures : sequence of Path
        Files of ``save_figures``; those that end in .png are put into the page.
    settings : mapping
        The settings of the run, for the last table: name to value, or to (value, reason) for a
        choice that the paper leaves open.
    path : Path
        The HTML file.
    rule : str
        The meaning of the verdicts.
    sections : str
        More of the page, made by ``section``: it comes after the figures.
    """
    runs, rounds = frame["run"].nunique(), int(frame["t"].max())
    introduction = (
        f"{runs} {'run' if runs == 1 else 'runs'} of {rounds:,} rounds in each setting. All "
        "policies, reward families and delays of one dimension and run share their random numbers, "
        "so differences are taken run by run. Intervals are at 95% confidence."
    )
    page = path, TITLE, introduction, settings, claims, figures, captions(frame)
    write_page(*page, rule=rule, sections=sections)


def write_page(
    path: Path,
    title: str,
    introduction: str,
    settings: Mapping[str, Any],
    claims: Sequence[Claim],
    figures: Sequence[Path],
    captions: Mapping[str, str],
    rule: str = "",
    sections: str = "",
) -> None:
    """Write claims and figures as one file; ``captions`` go by the figure's name without suffix.

    ``rule`` says what the verdicts mean; for ``sections`` see ``write_report``.
    """
    body = [
        "<h2>Verdicts</h2>",
        _verdicts(claims),
        f"<p>{escape(rule)}</p>" if rule else "",
        "<h2>Figures</h2>",
        _figures(figures, captions),
        sections,
        *(_claim(claim) for claim in claims),
        "<h2>What was run</h2>",
        _settings(settings),
    ]
    write_body(path, title, introduction, "\n".join(body))


def write_body(path: Path, title: str, introduction: str, body: str) -> None:
    """Write a page around ``body``, which is HTML: of ``section`` and ``figure``, say."""
    template = Template(files(__package__).joinpath("report.html.template").read_text("utf-8"))
    page = template.substitute(title=escape(title), introduction=escape(introduction), body=body)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def show(value: Any) -> str:
    """Returns a value as text: about four significant digits, a dash if it is not known.

    >>> show(0.0123456), show(-1234567.8), show(100000), show(float("nan"))
    ('0.01235', '−1,234,568', '100,000', '–')
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return "–" if math.isnan(number) else str(number)
    if isinstance(value, Integral) or abs(number) >= 1000.0:
        text = f"{number:,.0f}"
    else:
        text = f"{number:.4g}" if abs(number) >= 1e-9 else "0"
    return text.replace("-", "−")


def _table(rows: Sequence[Row], caption: str) -> str:
    """Returns a table with the keys of the rows as headings, numbers to the right."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    numeric = {key: all(isinstance(row.get(key, math.nan), Real) for row in rows) for key in keys}
    right = {key: ' class="number"' if numeric[key] else "" for key in keys}
    head = "".join(
        f'<th scope="col"{right[key]}>{escape(HEADINGS.get(key, key))}</th>' for key in keys
    )
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{right[key]}>{escape(show(row.get(key, '')))}</td>" for key in keys)
        + "</tr>"
        for row in rows
    )
    name = escape(caption)  # a box that scrolls can be reached with the keyboard, and has a name
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>\n'
        f"<caption>{name}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def section(title: str, text: str, tables: Mapping[str, Sequence[Row]]) -> str:
    """Returns a part of the page with its tables by caption; long ones are folded away."""
    parts = [f"<h2>{escape(title)}</h2>", f"<p>{escape(text)}</p>"]
    parts += [
        _folded(_table(rows, caption), caption, len(rows)) for caption, rows in tables.items()
    ]
    return "\n".join(parts)


def listing(items: Mapping[str, str]) -> str:
    """Returns terms with what is said of each, which reads better on a phone than a table."""
    rows = (f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in items.items())
    return "\n".join(["<dl>", *rows, "</dl>"])


def _folded(table: str, caption: str, rows: int) -> str:
    if rows <= LONG:
        return table
    return f"<details><summary>{escape(caption)}: {rows} rows</summary>{table}</details>"


def _settings(settings: Mapping[str, Any]) -> str:
    rows = []
    for name, entry in settings.items():
        value, reason = entry if isinstance(entry, tuple) else (entry, "")
        shown = ", ".join(map(show, value)) if isinstance(value, list) else show(value)
        rows.append({"setting": name, "value": shown, "why": reason})
    return _table(rows, "Settings, with the reason for what the paper leaves open")


def _verdicts(claims: Sequence[Claim]) -> str:
    if not claims:
        return "<p>No claim was judged: this is not the paper's kind of experiment.</p>"
    items = "\n".join(
        f'<li><a href="#claim-{claim.number}">{escape(claim.title)}</a>: {_verdict(claim)}. '
        f"{escape(claim.reason)}</li>"
        for claim in claims
    )
    return f'<ol class="verdicts">\n{items}\n</ol>'


def _verdict(claim: Claim) -> str:
    look = next(look for start, look in CLASSES.items() if claim.verdict.startswith(start))
    return f'<span class="verdict {look}">{escape(claim.verdict)}</span>'


def _claim(claim: Claim) -> str:
    parts = [
        f'<h2 id="claim-{claim.number}">Claim {claim.number}: {escape(claim.title)}</h2>',
        "<dl>",
        f"<dt>Claimed</dt><dd>{escape(claim.paper)}</dd>",
        f"<dt>Measured</dt><dd>{escape(claim.method)}</dd>",
        f"<dt>Verdict</dt><dd>{_verdict(claim)}. {escape(claim.reason)}</dd>",
        "</dl>",
    ]
    if claim.summary:
        parts.append(_table(claim.summary, "In short"))
    if claim.rows:
        table = _table(claim.rows, "Setting by setting")
        parts.append(_folded(table, "Setting by setting", len(claim.rows)))
    return "\n".join(parts)


def _figures(paths: Sequence[Path], texts: Mapping[str, str]) -> str:
    parts = [
        figure(path.read_bytes(), texts.get(path.stem, path.stem))
        for path in paths
        if path.suffix == ".png"
    ]
    return "\n".join(parts) or "<p>No figures were drawn.</p>"


def figure(png: bytes, caption: str) -> str:
    """Returns a picture with its caption, as a part of the page."""
    text, data = escape(caption), base64.b64encode(png).decode("ascii")
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">\n'
        f"<figcaption>{text}</figcaption></figure>"
    )
