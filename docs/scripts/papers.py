"""Write the pages about papers, their pictures and the table of all papers, from stored results.

    python docs/scripts/papers.py FOLDER [ID ...]

By default the pages of all papers with stored results are written; IDs choose some of them. FOLDER is where
`ridgeformer papers run` stored the results. The table replaces what is between the marks in README.md and
docs/papers/index.md; its rows are also kept in docs/papers/results.json, with which the tests compare both.
"""

import json
import re
import sys
from pathlib import Path

from ridgeformer import papers
from ridgeformer.plotting.style import save

ROOT = Path(__file__).resolve().parents[2]
PAGES, PICTURES = ROOT / "docs/papers", ROOT / "docs/pictures/papers"
MARKS = "<!-- papers: begin -->\n", "<!-- papers: end -->\n"


def replaced(text, table):
    """The text with the table between the marks."""
    first, last = map(re.escape, MARKS)
    return re.sub(f"({first}).*?({last})", lambda marks: f"{marks[1]}\n{table}\n{marks[2]}", text, flags=re.DOTALL)


def main():
    known = json.loads((PAGES / "results.json").read_text()) if (PAGES / "results.json").exists() else []
    rows = {row["paper"]: row for row in known}
    PICTURES.mkdir(exist_ok=True)
    for outcome in papers.outcomes(sys.argv[1]):
        name = outcome.paper.id
        if name == "vladymyrov2024" or name not in (sys.argv[2:] or papers.IDS):  # the first has pages of its own
            continue
        files = {}
        for picture, described in outcome.paper.pictures.items():
            (path,) = save(lambda d=described, o=outcome: d.draw(o.results), PICTURES / f"{name}-{picture}", ["png"])
            files[picture] = f"../pictures/papers/{path.name}"
        (PAGES / f"{name}.md").write_text(papers.page(outcome, files))
        rows |= {row["paper"]: row for row in papers.summary([outcome])}
    table = [rows[name] for name in papers.IDS if name in rows]
    (PAGES / "results.json").write_text(json.dumps(table, indent=1) + "\n")
    for page, folder in ((ROOT / "README.md", "docs/papers/"), (PAGES / "index.md", "")):
        page.write_text(replaced(page.read_text(), papers.markdown(table, folder)))


if __name__ == "__main__":
    main()
