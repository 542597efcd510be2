import copy
import itertools
import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from own_problems import HeavyTails
from ridgeformer import Diag, Full, GDpp, LinearTransformer, Moments, Problem, explain, load, save
from ridgeformer.evaluation import compare, evaluate, explosion_probability
from ridgeformer.explanation import ablate
from ridgeformer.explanation.behaviour import Behaviour, ByNoise, levels
from ridgeformer.explanation.coefficients import coefficients, diagonal_part, nearest_omega, symmetry, turned
from ridgeformer.explanation.interventions import without_layer
from ridgeformer.explanation.readings import read
from ridgeformer.explanation.story import Role, findings, summary
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.noise import as_noise
from ridgeformer.predictors import BayesRR, LeastSquares
from support import each, refused, tame_model

PROBLEM = Problem(3, 8, "uniform(0,2)")


def blocks(matrix):
    return [matrix[:-1, :-1], matrix[:-1, -1], matrix[-1, :-1], matrix[-1, -1]]


def symmetric_basis(size):
    """Orthonormal, of the symmetric matrices."""
    for i in range(size):
        for j in range(i + 1):
            G = np.zeros((size, size))
            G[i, j] = G[j, i] = 1 if i == j else np.sqrt(0.5)
            yield G


@pytest.mark.parametrize("heads", [1, 3])
def test_nearest_omegas_and_share_by_least_squares_over_all_symmetric_matrices(heads):
    P, Q = np.random.default_rng(0).standard_normal((2, heads, 5, 5))
    images = [(G, sum(p @ G @ q for p, q in zip(P, Q, strict=True))) for G in symmetric_basis(5)]
    omega, whole, left = [], 0.0, 0.0
    for k in range(4):
        inputs = np.concatenate([np.ravel(blocks(G)[k]) for G, _ in images])
        outputs = np.concatenate([np.ravel(blocks(image)[k]) for _, image in images])
        omega.append(inputs @ outputs / (inputs @ inputs))
        whole, left = whole + outputs @ outputs, left + np.square(outputs - omega[-1] * inputs).sum()
    np.testing.assert_allclose(nearest_omega(P, Q).ravel(), omega)
    found = coefficients(LinearTransformer(Full(P[None], Q[None])))[0]
    assert found.share == pytest.approx(1 - left / whole)


def test_coefficients_do_not_depend_on_how_a_layer_is_written():
    rng = np.random.default_rng(1)
    P, Q = rng.standard_normal((2, 1, 2, 4, 4))
    scale, mix = np.array([3.0, -0.2])[None, :, None, None], rng.standard_normal((2, 2))
    first = coefficients(LinearTransformer(Full(P, Q)))[0]
    mixed = np.einsum("kj,ljab->lkab", np.linalg.inv(mix).T, P), np.einsum("kj,ljab->lkab", mix, Q)
    for other in ((P * scale, Q / scale), mixed):
        second = coefficients(LinearTransformer(Full(*other)))[0]
        np.testing.assert_allclose(second.omega, first.omega)
        assert second.share == pytest.approx(first.share)


@pytest.mark.parametrize("kind", ["diag", "gdpp"])
def test_a_diagonal_model_is_its_own_diagonal_part(kind):
    model = tame_model(kind, 4, 3, 1, 8)
    for layer, omega in zip(coefficients(model), model.family.omega, strict=True):
        np.testing.assert_allclose(layer.omega, omega)
        assert layer.share == pytest.approx(1)
        assert (layer.P[0].share, layer.P[0].rank, layer.P[0].effective) == (1, 0, 0)


def test_the_rest_of_a_full_layer_is_found():
    rng = np.random.default_rng(2)
    v, u = rng.standard_normal((2, 6))
    P = np.diag([0.5] * 5 + [0.2])
    rest = 1e-2 * np.outer(v, u)
    rest[:5, :5] -= np.trace(rest[:5, :5]) / 5 * np.eye(5)
    rest[5, 5] = 0
    model = LinearTransformer(Full((P + rest)[None, None], np.eye(6)[None, None]))
    found = coefficients(model)[0].P[0]
    assert found.share == pytest.approx(1 - (rest**2).sum() / ((P + rest) ** 2).sum())
    values = np.linalg.svd(rest)[1]
    assert found.effective == pytest.approx((values**2).sum() ** 2 / (values**4).sum())
    assert found.rank == (values > 0.01 * np.linalg.norm(P + rest, 2)).sum()


def linear_model(model, x, y):
    """M, u, a, w of every layer, from the tokens: queries e_i give M and w, the context's tokens u and a."""
    d = model.dim
    tokens = model.tokens(x, y, np.broadcast_to(np.eye(d), (len(x), d, d)))
    n = x.shape[1]
    context, queries = tokens[:, :, :n], tokens[:, :, n:]
    M, w = np.swapaxes(queries[..., :d], 2, 3), -queries[..., d]
    u = ((context[..., :d] - np.einsum("lbij,bnj->lbni", M, x)) / y[..., None]).mean(2)
    a = ((context[..., d] + np.einsum("lbj,bnj->lbn", w, x)) / y).mean(2)
    return M, u, a, w, context[..., d]


class Fake:
    """A problem whose moments come from these tokens."""

    def __init__(self, sequences):
        self.sequences = sequences

    def moments(self, count, **_):
        from ridgeformer.problems import Draw

        s = self.sequences
        plain = Moments.from_tokens(s.x, s.y)
        moments = Moments(plain.gram, plain.context, s.sigma)
        return Draw(moments, s.task, moments.spectrum.ridge(s.sigma**2), s.sigma)


def test_readings_of_a_diagonal_model_by_the_lemma_and_the_tokens():
    problem = Problem(3, 8, "uniform(0.5,2)")
    model = tame_model("diag", 3, 3, 2, 8, seed=4)
    model = LinearTransformer(Diag(omega=2 * model.family.omega), 3)
    s = problem.sequences(12, seed=3)
    found = read(Fake(s), model, BayesRR(problem.noise), sequences=12, seed=0)
    M, u, a, w, labels = linear_model(model, s.x, s.y)
    S = np.einsum("bni,bnj->bij", s.x, s.x)
    star = np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(s.x, s.y, strict=True)])
    rho = np.square(s.y - np.einsum("bni,bi->bn", s.x, star)).sum(1)
    np.testing.assert_allclose(found.labels, np.square(labels).sum(-1), rtol=1e-9)
    bayes = BayesRR(problem.noise).weights(Fake(s).moments(12).moments)
    np.testing.assert_allclose(found.to_bayes, np.square(w - bayes).sum(-1), rtol=1e-8)
    np.testing.assert_allclose(found.spectrum, np.linalg.eigvalsh(M @ S @ np.swapaxes(M, 2, 3)), rtol=1e-8)
    for layer in range(3):
        (_, xy), (yx, yy) = model.family.omega[layer]
        factor = 1 + yy * np.square(labels[layer]).sum(-1)
        np.testing.assert_allclose(found.factor[layer], factor, rtol=1e-9)
        slope = np.einsum("bij,bj->bi", S, a[layer][:, None] * star - w[layer])
        mixed = M[layer] + u[layer][:, :, None] * star[:, None, :]
        momentum = -(a[layer] * rho * yx)[:, None] * np.einsum("bij,bi->bj", M[layer], u[layer])
        by_gradient = -yx * np.einsum("bji,bjk,bk->bi", M[layer], mixed, slope)
        delta = by_gradient + momentum  # the paper's lemma, corrected
        np.testing.assert_allclose(w[layer + 1], factor[:, None] * w[layer] + delta, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(found.momentum[layer], np.square(momentum).sum(1), rtol=1e-6, atol=1e-20)
        np.testing.assert_allclose(found.delta[layer], np.square(delta).sum(1), rtol=1e-7)
        np.testing.assert_allclose(found.by_gradient[layer], (delta * slope).sum(1), rtol=1e-7)
        np.testing.assert_allclose(found.gradient[layer], np.square(slope).sum(1), rtol=1e-7)
        way = a[layer][:, None] * star - w[layer]
        np.testing.assert_allclose(found.by_newton[layer], (delta * way).sum(1), rtol=1e-7)
        # u: what is new is the gradient's part; the rest is kept.
        new = (a[layer] * xy)[:, None] * np.einsum("bij,bj->bi", mixed, slope)
        np.testing.assert_allclose(found.kept[layer], ((u[layer + 1] - new) * u[layer]).sum(1), rtol=1e-6, atol=1e-12)


def test_parts_of_the_loss_are_what_the_best_factors_leave():
    problem = Problem(3, 8, "categorical(0.5,3)")
    model = tame_model("diag", 3, 2, 1, 8, seed=2)
    model = LinearTransformer(Diag(omega=[[[0, 0], [-0.05, 0]], [[-0.01, -0.001], [-0.03, -0.002]]]), 3)
    found = Behaviour(read(problem, model, BayesRR(problem.noise), sequences=3000, seed=0), 3)
    draw = problem.moments(3000, seed=0, stream=1 << 30)
    grid = np.linspace(0.25, 4, 751)
    for state, w in enumerate(model.trace(draw).weights):
        losses = np.stack([0.5 * np.square(c * w - draw.ridge).sum(1) for c in grid])
        quiet = draw.sigma < 1
        direction = (losses[:, quiet].sum(1).min() + losses[:, ~quiet].sum(1).min()) / 3000
        common = losses.mean(1).min()
        assert found.direction[state] == pytest.approx(direction, rel=1e-3)
        assert found.shrinkage[state] == pytest.approx(common - direction, rel=1e-2, abs=1e-4)
        assert found.loss[state] == pytest.approx(0.5 * np.square(w - draw.ridge).sum(1).mean())
        assert found.direction[state] + found.shrinkage[state] + found.size[state] == pytest.approx(found.loss[state])


def test_an_explained_loss_below_the_floor_is_a_warning(monkeypatch):
    """With a Bayes predictor that is wrong, as if the floor were that of another problem."""
    monkeypatch.setattr(BayesRR, "weights", lambda self, moments, **_: np.zeros(moments.b.shape))
    model = LinearTransformer(Diag(omega=[[[0, 0], [-0.1, 0]]]), 3)
    with pytest.warns(BelowFloorWarning, match="the model has .* The data or the code is wrong"):
        explain(PROBLEM, model, sequences=2000)


def test_what_labels_know_is_a_rank_correlation():
    model = tame_model("diag", 3, 2, 1, 8, seed=1)
    for noise in ("uniform(0,2)", "categorical(1,2)"):
        problem = Problem(3, 8, noise)
        readings = read(problem, model, BayesRR(problem.noise), sequences=1000, seed=0)
        found = Behaviour(readings, 3)
        for state in range(3):
            assert found.known[state] == pytest.approx(spearmanr(readings.labels[state], readings.sigma[0])[0])
    assert np.isnan(Behaviour(read(Problem(3, 8, 1.0), model, BayesRR(1.0), sequences=500, seed=0), 3).knowable)


def test_distances_by_noise_level_are_profiles():
    model = tame_model("full", 3, 2, 1, 8, seed=3)
    found = explain(PROBLEM, model, sigma=[0.5, 2.0], sequences=5000).noise
    expected = compare(PROBLEM, model, {"layer": None, "sigma": [0.5, 2.0]}, sequences=1000)
    np.testing.assert_allclose(0.5 * found.to_goal, expected.loss[0], rtol=1e-9)


def test_the_filter_of_ridge_regression_is_its_own_ideal():
    """One gradient step has w = eta lambda w* along an eigenvector: the filter is eta times the eigenvalue."""
    step = LinearTransformer(Diag(omega=[[[0, 0], [-0.02, 0]]]), 4)
    problem = Problem(4, 12, 1.5)
    readings = read(problem, step, BayesRR(problem.noise), sequences=4000, seed=0)
    found = ByNoise(np.array([1.5]), [readings], 4)
    values, weight = readings.values[0], readings.least[0]
    edges = np.quantile(values, np.linspace(0, 1, len(found.eigenvalues) + 1))
    for j, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = (values >= low) & ((values < high) | (j == len(edges) - 2))
        mean = np.average(values[inside], weights=weight[inside])
        assert found.filter[1, 0, j] == pytest.approx(0.02 * mean)
        assert found.ideal[0, j] == pytest.approx(
            np.average(values[inside] / (values[inside] + 2.25), weights=weight[inside])
        )
    assert (found.filter[0] == 0).all()


def test_levels_are_those_of_the_distribution():
    assert levels(as_noise("categorical(1,3,5)")).tolist() == [1, 3, 5]
    assert levels(as_noise("fixed(2)")).tolist() == [2]
    assert levels(as_noise("uniform(0,5)")).tolist() == [0, 1, 2, 3, 4, 5]
    assert levels(as_noise("uniform(1,2)"))[[0, -1]].tolist() == [1, 2]


def test_sequences_that_explode_are_left_out_and_counted():
    wild = LinearTransformer(Diag(omega=[[[0, 0], [-0.05, 0]], [[0.02, 0], [-0.5, 0.5]]]), 3)
    found = explain(PROBLEM, wild, sequences=1000).behaviour
    result = evaluate(PROBLEM, wild, sequences=1000)
    assert 0 < found.exploded < 1000
    assert found.exploded == result.exploded
    assert found.sequences == 1000 - found.exploded
    assert found.loss[-1] <= 100 * 3


def test_a_noise_level_that_hardly_acts_and_an_estimate_that_comes_too_late():
    """The sentences follow from `moved` and from the layer that estimates, whatever the other numbers are."""
    found = explain(PROBLEM, LinearTransformer(Diag(omega=[[[0, 0], [-0.05, 0]], [[0, 0], [-0.05, 0.01]]]), 3))
    weak = found.behaviour
    weak.moved, weak.moved_bayes = np.array([0, 0, 1e-4]), 2e-3
    strong = copy.copy(weak)
    strong.moved = np.array([0, 0, 3e-4])
    last, first = [Role(2, "estimates", "")], [Role(1, "estimates", "")]
    assert "hardly influences the prediction" in findings(weak, last)[-1]
    assert "in layer" not in findings(weak, last)[-1]
    assert "noise level influences the prediction" in findings(strong, last)[-1]
    assert "layer 2. It is the last layer, so that no later layer can use the estimate" in findings(weak, last)[0]
    assert findings(weak, first)[0] == "The noise level is estimated by layer 1."
    assert summary(weak, last, found.removed)[2] == "The noise level hardly changes the prediction."
    idle = summary(weak, last, np.array([0.998, 0.996]))[1]
    assert idle.startswith("No layer is missed: without layer 1 the model has 0.998 times its loss")


def test_a_layer_that_later_ones_need_prepares_although_it_shrinks_too():
    """Layer 3 of this model raises the loss of the readout, and the model without it is many times as bad."""
    problem, model = Problem(noise="uniform(0,5)"), load("zoo:diag/4/uniform(0,5)")
    explanation = explain(problem, model, sequences=5000)
    loss = explanation.behaviour.loss
    without = evaluate(problem, without_layer(model, 2), sequences=5000).loss
    assert loss[3] > loss[2]
    assert explanation.removed[2] == pytest.approx(without / loss[4], rel=1e-6)
    assert {kind for layer, kind in kinds(explanation) if layer == 3} >= {"prepares"}
    assert (3, "shrinks") not in kinds(explanation)
    first, second, third = explanation.summary
    assert "layer 3 prepares later layers" in first
    assert second.startswith(f"Removing layer {explanation.removed.argmax() + 1} does most harm")
    assert f"through layer {explanation.behaviour.through.argmax() + 1} more" in third
    assert str(explanation).startswith(first)
    assert explanation._repr_html_().count("<li>") == len(str(explanation).splitlines())


def test_a_model_that_always_explodes_is_refused():
    wild = LinearTransformer(Diag(omega=[[[5, 5], [5, 5]]] * 6), 3)
    refused(lambda: explain(PROBLEM, wild, sequences=200), "every sequence; got one that does, sigma ... training")


@pytest.mark.parametrize(("dim", "context", "heads"), [(1, 3, 1), (4, 2, 2), (3, 1, 1)])
def test_few_examples_and_few_dimensions(dim, context, heads):
    found = explain(Problem(dim, context, "uniform(0,1)"), tame_model("full", dim, 2, heads, context), sequences=300)
    json.dumps(found.as_dict(), allow_nan=False)
    assert ("With n <= d least squares leaves no residuals" in str(found)) == (context <= dim)


def kinds(found):
    return {(role.layer, role.kind) for role in found.roles}


def test_a_gradient_step_solves_and_nothing_else():
    step = LinearTransformer(GDpp(omega=[[0, -0.03]]), 10)
    found = explain(Problem(10, 20, "uniform(0,2)"), step, sequences=4000)
    np.testing.assert_allclose(found.noise.step, 0.03)
    assert kinds(found) == {(1, "solves"), (1, "resizes")} or kinds(found) == {(1, "solves")}
    assert found.behaviour.moved[-1] == 0
    assert np.isnan(found.behaviour.kept[0])
    assert found.behaviour.momentum[0] == 0
    assert "The noise level does not influence the prediction" in str(found)
    assert "No layer shrinks" in str(found)


def test_a_preconditioned_solver_conditions_and_solves():
    """x <- (I - S / 90) x takes an eigenvalue to lambda (1 - lambda / 90)^2: large ones come nearer to small ones."""
    omega = [[-1 / 90, 0.0], [-1 / 40, -1 / 14], [0.0, -1 / 7]]
    solver = LinearTransformer(GDpp(omega=omega), 5)
    problem = Problem(5, 30, 1.0)
    found = explain(problem, solver, sequences=4000)
    S = problem.moments(4000, seed=0, stream=1 << 30).moments.S
    after = np.linalg.eigvalsh(S) * (1 - np.linalg.eigvalsh(S) / 90) ** 2
    assert found.behaviour.condition[1] == pytest.approx(np.median(after.max(1) / after.min(1)))
    assert {(1, "conditions"), (2, "solves"), (3, "solves")} <= kinds(found)
    assert not {"shrinks", "estimates"} & {kind for _, kind in kinds(found)}
    assert "The noise level is always the same" in str(found)


def test_a_rescaling_layer_shrinks_by_its_factor():
    """Theorem 'adaptive scaling': a gradient step, then omega_yy alone."""
    problem = Problem(2, 40, "categorical(1,9)")
    model = LinearTransformer(Diag(omega=[[[0, 0], [-1 / 45, 0]], [[0, 0], [0, -1.9e-4]]]), 2)
    found = explain(problem, model, sequences=4000)
    assert (2, "shrinks") in kinds(found)
    assert (1, "shrinks") not in kinds(found)
    sentence = next(role.sentence for role in found.roles if (role.layer, role.kind) == (2, "shrinks"))
    draw = Problem(2, 40, 9.0).moments(800, seed=0, stream=1 << 30)
    labels = draw.moments.q - 2 / 45 * np.square(draw.moments.b).sum(1)
    labels += np.einsum("bi,bij,bj->b", draw.moments.b, draw.moments.S, draw.moments.b) / 45**2
    assert found.noise.factor[1, 1] == pytest.approx(1 - 1.9e-4 * labels.mean())
    assert f"{found.noise.factor[1, 1]:.2f} at sigma = 9" in sentence
    assert "by its factor" in sentence
    assert "by its step" not in sentence
    assert found.behaviour.through.argmax() == 1
    assert found.noise.shrinkage == pytest.approx([40 / 41, 40 / 121], rel=0.1)


def test_a_solved_layer_estimates_the_noise():
    """After a good step the labels are residuals: they know sigma nearly as well as least squares does."""
    problem = Problem(2, 40, "uniform(0,3)")
    model = LinearTransformer(Diag(omega=[[[0, 0], [-1 / 42, 0]], [[0, 0], [-1 / 42, 0]], [[0, 0], [0, 0]]]), 2)
    found = explain(problem, model, sequences=4000)
    assert sum(kind == "estimates" for _, kind in kinds(found)) == 1
    assert (3, "idle") in kinds(found)
    assert found.removed[2] == pytest.approx(1)


def test_ablations_of_a_diagonal_model_by_hand():
    model = tame_model("diag", 3, 2, 1, 8, seed=7)
    found = ablate(PROBLEM, model, sequences=2000, seed=1)
    assert len(found) == 1 + 2 + 8
    whole = evaluate(PROBLEM, model, sequences=2000, seed=1).loss
    assert found["nothing"].loss == pytest.approx(whole)
    omega = np.array(model.family.omega)
    for layer in range(2):
        for name, where in {"xx": (0, 0), "xy": (0, 1), "yx": (1, 0), "yy": (1, 1)}.items():
            less = omega.copy()
            less[layer][where] = 0
            loss = evaluate(PROBLEM, LinearTransformer(Diag(omega=less), 3), sequences=2000, seed=1).loss
            assert found[f"layer {layer + 1}, {name}"].loss == pytest.approx(loss)
        kept = Diag(omega=omega[[1 - layer]])
        loss = evaluate(PROBLEM, LinearTransformer(kept, 3), sequences=2000, seed=1).loss
        assert found[f"layer {layer + 1}"].loss == pytest.approx(loss)


class Masked:
    """A Full model with a block of one layer's T - I set to zero, in plain NumPy."""

    def __init__(self, model, layer, rows, columns):
        self.model, self.layer, self.where = model, layer, (slice(None), rows, columns)

    def weights(self, moments):
        G, eye = np.array(moments.gram), np.eye(self.model.dim + 1)
        C = np.broadcast_to(eye, G.shape)
        for layer, (P, Q) in enumerate(zip(self.model.P, self.model.Q, strict=True)):
            change = sum(p @ G @ q for p, q in zip(P, Q, strict=True))
            if layer == self.layer:
                change[self.where] = 0
            C, G = (eye + change) @ C, (eye + change) @ G @ np.swapaxes(eye + change, 1, 2)
        return -C[:, -1, :-1]


def test_ablations_of_a_full_model_by_hand():
    model = tame_model("full", 3, 2, 2, 8, seed=8)
    found = ablate(PROBLEM, model, sequences=1000)
    assert len(found) == 1 + 2 * 6 + 1
    x, y = slice(0, 3), slice(3, 4)
    for layer in range(2):
        for name, where in {"xx": (x, x), "xy": (x, y), "yx": (y, x), "yy": (y, y)}.items():
            loss = evaluate(PROBLEM, Masked(model, layer, *where), sequences=1000).loss
            assert found[f"layer {layer + 1}, {name}"].loss == pytest.approx(loss, rel=1e-9)
        loss = evaluate(PROBLEM, Masked(model, layer, slice(0, 4), slice(0, 4)), sequences=1000).loss
        assert found[f"layer {layer + 1}"].loss == pytest.approx(loss, rel=1e-9)
    flat = LinearTransformer(Diag(omega=np.stack([nearest_omega(*pq) for pq in zip(model.P, model.Q, strict=True)])), 3)
    loss = evaluate(PROBLEM, flat, sequences=1000).loss
    assert found["all layers, all but their diagonal parts"].loss == pytest.approx(loss)
    one = diagonal_part(model, {1})
    np.testing.assert_array_equal(one.P[0][:2], model.P[0])
    G = PROBLEM.moments(1).moments.gram[0]
    spread = np.repeat(np.repeat(nearest_omega(model.P[1], model.Q[1]), [3, 1], axis=0), [3, 1], axis=1)
    np.testing.assert_allclose(sum(p @ G @ q for p, q in zip(one.P[1], one.Q[1], strict=True)), spread * G)


def test_a_single_layer_can_be_removed():
    model = LinearTransformer(GDpp(omega=[[0, -0.03]]), 3)
    nothing = without_layer(model, 0)
    assert (nothing.weights(PROBLEM.moments(3).moments) == 0).all()
    assert list(ablate(PROBLEM, model, sequences=100)) == ["nothing", "layer 1", "layer 1, yx"]


def test_ablations_count_explosions():
    """Without the second layer, which undoes what the first one does, the weights are those of the first."""
    wild = LinearTransformer(Diag(omega=[[[0, 0], [-1.0, 0]], [[0, 0], [0, 0]]]), 3)
    losses = ablate(PROBLEM, wild, sequences=500)
    assert losses["nothing"].exploded == evaluate(PROBLEM, wild, sequences=500).exploded > 0
    assert losses["layer 1"].exploded == 0


def test_diagonal_models_treat_all_directions_alike_and_full_ones_do_not():
    diag, full = tame_model("diag", 3, 3, 1, 8, seed=1), tame_model("full", 3, 3, 1, 8, seed=1)
    assert symmetry(PROBLEM, diag, sequences=200).defect < 1e-20
    found = symmetry(PROBLEM, full, sequences=200, rotations=5, seed=3)
    draw = PROBLEM.moments(200, seed=3, stream=1 << 30)
    w, rng, turns = full.weights(draw.moments), np.random.default_rng((3, 1 << 30)), []
    for _ in range(5):
        basis, triangle = np.linalg.qr(rng.standard_normal((3, 3)))
        turns.append(turned(full, draw.moments, basis * np.sign(np.diag(triangle))))
    assert found.defect == pytest.approx(np.square(np.array(turns) - w).sum(2).mean() / np.square(w).sum(1).mean())
    assert found.loss == pytest.approx(0.5 * np.square(np.array(turns) - draw.ridge).sum(2).mean())
    assert found.averaged < found.loss


def test_turned_contexts_by_their_tokens():
    model = tame_model("full", 3, 3, 1, 8, seed=1)
    s = PROBLEM.sequences(4)
    R = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    w = model.weights(Moments.from_tokens(s.x @ R.T, s.y))
    np.testing.assert_allclose(turned(model, Moments.from_tokens(s.x, s.y), R), w @ R)


@each(
    ((PROBLEM, LeastSquares()), "only a linear transformer can be explained; got a LeastSquares"),
    ((None, LinearTransformer(GDpp(omega=[[0, 1]]), 3)), "the problem must be a Problem; got None"),
    ((LinearTransformer(GDpp(omega=[[0, 1]]), 3), PROBLEM), "got a LinearTransformer. The problem comes first"),
    (("uniform(0,5)", LinearTransformer(GDpp(omega=[[0, 1]]), 3)), "the problem must be a Problem; got a str"),
    ((PROBLEM, LinearTransformer(GDpp(omega=[[0, 1]]), 4)), "dimension 4 needs a problem of that dimension; got"),
)
def test_bad_input_is_refused(arguments, words):
    for function in (explain, ablate):
        refused(lambda function=function: function(*arguments), words)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    save(tame_model("full", 3, 2, 1, 8, seed=1), path)
    return path


def test_a_model_without_an_update_is_plain_json():
    nothing = LinearTransformer(Full(np.zeros((2, 1, 4, 4)), np.zeros((2, 1, 4, 4))), 3)
    record = explain(Problem(3, 8, "uniform(0,1)"), nothing, sequences=200).as_dict()
    assert record["symmetry"]["defect"] == 0
    assert "NaN" not in json.dumps(record, allow_nan=False)


def test_the_command_prints_what_explain_finds(call, file):
    arguments = ["explain", file, "--noise", "uniform(0,2)", "--context", "8", "--sequences", "1000"]
    code, record, _ = call(*arguments, "--json")
    record = json.loads(record)
    assert code == 0
    found = explain(PROBLEM, tame_model("full", 3, 2, 1, 8, seed=1), sequences=1000)
    np.testing.assert_allclose(record["behaviour"]["loss"], found.behaviour.loss)
    assert record["behaviour"]["kept"][0] is None  # no u before the first layer
    assert record["coefficients"][1]["omega"][0][0] == pytest.approx(found.coefficients[1].omega[0][0])
    code, text, _ = call(*arguments)
    assert code == 0
    words = " ".join(text.split())
    for sentence in (*record["summary"], *(role["sentence"] for role in record["roles"])):
        assert sentence in words
    assert f"{found.behaviour.loss[-1]:.5f}" in text
    assert "without" not in record
    assert "omega_xx" not in text
    assert "Add --numbers" in text


def test_explosion_probabilities_are_measured_on_request(call):
    """In Python where they are asked for; on the command line with --explosions."""
    name, problem = "zoo:diag/3/uniform(0,5)", Problem(noise="uniform(0,5)")
    found = explain(problem, load(name), sequences=100)
    assert "explosions" not in found.as_dict()
    rare = explosion_probability(problem, load(name), sequences=20_000)
    assert found.explosions.probability == pytest.approx(rare.probability, rel=1e-9)  # by sums instead of means
    assert found.as_dict()["explosions"] == found.explosions.as_dict()
    _, text, _ = call("explain", name, "--sequences", "100", "--explosions")
    assert f"\nexplosion probability {found.explosions}\n" in text
    own = explain(HeavyTails(), LinearTransformer.random("diag", dim=3, layers=1), sequences=200)
    assert own.explosions is None
