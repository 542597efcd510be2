"""Training: a problem and a family in, a result out.

>>> from ridgeformer import Problem, train
>>> result = train(Problem(dim=3, context=6, noise="uniform(0,2)"), "gdpp", layers=2)
>>> result.status, result.model
('converged', LinearTransformer(gdpp, dim=3, layers=2, heads=1))
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ridgeformer.engine import Layout
from ridgeformer.errors import refuse, shown
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.callbacks import AnyCallback, Callback, Display, as_callbacks
from ridgeformer.training.results import Training
from ridgeformer.training.runs import Runs
from ridgeformer.training.session import Session
from ridgeformer.training.spec import Protocol, make_spec
from ridgeformer.training.store import Store, as_store
from ridgeformer.validation import keywords

SEQUENCES = 100_000
ELSEWHERE = dict.fromkeys(("rate", "steps", "batch"), "protocol=GradientDescent(rate=..., steps=..., batch=...)")


@keywords(**ELSEWHERE)
def train(
    problem: BaseProblem,
    family: str | type[Family] = "diag",
    layers: int = 4,
    heads: int = 1,
    *,
    seed: int = 0,
    protocol: str | Protocol = "search",
    sequences: int = SEQUENCES,
    layout: Layout | Mapping[str, Any] | None = None,
    init: LinearTransformer | None = None,
    out: str | os.PathLike[str] | Store | None = None,
    callbacks: Sequence[AnyCallback] = (),
    progress: bool = True,
    threads: int | None = None,
) -> Training:
    """Train a linear transformer of a family on a problem: by default, find the best one.

    The search grows a model from shallower ones and from simpler families (Full contains Diag, Diag contains GD++),
    which are trained first and stay candidates to the end: one more layer or a larger family is never worse.

    Args:
        problem: What to train on.
        family: `gdpp`, `diag`, `full`, the name of a family of your own, or a `Family` class.
        layers: Layers of the model, from 1 to 1000; of a looped family those of one repetition, where `model.layers`
            counts all.
        heads: Heads per layer, from 1 to 64.
        seed: Seed of the starts and of the sequences. Runs with the same arguments have the same bits.
        protocol: How to train. `search`, the default, finds the best model; `paper` does what the paper did. To watch
            how a model learns: `GradientDescent`, `SGD`, `Adam` or `GradientFlow`, or by name, with their default
            settings, `descent`, `sgd`, `adam` or `flow`.
        sequences: How many fresh sequences the reported loss is measured on.
        layout: What the model's tokens hold beside (x, y), and whether its attention is a sum or a mean: a `Layout`, or
            some of its attributes, such as `{"attention": "mean"}`. What is not given follows from the problem: sums
            where all contexts have the same length; otherwise means, and where the family has room for it, a further
            coordinate that shows the length.
        init: A model to start from, of the same family, layers, heads and layout. A search takes it as a further start.
            None for random starts.
        out: Folder for runs; every model, also those it is grown from, becomes a run in it. Finished runs are reused;
            interrupted runs resume. None keeps everything in memory.
        callbacks: `Callback` objects, such as `CSVLogger("history.csv")`, or functions that are called with a
            `TrainingProgress` after every piece of work. If one raises an error, training stops.
        progress: Whether to show a progress line on stderr. It appears after two seconds, where stderr is a terminal or
            a notebook.
        threads: Threads of the engine; None for all cores. They change no bits.

    Returns:
        The model, its loss, the floor, and how training went.

    Raises:
        InputError: An argument is not allowed.
        StorageError: The folder cannot be written to.
    """
    make = functools.partial(make_spec, problem, family, protocol=protocol, sequences=sequences, layout=layout)
    spec = make(layers=layers, heads=heads, seed=seed, init=init)
    with _listening(callbacks, progress) as listeners:
        return Session(as_store(out), listeners, threads, [spec]).train(spec)


@keywords(**ELSEWHERE)
def train_many(
    problem: BaseProblem,
    families: Sequence[str | type[Family]] = ("gdpp", "diag", "full"),
    layers: Iterable[int] = range(1, 8),
    heads: int = 1,
    *,
    seeds: Iterable[int] = (0,),
    protocol: str | Protocol = "search",
    sequences: int = SEQUENCES,
    layout: Layout | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | Store | None = None,
    callbacks: Sequence[AnyCallback] = (),
    progress: bool = True,
    threads: int | None = None,
) -> Runs:
    """Train several models on one problem.

    What one model needs of another is trained once: seven depths cost what the deepest does. Models of one seed see
    the same sequences.

    Args:
        problem: What to train on.
        families: Families, by name or class.
        layers: Depths.
        heads: Heads per layer, from 1 to 64.
        seeds: Seeds; every family and depth is trained with each of them.
        protocol: As for `train`.
        sequences: As for `train`.
        layout: As for `train`.
        out: As for `train`.
        callbacks: As for `train`; fractions and seconds are those of the whole call.
        progress: As for `train`.
        threads: As for `train`.

    Returns:
        A table, and a sequence of one training for each seed, family and depth, in this order: all depths of the first
        family and seed first.

    Raises:
        InputError: An argument is not allowed, or there is nothing to train.
        StorageError: The folder cannot be written to.
    """
    if isinstance(families, str) or not isinstance(families, Iterable) or not isinstance(layers, Iterable):
        refuse("families and layers must be lists", f"{families!r} and {layers!r}", "Pass ['diag'] and range(1, 8).")
    depths = list(layers)
    make = functools.partial(make_spec, problem, heads=heads, protocol=protocol, sequences=sequences, layout=layout)
    specs = [make(family, layers=depth, seed=seed) for seed in seeds for family in families for depth in depths]
    if not specs:
        refuse("there must be something to train", "no family, depth or seed", "Pass at least one of each.")
    with _listening(callbacks, progress) as listeners:
        session = Session(as_store(out), listeners, threads, specs)
        return Runs.of(session.train(spec) for spec in specs)


@contextlib.contextmanager
def _listening(callbacks: Sequence[AnyCallback], progress: bool) -> Iterator[list[Callback]]:
    """All callbacks; the progress line is closed at the end, however training ends."""
    if not isinstance(progress, bool):
        refuse("progress must be True or False", shown(progress), "Pass functions as callbacks=[...].")
    line = Display() if progress else None
    try:
        yield [*as_callbacks(callbacks), *([] if line is None else [line])]
    finally:
        if line is not None:
            line.close()
