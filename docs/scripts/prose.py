"""Check the language of README, book, docstrings and help texts with proselint and with the words in docs/words.txt.

Usage: python docs/scripts/prose.py. Prints one line per finding, and fails if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from proselint.checks import __register__ as PROSELINT
from proselint.registry.checks import Check, types

from ridgeformer.cli.options import cli

ROOT = Path(__file__).parents[2]
# Checks of proselint that do not fit technical prose, such as straight quotes, names of people, or "very".
OFF = (
    "typography", "misc.phrasal_adjectives", "terms", "social_awareness", "restricted", "misc.capitalization",
    "dates_times", "misc.but", "weasel_words", "misc.scare_quotes", "misc.composition", "annotations",
    "lexical_illusions", "cliches.misc.write_good",
)  # fmt: skip
Text = tuple[str, str]  # where it is, and the text


def our_checks() -> Iterator[Check]:
    """Make a check of every line of our own list of words."""
    for line in (ROOT / "docs" / "words.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            phrase, instead = line.split(" => ")
            check = types.Existence(items=(phrase,))
            yield Check(check_type=check, path=f"ours.{phrase}", message=f"write instead: {instead}")


def without_code(text: str) -> str:
    """Replace what is not prose in Markdown by #, so that lines keep their numbers."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "#", found[0])

    text = re.sub(r"\A---\n.*?\n---\n", blank, text, flags=re.DOTALL)  # header of a notebook
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$|`[^`]*`", blank, text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"^(#+ .*)$", r"\1 #", text, flags=re.MULTILINE)  # a heading is no part of the next sentence
    return re.sub(r"\]\([^)]*\)", "]", text)


def pages() -> Iterator[Text]:
    """README, CONTRIBUTING and the pages of the book."""
    book = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *book):
        yield str(path.relative_to(ROOT)), without_code(path.read_text(encoding="utf-8"))


def docstrings() -> Iterator[Text]:
    """All docstrings of the package, without examples."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found = (
            ast.get_docstring(n) or "" for n in nodes if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)
        )
        lines = [line for text in found for line in ["", *text.splitlines()] if not is_code(line)]
        yield f"docstrings of {path.relative_to(ROOT)}", without_code("\n".join(lines))


def is_code(line: str) -> bool:
    """Return whether a line of a docstring belongs to an example."""
    return line.lstrip().startswith((">>>", "..."))


def help_texts(command: click.Command = cli, name: str = "ridgeformer") -> Iterator[Text]:
    """The help of all options. The help of commands is their docstring, and their epilog has examples."""
    for option in command.params:
        yield f"{name} {option.opts[0]}", getattr(option, "help", None) or ""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from help_texts(inner, f"{name} {inner.name}")


def findings() -> Iterator[str]:
    """All findings, one line each."""
    checks = [*(check for check in PROSELINT if not check.path.startswith(OFF)), *our_checks()]
    for where, text in (*pages(), *docstrings(), *help_texts()):
        padded = f"\n{text}\n"  # proselint expects something before and after a word
        for check in checks:
            for found in check.check(padded):
                words = " ".join(padded[slice(*found.span)].split())
                line = "" if not where.endswith(".md") else f":{padded.count(chr(10), 0, found.span[0] + 1)}"
                yield f"{where}{line}: {words!r}: {found.message} [{found.check_path}]"


if __name__ == "__main__":
    found = sorted(set(findings()))
    print("\n".join(found))
    sys.exit(f"{len(found)} findings" if found else 0)
