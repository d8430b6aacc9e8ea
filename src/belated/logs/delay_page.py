"""The answer of ``belated delays`` as one page of HTML that stands for itself."""

from pathlib import Path

from belated.core.times import utc
from belated.core.wording import counted
from belated.logs import delay_words as words
from belated.logs.delay_figure import captions, draw_curve, draw_groups, draw_periods, png
from belated.logs.delays import DelayReport

TITLE = "How late rewards come"


def write_delay_page(report: DelayReport, name: str, path: Path) -> None:
    """Write the page about a log of this name."""
    from belated.experiments.reporting.report import figure, listing, section, write_body

    texts = captions(report)
    introduction = (
        f"{report.bad.warning} {name}: {counted(report.all.counts.decisions, 'decision')}, "
        f"{report.all.counts.returned:,} with a reward, known on {utc(report.now)}."
    ).strip()
    parts = [section("The answer", words.curve_words(report.all), {})]
    if report.all.curve.times.size:
        parts.append(figure(png(draw_curve(report)), texts["all"]))
    fitted = (
        "Fitted by maximum likelihood, each with its standard error and the 95 % interval; the "
        "smaller its AIC, the better a law fits."
    )
    parts.append(section("Laws", fitted, {"All decisions": words.fit_rows(report.all)}))
    if report.by:
        rows = [
            {report.by: name, **row}
            for name, group in report.groups.items()
            for row in words.fit_rows(group)[:1]
        ]
        text = f"The best law of each. Others: {words.groups_words(report, len(report.groups))}."
        parts.append(section(f"By {report.by}", text, {"Groups": rows} if rows else {}))
    if report.groups:
        parts.append(figure(png(draw_groups(report)), texts["groups"]))
    granted = "What theory and policies take for granted, tested on this log."
    answers = {
        row["question"]: f"{row['answer']} {row['consequence']}".strip()
        for row in words.answer_rows(report)
    }
    parts += [section("Tests", granted, {}), listing(answers)]
    if report.periods:
        rows = words.period_rows(report)
        parts.append(section("Missing rewards", words.missing_words(report), {"Periods": rows}))
        parts.append(figure(png(draw_periods(report)), texts["periods"]))
    left = report.bad.facts()["first_bad_rows"]
    text = f"Left out: {report.bad.words}. Decisions that were not used: {report.bad.not_used}."
    parts.append(section("Bad rows", text, {"The first of each kind": left} if left else {}))
    settings = {
        "A missing reward": words.meaning(report),
        "Columns": f"--map {report.columns}",
        "Columns not used": ", ".join(report.unused) or "none",
        "Curves, laws, tests": f"of {words.sample_words(report)}",
    }
    parts += [section("How it was read", "", {}), listing(settings)]
    write_body(path, TITLE, introduction, "\n".join(parts))
