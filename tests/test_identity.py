"""Equality, hash and text cover everything that decides a law; what has no text of its own names no run."""

import warnings

import numpy as np
import pytest
from scipy import stats

from ridgeformer import Diag, Family, LinearTransformer, Problem, evaluate, floor, load, save, train
from ridgeformer.engine import Omegas
from ridgeformer.models import Looped
from ridgeformer.noise import Categorical, Fixed, Frozen, Noise, Uniform, as_noise, parse
from ridgeformer.predictors import BayesRR
from ridgeformer.training import Search
from ridgeformer.training.spec import make_spec
from support import each, refusals, refused

HOW = {"protocol": Search(effort=0.1), "sequences": 500}


def test_scipy_s_uniform_is_named_by_its_interval():
    """scipy's uniform(1, 2) reaches from 1 to 3; the text uniform(1,2) reaches from 1 to 2."""
    noise = Frozen(stats.uniform(1, 2))
    assert str(noise) == "uniform(1,3)"
    assert noise == Uniform(1, 3) == parse(str(noise)) == as_noise(stats.uniform(1, 2))
    assert hash(noise) == hash(Uniform(1, 3))
    assert noise != Uniform(1, 2)
    problems = [Problem(10, 20, given) for given in (noise, "uniform(1,2)")]
    assert problems[0] != problems[1]
    wide, narrow = (floor(problem, sequences=20_000).loss for problem in problems)
    assert wide == floor(Problem(10, 20, "uniform(1,3)"), sequences=20_000).loss > 1.5 * narrow
    assert evaluate(problems[0], BayesRR(noise), sequences=20_000).floor == pytest.approx(wide)


def test_changing_the_scipy_object_changes_nothing():
    given = stats.expon(scale=2)
    noise = Frozen(given)
    given.kwds["scale"] = 5
    noise.distribution.kwds["scale"] = 7
    assert str(noise) == "expon(scale=2)"
    assert noise.quantile(np.array([0.5]))[0] == pytest.approx(2 * np.log(2))


def test_a_distribution_that_is_not_what_it_is_called_is_refused():
    other = type(stats.expon)(a=1.0, name="expon")
    refused(lambda: Frozen(other(scale=2)), "its name and parameters describe; got another one called expon")


class MoreState(Categorical):
    """More state than the text shows."""

    def __init__(self, levels, factor):
        super().__init__(levels)
        self.factor = factor

    def quantile(self, u):
        return self.factor * super().quantile(u)


class SameText(Noise):
    """Another law with the text of a built-in one."""

    def quantile(self, u):
        return np.full(np.shape(u), 4.0)

    second_moment = property(lambda self: 16.0)
    upper = property(lambda self: 4.0)

    def contains(self, sigma):
        return np.asarray(sigma) == 4

    def quadrature(self, per_octave=12, tail=1e-12):
        return np.array([4.0]), np.ones(1)

    def __str__(self):
        return "fixed(1)"


def test_classes_of_one_s_own_equal_only_themselves():
    one, two, plain = MoreState([1, 3], 1.0), MoreState([1, 3], 9.0), Categorical([1, 3])
    assert one == one
    assert one != two
    assert one != plain
    assert plain != one
    assert len({one, two, plain}) == 3
    assert SameText() != Fixed(1)
    assert Problem(3, 6, one) != Problem(3, 6, plain)
    assert Problem(3, 6, one) == Problem(3, 6, one)


@pytest.mark.parametrize("noise", [MoreState([1, 3], 2.0), SameText()])
def test_no_run_is_named_after_noise_without_a_text(tmp_path, noise):
    problem = Problem(3, 6, noise)
    words = "its noise must be one that text can describe; got a ... of your own"
    refused(lambda: train(problem, "gdpp", 1, **HOW, out=tmp_path), words)
    assert not list(tmp_path.iterdir())


test_noise_that_would_take_minutes_or_gigabytes_is_refused = refusals(
    ("expon(scale=1e20)", "must be 0 or have a size from 1e-06 to 1e+06; got 1e+20"),
    ("lognorm(5)", "noise levels must stay below 1e+12"),
    ("randint(0,1000000000)", "have a size from 1e-06 to 1e+06"),
    ("randint(0,100000)", "discrete noise must have at most 10,000 levels; got randint(0,100000)"),
    ("poisson(900000)", "discrete noise must have at most 10,000 levels"),
    ("nbinom(10,1e-5)", "discrete noise must have at most 10,000 levels"),
    ("studentized_range(3,10)", "quantiles that scipy computes directly; got studentized_range(3,10)"),
    ("foldnorm(2)", "finds by numerical search, which would take minutes"),
    ("kstwo(3)", "quantiles that scipy computes directly"),
    ("expon(" + "0" * 300_000 + ")", "in at most 200,000 characters, beside lists of 250,000 numbers; got 300,007"),
    by=lambda text: parse(text),
)


def test_a_density_that_diverges_at_zero_needs_few_nodes():
    """gamma(1e-3) has half of its mass below 1e-300: levels below 1e-12 of the largest share one panel."""
    noise = parse("gamma(1e-3)")
    nodes, weights = noise.quadrature(per_octave=24)
    assert len(nodes) < 3000
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert weights @ nodes**2 == pytest.approx(noise.second_moment, rel=1e-6)
    assert floor(Problem(4, 8, noise), sequences=500).loss >= 0


def descent(name="step", **methods):
    """A family of one's own: gradient descent with one number per layer, with some methods replaced."""

    def init(self, rate):
        self.rate = np.asarray(rate)

    def omega(self):
        found = np.zeros((len(self.rate), 2, 2))
        found[:, 1, 0] = -self.rate
        return found

    parts = {
        "name": name,
        "__init__": init,
        "arrays": property(lambda self: {"rate": self.rate}),
        "heads": property(lambda self: 2),
        "kernel": lambda self, dim: Omegas(omega(self)),
        "dense": lambda self, dim: Diag(omega=omega(self)).dense(dim),
        "pullback": lambda self, gradient: {"rate": -gradient[0][:, 1, 0]},
        "random": classmethod(lambda cls, dim, layers, heads, scale, rng: cls(scale * rng.standard_normal(layers))),
        "identity_layer": lambda self: {"rate": np.zeros(())},
    }
    return type("Descent", (Family,), parts | methods)


def test_a_sound_family_passes_and_its_arrays_are_read_only():
    rate = np.array([0.1, 0.2])
    model = LinearTransformer(descent()(rate), 4)
    rate[:] = 5
    assert model.family.rate.tolist() == [0.1, 0.2]
    refused(lambda: model.family.rate.fill(1), "read-only", ValueError)
    assert model.edit(1, rate=0.5).family.rate.tolist() == [0.1, 0.5]


@each(
    ({"pullback": lambda self, gradient: {"rate": gradient[0][:, 1, 0]}}, "pullback must be the derivative of the"),
    ({"pullback": lambda self, gradient: {"rate": -2 * gradient[0][:, 1, 0]}}, "where differences of the loss"),
    (
        {"pullback": lambda self, gradient: {"rates": gradient[0][:, 1, 0]}},
        "pullback must give a derivative for every array, of its shape; got shapes {'rate': None}",
    ),
    (
        {"dense": lambda self, dim: Diag(omega=np.zeros((len(self.rate), 2, 2))).dense(dim)},
        "kernel and dense must describe the same model; got predictions that differ by 1",
    ),
    ({"heads": property(lambda self: 3)}, "dense must give P and Q of shape (2, 3, 4, 4); got shapes (2, 2, 4, 4)"),
    ({"arrays": property(lambda self: {"rate": self.rate[:1]})}, "axis 0 of every array must count the layers;"),
    (
        {"select": lambda self, layers: type(self)(self.rate[::-1][layers])},
        "select(slice(0, 1)) must give a model with 1 layer, which predicts what layers [0] predict; got 1 layers",
    ),
    (
        {"inserted": lambda self, at, layer: self},
        "inserted(1, identity_layer()) must give a model with 3 layers, which predicts what layers [0, 1] predict; "
        "got 2 layers, and predictions that differ by 0. Correct these methods",
    ),
    (
        {"inserted": lambda self, at, layer: type(self)(np.insert(self.rate, at, layer["rate"]))},
        "inserted(1, select(slice(0, 1))) must give a model; got TypeError: 'Descent' object is not subscriptable",
    ),
    (
        {"edit": lambda self, layer, rate: type(self)(0 * self.rate)},
        "edit(1, **identity_layer()) must give a model with 2 layers, which predicts what layers [0] predict; got",
    ),
    ({"layers": property(lambda self: 3)}, "layers must say how many layers the arrays describe; got 3 for 2"),
    ({"layer_axis": 1}, "axis 1 of every array must count the layers; got rate (2,) for 2 layers. Set layer_axis"),
    ({"identity_layer": lambda self: {"rate": np.ones(())}}, "what layers [0, 1] predict; got 3 layers, and"),
)
def test_a_wrong_family_is_refused_when_it_is_first_used(methods, words):
    family = descent("wrong", **methods)
    for _ in range(2):  # and again
        message = refused(lambda: LinearTransformer(family([0.1, 0.2]), 4), words)
        assert "in the family Descent, " in message
    refused(lambda: train(Problem(3, 6, "fixed(1)"), family, 1, **HOW), "in the family Descent")


def test_a_class_that_lacks_methods_is_refused_by_their_names():
    part = type("Part", (Family,), {"name": "part", "arrays": property(dict), "heads": property(lambda self: 1)})
    words = "got the class Part without dense, identity_layer, pullback, random. Write these"
    for named in (part, "part"):
        refused(lambda named=named: train(Problem(3, 6, "fixed(1)"), named, 1), words)
    refused(lambda: train(Problem(3, 6, "fixed(1)"), Family, 1), "without ... random, name")


def layers_last(name, **parts):
    """Gradient descent with a rate for each of two heads, [2, L]: layers are the second axis."""

    def omega(rate):
        found = np.zeros((rate.shape[1], 2, 2))
        found[:, 1, 0] = -rate.sum(0)
        return found

    usual = {
        "dense": lambda self, dim: Diag(omega=omega(self.rate)).dense(dim),
        "kernel": lambda self, dim: Omegas(omega(self.rate)),
        "pullback": lambda self, gradient: {"rate": np.tile(-gradient[0][:, 1, 0], (2, 1))},
        "random": classmethod(lambda cls, width, layers, heads, scale, rng: cls(scale * rng.random((2, layers)))),
        "identity_layer": lambda self: {"rate": np.zeros(2)},
    }
    return descent(name, **usual | parts)


LENGTH = {"layers": property(lambda self: self.rate.shape[1])}
OWN = {
    "select": lambda self, layers: type(self)(self.rate[:, layers]),
    "inserted": lambda self, at, layer: type(self)(
        np.insert(self.rate, at, (layer if isinstance(layer, dict) else layer.arrays)["rate"].ravel(), axis=1)
    ),
    "edit": lambda self, layer, rate: type(self)(
        np.where(np.arange(self.layers) == layer, np.reshape(rate, (-1, 1)), self.rate)
    ),
}


@pytest.mark.parametrize("parts", [{}, LENGTH], ids=["two rows taken for two layers", "with layers of its own"])
def test_an_axis_that_counts_layers_by_chance_is_noticed(parts):
    family = layers_last("by-chance", **parts)(0.01 * np.ones((2, 2)))
    refused(lambda: LinearTransformer(family, 4), "what layers [0] predict; got ... , or layer_axis = 0; see docs")


def test_where_no_axis_counts_the_layers_the_defaults_refuse():
    model = LinearTransformer(layers_last("rates", layer_axis=None, **LENGTH)(0.01 * np.ones((2, 3))), 4)
    for method, call in (
        ("select", lambda: model.truncate(1)),
        ("select", lambda: model.without(0)),
        ("inserted", lambda: model.with_identity(1)),
        ("edit", lambda: model.edit(1, rate=[0.0, 0.0])),
    ):
        words = f"no axis counts the layers needs {method} of its own; got the family rates without it. Write {method}"
        refused(call, words)
    refused(lambda: train(Problem(3, 6, "fixed(1)"), type(model.family), 2, **HOW), "needs inserted of its own")


@pytest.mark.parametrize(
    "parts", [{"layer_axis": 1}, {"layer_axis": -1}, {"layer_axis": None, **LENGTH, **OWN}], ids=["1", "-1", "None"]
)
def test_layers_may_be_any_axis_of_arrays(parts):
    """Declared, or with methods of its own: such a family is cut, edited, grown, repeated and trained like others."""
    family = layers_last("rates-of-its-own", **parts)
    model = LinearTransformer(family(0.01 * np.arange(6.0).reshape(2, 3)), 4)
    P, Q = model.P, model.Q
    for found, layers in (
        (model.truncate(2), [0, 1]),
        (model.without(1), [0, 2]),
        (model.stack(model.truncate(2)), [0, 1, 2, 0, 1]),
        (LinearTransformer(Looped(family, 2)(**model.family.arrays), 4), [0, 1, 2, 0, 1, 2]),
        (LinearTransformer(Looped(family, 2)(**model.family.arrays), 4).without(1), [0, 2, 0, 1, 2]),
    ):
        np.testing.assert_array_equal(found.P, P[layers])
        np.testing.assert_array_equal(found.Q, Q[layers])
    assert model.edit(1, rate=[0.5, 0.25]).family.rate.tolist() == [[0, 0.5, 0.02], [0.03, 0.25, 0.05]]
    assert model.with_identity(1).family.rate.tolist() == [[0, 0, 0.01, 0.02], [0.03, 0, 0.04, 0.05]]
    for kind, layers in ((family, 2), (Looped(family, 2), 4)):
        assert train(Problem(3, 6, "fixed(1)"), kind, 2, **HOW).model.layers == layers


@pytest.mark.parametrize(
    "name", ["../../outside", 'a"""\nimport os', "", "Name", "1st", "x" * 40, "a/b", "a b", None, 3, "naïve", "nul\0"]
)
def test_names_of_families_are_names(name):
    refused(lambda: descent(name), "the name of a family must be a lower-case letter and up to 30 more")


@each(("diag", "Diag"), ("full", "Full"), ("gdpp", "GDpp"))
def test_a_class_called_as_a_built_in_one_does_not_replace_it(name, built_in):
    words = f"the name of a family must be its own; got '{name}', which is ridgeformer"
    refused(lambda: type(built_in, (Diag,), {"name": name}), words)
    assert isinstance(LinearTransformer.random("diag", dim=2, layers=1).family, Diag)


def test_a_class_may_be_defined_again_as_in_a_notebook():
    assert descent("again") is not descent("again")


def test_a_family_without_a_name_of_its_own_is_not_stored(tmp_path):
    class Bent(Diag):
        """Inherits the name `diag`, under which it would be read back as another model."""

        @property
        def omega(self):
            return 2 * super().omega

    words = "that is stored must have a name of its own; got ... Bent with the name"
    refused(lambda: make_spec(Problem(3, 6, "fixed(1)"), Bent, layers=1, sequences=500), words)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good = LinearTransformer(Diag(omega=np.zeros((1, 2, 2))), 3)
        save(good, tmp_path / "good.safetensors")
        assert type(load(tmp_path / "good.safetensors").family) is Diag
