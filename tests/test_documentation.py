"""The code blocks of the documentation run and print what is shown below them; links lead somewhere."""

import contextlib
import io
import json
import re
import tempfile
from pathlib import Path

import pytest

from support import each

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]


def run(page):
    """Run all Python blocks of a page in order in one session, and return what they print."""
    blocks = [part.split("```")[0] for part in page.read_text().split("```python\n")[1:]]
    assert blocks
    session, printed = {"__name__": "documentation"}, io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(block, session)
    return printed.getvalue()


def rows(text):
    """The rows of printed tables: the words before the first number, and the first two numbers."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*(.*?)\s+(\d\S*)\s+(\d\S*)", line)
        if match and re.fullmatch(r"[A-Za-z0-9][\w ,]*|", match[1]) and re.search(r"\d\s+(yes|no|\d)$", line):
            found[match[1], match[2] if not match[1] else ""] = float(match[2]), float(match[3])
    return found


@pytest.mark.slow
def test_the_readme_prints_the_tables_that_it_shows():
    """To 3 %: last digits depend on the processor."""
    page = ROOT / "README.md"
    shown = rows("\n".join(re.findall(r"^    .*", page.read_text(), re.MULTILINE)))
    assert len(shown) >= 3
    printed = rows(run(page))
    for key, numbers in shown.items():
        assert printed[key] == pytest.approx(numbers, rel=0.03, abs=2e-4), key


@each(
    ("explanations/problems.md", 3),
    ("explanations/own-problems.md", 3),
    ("explanations/other-problems.md", 2),
    ("howto/sklearn.md", 8),
    ("howto/frameworks.md", 4),
)
@pytest.mark.slow
def test_pages_print_what_they_show(name, least):
    """Every indented line directly below a block of Python is one of the lines that the page prints."""
    if name == "howto/frameworks.md":
        pytest.importorskip("torch")
        pytest.importorskip("jax")
    page = ROOT / "docs" / name
    printed = run(page).splitlines()
    below = re.findall(r"```\n\n((?:    .*\n)+)", page.read_text())
    shown = [line[4:] for block in below for line in block.splitlines()]
    assert len(shown) >= least
    assert set(shown) <= set(printed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_measured_speeds_are_those_that_are_stored():
    """Every stored number is in docs/explanations/speed.md, rounded as there."""
    text = (ROOT / "docs" / "explanations" / "speed.md").read_text()
    stored = json.loads((ROOT / "benchmarks" / "latest.json").read_text())["measurements"]
    for one in stored:
        if one["name"].startswith(("sweep", "gdpp", "diag 3", "fit")):
            continue
        for number in re.findall(r"[\d.]+ (?:ms|Gflop/s)", one["detail"]):
            assert number.split()[0] in text, one["name"]


def test_the_gallery_has_every_picture():
    """Every public function that draws, or the method `plot` of the result that it draws."""
    gallery = (ROOT / "docs" / "howto" / "gallery.md").read_text()
    methods = {"draw_losses": "compare(problem, predictors, over=", "draw_runs": "runs.plot("}
    drawn = [
        name
        for path in (ROOT / "src" / "ridgeformer" / "plotting").glob("*.py")
        for name in re.findall(r"^def (draw_\w+)", path.read_text(), re.MULTILINE)
        if name != "draw_panels"  # by which the figures of papers are drawn
    ]
    assert len(drawn) >= 10
    for name in drawn:
        assert methods.get(name, f"{name}(") in gallery, name
