"""`ridgeformer papers`: papers whose results are measured again; Table 1 and the theorems of the seed paper."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import COUNT, PLACE, SEED, THREADS, Group, cli
from ridgeformer.cli.output import Answer, answers, parts_progress, table
from ridgeformer.cli.sweep import DASK, WORKERS, run_sweep
from ridgeformer.errors import InputError, TrainingError, refuse, shown
from ridgeformer.evaluation.table import aligned
from ridgeformer.files import make_folder
from ridgeformer.plotting.style import save
from ridgeformer.validation import integer

if TYPE_CHECKING:
    from ridgeformer.papers import PaperOutcome
    from ridgeformer.papers.running import Progress

ORDER = ("list", "run", "show", "figures", "report", "table1", "verify")
OUT = click.option("--out", type=PLACE, default=Path("papers"), help="Folder for results. Stored results are reused.")
RUNS = click.option(
    "--runs", type=PLACE, help="vladymyrov2024: folder of runs whose models are used instead of the shipped ones."
)
SEED_PAPER = "vladymyrov2024"
VERDICTS = ("supported", "partly supported", "contradicted")


def _setting(text: str) -> tuple[str, Any]:
    """A changed setting, from NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        refuse("--set takes NAME=VALUE", shown(text), "Write --set sequences=50000, for example.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _stored(paper: str, out: Path) -> PaperOutcome:
    """The stored results of a paper, with its claims."""
    from ridgeformer.papers import stored

    outcome = stored(paper, out)
    if outcome is None:
        raise InputError(
            f"there must be results of {paper}; {shown(out, 200)} has none. Run `ridgeformer papers run {paper}` first."
        )
    return outcome


def _seed_paper(show: Progress, out: Path | None, runs: Path | None = None, **settings: Any) -> PaperOutcome:
    """The seed paper, whose parts are measured, as far as they are not stored, when something asks for them."""
    from ridgeformer.papers import PaperOutcome, find

    return PaperOutcome(find(SEED_PAPER), False, out, show, settings | ({} if runs is None else _retrained(runs)))


def _retrained(runs: Path) -> dict[str, Any]:
    """The settings of the seed paper with the models of a folder of runs."""
    from ridgeformer.papers.vladymyrov2024.evidence import fingerprint

    return {"runs": str(runs), "models": fingerprint(str(runs))}


def _claims(outcome: PaperOutcome) -> Answer:
    """The claims of a paper with their verdicts."""
    short = [{"verdict": check.verdict, "claim": check.claim} for check in outcome.checks]
    quick = " (quick version)" if outcome.quick else ""
    head = f"{outcome.paper.title} ({outcome.paper.authors}): {sum(outcome.seconds.values()):.0f} s{quick}\n\n"
    rows = [check.as_dict() for check in outcome.checks]
    return dataclasses.replace(table(short, outcome.as_dict(), head), rows=rows)


@cli.group(cls=Group, order=ORDER, invoke_without_command=True)
@click.pass_context
def papers(context: click.Context) -> None:
    """Measure the results of papers again, and check their claims. Without a command, list them.

    Each paper has an ID, the first author and the year. vladymyrov2024 is the paper that this package began with: its
    Table 1 (table1), its theorems (verify) and its figures have commands of their own.

    Examples:
        ridgeformer papers list
        ridgeformer papers run zhang2024 --quick
        ridgeformer papers table1
        ridgeformer papers figures vladymyrov2024 --only 8 --to pictures/
        ridgeformer papers verify --only momentum
    """
    if context.invoked_subcommand is None:
        context.invoke(list_papers)


@papers.command("list")
@OUT
@answers()
def list_papers(out: Path) -> Answer:
    """List all papers, and how far each is in a folder of results.

    Examples:
        ridgeformer papers list
        ridgeformer papers list --csv papers.csv
    """
    from ridgeformer import papers as library

    states = library.status(out)
    rows = [
        {
            "paper": paper.id,
            "state": paper.state,
            "seconds": "" if paper.seconds is None else f"{paper.seconds:.0f}",
            **{name: paper.verdicts.get(name, 0) for name in VERDICTS},
            "title": paper.title,
        }
        for paper in states
    ]
    return table(rows, [paper.as_dict() for paper in states])


@papers.command()
@click.argument("paper", required=False)
@click.option("--all", "every", is_flag=True)
@click.option("--quick", is_flag=True)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE")
@click.option("--d", "dim", type=COUNT)
@OUT
@THREADS
@answers()
def run(paper: str | None, every: bool, quick: bool, settings: tuple[str, ...], dim: int | None, out: Path) -> Answer:
    """Measure what a paper needs, as far as it is not stored, and decide its claims.

    With changed settings, only the parts that have these settings are measured.

    Options:
        --all: Run all papers, one after the other, and print the first claim of each.
        --quick: Run the quick version, which has larger errors.
        --set: Change a setting. May be repeated.
        --d: Short for --set d=D, the dimension of lu2025.

    Examples:
        ridgeformer papers run zhang2024
        ridgeformer papers run vladymyrov2024 --quick
        ridgeformer papers run lu2025 --d 64 --json
        ridgeformer papers run --all --quick
    """
    from ridgeformer import papers as library

    if every == (paper is not None):
        refuse("name one paper, or pass --all", paper or "neither", "Write papers run zhang2024, for example.")
    changed = dict(map(_setting, (*settings, *([] if dim is None else [f"d={dim}"]))))
    with parts_progress() as show:
        names = library.IDS if paper is None else (paper,)
        outcomes = [library.run(name, quick=quick, out=out, progress=show, settings=changed) for name in names]
    if not every:
        return _claims(outcomes[0])
    return table(library.summary(outcomes), [outcome.as_dict() for outcome in outcomes])


@papers.command()
@click.argument("paper")
@OUT
@answers()
def show(paper: str, out: Path) -> Answer:
    """Print the claims of a paper with their verdicts, from stored results.

    Examples:
        ridgeformer papers show zhang2024
        ridgeformer papers show zhang2024 --csv -
    """
    return _claims(_stored(paper, out))


@papers.command()
@click.argument("paper")
@click.option("--only", multiple=True, metavar="NAME")
@click.option("--to", type=PLACE)
@RUNS
@OUT
@THREADS
@answers()
def figures(paper: str, only: tuple[str, ...], to: Path | None, runs: Path | None, out: Path) -> Answer:
    """Draw the figures of a paper as PDF, SVG and PNG, from stored results.

    Results of vladymyrov2024 that a figure needs and that are not stored yet are measured. Its figures 1 to 7 are those
    of the paper. Figure 8, the ratio of every loss to the floor, and `layers`, the layers that GD++ needs to solve
    least squares, are additions.

    Options:
        --only: Draw only this figure. May be repeated.
        --to: Folder for the figures [default: that of the results].

    Examples:
        ridgeformer papers figures zhang2024
        ridgeformer papers figures vladymyrov2024 --only 2 --only 7 --to pictures/
    """
    from ridgeformer import papers as library

    pictures = library.find(paper).pictures
    for name in only:
        if name not in pictures:
            refuse(f"a figure must be one of {', '.join(pictures)}", shown(name), "Choose one of these.")
    names = list(dict.fromkeys(only)) or list(pictures)
    folder = to or out / paper
    make_folder(folder, "figures")
    with parts_progress() as show:
        outcome = _seed_paper(show, out, runs) if paper == SEED_PAPER else _stored(paper, out)
        files = [
            path
            for name in names
            for path in save(functools.partial(pictures[name].draw, outcome.results), folder / f"figure-{name}")
        ]
    return Answer("\n".join(map(str, files)), [str(path) for path in files], [{"file": str(path)} for path in files])


@papers.command()
@RUNS
@OUT
@answers(table=False)
def report(runs: Path | None, out: Path) -> Answer:
    """Write HTML pages with the claims, the figures and the tables of all papers whose results are stored.

    report.html has all papers; vladymyrov2024.html has its Table 1 and interactive figures. The pages need no network.
    With --runs, only the latter is written, after measuring what is not stored yet.

    Examples:
        ridgeformer papers report
        ridgeformer papers report --out reproduction/
    """
    from ridgeformer import papers as library

    outcomes = library.outcomes(out)
    if runs is not None:
        with parts_progress() as show:
            outcomes = [library.run(SEED_PAPER, out=out, progress=show, settings=_retrained(runs))]
    pages = [] if runs is not None else [library.report(out)]
    pages += [outcome.paper.page(outcome, out) for outcome in outcomes if outcome.paper.page]
    return Answer("\n".join(f"Open {page} in a browser." for page in pages), {"pages": [str(page) for page in pages]})


@papers.command()
@RUNS
@click.option("--sequences", type=COUNT, default=100000)
@click.option("--seed", type=SEED, default=1)
@click.option("--column", metavar="NOISE")
@click.option("--again", is_flag=True)
@click.option("--retrain", is_flag=True)
@WORKERS
@DASK
@click.option("--latex", "form", flag_value="latex")
@click.option("--markdown", "form", flag_value="markdown")
@OUT
@THREADS
@answers()
def table1(
    runs: Path | None,
    sequences: int,
    seed: int,
    column: str | None,
    again: bool,
    retrain: bool,
    workers: int | None,
    dask: str | None,
    form: str | None,
    out: Path,
) -> Answer:
    """Reproduce Table 1 of vladymyrov2024 and compare every cell with the printed number.

    Evaluates the models of the zoo, or those of --runs. Cells that are worse than the paper's number, below the floor,
    or worse than a model that they contain are listed below the table, in red.

    Options:
        --sequences: Number of fresh sequences.
        --seed: Seed of these sequences.
        --column: Print all numbers of this column, one line per cell.
        --again: Measure again, without reading or storing results.
        --retrain: First train all 210 models with five seeds each, into --runs. Takes about an hour on two cores.
        --latex: Print a LaTeX tabular.
        --markdown: Print a Markdown table.

    Examples:
        ridgeformer papers table1
        ridgeformer papers table1 --markdown > table1.md
        ridgeformer papers table1 --column 'uniform(0,5)' --csv column.csv
        ridgeformer papers table1 --retrain --runs runs/
    """
    from ridgeformer.papers.vladymyrov2024.paper import column as column_of
    from ridgeformer.papers.vladymyrov2024.render import FORMATS, column_table, terminal
    from ridgeformer.papers.vladymyrov2024.table import TableOne

    if retrain:
        if runs is None:
            raise InputError("--retrain needs a folder for the runs; --runs is missing. Add --runs runs/.")
        _retrain(runs, workers, dask)
    elif workers or dask is not None:
        raise InputError("--workers and --dask are for --retrain, which is missing. Add --retrain, or leave them out.")
    noise = None if column is None else column_of(column)
    sequences = integer("sequences", sequences, 20)  # before anything is measured
    with parts_progress() as show:
        outcome = _seed_paper(show, None if again else out, runs, sequences=sequences, seed=seed)
        cells = TableOne(outcome.results["table"].stored)
    cells = cells if noise is None else cells.only(noise)
    text: Any = terminal(cells) if noise is None else column_table(cells)
    record = cells.as_dict()
    return Answer(FORMATS[form](cells).rstrip("\n") if form else text, record, record["cells"])


def _retrain(runs: Path, workers: int | None, dask: str | None) -> None:
    from ridgeformer.papers.vladymyrov2024.paper import grid

    failed = len(run_sweep(list(grid().specs()), runs, workers, dask, quiet=False).failures)
    if failed:
        raise TrainingError(f"all runs must be finished; {failed} failed. Give the same command again to retry these.")


@papers.command()
@click.option("--only", multiple=True, metavar="NAME")
@click.option("--seed", type=click.IntRange(0), default=0)
@THREADS
@answers()
def verify(only: tuple[str, ...], seed: int) -> Answer:
    """Check the theorems and lemmas of vladymyrov2024 numerically.

    Prints for every claim the measured error, the largest error that is allowed, and whether the claim holds. Where
    the paper prints a different formula, the last column has the error of that formula. The exit code is 1 if a claim
    fails. The statements are linear_model, quadratic, momentum, heads, second_order, rescaling, step_size and
    fixed_noise.

    Options:
        --only: Check only this statement. May be repeated.
        --seed: Seed of the random numbers.

    Examples:
        ridgeformer papers verify
        ridgeformer papers verify --only momentum --only step_size
        ridgeformer papers verify --csv theorems.csv
    """
    from ridgeformer.papers.vladymyrov2024.theory.verification import STATEMENTS, verify as check_all

    with parts_progress() as step:
        checks = check_all(only, seed=seed, progress=step)
    failed = sum(not check.passed for check in checks)
    rows = [
        {
            "claim": check.what,
            "error": f"{check.error:.2g}",
            "allowed": f"{check.bound:.2g}",
            "verdict": "holds" if check.passed else "FAILS",
            "as printed": "" if check.as_printed is None else f"{check.as_printed:.2g}",
        }
        for check in checks
    ]
    head, *lines = aligned(rows).splitlines()
    parts = []
    for name, group in itertools.groupby(zip(checks, lines, strict=True), lambda pair: pair[0].statement):
        parts.append("\n".join([STATEMENTS[name], *(f"  {line}" for _, line in group)]))
    verdict = f"{failed} of {len(checks)} claims fail." if failed else f"All {len(checks)} claims hold."
    record = {"passed": not failed, "checks": [check.as_dict() for check in checks]}
    text = "\n\n".join([f"  {head}", *parts, verdict])
    return Answer(text, record, record["checks"], code=1 if failed else 0)  # type: ignore[arg-type]
