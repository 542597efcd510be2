"""`ridgeformer explain`: the algorithm of a model, layer by layer, with interventions."""

from __future__ import annotations

import functools
import shutil
import textwrap
from collections.abc import Callable
from typing import Any

import click

from ridgeformer import explanation
from ridgeformer.cli.options import Subject, cli, measures_explosions, reads_a_model
from ridgeformer.cli.output import Answer, answers, progress
from ridgeformer.errors import refuse
from ridgeformer.evaluation.explosions import why_unknown
from ridgeformer.evaluation.table import aligned
from ridgeformer.explanation import Explanation, explain as read
from ridgeformer.losses import rounding
from ridgeformer.plotting.explanation import draw_algorithms, draw_explanation, draw_patching

SECTIONS = ("layers", "ablation", "patching", "algorithms")
WORDS = [
    "w: the estimate with which the model would predict if it ended after this layer.",
    "The loss of w is the sum of three errors: of direction; of shrinkage, where the length of w is wrong for the "
    "noise level; and of size, where it is wrong at all noise levels.",
    "Labels: what the layers have made of y. Residuals: what the least-squares solution leaves of y.",
]
PARAMETERS = "Parameters of each layer: omega_ab is the coefficient with which part b of a token enters part a."
NEAREST = f"{PARAMETERS}\nThe omegas are of the nearest diagonal layer; diagonal and acting: its shares of the layer."
STATES = """\
State after each layer (0: before the first). known: rank correlation of sigma with the sum of squared labels. moved:
how far w moves if the residuals of another sequence are substituted. condition: of M S M', with its quantiles."""
UPDATES = """\
What each layer contributes. momentum: squared part of the update that is due to u. 1 - beta: fraction of u that the
layer keeps. noise through it: share of `moved`. without it: loss without the layer over the loss of the model."""
BY_NOISE = """\
At fixed noise levels, by layer. factor: what the layer multiplies w by. step size, step to OLS: coefficients of the
update on the gradient and on the difference to least squares (OLS). The last rows are squared distances of w."""


@cli.command()
@click.option("--section", "sections", type=click.Choice(SECTIONS), multiple=True, default=["layers"])
@click.option("--numbers", is_flag=True)
@click.option("--low", type=float)
@click.option("--high", type=float)
@click.option("--iterations", type=int, default=200)
@measures_explosions("layers: also")
@answers(plot="the section")
@reads_a_model(sequences=None)
def explain(
    subject: Subject,
    sections: tuple[str, ...],
    numbers: bool,
    low: float | None,
    high: float | None,
    iterations: int,
    explosions: bool,
) -> Answer:
    """Say in words what each layer of a model does.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'. Every
    sentence follows from measurements by a fixed rule; the rules are listed in docs/explanations/explain.md. The
    default number of sequences is 20000 for layers and ablation, 2000 for patching and 1000 for algorithms.

    Options:
        --section: What to explain; may be repeated. layers: what each layer does, in words. ablation: the loss without
            each layer and without each term of a layer. patching: which layers carry the noise level, by exchanging
            states between contexts of two noise levels. algorithms: the iteration of classical algorithms that is
            closest to each layer. [default: layers]
        --numbers: layers: also print all measurements behind the sentences.
        --low: patching: noise level of the contexts [default: 20 % quantile of the noise].
        --high: patching: noise level that states are taken from [default: 80 % quantile].
        --iterations: algorithms: iterations of each algorithm; at most 60 of Newton.

    Examples:
        ridgeformer explain 'zoo:diag/7/uniform(0,5)'
        ridgeformer explain 'zoo:diag/7/uniform(0,5)' --numbers --csv layers.csv
        ridgeformer explain runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789 --plot story.png
        ridgeformer explain model.safetensors --noise 'categorical(1,3)' --section ablation --csv -
        ridgeformer explain 'zoo:diag/7/uniform(0,5)' --section patching --low 0.5 --plot patch.png
        ridgeformer explain 'zoo:gdpp/7/uniform(0,5)' --section algorithms --iterations 1000 --json
    """
    names, files = tuple(dict.fromkeys(sections)), click.get_current_context().params
    if len(names) > 1 and (files["csv_file"] or files["plot"]):
        refuse("--csv and --plot need one section", ", ".join(names), "Ask for one section, or use --json.")
    options: dict[str, dict[str, Any]] = {
        "patching": {"low": low, "high": high},
        "algorithms": {"iterations": iterations},
    }
    parts: dict[str, Answer] = {}
    for name in names:
        with progress(f"measuring {name}") as step:
            sample = {**subject.sample, "progress": step, **options.get(name, {})}
            layers = name == "layers"
            parts[name] = _layers(subject, sample, numbers, explosions) if layers else _table(subject, name, sample)
    if len(parts) == 1:
        return parts[names[0]]
    record = {name: part.record for name, part in parts.items()}
    return Answer("\n\n".join(part.text for part in parts.values()), record)


def _layers(subject: Subject, arguments: dict[str, Any], numbers: bool, explosions: bool) -> Answer:
    explanation = read(subject.problem, subject.model, **arguments)
    text = _text(subject.name, explanation, numbers, explosions)
    return Answer(text, explanation.as_dict(), explanation.rows(), functools.partial(draw_explanation, explanation))


def _table(subject: Subject, name: str, arguments: dict[str, Any]) -> Answer:
    """The answer of a section that is a table."""
    measures: dict[str, tuple[Callable[..., Any], Callable[..., object] | None]] = {
        "ablation": (explanation.ablate, None),
        "patching": (explanation.patch_noise, draw_patching),
        "algorithms": (explanation.compare_algorithms, draw_algorithms),
    }
    measure, draw = measures[name]
    result = measure(subject.problem, subject.model, **arguments)
    head = "Losses without a part of the model; `nothing` is the whole model.\n" if name == "ablation" else ""
    record = {"model": subject.name, "problem": str(subject.problem), **result.as_dict()}
    text = f"{subject.name} on {subject.problem.label}\n{head}{result}"
    return Answer(text, record, result.rows(), draw and functools.partial(draw, result))


def _text(name: str, explanation: Explanation, numbers: bool, explosions: bool) -> str:
    b, model = explanation.behaviour, explanation.model
    left_out = f" ({b.exploded} that explode are left out)" if b.exploded else ""
    floor = f", floor {b.floor:.5f}" if b.floor >= 0 else ""
    ratio = f", ratio {b.loss[-1] / b.floor:.2f}" if b.floor > rounding(explanation.problem.signal) else ""
    rare = explosions and (explanation.explosions or why_unknown(explanation.problem))
    parts = [
        f"{name}: {model.family.name}, {model.layers} layer{'s' * (model.layers > 1)}, on {explanation.problem.label}, "
        f"{b.sequences:,} sequences{left_out}\n"
        f"loss {b.loss[-1]:.5f}{floor}{ratio}" + (f"\nexplosion probability {rare}" if rare else ""),
        _sentences("Summary", explanation.summary),
        _sentences("In numbers", explanation.findings),
        _sentences("Layer by layer", [role.sentence for role in explanation.roles]),
        _sentences("What the further coordinates hold", explanation.contents),
        _sentences("Left out", list(explanation.left_out)),
    ]
    if numbers:
        rows = explanation.rows()
        exact = all(layer.share > 1 - 1e-9 for layer in explanation.coefficients)
        omegas = ["layer", *(f"omega_{flow}" for flow in ("xx", "xy", "yx", "yy"))]
        omegas += [] if exact else ["diagonal", "acting"]
        states = [name for name in rows[0] if name not in (*omegas[1:], "diagonal", "acting")]
        split = states.index("momentum")
        by_noise = explanation.rows_by_noise()
        levels = list(by_noise[0])
        if len(levels) > 8:  # quantity, layer and six levels
            levels = [*levels[:2], *(levels[2 + round(i * (len(levels) - 3) / 5)] for i in range(6))]
        parts += [
            f"{PARAMETERS if exact else NEAREST}\n\n{aligned(_only(rows[1:], omegas))}",
            _symmetry(explanation),
            f"{STATES}\n\n{aligned(_only(rows, states[:split]))}",
            _comparison(explanation),
            f"{UPDATES}\n\n{aligned(_only(rows[1:], ['layer', *states[split:]]))}",
            f"{BY_NOISE}\n\n{aligned(_only(by_noise, levels))}",
            "Definitions: docs/explanations/explain.md.",
        ]
    else:
        parts += [
            _sentences("Words", WORDS),
            "Add --numbers for all measurements behind these sentences. Definitions: docs/explanations/explain.md.",
        ]
    return "\n\n".join(part for part in parts if part)


def _only(rows: list[dict[str, Any]], columns: list[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in columns} for row in rows]


def _sentences(title: str, sentences: list[str]) -> str:
    width = max(40, min(100, shutil.get_terminal_size().columns))
    fill = textwrap.TextWrapper(width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False).fill
    return "\n".join([title, *map(fill, sentences)]) if sentences else ""


def _symmetry(explanation: Explanation) -> str:
    s = explanation.symmetry
    if s is None:
        return ""
    return (
        f"Rotating the inputs x changes w by {100 * s.defect:.3g} % of its mean square. The average of w over "
        f"{s.rotations} rotations\nhas a loss of {s.averaged:.5f}; a single one has {s.loss:.5f} on the same sequences."
    )


def _comparison(explanation: Explanation) -> str:
    b = explanation.behaviour
    if b.moved_bayes != b.moved_bayes:
        return ""
    return (
        "For comparison: the residual sum of squares of least squares has a rank correlation of "
        f"{b.knowable:.3f} with sigma,\nand w of the Bayes predictor moves by {b.moved_bayes:.3f}."
    )
