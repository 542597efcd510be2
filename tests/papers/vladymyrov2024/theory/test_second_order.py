"""GD++ as a second-order solver: the theorem, its lemmas, and the methods that it is compared with."""

import itertools
import math
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ridgeformer import Moments
from ridgeformer.papers import Results
from ridgeformer.papers.vladymyrov2024.figures import FIGURES
from ridgeformer.papers.vladymyrov2024.theory import gdpp_solver as solver, layers_needed as needed
from ridgeformer.papers.vladymyrov2024.theory.second_order import sequences_with
from support import each

kappas = st.floats(1.0001, 1e12)


def distance(model, x, y, solution):
    """|w - w*| / |w*|, token by token."""
    queries = np.broadcast_to(np.eye(model.dim), (len(x), model.dim, model.dim))
    return np.linalg.norm(model.predict(x, y, queries) - solution, axis=1) / np.linalg.norm(solution, axis=1)


@pytest.mark.parametrize("plan", solver.PLANS)
@each((1.0, 0.5), (2.0, 1e-3), (30.0, 1e-12), (1e4, 1e-9), (1e6, 1e-8), (1e8, 1e-5))
def test_the_model_solves_least_squares_on_sequences(kappa, epsilon, plan):
    model = solver.second_order_solver(kappa, epsilon, dim=6, largest=50.0, plan=plan)
    assert model.family.name == "gdpp"
    assert model.layers == needed.layers_needed(kappa, epsilon, solver.PLANS[plan])
    x, y, solution = sequences_with(50 * needed.log_spaced(kappa, 6), 8, 15, noise=2.0, seed=4)
    np.testing.assert_allclose(solution, [np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)])
    rounding = 1e-15 * kappa + 1e-13
    assert distance(model, x, y, solution).max() <= epsilon + rounding
    w = model.weights(Moments.from_tokens(x, y))
    assert (np.linalg.norm(w - solution, axis=1) <= (epsilon + rounding) * np.linalg.norm(solution, axis=1)).all()


@given(kappas, st.sampled_from([0.5, 1e-2, 1e-8, 1e-30]), st.sampled_from([solver.PAPER, solver.BALANCED]))
def test_layers_needed_is_the_least_number(kappa, epsilon, plan):
    """At an end of the spectrum one layer fewer misses more than epsilon: only true of the paper's plan exactly."""
    with localcontext(solver.digits(kappa, epsilon)):
        ends = [1 / Decimal(kappa), Decimal(1)]
        layers = solver.schedule(Decimal(kappa), Decimal(epsilon), plan)
        assert max(map(abs, solver.missing(layers, ends))) <= Decimal(epsilon)
        if plan is solver.PAPER and len(layers) > 1:
            *_, (_, last, _) = itertools.islice(solver.layers_of(Decimal(kappa), plan), len(layers) - 1)
            assert max(map(abs, solver.missing([*layers[:-2], last], ends))) > Decimal(epsilon)


@given(kappas, st.floats(0.001, 0.999))
def test_no_gamma_improves_kappa_more_than_the_balanced_one(kappa, share):
    with localcontext(prec=60):
        interval = solver.Interval(Decimal(1), Decimal(kappa))
        best = solver.image(interval, solver.BALANCED.gamma(interval)).excess
        m = Decimal(kappa) + Decimal(kappa).sqrt() + 1
        assert abs(best / ((m - 3) ** 2 * (4 * m - 3) / (27 * (m - 1) ** 2)) - 1) < Decimal("1e-30")
        other = solver.image(interval, Decimal(share) / Decimal(kappa))
        assert other.excess >= best
        assert (
            solver.image(interval, solver.PAPER.gamma(interval)).excess <= Decimal("0.75") * (Decimal(kappa) - 1) ** 2
        )


@given(st.floats(0.1, 10), st.floats(1, 100), st.floats(-3, 3))
def test_the_image_of_an_interval(least, ratio, gamma):
    """Against a dense grid, whatever the sign and size of gamma."""
    interval = solver.Interval(Decimal(least), Decimal(least * ratio))
    s = np.linspace(least, least * ratio, 20_001)
    after = s * (1 - gamma * s) ** 2
    found = solver.image(interval, Decimal(gamma))
    size = after.max()
    assert float(found.least) == pytest.approx(after.min(), abs=1e-4 * size)
    assert float(found.largest) == pytest.approx(size, rel=1e-4)


def brute(kappa, epsilon, update, size=200):
    """Steps until the largest |e| on a fine spectrum is at most epsilon, and stays there."""
    s = np.geomspace(1, kappa, size)
    e, before, steps, last = np.ones(size), np.ones(size), 0, 0
    while steps < 3 * last + 50:
        e, before = update(s, e, before, kappa), e
        steps += 1
        if np.abs(e).max() > epsilon:
            last = steps
    return last + 1


def heavy_ball(s, e, before, kappa):
    root = math.sqrt(kappa)
    return e - 4 / (root + 1) ** 2 * s * e + ((root - 1) / (root + 1)) ** 2 * (e - before)


@pytest.mark.parametrize(("kappa", "epsilon"), [(2.0, 0.3), (7.0, 1e-2), (150.0, 1e-5), (900.0, 1e-8)])
def test_worst_cases_are_those_of_the_iterations(kappa, epsilon):
    descent = brute(kappa, epsilon, lambda s, e, before, kappa: e * (1 - 2 * s / (kappa + 1)))
    assert needed.METHODS["gradient descent"](kappa, epsilon) == descent
    assert needed.METHODS["heavy ball"](kappa, epsilon) == brute(kappa, epsilon, heavy_ball)
    newton = brute(kappa, epsilon, lambda s, e, before, kappa: e * e if (e != 1).all() else 1 - 2 * s / (kappa + 1))
    assert needed.METHODS["Newton (Schulz)"](kappa, epsilon) == newton
    degree, at = needed.METHODS["conjugate gradients"](kappa, epsilon), (kappa + 1) / (kappa - 1)
    size = [1 / np.polynomial.Chebyshev.basis(k)(at) for k in (degree - 1, degree)]
    assert size[1] <= epsilon < size[0]


@given(kappas, st.sampled_from([0.3, 1e-3, 1e-12, 1e-30]))
def test_no_plan_beats_the_bound_of_all_gdpp_models(kappa, epsilon):
    assert (
        needed.least_layers(kappa, epsilon)
        <= needed.layers_needed(kappa, epsilon, solver.BALANCED)
        <= needed.layers_needed(kappa, epsilon)
    )


def test_growth_has_the_predicted_slopes():
    limits = {"GD++, paper": 1 / math.log(9 / 4), "GD++, balanced": 1 / math.log(27 / 4)}
    limits |= {"Newton (Schulz)": 1 / math.log(2), "GD++, lower bound": 0.5 / math.log(3)}
    for name, count in needed.SECOND_ORDER.items():
        fit = needed.growth(needed.counts(count))
        assert fit.kappa == pytest.approx(limits[name], abs=0.01), name
        assert fit.farthest < 1


def test_the_picture_shows_the_layers_needed():
    figure = FIGURES["layers"].draw(Results({}))
    (line,) = [line for line in figure.axes[1].get_lines() if line.get_label() == "GD++, paper"]
    assert line.get_ydata()[100] == needed.layers_needed(line.get_xdata()[100], 1e-10)


def test_the_documentation_has_the_numbers_of_the_command():
    lines = (Path(__file__).parents[4] / "docs/papers/vladymyrov2024/second-order.md").read_text().splitlines()
    names = {"GD++, paper": "| GD++, ", "Newton (Schulz)": "| Newton"}
    for name, steps in needed.compare(1e6, 1e-10).items():
        assert any(line.startswith(names.get(name, f"| {name}")) and line.endswith(f"| {steps:,} |") for line in lines)
    for name, count in needed.SECOND_ORDER.items():
        fit = needed.growth(needed.counts(count))
        start = names.get(name, f"| {name}")
        for slope, error in zip(fit[:2], fit.errors[:2], strict=True):
            cell = f"| {slope:.3f} +- {error:.3f} |"
            assert any(line.startswith(start) and cell in line for line in lines), (name, cell)
