"""Transformers outside moment form: what they compute, how they are trained, resumed and judged."""

import numpy as np
import pytest

from ridgeformer import ConstRR, InputError, Problem, compare

torch = pytest.importorskip("torch")

from ridgeformer.torch import Architecture, Transformer, fit  # noqa: E402

PROBLEM = Problem(2, 6, "uniform(0,1)")
TINY = {"layers": 2, "width": 8, "heads": 2}
KINDS = ("softmax", "relu", "linear")


def tokens(count=3, queries=2):
    s = PROBLEM.sequences(count, queries=queries)
    return [np.array(value) for value in (s.x, s.y, s.queries)]


def by_hand(model, x, y, queries):
    """One query of one sequence at a time, one head and one token at a time."""
    shape, values = model.shape, {name: v.detach().double().numpy() for name, v in model.named_parameters()}
    e = np.concatenate([x, y[:, None]], 1)
    e = np.concatenate([e, np.append(queries, 0.0)[None]]) @ values["read_in.weight"].T + values["read_in.bias"]
    n, size = len(x), shape.width // shape.heads
    for layer in range(shape.layers):
        q, k, v = np.split(e @ values[f"layers.{layer}.qkv.weight"].T, 3, axis=1)
        mixed = np.zeros_like(e)
        for i in range(n + 1):
            seen = min(i + 1, n) if shape.causal else n
            for head in range(shape.heads):
                part = slice(head * size, (head + 1) * size)
                scores = k[:seen, part] @ q[i, part] / np.sqrt(size)
                if shape.attention == "softmax":
                    share = np.exp(scores) / np.exp(scores).sum()
                else:
                    share = (np.maximum(scores, 0) if shape.attention == "relu" else scores) / seen
                mixed[i, part] = share @ v[:seen, part]
        e = e + mixed @ values[f"layers.{layer}.out.weight"].T
    return (e[-1] @ values["read_out.weight"].T + values["read_out.bias"])[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_what_it_is_called(kind, causal):
    model = Transformer(Architecture(2, attention=kind, causal=causal, **TINY)).double()
    for layer in model.layers:
        layer.out.weight.data *= 10
    x, y, queries = tokens()
    found = model.predict(x, y, queries)
    expected = [[by_hand(model, x[b], y[b], queries[b, m]) for m in range(2)] for b in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_without_a_mask_the_order_of_examples_does_not_matter():
    x, y, queries = tokens()
    order = [3, 1, 0, 5, 2, 4]
    for causal in (False, True):
        model = Transformer(Architecture(2, causal=causal, mlp=True, layernorm=True, **TINY)).double()
        for layer in model.layers:
            layer.out.weight.data *= 10
        same = np.allclose(model.predict(x, y, queries), model.predict(x[:, order], y[:, order], queries), rtol=1e-9)
        assert same is not causal


def test_queries_do_not_see_each_other():
    x, y, queries = tokens()
    model = Transformer(Architecture(2, mlp=True, layernorm=True, **TINY)).double()
    alone = np.concatenate([model.predict(x, y, queries[:, m : m + 1]) for m in range(2)], 1)
    np.testing.assert_allclose(model.predict(x, y, queries), alone, rtol=1e-12)


def test_the_start_depends_on_the_seed_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, other, third = (Transformer(Architecture(2), seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.read_in.weight, other.read_in.weight)
    assert not torch.equal(one.read_in.weight, third.read_in.weight)


def same(one, other):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return np.array_equal(one.losses, other.losses) and all(torch.equal(a, b) for a, b in pairs)


def test_an_interrupted_training_goes_on_with_the_same_bits(tmp_path):
    path, shape = tmp_path / "run" / "softmax.safetensors", Architecture(2, mlp=True, **TINY)
    whole = fit(PROBLEM, shape, steps=12, batch=16, seed=np.int64(0))

    def stop(done, total, loss):
        if done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(PROBLEM, shape, steps=12, batch=16, seed=np.int64(0), out=path, every=4, progress=stop)
    resumed = fit(PROBLEM, shape, steps=12, batch=16, out=path)
    assert resumed.resumed == 8
    assert same(resumed, whole)
    again = fit(PROBLEM, shape, steps=12, batch=16, out=path)
    assert again.resumed == 12
    assert same(again, whole)
    with pytest.raises(InputError, match="a checkpoint must belong to the same training"):
        fit(PROBLEM, shape, steps=13, batch=16, out=path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="a checkpoint must be one that fit wrote"):
        fit(PROBLEM, shape, steps=12, batch=16, out=path)


def test_training_learns():
    """From the loss of predicting 0, half the signal less the oracle's, to less than half of it."""
    shape = Architecture(2, layers=2, width=16, heads=2, attention="linear")
    found = fit(PROBLEM, shape, steps=250, batch=64, rate=5e-3)
    result = compare(PROBLEM, {"model": found.model, "ConstRR": ConstRR.tune(PROBLEM)}, sequences=2000)
    assert found.losses[:10].mean() > 0.7
    assert result["model"].loss < 0.4
    assert result["model"].loss > result["ConstRR"].loss


def test_bad_input_is_refused_in_words(tmp_path):
    cases = {
        "heads must divide the width; got 3 heads, width 32": lambda: Architecture(2, heads=3),
        "attention must be one of softmax, relu, linear; got 'cosine'": lambda: Architecture(2, attention="cosine"),
        "causal must be True or False": lambda: Architecture(2, causal=1),
        "a transformer needs an Architecture; got an int": lambda: Transformer(3),
        "the problem must have the dimension of the transformer": lambda: fit(PROBLEM, Architecture(3)),
        "a checkpoint needs the name of a file": lambda: fit(PROBLEM, Architecture(2), out=tmp_path),
        "training in tokens needs contexts of one length": lambda: fit(
            Problem(2, "4..6", "uniform(0,1)"), Architecture(2), steps=1
        ),
        r"x must have shape \(B, n, 2\)": lambda: Transformer(Architecture(2)).predict(
            np.zeros((1, 2, 3)), np.zeros((1, 2)), np.zeros((1, 1, 2))
        ),
    }
    for words, call in cases.items():
        with pytest.raises(InputError, match=words):
            call()
