"""The table of all papers in the README and in the book, and the pages about papers, follow from stored results."""

import json
from pathlib import Path

from ridgeformer import papers

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
