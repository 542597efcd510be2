"""Values that cannot change: what one holds of them is read-only; and the grammar of laws that are written as text."""

import copy
import inspect
import json
import pickle
from dataclasses import asdict

import numpy as np
import pytest

import ridgeformer
from ridgeformer import Diag, Full, GDpp, LinearTransformer, Moments, Problem, load, zoo
from ridgeformer.noise import Categorical, Noise, Tokens, Uniform, parse
from ridgeformer.predictors.ridge import ConstRR
from ridgeformer.problems import Features, Pool, Tasks
from ridgeformer.values import ReadOnlyDict, Value, frozen, missing_bracket, read_only, written
from support import each, refused

PROBLEM = Problem(dim=3, context=6, noise="uniform(0,3)")
RNG = np.random.default_rng(0)


def full():
    return LinearTransformer(Full(RNG.normal(0, 0.05, (3, 1, 4, 4)), RNG.normal(0, 0.05, (3, 1, 4, 4))))


def diag():
    return LinearTransformer(Diag(RNG.normal(0, 0.05, (3, 2, 2)), RNG.normal(0, 0.05, (3, 2, 2))), 3)


def gdpp():
    return LinearTransformer(GDpp(omega=RNG.normal(0, 0.05, (3, 2))), 3)


DRAW = PROBLEM.moments(20)
SEQUENCES = Problem(3, "4..6", "uniform(0,3)", features="rotated(powerlaw(1))").sequences(2)
SHAPED = Problem(
    3,
    6,
    1,
    features="factors(2)",
    tasks="gaussian(mean=[1,0,0],covariance=[[2,0,0],[0,1,0],[0,0,0]])",
    query="powerlaw(1)",
)
HELD = {
    "Full P": lambda: full().P,
    "Diag P": lambda: diag().P,
    "Diag omega": lambda: diag().family.omega,
    "Diag arrays": lambda: diag().family.arrays["p"],
    "GD++ omega": lambda: gdpp().family.omega,
    "shipped": lambda: load("zoo:full/4/uniform(0,5)").P,
    "weights": lambda: Categorical([1, 3]).weights,
    "draw of noise": lambda: Uniform(0, 1).draw(5),
    "sigmas": lambda: PROBLEM.choices(5).sigma,
    "gram": lambda: DRAW.moments.gram,
    "S": lambda: DRAW.moments.S,
    "slice": lambda: DRAW.moments[2:5].gram,
    "sigma of moments": lambda: DRAW.moments.sigma,
    "task": lambda: DRAW.task,
    "ridge": lambda: DRAW.ridge,
    "sigma": lambda: DRAW.sigma,
    "spectrum": lambda: DRAW.moments.spectrum.values,
    "query covariance": lambda: SHAPED.query_covariance,
    "mean of the prior": lambda: SHAPED.prior.mean,
    "factor of the prior": lambda: SHAPED.prior.factor,
    "metric of the law": lambda: SHAPED.law.metric,
    "pool": lambda: Problem(3, 6, 1, tasks="pool(4)").law.pool,
    **{
        f"sequences {name}": (lambda name=name: getattr(SEQUENCES, name))
        for name in vars(SEQUENCES)
        if name != "_sealed"
    },
    **{
        f"quadrature of {text}": (lambda text=text: parse(text).quadrature()[1])
        for text in ("fixed(1)", "uniform(0,5)", "uniform(1,1)", "categorical(1,3)", "expon(scale=2)", "poisson(2)")
    },
}


@pytest.mark.parametrize("name", HELD)
def test_arrays_are_read_only(name):
    array = HELD[name]()
    before = array.copy()
    for change in (
        lambda: array.__setitem__(0, 0.5),
        lambda: array[...].__setitem__(0, 0.5),
        lambda: array.__imul__(2),
        lambda: array.T.__iadd__(1),
        lambda: array.fill(0),
    ):
        refused(change, "read-only", ValueError)
    refused(lambda: setattr(array.flags, "writeable", True), "WRITEABLE", ValueError)
    assert np.array_equal(array, before)
    before[0] = 0.5  # a copy may be changed


@each(
    (full(), "dim"),
    (diag().family, "omega"),
    (diag().family, "_arrays"),
    (Uniform(0, 5), "high"),
    (Categorical([1, 3]), "weights"),
    (parse("expon(scale=2)"), "_text"),
    (PROBLEM, "noise"),
    (DRAW, "ridge"),
    (DRAW.moments, "context"),
    (SEQUENCES, "x"),
    (zoo.record("zoo:gdpp/1/uniform(0,5)"), "loss"),
    (zoo.shipped(), "models"),
)
def test_attributes_cannot_be_assigned(value, name):
    refused(lambda: setattr(value, name, 1), f"a {type(value).__name__} must not change; got an assignment to {name}")
    if name in vars(value):
        refused(lambda: delattr(value, name), "must not change")


def test_nothing_aliases_the_caller_s_array():
    gram = np.array(DRAW.moments.gram)
    moments = Moments(gram, 6, sigma := np.ones(20))
    expected = ConstRR(1.0).weights(moments)
    gram *= 3
    sigma *= 3
    assert np.array_equal(ConstRR(1.0).weights(moments), expected)
    assert np.array_equal(ConstRR(1.0).weights(Moments(moments.gram, 6)), expected)
    assert (moments.sigma == 1).all()
    P, Q, omega = np.zeros((1, 1, 3, 3)), np.ones((1, 1, 3, 3)), np.zeros((1, 2, 2))
    levels, weights = np.array([1.0, 3.0]), np.array([0.25, 0.75])
    model, small, noise = Full(P, Q), Diag(omega=omega), Categorical(levels, weights)
    for array in (P, Q, omega, levels, weights):
        array[:] = 0.125
    assert not model.arrays["P"].any()
    assert (model.arrays["Q"] == 1).all()
    assert not small.omega.any()
    assert str(noise) == "categorical(1,3,weights=(0.25,0.75,))"
    assert noise.second_moment == 0.25 + 0.75 * 9


def test_mappings_of_the_zoo_are_read_only():
    made = zoo.record("zoo:full/7/uniform(0,5)")
    for change in (
        lambda: made.spec.__setitem__("seed", 5),
        lambda: made.spec["protocol"].update(effort=2),
        lambda: made.made_with.pop("engine"),
        lambda: made.spec.clear(),
        lambda: made.spec.setdefault("x", 1),
        lambda: made.spec.__delitem__("seed"),
        lambda: made.spec.__ior__({"seed": 3}),
        lambda: zoo.shipped().models.clear(),
        lambda: zoo.shipped().records.popitem(),
        lambda: next(iter(zoo.shipped().records.values())).clear(),
    ):
        refused(change, "this dict must not change; got an assignment. Change a copy")
    assert json.loads(json.dumps(asdict(made)))["spec"] == made.spec
    assert isinstance(copy.deepcopy(made.spec), ReadOnlyDict)
    mine = dict(made.spec)
    mine["seed"] = 7


@pytest.mark.parametrize("value", [full(), diag(), Categorical([1, 3], [0.25, 0.75]), PROBLEM, DRAW, parse("expon(2)")])
def test_copies_and_pickles_are_read_only_too(value):
    assert copy.copy(value) is copy.deepcopy(value) is value
    again = pickle.loads(pickle.dumps(value))
    assert str(again) == str(value)
    refused(lambda: setattr(again, "anything", 1), "must not change")


def test_frozen_leaves_what_is_read_only_as_it_is():
    array = read_only(np.zeros(2))
    assert frozen(array) is array
    assert np.shares_memory(frozen(array[1:]), array)
    assert frozen("text") == "text"
    assert isinstance(frozen({"a": {"b": [1]}})["a"], ReadOnlyDict)


def test_frozen_copies_what_somebody_else_may_change():
    """A read-only view of a writable array, and a read-only array whose owner may make it writable again."""
    owner = np.zeros(3)
    view, switched, wide = owner[:], np.zeros(3), np.broadcast_to(owner, (2, 3))
    view.flags.writeable = switched.flags.writeable = False
    held = [frozen(array) for array in (view, switched, wide, np.ma.masked_array([0.0, 0.0], [True, False]))]
    switched.flags.writeable = True
    owner[:] = switched[:] = 1
    assert all(type(array) is np.ndarray and not array.any() for array in held)


def test_a_class_of_the_user_s_own_is_sealed_after_its_init():
    class Mine(Value):
        def __init__(self, numbers):
            self.numbers = numbers

    given = np.zeros(3)
    mine = Mine(given)
    given[:] = 1
    assert not mine.numbers.any()
    refused(lambda: setattr(mine, "numbers", 3), "a Mine must not change; got an assignment to numbers")


def test_edit_promotes_and_never_cuts():
    model = full().astype(np.float32)
    assert model.edit(0, P=np.full((1, 4, 4), 1 / 3)).P[0, 0, 0, 0] == 1 / 3
    assert model.edit(0, P=0).P.dtype == np.float32
    third = np.full((1, 1, 2, 2), 1 / 3)
    assert Full(third.astype(np.float32), third).arrays["Q"][0, 0, 0, 0] == 1 / 3
    assert Full(third.astype(np.float32), third).arrays["P"].dtype == np.float64
    assert Diag(np.ones((1, 1, 2), np.float32), np.full((1, 1, 2), 1 / 3)).arrays["q"][0, 0, 0] == 1 / 3


def kinds_of(base):
    """All classes of the package that are derived from a class."""
    return {base}.union(*map(kinds_of, base.__subclasses__())) if base.__module__.startswith("ridgeformer.") else set()


def test_classes_show_the_arguments_of_their_init():
    """`help` and editors would show (*args, **keywords), the arguments of the metaclass."""
    things = (getattr(ridgeformer, name) for name in ridgeformer.__all__)
    public = {kind for kind in things if inspect.isclass(kind) and not issubclass(kind, Exception)}
    assert {Problem, LinearTransformer, Moments, Diag, Full} <= kinds_of(Value)
    for kind in public | kinds_of(Value):
        shown = list(inspect.signature(kind).parameters)
        names = [] if kind.__init__ is object.__init__ else [*inspect.signature(kind.__init__).parameters][1:]
        assert shown == names
        assert shown != ["args", "keywords"], kind


@each(
    ("pool(3", ", in which a closing bracket is missing"),
    ("[1, 2", ", in which a closing bracket is missing"),
    ("3)", ", in which an opening bracket is missing"),
    ("pool(3)", ""),
    ("", ""),
)
def test_missing_brackets(text, words):
    assert missing_bracket(text) == words


@each((0.1, "0.1"), (2.0, "2"), (-0.0, "0"), (1000000, "1000000"), ("sphere", "'sphere'"), ([1, [0.5]], "[1,[0.5]]"))
def test_arguments_as_text(value, text):
    assert written(value) == text
    assert written(read_only(np.array([1 / 3]))) == f"[{1 / 3!r}]"


@each(
    (Noise, "tokens(uniform(0,5))"),
    (Noise, "tokens(fixed(2))"),
    (Features, "scales(0.5,rotated(powerlaw(1)))"),
    (Tasks, "mixture(pool(4),0.5)"),
)
def test_laws_are_arguments_of_laws(kind, text):
    law = kind.of(f" {text.replace(',', ' , ')}")
    assert str(law) == repr(law) == text
    assert law == kind.of(law) == kind.of(text)
    assert law.has_text
    assert Noise.of("tokens(2)") == Noise.of("tokens(fixed(2))")


def test_long_lists_are_cut_in_labels():
    pool = Pool(np.arange(400.0).reshape(100, 4))
    assert pool.label == "pool(100 x 4)"
    assert len(repr(pool)) < 250 < len(str(pool))


def test_a_law_of_ones_own_with_a_name_has_a_text():
    class Doubled(Tokens):
        name = "doubled"

        def quantile(self, u):
            return 2 * super().quantile(u)

    law = Doubled(Categorical([1, 2]))
    try:
        assert str(law) == "doubled(categorical(1,2))"
        assert Noise.of(str(law)) == law != Tokens(Categorical([1, 2]))
    finally:
        del Noise.known["doubled"]
    refused(lambda: Features.of(str(law)), "there is no law of features called 'doubled'. Write one of isotropic, ")


@pytest.mark.parametrize("kind", [Noise, Features, Tasks])
def test_texts_are_bounded_before_they_are_read(kind):
    refused(lambda: kind.of("x(" + "1+" * 100_000 + "1)"), "in at most 200,000 characters")
    refused(lambda: kind.of("x([" + "1," * 300_000 + "1])"), "beside lists of 250,000 numbers; got 600,006")
