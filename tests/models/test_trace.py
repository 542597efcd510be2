"""The trace of a model against tokens, which go through the layers one by one; and traces that are patched."""

import contextlib
import pickle

import numpy as np
import pytest

from ridgeformer import Diag, InputError, Layout, LinearTransformer, Moments, Problem
from ridgeformer.models.family import FAMILIES, known_families
from ridgeformer.models.trace import KEPT, PATCHES
from support import draw, refusals, repeated, tame_model

LAYOUTS = [
    Layout(),
    Layout("mean"),
    Layout("sum", "constant"),
    Layout("mean", "length", scratch=2),
    Layout("sum", scratch=1),
    Layout("mean", "constant", scratch=1),
]


def model_of(family, layout=LAYOUTS[0], heads=2, seed=1):
    """A random model of 4 layers for d = 3."""
    n = 1 if layout.attention == "mean" else 8
    return repeated(family, 4, heads=heads, scale=0.15, context=n, seed=seed, layout=layout)


def cases():
    """All families that are built in, and an example of each that has sizes, with all layouts that they take."""
    for name in known_families():
        if name in FAMILIES and not FAMILIES[name].built_in:
            continue  # of another test
        for layout in LAYOUTS:
            with contextlib.suppress(InputError):  # a family that has no room for further coordinates
                model_of(name, layout)
                yield name, layout


CASES = list(cases())


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11 * max(1.0, np.abs(expected).max()))


def test_all_families_and_layouts_are_tried():
    assert {("full", layout) for layout in LAYOUTS} <= set(CASES)
    names = {name for name, _ in CASES}
    assert {"diag", "gdpp", "preconditioned", "channels(1,3)", "looped(diag,4)", "lowrank(2)", "registers(2)"} <= names


@pytest.mark.parametrize(("family", "layout"), CASES, ids=str)
def test_the_trace_is_that_of_the_tokens(family, layout):
    """Gram matrices, maps, linear models, readouts and losses of every layer, from the tokens themselves."""
    model = model_of(family, layout)
    s = Problem(3, 7, "uniform(0,2)", query="powerlaw(1)").sequences(5, seed=1, queries=2)
    tokens, n, size = model.tokens(s.x, s.y, s.queries), 7, model.width + 1
    found = model.trace(s.x, s.y)
    context, share = tokens[:, :, :n], 1 / n if layout.attention == "mean" else 1.0
    close(found.G, share * np.einsum("lbic,lbid->lbcd", context, context))
    close(np.einsum("lbcd,bid->lbic", found.C, tokens[0]), tokens)
    close(np.einsum("lbcd,lbid->lbic", found.T, tokens[:-1]), tokens[1:])
    z, y = tokens[0, ..., :-1], tokens[0, ..., -1]
    close(np.einsum("lbij,bnj->lbni", found.M, z) + y[..., None] * found.u[:, :, None], tokens[..., :-1])
    close(found.a[..., None] * y - np.einsum("lbi,bni->lbn", found.w, z), tokens[..., -1])
    close(found.readout(s.queries), -tokens[:, :, n:, size - 1])
    alone = model.trace(s.x[0], s.y[0]).readout(s.queries[0])
    close(alone, -tokens[:, 0, n:, size - 1])
    close(alone[-1], model.predict(s.x[0], s.y[0], s.queries[0]))
    assert found.T.shape == (4, 5, size, size)
    assert len(found) == 5


@pytest.mark.parametrize(("family", "layout"), CASES, ids=str)
def test_losses_are_those_of_the_shorter_models(family, layout):
    """The readout after l layers is the model of the first l; the engine has its losses."""
    model = model_of(family, layout)
    d = Problem(3, 7, "uniform(0,2)", query="powerlaw(1)").moments(6, seed=2, sums=True)
    found = model.trace(d)
    close(found.losses[0], d.both_losses(np.zeros((6, 3)))[0])
    for layers in range(1, 5):
        short = model.truncate(layers)
        close(found.weights[layers], short.weights(d.moments))
        close(found.intercepts[layers], short.intercepts(d.moments))
        close(found.losses[layers], short.evaluate(d.moments, d.ridge, metric=d.metric).losses)
        close(found.unadjusted[layers], short.evaluate(d.moments, d.task, metric=d.metric).losses)


def test_a_trace_takes_moments_draws_sequences_and_tokens():
    model = model_of("full")
    s = Problem(3, 7, "uniform(0,2)").sequences(5, seed=1)
    plain = model.trace(s.x, s.y)
    for other in (model.trace(Moments.from_tokens(s.x, s.y)), model.trace(s)):
        assert np.array_equal(other.w, plain.w)
    one = model.trace(s.x[2], s.y[2])
    np.testing.assert_allclose(one.w[:, 0], plain.w[:, 2], rtol=1e-12)
    assert model.trace(s).losses.shape == (5, 5)
    assert np.array_equal(model.trace(s).losses, model.trace(s).unadjusted)  # whose draw has no oracle


def test_a_trace_computes_on_demand_and_keeps_what_was_asked_for(monkeypatch):
    trace, passes = model_of("diag").trace(draw(3, 7)), []
    states = type(trace)._states
    monkeypatch.setattr(type(trace), "_states", lambda self: (passes.append(self), states(self))[1])
    assert (trace.kept, passes) == ((), [])
    assert trace.w is trace.w
    assert (trace.kept, len(passes)) == (("w",), 1)
    assert trace.losses.shape == (5, 9)
    assert len(passes) == 1
    trace.compute("G", "C", "w")
    assert (trace.kept, len(passes)) == (("G", "C", "w"), 2)
    assert np.array_equal(trace.M, trace.C[:, :, :-1, :-1])
    assert np.array_equal(trace.u, trace.C[:, :, :-1, -1])
    assert np.array_equal(trace.a, trace.C[:, :, -1, -1])
    assert len(passes) == 2
    other = model_of("diag").trace(draw(3, 7)).compute(*KEPT)
    assert other.kept == KEPT
    assert len(passes) == 3
    for name in KEPT:
        assert np.array_equal(getattr(other, name), getattr(trace, name)), name
    again = pickle.loads(pickle.dumps(trace))
    assert again.kept == trace.kept
    assert np.array_equal(again.T, trace.T)


def test_the_precision_is_the_wider_of_model_and_moments():
    model = LinearTransformer.random("diag", dim=3, layers=2).astype(np.float32)
    for dtype in (np.float32, np.float64):
        trace = model.trace(Problem(3, 6, "fixed(1)").moments(2, dtype=dtype)).compute(*KEPT)
        assert {getattr(trace, name).dtype for name in KEPT} == {np.dtype(dtype)}
    assert LinearTransformer.random("diag", dim=3, layers=2).trace(draw(3, 6, dtype=np.float32)).G.dtype == np.float64


def test_explosions_have_infinite_losses():
    model = LinearTransformer(Diag(omega=np.full((12, 2, 2), 9.0)), 3)
    found = model.trace(draw(3, 7))
    assert np.isinf(found.losses[-1]).all()
    assert np.isfinite(found.losses[:2]).all()


def two_contexts(model, count=6):
    """Traces of contexts that share everything but the noise level."""
    return [model.trace(Problem(3, 7, sigma).moments(count, seed=3, sums=True)) for sigma in (0.5, 2.0)]


@pytest.mark.parametrize(("family", "layout"), CASES, ids=str)
def test_a_patch_with_its_own_state_changes_nothing(family, layout):
    """To the bit, whatever is patched and wherever, whether the state was kept or is computed again."""
    model = model_of(family, layout)
    here, _ = two_contexts(model)
    parts = [part for part in PATCHES if part != "further" or layout.extra]
    for layer in range(model.layers):
        for what in (*parts, parts, 1, [0, model.width]):
            for other in (here, two_contexts(model)[0]):
                patched = here.patched(layer, other, what)
                for name in KEPT:
                    assert np.array_equal(getattr(patched, name), getattr(here, name)), (layer, what, name)
    assert np.array_equal(here.patched(0, here).losses, here.losses)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_patch_of_everything_is_the_other_context_from_there_on(layout):
    here, there = two_contexts(model_of("full", layout))
    for layer in range(4):
        patched = here.patched(layer, there, ("gram", "query"))
        assert np.array_equal(patched.G[layer:], there.G[layer:])
        assert np.array_equal(patched.w[layer:], there.w[layer:])
        assert np.array_equal(patched.w[:layer], here.w[:layer])
    assert np.array_equal(here.patched(0, there).w, there.w)


@pytest.mark.parametrize("family", ["full", "diag"])
def test_a_patched_gram_matrix_meets_a_query_that_comes_from_its_own_context(family):
    """By tokens: the query's token goes through the first layers with its own context, then with the other one."""
    model = model_of(family)
    s, t = (Problem(3, 7, sigma).sequences(5, seed=3, queries=2) for sigma in (0.5, 2.0))
    here, there = model.trace(s.x, s.y), model.trace(t.x, t.y)
    own = model.tokens(s.x, s.y, s.queries)
    for layer in range(4):
        queries, context = own[layer, :, 7:], model.tokens(t.x, t.y, t.queries)[layer, :, :7]
        for P, Q in zip(model.P[layer:], model.Q[layer:], strict=True):
            both = np.concatenate([context, queries], 1)
            both = both + np.einsum("bjc,kcd,bid,kfe,bje->bif", context, Q, both, P, context, optimize=True)
            context, queries = both[:, :7], both[:, 7:]
        close(here.patched(layer, there).readout(s.queries)[-1], -queries[..., -1])


def test_blocks_are_replaced_one_by_one():
    model = model_of("full", Layout("sum", "constant", scratch=1))
    here, there = two_contexts(model)
    x, further, y = slice(0, 3), slice(3, 5), 5
    places = {
        "S": [(x, x)],
        "b": [(x, y), (y, x)],
        "q": [(y, y)],
        "further": [(further, slice(None)), (slice(None), further)],
    }
    places[1] = [(1, slice(None)), (slice(None), 1)]
    for what, blocks in places.items():
        expected = here.G[2].copy()
        for rows, columns in blocks:
            expected[:, rows, columns] = there.G[2][:, rows, columns]
        patched = here.patched(2, there, what)
        assert np.array_equal(patched.G[2], expected), what
        assert np.array_equal(patched.C[:3], here.C[:3])
        assert not np.array_equal(patched.C[3], here.C[3]), what
    together = here.patched(2, there, ["S", "b", "q", "further"])
    assert np.array_equal(together.w, here.patched(2, there).w)
    query = here.patched(2, there, "query")
    assert np.array_equal(query.C[2], there.C[2])
    assert np.array_equal(query.G, here.G)


def test_patches_add_up():
    """A state that one layer alone reads: patched before it, and set back after it."""
    here, there = two_contexts(model_of("diag"))
    once = here.patched(1, there).patched(2, here)
    assert np.array_equal(once.G[2:], here.G[2:])
    T = [there.T[1] if layer == 1 else here.T[layer] for layer in range(4)]
    close(once.C[-1], T[3] @ T[2] @ T[1] @ T[0])
    assert repr(once).endswith("6 contexts, 2 patched)")
    assert here.patched(-1, there).patches[0].layer == 3


def test_patches_come_from_any_model_with_the_same_tokens():
    """Scratch coordinates of Full are channels of another family: a patch of everything is the other context."""
    moments = draw(3, 7, 6)
    full, channels = (model_of(name, Layout(scratch=2)).trace(moments) for name in ("full", "channels(1,3)"))
    close(full.patched(0, channels, ("gram", "query")).w, full.w)  # all models begin with the same state
    patched = full.patched(2, channels, ("gram", "query"))
    expected = LinearTransformer(channels.model.truncate(2).to_full().family, 3, full.model.layout)
    close(patched.w[-1], expected.stack(full.model.without(0).without(0)).trace(moments).w[-1])


test_bad_traces_and_patches_are_refused_in_words = refusals(
    (lambda here: here.patched(4, here), "layer must be at most 3; got 4"),
    (lambda here: here.patched(1, here.G), "a patch comes from another Trace; got an ndarray"),
    (lambda here: here.patched(1, two_contexts(here.model, 4)[0]), "coordinate=none; got 4 contexts, tokens of 4"),
    (lambda here: here.patched(1, tame_model("diag", 5, 4, 1, 7).trace(draw(5, 7, 6))), "tokens of 6 coordinates,"),
    (lambda here: here.patched(1, model_of("diag", Layout("mean")).trace(here.draw)), "d = 3, attention=mean"),
    (lambda here: here.patched(3, here.model.truncate(2).trace(here.draw)), "a patch of layer 3 must come from a"),
    (lambda here: here.patched(1, here, "z"), "must be among gram, S, b, q, further, query, or the number of a"),
    (lambda here: here.patched(1, here, ["S", None]), "coordinate; got None. Choose some of these."),
    (lambda here: here.patched(1, here, 4), "a coordinate of tokens must be at most 3; got 4"),
    (lambda here: here.patched(1, here, "further"), "further coordinates need a layout that has some"),
    (lambda here: here.patched(1, here, []), "a patch must name what is patched; got nothing"),
    (lambda here: here.compute("G", "x"), "the parts of a trace are G, T, C, M, u, a, w; got 'x'"),
    (lambda here: here.model.trace(here.draw.moments).losses, "Trace a draw: model.trace(problem.moments(1000))."),
    (lambda here: here.readout(np.zeros((6, 2, 4))), "queries must have shape (6, m, 3)"),
    (lambda here: here.model.trace(draw(4, 7)), "dimension 3 takes moments of dimension 3; got dimension 4"),
    (lambda here: here.model.trace(np.zeros((5, 7, 3))), "features x with labels y; got an ndarray without"),
    (lambda here: model_of("full", Layout("sum", "constant")).trace(draw(3, 7)), "need the sums of the tokens"),
    by=lambda make: make(two_contexts(model_of("diag"))[0]),
)
