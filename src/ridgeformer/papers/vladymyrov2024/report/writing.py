"""One self-contained HTML page with the claims, the table, the figures and how they were made.

Its charts are drawn by the library that the playground bundles. A further table is one more item of `tables`,
which `_table` makes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from ridgeformer.losses import EXPLODES
from ridgeformer.papers.pages import svg, write_page as page_in
from ridgeformer.papers.paper import Check, claim_of
from ridgeformer.papers.running import PaperOutcome, facts
from ridgeformer.papers.vladymyrov2024 import paper
from ridgeformer.papers.vladymyrov2024.claims import CLAIMS
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, DEEP, SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.figures import COLOURS, FIGURES, MARKERS
from ridgeformer.papers.vladymyrov2024.render import column_name, short
from ridgeformer.papers.vladymyrov2024.table import FLOOR, TableOne
from ridgeformer.playground.links import charts
from ridgeformer.zoo import nearest as nearest_models

SHAPES = {"s": "square", "o": "circle", "^": "triangle"}  # the page's names for the figures' markers
OFTEN = 1e-7  # models that explode more often are named
DASHES = {"ConstRR": "2 3", "AdaRR": "8 4", "TunedRR": "12 4 2 4"}


def write_page(outcome: PaperOutcome, folder: Path) -> Path:
    """Write `vladymyrov2024.html` into a folder: one file with the table, the figures and the claims.

    Args:
        outcome: The outcome of the paper.
        folder: Where the page goes; it is made if it does not exist.

    Returns:
        The path of the page.

    Raises:
        StorageError: The folder cannot be written to.
        MissingPackageError: matplotlib is not installed.
    """
    text = json.dumps(_data(outcome), allow_nan=False).replace("</", "<\\/")
    page, script = (Path(__file__).with_name(name).read_text() for name in ("page.html", "page.js"))
    parts = {"PAPER": outcome.paper.link, "SOFTWARE": _repository(), "SCRIPT": script, "PLOT": charts(), "DATA": text}
    for name, part in parts.items():
        page = page.replace(f"@{name}@", part)
    return page_in(folder, f"{outcome.paper.id}.html", page)


def _repository() -> str:
    """The address of the software."""
    addresses = (text.split(", ") for text in metadata("ridgeformer").get_all("Project-URL", []))
    return str(next(address for name, address in addresses if name == "Repository"))


def _verdict(cell: Any) -> str:
    """The check that a cell fails, or its comparison with the paper's number."""
    if len(cell.faults):
        return "fails a check: " + "; ".join(cell.faults)
    below = cell.loss < cell.paper - 2 * cell.paper_error - cell.rounding
    return "clearly below the paper's number" if below else "agrees with the paper's number"


def _data(outcome: PaperOutcome) -> dict[str, Any]:
    evidence = Evidence(outcome.results.stored, outcome.results.parts)
    table, claims = evidence.table, outcome.checks[: len(CLAIMS)]
    return {
        "summary": _summary(table, claims),
        "columns": paper.COLUMNS,
        "names": {noise: column_name(noise) for noise in paper.COLUMNS},
        "depths": paper.DEPTHS,
        "baselines": paper.BASELINES,
        "floor": FLOOR,
        "bayes": BAYES,
        "explodes": EXPLODES,
        "sequences": {"table": table.sequences, "level": evidence.fewer},
        "shown": SHOWN,
        "rows": [
            {"method": row[0], "layers": row[1], "name": paper.name_of(*row), "first": paper.begins_group(*row)}
            for row in paper.ROWS
        ],
        "cells": [{**cell.stored, "verdict": _verdict(cell)} for cell in table.cells.values()],
        "methods": [
            {
                "name": method,
                "label": paper.name_of(method),
                "colour": COLOURS[method],
                "dash": DASHES.get(method, ""),
                "layered": method in paper.FAMILIES,
                "mark": SHAPES.get(MARKERS.get(method, ""), ""),
            }
            for method in (*paper.FAMILIES, *paper.BASELINES, FLOOR)
        ],
        "profiles": {noise: _profiles(evidence, noise) for noise in paper.COLUMNS},
        "claims": [claim.as_dict() for claim in claims],
        "figures": [
            {"number": number, "caption": FIGURES[number].caption, "image": svg(FIGURES[number], outcome.results)}
            for number in filter(str.isdecimal, FIGURES)
        ],
        "tables": [_baselines(table), _nearest(), _explosions(evidence), _made(evidence)],
    }


def _table(name: str, title: str, text: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> dict[str, Any]:
    """A table of texts, which the page shows under its title; without names of columns it is a list of facts."""
    return {"id": name, "title": title, "text": text, "columns": list(columns), "rows": [list(row) for row in rows]}


def _nearest() -> dict[str, Any]:
    """For every noise, the shipped model that is nearest to the floor.

    The shipped models that are nearest to the floor, those beyond the paper's families included; what they reach was
    measured when they were trained. Channels have room for intermediate results.
    """
    rows = [
        [noise, row["name"], f"{row['ratio']:.3f}", str(row["explosions"])] for noise, row in nearest_models().items()
    ]
    columns = ["noise", "model", "loss / floor", "explosions"]
    return _table("nearest", "Nearest to the floor", claim_of(_nearest), columns, rows)


def _explosions(evidence: Evidence) -> dict[str, Any]:
    """How often every model explodes, what it really is, and what caution cost; those that explode often are named.

    Probabilities of explosions are measured by importance sampling; with fewer than 10 effective hits they are rather
    too low. The actual model is the one that the search chose, which may be of a simpler family. The price of caution
    is how much more loss the model has than the one that a short descent leads to from it without regard to explosions
    (losses above a ceiling count by their logarithm). It is a lower bound: a whole search without caution may find
    more. The search for GD++ takes no account of explosions.
    """
    models = {f"{paper.name_of(row.method, row.layers)}, {row.noise}": row for row in evidence.explosions.rows}
    often = sorted((row.probability, name) for name, row in models.items() if row.probability > OFTEN)
    text = (
        f"A sequence explodes if its loss is above {EXPLODES} times the signal. {claim_of(_explosions)} {len(often)} "
        f"of {len(models)} models explode with a probability above {OFTEN:g}: "
        f"{'; '.join(name for _, name in reversed(often))}."
    )
    rows = []
    for name, row in models.items():
        least = "at least about " if row.bound == "lower" else ""
        rare = [f"{least}{row.probability:.1e}", f"{row.error:.0e}", f"{row.hits:.0f}"]
        seen = rare if row.bound != "upper" else ["none seen", "", "0"]
        rows.append([name, row.actual, *seen, "no caution" if row.price is None else f"{row.price:.1%}"])
    columns = ["model", "actual model", "explosion probability", "±", "effective hits", "price of caution"]
    return _table("x", "Explosions, actual models and the price of caution", text, columns, rows)


def _baselines(table: TableOne) -> dict[str, Any]:
    """Baselines and floors of all problems.

    The floor is the loss of the Bayes predictor, averaged over the noise levels of a problem. No predictor has a
    smaller expected loss. It belongs to the whole distribution of noise levels: at a single level, another predictor
    can have a smaller loss. The ratio is the loss of the best model over the floor.
    """
    rows = []
    for noise in paper.COLUMNS:
        cells, best = [table[name, None, noise] for name in paper.BASELINES], table.best(noise)
        pairs = (short(number) for cell in cells for number in (cell.loss, cell.paper))
        ratio = "-" if best.ratio is None else f"{best.ratio:.2f}"
        rows.append(
            [noise, short(best.floor), short(best.floor_error), *pairs, f"{best.row}: {short(best.loss)}", ratio]
        )
    names = [text for name in paper.BASELINES for text in (name, "paper")]
    columns = ["noise", "floor", "±", *names, "best model", "ratio"]
    return _table("baselines", "Baselines and floors", claim_of(_baselines), columns, rows)


def _summary(table: TableOne, claims: Sequence[Check]) -> str:
    verdicts = Counter(claim.verdict for claim in claims)
    nearest = min((cell for cell in table.models if cell.ratio), key=lambda cell: cell.ratio)
    return (
        f"{len(table.models)} trained models and {len(table.cells) - len(table.models)} baselines, evaluated on "
        f"{table.sequences:,} fresh sequences each. {table.better} of the models have a lower loss than in the paper; "
        f"{len(table.faulty)} cells fail a check. The model closest to its floor is {nearest.row}, {nearest.noise}, "
        f"with {nearest.ratio:.2f} times the floor. Of the {len(claims)} claims of the paper, {verdicts['supported']} "
        f"are supported by the measurements, {verdicts['partly supported']} partly supported and "
        f"{verdicts['contradicted']} contradicted."
    )


def _profiles(evidence: Evidence, noise: str) -> dict[str, Any]:
    part = evidence.profiles[noise]
    return {
        **part.stored,
        "sigmas": [round(sigma, 6) for sigma in part.sigmas],
        "depths": paper.DEPTHS if noise in DEEP else paper.DEPTHS[-1:],
        "losses": {row: [float(f"{loss:.4g}") for loss in losses] for row, losses in part.losses.items()},
    }


def _made(evidence: Evidence) -> dict[str, Any]:
    """How the page was made."""
    training = evidence.training
    seeds = f"seeds {paper.SEEDS[0]} to {paper.SEEDS[-1]}"
    evaluated = (
        f"{evidence.sequences:,} sequences of seed {evidence.table.seed}, exact losses; {evidence.fewer:,} for losses "
        "by layer and for every noise level of a profile"
    )
    now = {name: "/".join(value) if isinstance(value, list) else value for name, value in facts().items()}
    rows = [
        ("models", f"{training.cells} cells, each the best of {seeds} by the loss after training"),
        ("training", f"{training.runs:,} runs, {training.seconds / 60:.0f} minutes in total, each in one process"),
        ("protocol", ", ".join(f"{name} {value}" for name, value in training.protocol.items())),
        ("trained with", ", ".join(f"{name} {value}" for name, value in training.made_with.items())),
        ("evaluation", evaluated),
        ("problems", "d = 10, n = 20, x and w standard normal"),
        ("evaluated with", ", ".join(f"{name} {value}" for name, value in now.items())),
        ("to repeat", "make reproduce; with training: make reproduce-from-scratch"),
    ]
    return _table("made", "How this page was made", "", (), rows)
