"""Exact Bayes and a shipped model on real tables with few rows, beside scikit-learn's linear models.

Run it: python examples/real_data.py [REPETITIONS] (200 by default; two minutes)

Needs pip install scikit-learn matplotlib statsmodels. It prints three tables and draws real_data.png. The model was
trained on simulated data alone, and sees the rows of a table for the first time.
"""

import sys
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.linear_model import ARDRegression, BayesianRidge, LinearRegression, RidgeCV

from ridgeformer import Problem
from ridgeformer.plotting import style
from ridgeformer.sklearn import FallbackWarning, InContextRegressor

# Tables of statsmodels and their labels; "" for the labels and features that statsmodels names. All other numeric
# columns are features, at most the first ten.
NAMED = ("anes96", "ccard", "committee", "copper", "cpunish", "fair", "grunfeld", "longley", "modechoice", "randhie")
TABLES = dict.fromkeys((*NAMED, "scotland", "spector", "stackloss", "star98", "statecrime"), "")
TABLES |= {"danish_data": "lrm", "elnino": "DEC", "heart": "survival", "interest_inflation": "R", "macrodata": "unemp"}
MODELS = {
    "Bayes": InContextRegressor(),
    "Full, 7": InContextRegressor("full/7/uniform(0,5)"),
    "RidgeCV": RidgeCV(np.logspace(-2, 3, 16)),
    "BayesianRidge": BayesianRidge(),
    "ARD": ARDRegression(),
    "OLS": LinearRegression(),
}
LEVELS, WIDTHS = (50, 80, 95), (0.674, 1.282, 1.960)  # intervals in percent, and their half-widths for normal labels


def tables():
    """Name, features and labels of every table."""
    for name, data in (("diabetes", load_diabetes()), ("linnerud", load_linnerud())):
        yield name, data.data, data.target.reshape(len(data.data), -1)[:, 0]
    for name, label in TABLES.items():
        data = import_module(f"statsmodels.datasets.{name}").load_pandas()
        x, y = (data.data.drop(columns=label), data.data[label]) if label else (data.exog, data.endog)
        y = y.iloc[:, 0] if y.ndim == 2 else y
        yield name, x.select_dtypes("number").to_numpy(float)[:, :10], y.to_numpy(float)


def trial(x, y, new_x, new_y):
    """Squared errors of every model, [m, K], and which intervals of the Bayesian ones hold, [2, 3]."""
    centre, scale = x.mean(0), np.where(np.ptp(x, axis=0) > 0, x.std(0), np.inf)
    x, new_x = (x - centre) / scale, (new_x - centre) / scale
    errors, held = [], []
    for name, model in MODELS.items():
        found = model.fit(x, y).predict(new_x, **({"return_std": True} if "Bayes" in name else {}))
        found, std = found if isinstance(found, tuple) else (found, None)
        errors.append((found - new_y) ** 2)
        if std is not None:
            held.append([(np.abs(found - new_y) <= width * std).mean() for width in WIDTHS])
    return np.transpose(errors), held


def measure(x, y, context, repetitions):
    """Errors of random splits: their mean for each split, [R, K]; the median of all, [K]; and the coverage, [2, 3]."""
    rng, means, every, held = np.random.default_rng(0), [], [], []
    while len(means) < repetitions:
        rows = rng.permutation(len(x))
        train, test = rows[:context], rows[context : context + 200]
        if np.ptp(y[train]) > 0:  # a rare event may be missing, and then there is nothing to learn
            errors, inside = trial(x[train], y[train], x[test], y[test])
            means.append(errors.mean(0)), every.append(errors), held.append(inside)
    return np.array(means), np.median(np.concatenate(every), 0), np.mean(held, 0)


def simulated(repetitions):
    """The coverage on sequences of the problem that the shipped model was trained on, [2, 3]."""
    drawn = Problem(noise="uniform(0,5)").sequences(10 * repetitions, queries=1)
    rng, held = np.random.default_rng(0), []
    for x, y, query, answer, sigma in zip(drawn.x, drawn.y, drawn.queries, drawn.answers, drawn.sigma, strict=True):
        held.append(trial(x, y, query, answer + sigma * rng.standard_normal(len(answer)))[1])
    return np.mean(held, 0)


def draw(names, ratios, coverage):
    """Errors over those of RidgeCV, and the share of labels in intervals."""
    canvas = style.blank(8, 4)
    left, right = canvas.subplots(1, 2, width_ratios=(2, 1))
    looks = {"OLS": (style.GREY, "x"), "ARD": (style.SKY, "^"), "BayesianRidge": (style.ORANGE, "s")}
    looks |= {"Full, 7": (style.VERMILION, "D"), "Bayes": (style.BLUE, "o")}
    for model, (colour, marker) in looks.items():
        column = list(MODELS).index(model)
        left.plot(ratios[:, column], names, marker, color=colour, markersize=4, label=model)
    left.axvline(1, color=style.BLACK, linewidth=0.8)
    left.set(xscale="log", xlim=(0.5, 4), xticks=[0.5, 1, 2, 4], xticklabels=["0.5", "1", "2", "4"])
    left.minorticks_off()
    left.legend()
    style.panel(left, "20 rows of context", "median squared error / RidgeCV's")
    for (name, shares), colour in zip(coverage.items(), (style.BLUE, style.ORANGE) * 2, strict=True):
        right.plot(LEVELS, shares, "o-" if "real" in name else "o:", color=colour, markersize=4, label=name)
    right.plot((45, 100), (45, 100), color=style.BLACK, linewidth=0.8)
    right.set(ylim=(15, 102))
    right.legend(loc="lower right")
    style.panel(right, "Prediction intervals", "nominal %", "labels inside, %")
    return canvas


def main(repetitions):
    """Measure, print and draw."""
    warnings.simplefilter("error", FallbackWarning)  # the guard of the model has nothing to do here
    names, means, medians, held, wins, exploded = [], [], [], [], [], 0
    print("median squared error / RidgeCV's\n")
    print(f"{'table':18} rows  d   n", *(f"{name:>13}" for name in MODELS))
    for name, x, y in tables():
        context = min(20, 3 * len(x) // 4)
        mean, median, inside = measure(x, y, context, repetitions)
        print(f"{name:18} {len(x):5} {x.shape[1]:2} {context:3}", *(f"{one:13.2f}" for one in median / median[2]))
        names.append(name), means.append(np.median(mean, 0)), medians.append(median), held.append(inside)
        wins.append((mean[:, :1] < mean).mean(0))
        exploded = exploded + (mean > 100 * y.var()).sum(0)
    print("\nBayes against each: tables won and geometric mean of the ratio, by median squared error and by the median")
    print("of the mean squared error of a split; share of all splits with a smaller mean squared error; how often the")
    print(f"other one's is above 100 times the variance of y ({exploded[0]} times for Bayes)\n")
    print(f"{'':14} tables won  ratio   tables won  ratio   splits won   exploded")
    for column, name in enumerate(MODELS):
        found = [np.array(one)[:, 0] / np.array(one)[:, column] for one in (medians, means)]
        parts = (f"{(one < 1).sum():5} of {len(one)} {np.exp(np.log(one).mean()):6.2f}" for one in found)
        if column:
            print(f"{name:14}", "   ".join(parts), f"{100 * np.mean(wins, 0)[column]:10.0f} % {exploded[column]:10}")
    both = {"simulated": 100 * simulated(repetitions), "real": 100 * np.mean(held, 0)}
    coverage = {f"{m}, {kind}": one[i] for kind, one in both.items() for i, m in enumerate(("Bayes", "BayesianRidge"))}
    print(f"\nlabels in prediction intervals, %\n\n{'nominal':24}", *(f"{level:6}" for level in LEVELS))
    for name, shares in coverage.items():
        print(f"{name:24}", *(f"{share:6.1f}" for share in shares))
    ratios = np.array(medians)
    style.save(lambda: draw(names, ratios / ratios[:, 2:3], coverage), Path("real_data"), ["png"])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
