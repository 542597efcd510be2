"""The command line: parses, calls and prints."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ridgeformer import __version__
from ridgeformer.errors import InputError

__all__ = ["main"]


class _Group(click.Group):
    """Shows commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  ridgeformer info\n  ridgeformer baselines --noise 'uniform(0,5)'\n"
    "  ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer bench --quick",
)
@click.version_option(__version__, message="ridgeformer %(version)s")
def cli() -> None:
    """In-context learning in linear transformers, near the machine's limit."""


@cli.command(epilog="Example:\n\n\b\n  ridgeformer info --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def info(as_json: bool) -> None:
    """Show the version, the CPU features in use and the number of threads."""
    facts = _facts()
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name.replace('_', ' '):<18} {text}")


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer bench --quick\n  ridgeformer bench --only import --only scaling\n"
    "  ridgeformer bench --json --out speed.json"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@click.option("--quick", is_flag=True, help="Fewer repetitions and no comparison with PyTorch and JAX.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this group of figures; may be repeated.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the JSON to this file.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Seeds to train with.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads to use (default: all cores).")
def bench(as_json: bool, quick: bool, only: tuple[str, ...], out: Path | None, seeds: int, threads: int | None) -> None:
    """Measure this machine's speed as ratios taken in one run, and what training reaches in which time.

    The whole run compares with PyTorch and JAX if they are installed: pip install 'ridgeformer[bench]'.
    """
    from rich.console import Console

    from ridgeformer.benchmarks import run
    from ridgeformer.benchmarks.report import table

    if out is not None and not os.access(out.parent, os.W_OK):
        raise InputError(f"--out must be in a writable folder; {out.parent} is not. Choose another file.")
    error_console = Console(stderr=True)
    with error_console.status("measuring ...") as status:
        results = run(
            quick=quick,
            only=only,
            seeds=seeds,
            threads=threads,
            progress=lambda text: status.update(f"measuring {text} ..."),
        )
    record: dict[str, Any] = {"machine": _facts(), "figures": [figure.as_dict() for figure in results]}
    if out is not None:
        out.write_text(json.dumps(record, indent=2) + "\n")
    if as_json:
        click.echo(json.dumps(record, indent=2))
        return
    console = Console()
    console.print(table(results, console.width))
    compared = " ".join(figure.name for figure in results)
    if "frameworks" in (only or () if quick else only or ("frameworks",)):
        for name in ("PyTorch", "JAX"):
            if name not in compared:
                click.echo(
                    f"{name} is not installed, so nothing is compared with it: pip install 'ridgeformer[bench]'."
                )


def _problem_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name a problem, and how to evaluate on it."""
    for option in reversed(
        [
            click.option("--noise", required=True, help="Such as 'uniform(0,5)', 'categorical(1,3)', 'fixed(2)'."),
            click.option("--dim", default=10, show_default=True, help="Dimension d."),
            click.option("--context", default=20, show_default=True, help="Context length n."),
            click.option("--sequences", default=100_000, show_default=True, help="Fresh sequences to evaluate on."),
            click.option("--seed", default=0, show_default=True, help="Seed of all random numbers."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts."),
        ]
    ):
        command = option(command)
    return command


@cli.command(epilog="Example:\n\n\b\n  ridgeformer baselines --noise 'uniform(0,5)'")
@_problem_options
def baselines(noise: str, dim: int, context: int, sequences: int, seed: int, as_json: bool) -> None:
    """Print every baseline's adjusted loss on a problem, and the Bayes floor."""
    from ridgeformer import baselines as classical
    from ridgeformer.bayes import BayesRR
    from ridgeformer.evaluation import compare
    from ridgeformer.problem import Problem

    problem = Problem(dim, context, noise)
    chosen: dict[str, classical.Predictor] = {
        "OracleRR": classical.OracleRR(),
        "ConstRR": classical.ConstRR.tune(problem),
        "LeastSquares": classical.LeastSquares(),
    }
    if context > dim:
        chosen |= {
            "AdaRR": classical.AdaRR(),
            "TunedRR": classical.TunedRR.tune(problem),
            "IterativeRR(100)": classical.IterativeRR(100),
        }
    chosen["Bayes floor"] = BayesRR(problem.noise)
    with _progress("baselines") as step:
        found = compare(chosen, problem, sequences=sequences, seed=seed, progress=step)
    _print_results(problem, [*found.values()], as_json)
    if context <= dim and not as_json:
        click.echo("AdaRR, TunedRR and IterativeRR need n > d to estimate the noise, so they are left out.")


@cli.command("eval", epilog="Example:\n\n\b\n  ridgeformer eval model.safetensors --noise 'uniform(0,5)'")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--estimator", type=click.Choice(["exact", "query"]), default="exact", show_default=True)
@_problem_options
def evaluate_model(
    model: Path, estimator: Any, noise: str, dim: int, context: int, sequences: int, seed: int, as_json: bool
) -> None:
    """Print a model's adjusted loss on a problem, beside the floor."""
    from ridgeformer.evaluation import evaluate
    from ridgeformer.model_file import load
    from ridgeformer.problem import Problem

    problem = Problem(dim, context, noise)
    with _progress("evaluating") as step:
        loaded = load(model)
        found = evaluate(loaded, problem, sequences=sequences, seed=seed, estimator=estimator, progress=step)
    _print_results(problem, [replace(found, name=model.name)], as_json)
    if estimator == "query" and not as_json:
        exact = evaluate(loaded, problem, sequences=sequences, seed=seed)
        ratio = (found.error / exact.error) ** 2 if exact.error else float("inf")
        click.echo(f"exact: {exact.loss:.5f} +- {exact.error:.5f}, a variance {ratio:.0f} times smaller")


@cli.command(epilog="Example:\n\n\b\n  ridgeformer profile model.safetensors --noise 'uniform(0,5)' --plot profile.png")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it to this file (needs matplotlib)."
)
@_problem_options
def profile(
    model: Path, plot: Path | None, noise: str, dim: int, context: int, sequences: int, seed: int, as_json: bool
) -> None:
    """Print a model's adjusted loss at every noise level, from 0 to one past the range it is for."""
    from ridgeformer.bayes import BayesRR
    from ridgeformer.evaluation import profile as measure
    from ridgeformer.model_file import load
    from ridgeformer.problem import Problem

    problem = Problem(dim, context, noise)
    loaded = load(model)
    if plot is not None:
        from ridgeformer.plots import check_plot

        check_plot(plot)
    with _progress("profile") as step:
        found = measure(loaded, problem, sequences=sequences, seed=seed, progress=step)
        best = measure(BayesRR(problem.noise), problem, sequences=min(sequences, 20_000), seed=seed, progress=step)
    if plot is not None:
        from ridgeformer.plots import draw_profile

        draw_profile(plot, str(problem), {"model": found, "Bayes": best})
    if as_json:
        columns = {"sigma": found.sigmas, "loss": found.losses, "error": found.errors, "bayes": best.losses}
        record = {name: values.tolist() for name, values in columns.items()}
        click.echo(json.dumps({"problem": str(problem), **record, "in": found.in_distribution.tolist()}, indent=2))
        return
    click.echo(f"{problem}\n\n sigma      loss    +-          Bayes")
    for row in zip(found.sigmas, found.losses, found.errors, best.losses, found.in_distribution, strict=True):
        click.echo(f"{row[0]:6.3f} {row[1]:10.5f} {row[2]:8.5f} {row[3]:10.5f}{'' if row[4] else '   outside'}")


_FAMILIES = click.Choice(["gdpp", "diag", "full"])
_PLOT = click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the learning curve here (needs matplotlib)."
)


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer train --family full --layers 4 --noise 'categorical(1,3)' --seed 3 --json\n"
    "  ridgeformer train --layers 2 --noise 'fixed(1)' --dim 3 --context 6 --plot curve.png\n"
    "  ridgeformer train --protocol paper --layers 4 --noise 'uniform(0,5)' --out runs/"
)
@click.option("--family", type=_FAMILIES, default="diag", show_default=True, help="Parameters of a layer.")
@click.option("--layers", default=4, show_default=True, help="Depth.")
@click.option("--heads", default=1, show_default=True, help="Heads a layer.")
@_problem_options
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for runs: what is there is found, or gone on with."
)
@click.option("--protocol", type=click.Choice(["search", "paper"]), default="search", show_default=True)
@click.option("--effort", type=float, help="search: starts and steps, relative to the default.")
@click.option("--caution", type=float, help="search: weight of sequences that explode, relative to the default.")
@click.option(
    "--precision", type=click.Choice(["auto", "float32", "float64"]), help="search: what descents compute in."
)
@click.option("--seconds", type=float, help="search: stop after so long, with the best so far.")
@click.option("--steps", type=int, help="paper: steps of Adam [default: 200000].")
@click.option("--batch", type=int, help="paper: sequences a step [default: 2048].")
@click.option("--rate", type=float, help="paper: learning rate [default: 1e-4].")
@_PLOT
@click.option("--quiet", "-q", is_flag=True, help="No progress display.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads to use (default: all cores).")
def train(
    family: str,
    layers: int,
    heads: int,
    noise: str,
    dim: int,
    context: int,
    sequences: int,
    seed: int,
    as_json: bool,
    out: Path | None,
    protocol: str,
    plot: Path | None,
    quiet: bool,
    threads: int | None,
    **options: Any,
) -> None:
    """Train a linear transformer on a problem, and print how good it is.

    The shallower models and those of the poorer families, from which it is grown, are trained first; with --out all of
    them are kept. A run that was stopped goes on when the same command is given again.
    """
    from ridgeformer.problem import Problem
    from ridgeformer.training import Paper, Search
    from ridgeformer.training import train as fit

    chosen = {"search": ("effort", "caution", "precision", "seconds"), "paper": ("steps", "batch", "rate")}
    given = {name: value for name, value in options.items() if value is not None}
    wrong = sorted(given.keys() - set(chosen[protocol]))
    if wrong:
        raise InputError(
            f"--protocol {protocol} takes --{', --'.join(chosen[protocol])}; got --{wrong[0]}, the other one's. "
            "Leave it out, or choose that protocol."
        )
    recipe = Paper(**given) if protocol == "paper" else Search(**given)
    problem = Problem(dim, context, noise)
    if plot is not None:
        from ridgeformer.plots import check_plot

        check_plot(plot)
    try:
        with _training_display(problem, sequences, quiet) as callback:
            found = fit(
                problem,
                family,
                layers,
                heads,
                seed=seed,
                protocol=recipe,
                sequences=sequences,
                out=out,
                callback=callback,
                threads=threads,
            )
    except KeyboardInterrupt:
        again = f"what is done is kept in {out}: give the same command again to go on" if out else "nothing was kept"
        click.echo(f"ridgeformer: stopped; {again}", err=True)
        sys.exit(130)
    _print_training(found, as_json, plot)


@cli.command(
    epilog="Example:\n\n\b\n  ridgeformer show runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789 --plot curve.png"
)
@click.argument("run", type=click.Path(path_type=Path))
@_PLOT
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def show(run: Path, plot: Path | None, as_json: bool) -> None:
    """Print a finished run; or, of a folder of runs, one line for each."""
    from ridgeformer.training import load_run
    from ridgeformer.training.runs import read_record

    if plot is not None:
        from ridgeformer.plots import check_plot

        check_plot(plot)
    inside = sorted(run.glob("*/spec.json")) if run.is_dir() and not (run / "spec.json").exists() else []
    if not inside:
        _print_training(load_run(run), as_json, plot)
        return
    if plot is not None:
        raise InputError(f"--plot must be given one run; {run} holds {len(inside)}. Name one of its folders.")
    records, damaged, unfinished = [], [], 0
    for folder in (path.parent for path in inside):
        if not (folder / "record.json").exists():
            unfinished += 1
            continue
        try:
            record = read_record(folder)
            result = record["result"]
            ratio = f"{result['ratio']:7.2f}" if result["ratio"] is not None else "      -"
            line = f"{float(result['loss']):10.4g} {ratio}  {record['status']:14}  {folder.name}"
            records.append((record, line))
        except (InputError, KeyError, TypeError, ValueError) as error:
            damaged.append(f"damaged: {folder.name}: {error}")
    if as_json:
        click.echo(json.dumps([record for record, _ in records], indent=2))
        return
    click.echo("      loss x floor  status          run")
    for _, line in records:
        click.echo(line)
    if unfinished:
        click.echo(f"{unfinished} unfinished: give their commands again to go on")
    for line in damaged:
        click.echo(" ".join(line.split()), err=True)


@cli.command(
    epilog="A grid is a TOML file of lists; every combination is a run:\n\n\b\n"
    "  noise = ['uniform(0,5)', 'categorical(1,3)']\n  family = ['diag', 'full']\n  layers = [1, 2, 3, 4]\n"
    "  seed = [0, 1, 2, 3, 4]\n\nIt may also have dim, context, heads, sequences and [protocol].\n\n"
    "Examples:\n\n\b\n  ridgeformer sweep grid.toml --out runs/\n"
    "  ridgeformer sweep grid.toml --out runs/ --dask tcp://host:8786"
)
@click.argument("grid", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the runs.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes (default: one a core).")
@click.option("--dask", metavar="ADDRESS", help="Run on this Dask scheduler instead; needs ridgeformer[dask].")
@click.option("--quiet", "-q", is_flag=True, help="No progress display.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def sweep(grid: Path, out: Path, workers: int | None, dask: str | None, quiet: bool, as_json: bool) -> None:
    """Train every run of a grid, several at a time; finished ones are found and skipped."""
    from ridgeformer.sweeps import read_grid
    from ridgeformer.sweeps import sweep as run

    specs = list(read_grid(grid).specs())
    client = _dask_client(dask) if dask else None
    try:
        with _progress(f"{len(specs)} runs") as bar:

            def show(state: Any) -> None:
                if not quiet:
                    bar(state.done, state.total)

            executor = client.get_executor() if client else None
            found = run(specs, out, executor=executor, workers=workers, progress=show)
    except KeyboardInterrupt:
        click.echo(f"ridgeformer: stopped; give the same command again to go on from what is in {out}", err=True)
        sys.exit(130)
    finally:
        if client is not None:
            client.close()
    if as_json:
        failures = [{"run": failure.run, "reason": failure.reason} for failure in found.failures]
        folders = [str(folder) for folder in found.folders]
        record = {"runs": len(specs), "finished": folders, "found": found.found, "failures": failures}
        click.echo(json.dumps({**record, "seconds": found.seconds}, indent=2))
    else:
        new = len(found.folders) - found.found
        click.echo(f"{new} trained, {found.found} found, {len(found.failures)} failed, {found.seconds:.1f} s; see")
        click.echo(f"  ridgeformer show {out}")
        for failure in found.failures:
            click.echo(f"failed: {failure.run}: {failure.reason}", err=True)
    if found.failures:
        sys.exit(1)


def _dask_client(address: str) -> Any:
    try:
        from dask.distributed import Client
    except ImportError as error:
        raise InputError("--dask needs Dask, which is missing. Run pip install 'ridgeformer[dask]'.") from error
    try:
        return Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--dask must be the address of a running scheduler; {address} does not answer ({error}). "
            "Start one with `dask scheduler`."
        ) from error


@contextlib.contextmanager
def _training_display(problem: Any, sequences: int, quiet: bool) -> Iterator[Callable[[Any], None]]:
    """A line on stderr that says how far training has come; where that is no terminal, one every ten seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from ridgeformer.evaluation import floor

    console = Console(stderr=True)
    if quiet:
        yield lambda progress: None
        return
    if not console.is_terminal:
        yield _lines()
        return
    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{problem}", total=1.0, state="the floor ...")
        least = floor(problem, sequences=min(sequences, 20_000)).loss

        def show(now: Any) -> None:
            ratio = f" ({now.loss / least:.2f} x floor)" if now.loss < 1e6 * least else ""
            state = f"{now.phase}: loss {now.loss:.4g}{ratio}, {now.seconds:.0f} s, {now.remaining:.0f} s left"
            bar.update(task, completed=now.fraction, description=now.run.split(", d=")[0], state=state)

        yield show


def _lines() -> Callable[[Any], None]:
    """For logs: a line now and then."""
    last = 0.0

    def show(now: Any) -> None:
        nonlocal last
        if now.seconds - last >= 10:
            last = now.seconds
            text = f"{now.run.split(', d=')[0]}, {now.phase}: loss {now.loss:.4g}, {now.remaining:.0f} s left"
            click.echo(f"{now.seconds:.0f} s, {100 * now.fraction:.0f} %: {text}", err=True)

    return show


def _print_training(training: Any, as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        from ridgeformer.plots import draw_training

        draw_training(plot, training)
    if as_json:
        click.echo(
            json.dumps({**training.record(), "folder": str(training.folder) if training.folder else None}, indent=2)
        )
        return
    r = training.result
    ratio = f", {r.ratio:.3g} x the floor of {r.floor:.4g}" if r.ratio < 1e6 else ""
    made = ", ".join(f"{name} {value}" for name, value in training.made_with.items())
    rows = {
        "status": f"{training.status}: {training.message}",
        "loss": f"{r.loss:.5g} +- {r.error:.2g} on {r.sequences:,} fresh sequences{ratio}",
        "tail": f"99.99 %: {r.tail:.3g}, largest: {r.largest:.3g}, exploded: {r.exploded} of {r.sequences:,}",
        "time": f"{training.seconds:.1f} s; {training.total_seconds:.1f} s with the models it was grown from",
        "made with": made,
        "stored in": training.folder or "nowhere: add --out runs/ to keep it",
    }
    click.echo(training.spec.describe() + f", seed {training.spec.seed}")
    for name, text in rows.items():
        click.echo(f"  {name:10} {text}")


@contextlib.contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_results(problem: object, results: list[Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"problem": str(problem), "results": [r.as_dict() for r in results]}, indent=2))
        return
    wide = max(10, *(len(r.name) for r in results))
    click.echo(f"{problem}: adjusted loss on {results[0].sequences:,} sequences, floor {results[0].floor:.5f}\n")
    click.echo(f"{'':{wide}}     loss       +- x floor unadjusted 99.99 %     max exploded")
    for r in results:
        ratio = f"{r.ratio:.2f}" if r.ratio < 1e6 else "-"
        losses = f"{r.loss:9.5f}{r.error:9.5f}{ratio:>8}{r.unadjusted:11.4f}{r.tail:8.2g}{r.largest:8.2g}"
        click.echo(f"{r.name:{wide}}{losses}{r.exploded:9}")


def _facts() -> dict[str, Any]:
    import platform

    import numpy

    from ridgeformer import engine

    facts: dict[str, Any] = {
        "version": __version__,
        "engine": engine.current().name,
        "engines": list(engine.available()),
        "threads": engine.default_threads(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }
    return facts


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every error is one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_, **__: click.echo(f"ridgeformer: warning: {message}", err=True)
    try:
        code = cli.main(args=arguments, prog_name="ridgeformer", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 0
    except click.ClickException as error:
        _fail(error.format_message())
    except InputError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("ridgeformer: interrupted", err=True)
        sys.exit(130)
    except MemoryError:
        _fail("not enough memory for this; use fewer sequences or a smaller dimension")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror}")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    click.echo("ridgeformer: error: " + " ".join(message.split()), err=True)
    sys.exit(2)
