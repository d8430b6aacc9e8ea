"""Figures, claims and the report, on frames whose truth is known."""

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from belated.experiments.judging.audit_claims import judge_audit
from belated.experiments.judging.claim_texts import rule
from belated.experiments.judging.claims import effective_delay, judge_claims, judge_if_possible
from belated.experiments.judging.grading import (
    CONTRADICTED,
    EVERYWHERE,
    MIXED,
    NOT_JUDGED,
    OVERALL,
    UNCONFIRMED,
)
from belated.experiments.reporting import figures, output
from belated.experiments.reporting.audit_figures import CAPTIONS, save_audit_figures
from belated.experiments.reporting.report import show, write_page, write_report
from belated.experiments.run_intervals import (
    clopper_pearson,
    jackknife,
    mean_interval,
)
from belated.numerics.student import beta_cdf, student_quantile
from belated.theory import STATEMENTS

OFU, DUCB = "delayed-ofu-glm", "ducb-ridge"
T = 100_000
TIMES = T // np.array([64, 32, 16, 8, 4, 2, 1])


def made(
    *,
    dims=(5, 10),
    delays=(100.0, 250.0, 1000.0),
    laws=("exponential", "uniform", "lomax"),
    families=("gaussian", "bernoulli"),
    policies=(OFU, DUCB),
    runs=12,
    power=0.0,
    in_delay=0.6,
    undelayed=True,
):
    """A frame in which the claims hold, unless ``power`` or ``in_delay`` say otherwise.

    The penalty is d E^in_delay t^power for OFU, and 0.3 sqrt(t E) more for DUCB; E is what the
    horizon feels of the delay.
    """
    rng = np.random.default_rng(5)
    lanes = [("constant", 0.0)] * undelayed + [(law, e) for law in laws for e in delays]
    parts = []
    for dim in dims:
        for run in range(runs):
            base = (100.0 + 10.0 * rng.normal()) * np.log1p(TIMES / 50.0) * np.sqrt(dim)
            for family in families:
                for law, expected in lanes:
                    felt = effective_delay(law, expected, T)
                    for policy in policies:
                        luck = 1.0 + 0.05 * rng.normal()
                        penalty = luck * dim * felt**in_delay * (TIMES / T) ** power
                        if policy != OFU:
                            penalty = penalty + luck * 0.3 * np.sqrt(felt * TIMES)
                        parts.append(
                            pd.DataFrame(
                                {
                                    "policy": policy,
                                    "family": family,
                                    "delay": f"{law}:{expected:g}",
                                    "law": law,
                                    "expected": expected,
                                    "dim": dim,
                                    "n_actions": 100,
                                    "run": run,
                                    "t": TIMES,
                                    "regret": base + penalty,
                                    "mean_missing": felt,
                                    "mean_delay": felt + 0.5 + 0.1 * rng.normal(),
                                    "covered": True if policy == OFU else None,
                                }
                            )
                        )
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(covered=frame["covered"].astype("boolean"))


@pytest.fixture(scope="module")
def good():
    return made()


def at(frame, policy, family, dim, law, expected):
    """Final regret of one lane, by run."""
    lane = frame[
        (frame["policy"] == policy)
        & (frame["family"] == family)
        & (frame["dim"] == dim)
        & (frame["law"] == law)
        & (frame["expected"] == expected)
        & (frame["t"] == T)
    ]
    return lane.sort_values("run")["regret"].to_numpy()


def row_of(rows, **keys):
    (row,) = [row for row in rows if all(row[key] == value for key, value in keys.items())]
    return row


@pytest.mark.parametrize("df", [1, 2, 5, 29, 400])
@pytest.mark.parametrize("p", [0.6, 0.975, 0.9999])
def test_student_quantile(p, df):
    assert student_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9)


@pytest.mark.parametrize("trials", [1, 7, 30, 2340])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_clopper_pearson(share, trials):
    hits = round(share * trials)
    exact = stats.binomtest(hits, trials).proportion_ci(0.95, "exact")
    ours = clopper_pearson(hits, trials)
    assert ours == pytest.approx((hits / trials, exact.low, exact.high), rel=1e-9, abs=1e-15)


def test_beta_cdf():
    for x in (0.0, 1e-6, 0.2, 0.5, 0.97, 1.0):
        for a, b in ((0.5, 0.5), (3.0, 28.0), (200.0, 0.5), (40.0, 2300.0)):
            assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-10, abs=1e-14)


def test_intervals_of_means():
    runs = np.random.default_rng(1).normal(3.0, 2.0, (30, 2))
    exact = stats.ttest_1samp(runs[:, 0], 0.0).confidence_interval(0.95)
    assert mean_interval(runs[:, 0])[1:] == pytest.approx((exact.low, exact.high))
    # Of a linear statistic the jackknife is Student's interval.
    assert jackknife(runs, lambda mean: mean[0]) == pytest.approx(mean_interval(runs[:, 0]))
    assert mean_interval([4.0])[0] == 4.0
    assert np.isnan(mean_interval([4.0])[1:]).all()
    assert np.isnan(mean_interval([])).all()


@pytest.mark.parametrize("expected", [100.0, 1000.0])
def test_effective_delay_is_the_integral_of_the_survival_function(expected):
    shape = (1.0 + expected) / expected
    laws = {
        "lomax": stats.lomax(shape),
        "pareto": stats.pareto(shape),
        "exponential": stats.expon(scale=expected),
        "uniform": stats.uniform(0.0, 2.0 * expected),
    }
    grid = np.concatenate([[0.0], np.geomspace(1e-4, 1500.0, 200_001)])
    for law, exact in laws.items():
        integral = np.trapezoid(exact.sf(grid), grid)
        assert effective_delay(law, expected, 1500) == pytest.approx(integral, rel=1e-4)
    assert effective_delay("lomax", expected, T) == pytest.approx(11.2, abs=0.4)
    assert np.isnan(effective_delay("geometric", expected, T))


def test_all_hold_where_they_are_true(good):
    claims = judge_claims(good)
    # 24 worlds without a failure do not show that fewer than 1 in 60 fail
    assert [claim.verdict for claim in claims] == [EVERYWHERE] * 4 + [UNCONFIRMED]
    assert [claim.number for claim in claims] == [1, 2, 3, 4, 5]
    assert len(claims[0].rows) == 2 * 2 * 9
    json.dumps([asdict(claim) for claim in claims])


def test_differences_are_paired_and_exact(good):
    lower, _, _, pareto, _ = judge_claims(good)
    where = {"family": "logistic", "dim": 10, "expected": 250.0}
    ours = at(good, OFU, "bernoulli", 10, "uniform", 250.0)
    exact = stats.ttest_rel(ours, at(good, DUCB, "bernoulli", 10, "uniform", 250.0))
    row = row_of(lower.rows, law="uniform", **where)
    assert (row["low"], row["high"]) == pytest.approx(tuple(exact.confidence_interval(0.95)))
    exact = stats.ttest_rel(at(good, OFU, "bernoulli", 10, "lomax", 250.0), ours)
    row = row_of(pareto.rows, against="uniform", **where)
    assert (row["low"], row["high"]) == pytest.approx(tuple(exact.confidence_interval(0.95)))


def test_one_reversed_setting_breaks_the_first_claim(good):
    frame = good.copy()
    worse = (frame["policy"] == OFU) & (frame["law"] == "uniform") & (frame["expected"] == 250.0)
    worse &= (frame["dim"] == 5) & (frame["family"] == "gaussian")
    frame.loc[worse, "regret"] += 1e5
    claim = judge_claims(frame)[0]
    assert claim.verdict == MIXED
    assert "higher in 1 (ducb-ridge, linear, d = 5, uniform 250)" in claim.reason
    assert [row["higher"] for row in claim.summary if row["family"] == "linear"] == [1]


@pytest.mark.parametrize(
    ("spread", "finding", "verdict"), [(1.0, "equal", CONTRADICTED), (500.0, "open", UNCONFIRMED)]
)
def test_neither_equal_nor_unclear_passes_for_lower(spread, finding, verdict):
    frame = made(dims=(5,), delays=(100.0,), laws=("uniform",), families=("gaussian",))
    ours = (frame["policy"] == OFU) & (frame["law"] == "uniform")
    theirs = frame[(frame["policy"] == DUCB) & (frame["law"] == "uniform")]["regret"].to_numpy()
    frame.loc[ours, "regret"] = theirs + np.where(frame[ours]["run"] % 2, spread, -spread)
    claim = judge_claims(frame)[0]
    assert claim.verdict == verdict
    assert [row["finding"] for row in claim.rows] == [finding]
    assert f"{finding} in 1 (ducb-ridge, linear, d = 5, uniform 100)" in claim.reason


def test_growth_exponents(good):
    claim = judge_claims(good)[1]
    for row in claim.summary:
        assert row["settings"] == 2 * 2 * 3
        if row["policy"] == OFU:
            assert row["exponent"] == pytest.approx(0.0, abs=1e-9)
        else:
            assert 0.4 < row["low"] <= row["exponent"] <= row["high"] < 0.5
    assert {row["judged"] for row in claim.rows} == {"yes", "heavy tail"}
    row = row_of(claim.rows, policy=DUCB, family="linear", dim=5, law="exponential", expected=100.0)
    gap = at(good, DUCB, "gaussian", 5, "exponential", 100.0) - at(
        good, DUCB, "gaussian", 5, "constant", 0.0
    )
    assert row[f"penalty at {T:,}"] == pytest.approx(gap.mean())


def test_a_penalty_that_grows_like_the_square_root_is_not_additive():
    claim = judge_claims(made(power=0.5))[1]
    assert claim.verdict == CONTRADICTED
    assert row_of(claim.summary, policy=OFU, family="linear")["exponent"] == pytest.approx(0.5)


def test_a_rival_whose_penalty_does_not_grow_breaks_the_second_claim(good):
    frame = good.copy()
    frame.loc[frame["policy"] == DUCB, "regret"] = (
        frame.loc[frame["policy"] == OFU, "regret"].to_numpy() + 1.0
    )
    assert judge_claims(frame)[1].verdict == CONTRADICTED


def test_a_short_horizon_is_not_judged(good):
    claim = judge_claims(good[good["t"] <= T // 32])[1]
    assert claim.verdict == NOT_JUDGED
    assert {row["judged"] for row in claim.rows} == {"horizon too short", "heavy tail"}


def test_half_of_the_second_claim_is_not_the_claim(good):
    assert judge_claims(good[good["policy"] == OFU])[1].verdict == NOT_JUDGED
    assert judge_claims(good[good["policy"] == DUCB])[1].verdict == NOT_JUDGED


@pytest.mark.parametrize(
    ("in_delay", "verdict"), [(0.5, EVERYWHERE), (1.0, OVERALL), (2.0, CONTRADICTED)]
)
def test_growth_in_the_expected_delay(in_delay, verdict):
    claim = judge_claims(made(laws=("exponential", "uniform"), in_delay=in_delay))[2]
    assert claim.verdict.startswith(verdict)
    assert len(claim.rows) == 2 * 2 * 2
    for row in claim.rows:
        assert row["exponent"] == pytest.approx(in_delay, abs=0.05)
        assert row["low"] <= row["exponent"] <= row["high"]


def test_the_bend_judges_where_no_run_is_without_delay():
    flat, steep = (
        judge_claims(made(laws=("uniform",), undelayed=False, in_delay=p))[2] for p in (0.5, 2.0)
    )
    assert (flat.verdict, steep.verdict) == (EVERYWHERE, CONTRADICTED)
    row = row_of(steep.rows, family="linear", dim=5)
    assert np.isnan(row["exponent"])
    assert row["bend"] == pytest.approx(5.0 * 1000.0**2, rel=0.1)


def test_costly_pareto_delays_break_the_fourth_claim(good):
    frame = good.copy()
    frame.loc[frame["law"] == "lomax", "regret"] += 1e5
    claim = judge_claims(frame)[3]
    assert claim.verdict == CONTRADICTED
    felt = row_of(claim.summary, law="Pareto (Lomax)", expected=100.0)
    assert felt["E[min(tau, T)]"] == pytest.approx(10.87, abs=0.01)
    assert felt["mean delay"] == pytest.approx(11.37, abs=0.1)
    assert felt["worlds"] == 2 * 12


def test_coverage(good):
    frame = good.copy()
    bad = (frame["policy"] == OFU) & (frame["law"] == "uniform") & (frame["run"] % 2 == 0)
    frame.loc[bad & (frame["dim"] == 5), "covered"] = False
    claim = judge_claims(frame)[4]
    assert claim.verdict == CONTRADICTED
    row = row_of(claim.rows, family="linear", dim=5, law="uniform", expected=100.0)
    assert (row["left the set"], row["runs"], row["share"]) == (6, 12, 0.5)
    (pooled,) = claim.summary
    assert (pooled["settings above delta"], pooled["worlds left"], pooled["worlds"]) == (6, 6, 24)
    # One run in twelve is no evidence against 1 in 60, and against 1 in 100,000 it is.
    frame = good.copy()
    frame.loc[(frame["policy"] == OFU) & (frame["run"] == 0), "covered"] = False
    assert judge_claims(frame)[4].verdict == UNCONFIRMED
    assert judge_claims(frame, delta=1e-5)[4].verdict == CONTRADICTED
    # 24 worlds without a failure are enough to show that fewer than 1 in 5 fail
    assert judge_claims(good, delta=0.2)[4].verdict == EVERYWHERE


def test_narrowed_results_are_judged_where_they_can_be():
    one = made(dims=(5,), delays=(100.0,), laws=("pareto",), families=("gaussian",), runs=1)
    few = [UNCONFIRMED, NOT_JUDGED, NOT_JUDGED, NOT_JUDGED, UNCONFIRMED]
    assert [claim.verdict for claim in judge_claims(one)] == few
    alone = one[(one["policy"] == DUCB) & (one["law"] == "pareto")]
    assert [claim.verdict for claim in judge_claims(alone)] == [NOT_JUDGED] * 5
    assert [claim.verdict for claim in judge_claims(one[one["t"] == T])] == few
    with pytest.raises(ValueError, match="nothing to judge"):
        judge_claims(one.assign(expected=np.inf))
    with pytest.raises(ValueError, match="different names"):
        judge_claims(pd.concat([one, one]))


def mixed_up(frame):
    """The same lanes with runs so far apart that findings of all kinds come up."""
    rng = np.random.default_rng(8)
    lane = frame.groupby(["policy", "family", "dim", "law", "expected", "run"]).ngroup()
    luck = 1.0 + rng.normal(0.0, 0.2, lane.max() + 1)[lane]
    ours = frame["policy"] == OFU
    worse = np.where(ours & (frame["dim"] == 10) & (frame["law"] == "lomax"), 3.0, 1.0)
    left = ours & (frame["dim"] == 5) & (frame["run"] % 2 == 0)
    regret = frame["regret"] * luck * worse
    return frame.assign(regret=regret, covered=frame["covered"].mask(left, False))


def test_the_findings_of_the_rows_are_the_counts_of_the_reason(good):
    compared = {word: f"{word} in" for word in ("lower", "equal", "higher", "open")}
    counts = [
        compared,
        {
            "as claimed": r"DUCB above\) in",
            "not as claimed": "not as claimed in",
            "open": "open in",
        },
        {"higher": "faster in", "open": "open in"},
        compared,
        {"lower": "below that in", "higher": "above it in", "open": "open in"},
    ]
    seen = set()
    for frame in (good, mixed_up(good)):
        for number, (claim, said) in enumerate(zip(judge_claims(frame), counts, strict=True), 1):
            found = [row["finding"] for row in claim.rows]
            for finding, words in said.items():
                assert re.search(rf"{words} {found.count(finding)}\b", claim.reason)
            seen |= {(number, finding) for finding in found}
    assert {(number, "open") for number in range(1, 6)} <= seen
    assert {(1, "lower"), (2, "as claimed"), (3, "lower"), (4, "higher"), (5, "higher")} <= seen


def test_every_open_setting_is_named(good):
    claim = judge_claims(mixed_up(good))[3]
    unclear = [row for row in claim.rows if row["finding"] == "open"]
    assert len(unclear) > 6
    named = claim.reason.partition("open in ")[2]
    for row in unclear:
        setting = f"{OFU}, {row['family']}, d = {row['dim']}, {row['law']} "
        delays = re.search(re.escape(setting) + f"([^;)]*) against {row['against']}", named)
        assert f"{row['expected']:g}" in delays[1].split(", ")


@pytest.mark.parametrize("theta_per_run", [False, True])
def test_the_page_says_for_which_theta_star_its_verdicts_are(good, tmp_path, theta_per_run):
    part = good[good["dim"] == 5]
    output.write_output(part, judge_if_possible(part, 0.05), tmp_path, {}, theta_per_run)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert ("given the theta_star of each dimension" in text) is not theta_per_run
    assert ("theta_star was drawn in every run" in text) is theta_per_run


def test_other_experiments_have_no_claims(good):
    assert judge_if_possible(good.assign(expected=np.inf), 0.05) == []


def test_figures_of_the_grid(good, tmp_path):
    part = good[(good["dim"] == 5) & (good["family"] == "gaussian") & (good["law"] != "uniform")]
    paths = figures.save_figures(part, tmp_path / "new")
    names = ["regret-linear-exponential", "regret-linear-lomax", "final-regret-linear"]
    assert [path.name for path in paths] == [f"{n}.{end}" for n in names for end in ("png", "pdf")]
    assert list(figures.captions(part)) == names
    assert "Pareto (Lomax)" in figures.captions(part)["regret-linear-lomax"]
    assert all(path.stat().st_size > 5_000 for path in paths)
    again = figures.save_figures(part, tmp_path / "again")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]


@pytest.mark.parametrize(
    ("policies", "undelayed"), [((OFU,), False), (("my own / policy", "greedy"), True)]
)
def test_figures_of_narrowed_results(policies, undelayed, tmp_path):
    narrow = made(
        dims=(5,),
        delays=(100.0,),
        laws=("pareto",),
        families=("poisson",),
        policies=policies,
        runs=1,
        undelayed=undelayed,
    )
    paths = figures.save_figures(narrow, tmp_path)
    assert {path.stem for path in paths} == {"regret-poisson-pareto", "final-regret-poisson"}
    assert all(path.stat().st_size > 5_000 for path in paths)


def test_no_figure_without_delay(tmp_path):
    assert figures.save_figures(made(laws=(), runs=1), tmp_path) == []


def test_draw_lays_panels_out(good):
    few = good[(good["law"] != "uniform") & (good["expected"] < 1000.0)]
    figure = figures.draw(few[few["family"] == "gaussian"])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["linear, d = 5\nno delay", "linear, d = 5\nexponential, E[τ] = 100"]
    assert len(titles) == 2 * 5
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [OFU, DUCB]
    down = figures.draw(good[good["family"] == "gaussian"]).axes
    assert len(down) == 10 * 2
    wrapped = figures.draw(good[(good["family"] == "gaussian") & (good["dim"] == 5)]).axes
    assert sum(axes.get_visible() for axes in wrapped) == 10
    assert len(wrapped) == 12


def test_draw_one_run_has_no_band_and_unknown_delays_have_names():
    one = made(dims=(5,), delays=(100.0,), laws=("uniform",), families=("tanh",), runs=1)
    never = one[one["expected"] > 0].assign(law="never", delay="never", expected=np.inf)
    hidden = never.assign(law="informative", delay="informative", expected=np.nan)
    axes = figures.draw(pd.concat([one, never, hidden])).axes
    titles = [panel.get_title().split("\n")[1] for panel in axes]
    assert titles == ["no delay", "informative", "never", "uniform, E[τ] = 100"]
    assert all(len(panel.lines) == 2 and not panel.collections for panel in axes)


def test_draw_says_what_is_wrong(good):
    with pytest.raises(ValueError, match="no rows"):
        figures.draw(good[good["dim"] == 3])
    many = pd.concat([good.assign(dim=dim) for dim in (1, 2, 3)])
    with pytest.raises(ValueError, match=r"60 panels are too many.*filter"):
        figures.draw(many)


class Page(HTMLParser):
    """Collects what a page refers to and whether its tags are closed in order."""

    EMPTY = frozenset({"meta", "img", "br", "hr", "link", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.sources, self.ids, self.links = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.sources += [attrs[key] for key in ("src", "srcset", "data") if key in attrs]
        self.links += [attrs["href"]] if "href" in attrs else []
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag == "img":
            assert attrs["alt"]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report(good, tmp_path):
    part = good[(good["dim"] == 5) & (good["family"] == "gaussian")].copy()
    part.loc[part["policy"] == DUCB, "policy"] = "ducb-<b>&"
    paths = figures.save_figures(part[part["law"] != "uniform"], tmp_path)
    settings = {
        "dimensions": [5, 10],
        "noise <sd>": (1.0, "R = 1 & nothing else"),
        "T": T,
    }
    path = tmp_path / "out" / "report.html"
    claims = judge_claims(part)
    write_report(part, claims, paths, settings, path, rule(theta_per_run=False))
    text = path.read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.sources) == page.tags.count("img") == 3
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert {link.removeprefix("#") for link in page.links} == set(page.ids)
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert all(word not in text for word in ("http://", "https://", "url(", "@import"))
    assert '<html lang="en">' in text
    assert "<title>" in text
    for claim in claims:
        assert claim.title in text
        assert claim.verdict in text
    assert "noise &lt;sd&gt;" in text
    assert "R = 1 &amp; nothing else" in text
    assert "ducb-&lt;b&gt;&amp;" in text
    assert "<b>" not in text
    assert "100,000" in text


LONG_SETTINGS = {"policies": ["a-policy-of-a-very-long-name:" + "x=1.0," * 30], "T": (T, "long")}


def paper_page(frame, path):
    """Writes the report of an experiment; returns its claims."""
    claims = judge_claims(frame)
    paths = figures.save_figures(frame, path.parent)
    write_report(frame, claims, paths, LONG_SETTINGS, path)
    return claims


def audit_page(frame, path):
    """Writes the page of an audit; returns its claims."""
    delays = ("constant:0", "informative")
    checked = pd.DataFrame(
        {"family": "bernoulli", "delay": delay, "dim": 2, "run": run, "statement": name}
        | {"ratio": 0.5 + 0.01 * run, "t": 7}
        for delay in delays
        for run in range(20)
        for name in STATEMENTS
    )
    covered = frame[frame["policy"] == OFU]
    claims = judge_audit(covered, checked, frame, {OFU: 0.05})
    paths = save_audit_figures(claims, checked, frame, path.parent)
    captions = {path.stem: CAPTIONS[path.stem.partition("-")[0]] for path in paths}
    write_page(path, "An audit", "Some runs.", LONG_SETTINGS, claims, paths, captions)
    return claims


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("write", [paper_page, audit_page])
def test_pages_read_well_on_a_phone(good, tmp_path, monkeypatch, browser, write, width):
    """Verdicts first, then figures; wide tables scroll in their own box, the page never does."""
    monkeypatch.setattr("belated.experiments.paper.MEANS", (100.0,))  # the bound, for one mean
    part = good[(good["dim"] == 5) & (good["family"] == "gaussian")]
    path = tmp_path / "page.html"
    claims = write(part, path)
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto(path.as_uri())
    for details in page.locator("details").all():
        details.evaluate("details => details.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = "boxes => boxes.filter(b => b.getBoundingClientRect().right > innerWidth).length"
    assert page.locator("main > *, .scroll, img, dd, li").evaluate_all(outside) == 0
    top = "element => element.getBoundingClientRect().top"
    verdicts = [item.evaluate(top) for item in page.locator(".verdicts .verdict").all()]
    figure = page.locator("figure").first.evaluate(top)
    assert len(verdicts) == len(claims) >= 4
    assert verdicts == sorted(verdicts)
    assert verdicts[0] < 844, "the first verdict is on the first screen"
    assert verdicts[-1] < figure < page.locator("table").first.evaluate(top)
    page.close()


def test_report_says_what_does_not_hold(tmp_path):
    frame = made(dims=(5,), families=("gaussian",), in_delay=2.0)
    claims = judge_claims(frame)
    write_report(frame, claims, [], {}, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert claims[2].verdict == CONTRADICTED
    assert text.count('<span class="verdict fails">contradicted</span>') >= 2
    assert "No figures were drawn." in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.14159, "3.142"), (12345.6, "12,346"), (7, "7"), (True, "True"), ("a", "a"), (1e-15, "0")],
)
def test_show(value, text):
    assert show(value) == text
    assert show(float("inf")) == "inf"
