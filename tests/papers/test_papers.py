"""The shape of papers: results are stored and resumed, claims are decided by rules, and a page shows all of it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ridgeformer import papers
from ridgeformer.cli import cli
from ridgeformer.papers import Check, Paper, Part, Picture, agree
from ridgeformer.papers.results import Measured, Results
from ridgeformer.plotting.panels import Line, Map, Panel, Scatter
from ridgeformer.predictors import OracleRR
from ridgeformer.problems import Problem
from ridgeformer.theory import one_layer
from support import refused

PROBLEM = Problem(2, 5, 1)
ABOUT = """A summary.

On <counting>
Somebody and
somebody else
https://example.org

Counting works,
always.

Not checked here: Softmax.
"""


class Counted:
    """A paper that counts how often it measures."""

    def __init__(self, truth=2.0, version=1):
        self.measured = 0

        def first(work, *, size=3):
            self.measured += 1
            work.progress(1, 2)
            yield {"mean": float(size), "array": np.arange(2)}

        def second(work, *, offset=1.0):
            return work.results.first.mean[0] + offset

        def claim(results):
            """Decide a claim.

            The mean
            is right.
            """
            return agree(results.first.mean, truth, 0.5, "by construction")

        def drawn(results):
            shown = [Line("line", [1, 2], [1.0, None]), Scatter("points", [1, 2], [1.0, results.second], [0.1, 0.1])]
            return [Panel("a", "x", "y", shown, True, True), Panel("b", "x", "y", [Map([[0, 1]], [1, 2], [3])])]

        self.paper = Paper(
            id="counted1900",
            about=ABOUT,
            problems={"problem": PROBLEM},
            parts=(Part(first, {"size": 2}), Part(second)),
            checks=(claim,),
            pictures={"picture": Picture(drawn, "A & B")},
            errata=(papers.Erratum("page 1", "one", "two", "counting"),),
            version=version,
        )


def state(counted, folder):
    (status,) = papers.status(folder, [counted.paper])
    return status.state


def test_results_are_stored_and_measured_once(tmp_path):
    counted, told = Counted(), []
    first = papers.run(counted.paper, out=tmp_path, progress=lambda *what: told.append(what))
    again = papers.run(counted.paper, out=tmp_path)
    assert counted.measured == 1
    assert ("first", 1, 2) in told
    stored = {"first": [{"mean": 3.0, "array": [0, 1]}], "second": 4.0}
    assert first.as_dict()["results"] == again.as_dict()["results"] == stored
    assert first.seconds == again.seconds
    assert json.loads((tmp_path / "counted1900/outcome.json").read_text())["checks"][0]["verdict"] == "contradicted"


def test_quick_and_changed_settings_are_other_results(tmp_path):
    counted = Counted()
    assert papers.run(counted.paper, quick=True, out=tmp_path).checks[0].verdict == "supported"
    assert papers.run(counted.paper, out=tmp_path).checks[0].verdict == "contradicted"
    assert papers.run(counted.paper, out=tmp_path, settings={"size": 2}).checks[0].verdict == "supported"
    assert counted.measured == 3
    refused(lambda: papers.run(counted.paper, out=None, settings={"other": 2}), "the settings of counted1900 are")


def test_damaged_and_outdated_results_are_measured_again(tmp_path):
    counted = Counted()
    papers.run(counted.paper, out=tmp_path)
    (tmp_path / "counted1900/first.json").write_text("{")
    papers.run(counted.paper, out=tmp_path)
    assert counted.measured == 2
    newer = Counted(version=2)
    assert state(newer, tmp_path) == "outdated"
    papers.run(newer.paper, out=tmp_path)
    assert newer.measured == 1


def test_the_status_says_how_far_a_paper_is(tmp_path):
    counted = Counted()
    assert state(counted, tmp_path) == "not run"
    papers.run(counted.paper, quick=True, out=tmp_path)
    assert state(counted, tmp_path) == "quick"
    papers.run(counted.paper, out=tmp_path)
    (status,) = papers.status(tmp_path, [counted.paper])
    assert (status.state, status.verdicts) == ("done", {"contradicted": 1})
    assert {one.state for one in papers.status(tmp_path)} == {"not run"}


def test_numbers_agree_within_their_tolerance():
    assert agree([1.0, 2.0], [1.1, 2.0], [0.2, 0.0], "r").verdict == "supported"
    assert agree([1.0, 2.0], [1.1, 2.1], [0.2, 0.0], "r").verdict == "partly supported"
    assert agree([np.nan], [1.0], 1.0, "r").verdict == "contradicted"
    refused(lambda: agree([1.0, 2.0, 3.0], [1.0, 2.0], 0.1, "r"), "as many numbers as are expected")


def test_only_four_standard_errors_and_what_is_allowed_besides_are_chance():
    assert agree([1.0], [1.39], error=[0.1]).verdict == "supported"
    assert agree([1.0], [1.41], error=[0.1]).verdict == "contradicted"
    check = agree([1.0], [1.41], 0.02, error=[0.1], unit="4 standard errors, and rare contexts")
    assert (check.verdict, check.tolerance) == ("supported", "4 standard errors, and rare contexts")


def test_rows_are_read_by_column():
    """Lists are arrays, what is not finite is NaN, settings are attributes, and functions get columns by name."""
    rows = [{"k": k, "n": n, "loss": None if n > 4 else n / k} for k in (1, 2) for n in (3, 5)]
    table = Results({"part": rows}, {"part": {"d": 7}}).part
    np.testing.assert_array_equal(table.loss, [3, np.nan, 1.5, np.nan])
    assert table.compute(lambda n, d: n * d).tolist() == [21, 35, 21, 35]
    assert table.names("{k} of {n}:") == ["1 of 3:", "1 of 5:", "2 of 3:", "2 of 5:"]
    assert [(k, own.n.tolist(), own.d) for k, own in table.by("k")] == [(1, [3, 5], 7), (2, [3, 5], 7)]
    (row,) = table.where(k=2, n=3).rows
    assert (row.loss, row.d) == (1.5, 7)
    assert Measured([{"a": [1, 2]}, {"a": [3]}]).a == [[1, 2], [3]]
    assert "losses" not in table
    assert repr(table) == "Measured(k, n, loss)"


def test_work_reports_every_piece_and_measures_losses_on_the_same_sequences():
    told = []
    work = papers.Work({}, None, lambda *what: told.append(what))
    assert list(work.each(iter("ab"))) == ["a", "b"]
    assert told == [(0, 2), (1, 2)]
    assert list(work.each("ab", (1, 2))) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    best = one_layer.model_of(one_layer.optimum(PROBLEM))
    losses = work.losses(PROBLEM, {"layer": best, "ridge": OracleRR()}, 4000)
    exact = one_layer.risk(PROBLEM, one_layer.optimum(PROBLEM))
    assert abs(losses["layer"]["loss"] - exact) < 4 * losses["layer"]["error"]  # four standard errors
    assert losses["ridge"]["loss"] < losses["layer"]["loss"]


def test_the_page_and_the_table_show_the_outcomes(tmp_path):
    outcome = papers.run(Counted(truth=3.0).paper, out=tmp_path)
    page = papers.report_page([outcome], tmp_path).read_text()
    assert "On &lt;counting&gt;" in page
    assert 'class="supported"' in page
    assert "data:image/svg+xml;base64," in page
    assert "Softmax." in page
    assert "counting" in page
    (row,) = papers.summary([outcome])
    assert row["verdict"] == "supported"
    text = papers.markdown([row])
    assert re.search(r"\| \[counted1900\]\(docs/papers/counted1900.md\) \| The mean is right. \| 3 \| 3 \|", text)
    refused(lambda: papers.report(tmp_path / "nothing"), "a report needs results")


def test_the_page_of_a_quick_version_says_so():
    quick, full = (papers.page(papers.run(Counted().paper, quick=q, out=None), {}) for q in (True, False))
    assert "These are results of the quick version" in quick
    assert "`ridgeformer papers run counted1900 --quick`" in quick
    assert "quick" not in full


def test_a_paper_is_described_by_its_paragraphs():
    paper = Counted().paper
    described = "On <counting>", "Somebody and somebody else", "https://example.org"
    assert (paper.title, paper.authors, paper.link) == described
    assert (paper.says, paper.beyond) == (("Counting works, always.",), ("Softmax.",))
    short = "A summary.\n\nOn <counting>\n\nCounting works."
    refused(lambda: replace(paper, about=short), "by a summary, by title, authors and link, and by what it says")


def test_mistakes_in_parts_and_checks_are_refused_in_words():
    paper, measured = Counted().paper, Results({"first": [{"mean": 3.0}]})
    refused(lambda: replace(paper.parts[0], quick={"sizes": 2}), "the settings of first are size; got sizes. Correct")

    def mute(results):
        return Check("something", holds=(True,))

    wrong = (
        (lambda results: True, "must return a Check; got a bool"),
        (mute, "second paragraph of its docstring; got mute"),
    )
    for check, words in wrong:
        refused(lambda check=check: list(replace(paper, checks=(check,)).decide(measured)), words)


def test_every_paper_has_a_page_and_fits_the_shape():
    for paper in papers.catalogue():
        assert paper.parts
        assert paper.checks
        assert paper.pictures
        assert paper.link.startswith("https://")


@pytest.mark.slow
def test_the_page_works_in_a_browser(tmp_path, browser):
    """All pictures load, links lead to their sections, and nothing is wider than the window."""
    shown = [papers.run(Counted().paper, out=None), papers.run("letey2026", quick=True, out=None)]
    path = papers.report_page(shown, tmp_path)
    window, errors = browser.new_page(viewport={"width": 390, "height": 700}), []
    window.on("pageerror", lambda error: errors.append(error))
    window.goto(path.as_uri())
    assert window.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 100)")
    assert window.evaluate("[...document.links].every(one => !one.hash || document.querySelector(one.hash))")
    for width in (390, 1280):  # on a phone every row of the table is a card
        window.set_viewport_size({"width": width, "height": 700})
        assert window.evaluate(f"document.documentElement.scrollWidth <= {width}")
        assert window.locator("thead").first.is_visible() == (width == 1280)
    assert window.locator("section").count() == 2
    window.click('a[href="#letey2026"]')
    assert window.evaluate("document.querySelector('#letey2026').getBoundingClientRect().top < 700")
    assert shown[1].paper.says[-1] in window.locator("#letey2026").inner_text()
    window.close()
    assert errors == []


def test_with_changed_settings_only_the_parts_that_have_them_are_measured(tmp_path):
    outcome = papers.run(Counted().paper, out=tmp_path, settings={"size": 2})
    assert outcome.results.keys() == {"first"}
    assert [check.verdict for check in outcome.checks] == ["supported"]
    column = papers.run("lu2025", out=tmp_path, settings={"d": 6, "kappas": [1.0, 4.0], "repetitions": 2})
    assert column.results.keys() == {"column"}
    assert column.checks == ()  # nothing is published for d = 6


def test_the_command_without_a_name_lists_all_papers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(cli, ["papers"])
    assert run.exit_code == 0
    assert run.output == CliRunner().invoke(cli, ["papers", "list"]).output
    assert all(name in run.output for name in papers.IDS)


# ---- The table of all papers in the README and in the book, and the pages about papers, follow from


ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs/papers"


def test_the_tables_are_those_of_the_stored_results():
    rows = json.loads((PAGES / "results.json").read_text())
    for page, folder in ((ROOT / "README.md", "docs/papers/"), (PAGES / "index.md", "")):
        shown = page.read_text().split("<!-- papers: begin -->\n\n")[1].split("\n<!-- papers: end -->")[0]
        assert shown == papers.markdown(rows, folder), page


def test_every_paper_of_the_table_has_a_page_with_its_claims():
    for row in json.loads((PAGES / "results.json").read_text()):
        page = (PAGES / f"{row['paper']}.md").read_text()
        assert row["claim"] in page
        assert papers.find(row["paper"]).title in page
