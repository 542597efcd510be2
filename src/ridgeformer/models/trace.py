"""The moment recursion: every layer's state for given contexts, computed on demand, and continued from other states.

A layer with heads (P_k, Q_k) multiplies every token by T = I + sum_k P_k G Q_k, where G is the Gram matrix of the
context's tokens. So G becomes T G T', and the product C of all T so far says what has become of a token. The engines
compute the same, faster and without keeping what happens between the layers.

>>> from ridgeformer import LinearTransformer, Problem
>>> model = LinearTransformer.random("diag", dim=3, layers=2, context=20)
>>> trace = model.trace(Problem(3, 10, "uniform(0,1)").moments(5))
>>> trace.G.shape, trace.T.shape, trace.w.shape, trace.losses.shape
((3, 5, 4, 4), (2, 5, 4, 4), (3, 5, 3), (3, 5))
>>> trace.kept
('G', 'T', 'w')
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import Matrices
from ridgeformer.engine.kernels import layer_of
from ridgeformer.engine.reference import through_layer
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.problems import Draw
from ridgeformer.validation import Array, array, integer, layer_number, real
from ridgeformer.values import Value, read_only

if TYPE_CHECKING:
    from ridgeformer.models.transformer import LinearTransformer

Float = NDArray[Any]  # float32 or float64
BLOCKS: dict[str, tuple[Any, Any]] = {  # of C
    "M": (slice(-1), slice(-1)),
    "u": (slice(-1), -1),
    "a": (-1, -1),
    "w": (-1, slice(-1)),
}
KEPT = ("G", "T", "C", *BLOCKS)
PATCHES = ("gram", "S", "b", "q", "further", "query")
TOKENS = "{} contexts, tokens of {} coordinates, d = {}, attention={}, coordinate={}"


def _part(name: str, doc: str) -> Any:
    """A property of a trace: a part of every state."""
    return property(lambda trace: trace._computed(name), doc=doc)


class Patch(NamedTuple):
    """Parts of the state before a layer that come from another trace.

    Attributes:
        layer: The layer that reads the state, from 0.
        other: The trace from which the parts are taken.
        entries: Which entries of the Gram matrix are replaced, [D, D].
        query: Whether the query's C is replaced.
    """

    layer: int
    other: Trace
    entries: NDArray[np.bool_]
    query: bool


class Trace(Value):
    """Every layer's state for given contexts.

    Nothing is computed before it is asked for, and only what was asked for is kept; `compute` computes several parts in
    one pass. A token (z, y), where z is x with the further coordinates of the layout, is (M z + y u, a y - <w, z>)
    after l layers. Tokens have D coordinates: z and y. State 0 is the input, state l that after l layers, which is what
    layer l (counted from 0) reads.

    Args:
        model: The model.
        gram: The Gram matrices of the contexts as the first layer reads them, [B, D, D]: divided by n if attention is
            by mean.
        draw: What is known about the sequences, for losses; None if nothing is.
        patches: Parts of states that come from other traces; `patched` adds one.
    """

    def __init__(
        self, model: LinearTransformer, gram: Float, draw: Draw | None = None, patches: tuple[Patch, ...] = ()
    ) -> None:
        dtype = np.result_type(gram.dtype, model.family.dtype)
        self.model = model
        self.draw = draw
        self.patches = patches
        # In one order of memory, so that patched and other states are multiplied in the same way on every NumPy.
        self._gram = np.ascontiguousarray(gram, dtype)

    def __len__(self) -> int:
        return len(self._gram)

    def __repr__(self) -> str:
        patches = f", {len(self.patches)} patched" if self.patches else ""
        return f"Trace({self.model!r}, {len(self)} contexts{patches})"

    G: Float = _part("G", "The Gram matrices of the context's tokens, [L+1, B, D, D].")
    T: Float = _part("T", "The matrices by which the layers multiply tokens, [L, B, D, D].")
    C: Float = _part("C", "The products of all T so far, [M u; -w' a], [L+1, B, D, D]; the identity at first.")
    M: Float = _part("M", "The part of z that tokens keep, [L+1, B, D-1, D-1].")
    u: Float = _part("u", "The part of y that z receives, [L+1, B, D-1].")
    a: Float = _part("a", "The part of y that labels keep, [L+1, B].")
    w: Float = _part("w", "The part of z that labels lose, [L+1, B, D-1]. Its first d entries are `weights`.")

    @property
    def weights(self) -> Float:
        """The weights with which a query is predicted after every layer, [L+1, B, d]."""
        return self.w[..., : self.model.dim]

    @property
    def intercepts(self) -> Float:
        """The intercept of predictions beside <weights, x>, [L+1, B]: 0 unless tokens have a constant coordinate."""
        if self.model.layout.counted:
            return self.w[..., self.model.dim]
        return np.zeros((self.model.layers + 1, len(self)), self._gram.dtype)

    def readout(self, queries: ArrayLike) -> Float:
        """Predict the labels of queries after every layer.

        Args:
            queries: Features of the queries, [B, m, d], or [m, d] for one context.

        Returns:
            The predictions, [L+1, B, m], or [L+1, m]; those after the last layer are `model.predict`.

        Raises:
            InputError: The shape does not fit, or there are values that are not finite.
        """
        x = real("queries", queries)
        single = len(self) == 1 and x.ndim == 2
        x = array("queries", x[None] if single else x, (len(self), "m", self.model.dim))
        with np.errstate(all="ignore"):
            readouts = np.einsum("lbd,bmd->lbm", self.weights, x) + self.intercepts[..., None]
        return np.asarray(readouts[:, 0] if single else readouts)

    @property
    def losses(self) -> Array:
        """The adjusted losses of every sequence after every layer, [L+1, B]; infinite where the model overflowed.

        They are not adjusted where the draw has no oracle.
        """
        return self._losses(0)

    @property
    def unadjusted(self) -> Array:
        """The losses against the tasks, [L+1, B]."""
        return self._losses(1)

    def _losses(self, which: int) -> Array:
        if self.draw is None:
            rule = "losses need what the predictions are compared with"
            refuse(rule, "a trace of moments or tokens alone", "Trace a draw: model.trace(problem.moments(1000)).")
        intercepts = self.intercepts if self.model.layout.counted else [None] * len(self.weights)
        with np.errstate(all="ignore"):
            pairs = zip(self.weights, intercepts, strict=True)
            losses = np.stack([self.draw.both_losses(*pair)[which] for pair in pairs])
        return np.where(np.isnan(losses), np.inf, losses)

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the parts that are kept in memory."""
        return tuple(name for name in KEPT if f"_kept_{name}" in vars(self))

    def compute(self, *names: str) -> Trace:
        """Compute several parts in one pass over the layers, and keep them.

        Args:
            *names: Some of G, T, C, M, u, a, w.

        Returns:
            This trace.

        Raises:
            InputError: There is no part of that name.
        """
        for name in names:
            if name not in KEPT:
                refuse(f"the parts of a trace are {', '.join(KEPT)}", shown(name), "Choose among these.")
        missing = [name for name in KEPT if name in names and name not in self.kept]
        states: dict[str, list[Float]] = {name: [] for name in missing}
        with np.errstate(all="ignore"):  # a model that explodes has infinite states
            for G, C, T in self._states() if missing else ():
                parts = {"G": G, "C": C, "T": T}
                for name in missing:
                    if (part := parts[name] if name in parts else _of_product(name, C)) is not None:
                        states[name].append(part)
        vars(self).update({f"_kept_{name}": read_only(np.stack(parts)) for name, parts in states.items()})
        return self

    def _computed(self, name: str) -> Float:
        if name in BLOCKS and "C" in self.kept:
            return _of_product(name, self.C)
        state: Float = vars(self.compute(name))[f"_kept_{name}"]
        return state

    def _states(self) -> Iterator[tuple[Float, Float, Float | None]]:
        """(G, C, T) of every state: what a layer reads, and what it multiplies tokens by."""
        kernel, last = Matrices(self.model.P, self.model.Q), self.model.layers
        eye = np.eye(self._gram.shape[-1], dtype=self._gram.dtype)
        G, C = np.asarray(self._gram), np.broadcast_to(eye, self._gram.shape)
        for layer in range(last):
            G, C = self._after_patches(layer, G, C)
            T, following = through_layer(layer_of(kernel, layer), G)
            yield G, C, T
            G, C = following, T @ C
        yield *self._after_patches(last, G, C), None

    def patched(self, layer: int, other: Trace, what: str | int | Sequence[str | int] = "gram") -> Trace:
        """Continue from parts of the state that another context has before a layer; this trace stays as it is.

        The state before a layer has two halves: the context's Gram matrix, from which this and all later layers
        compute their T, and the query's own C, the product of the T before. A patch of the Gram matrix leaves C as it
        is: the query has gone through the earlier layers with its own context, and meets the other one from here on.
        A patch with the state of the same context changes nothing, to the bit. Blocks of two contexts together need not
        be a Gram matrix of any tokens.

        Args:
            layer: The layer that reads the patched state, from 0 to L - 1; negative numbers count from the end.
            other: The trace of as many contexts, from which the parts are taken. Its model may be another one with
                tokens of the same size that mean the same: of the same dimension d, attention and coordinate. Their
                coordinates that start at zero may be scratch ones in one model and channels in the other.
            what: `gram`, the whole Gram matrix; `S`, `b` or `q`, its blocks of x with x, x with y and y with y;
                `further`, all entries with a further coordinate of the layout; the number of a coordinate (0 to D - 1),
                all entries with this coordinate; `query`, the matrix C; or several of these.

        Returns:
            The trace that continues from there. It can be patched again.

        Raises:
            InputError: There is no such layer or part, or the other trace has other tokens or contexts.

        >>> from ridgeformer import LinearTransformer, Problem
        >>> model = LinearTransformer.random("diag", dim=3, layers=2, context=20)
        >>> low, high = (model.trace(Problem(3, 10, sigma).moments(5)) for sigma in (1, 3))
        >>> bool((low.patched(0, high).w == high.w).all())
        True
        """
        layer = layer_number(layer, self.model.layers)
        if not isinstance(other, Trace):
            refuse("a patch comes from another Trace", kind_of(other), "Pass model.trace(contexts).")
        if other._tokens != self._tokens:
            rule = f"a patch must have the contexts and tokens of the trace: {TOKENS.format(*self._tokens)}"
            received = TOKENS.format(*other._tokens)
            refuse(rule, received, "Trace as many contexts, with a model of the same dimension and layout.")
        if layer > other.model.layers:
            rule = f"a patch of layer {layer} must come from a model with that many layers"
            refuse(rule, f"a model with {other.model.layers}", "Patch an earlier layer.")
        names = [what] if isinstance(what, str | int) else list(what)
        if not names:
            refuse("a patch must name what is patched", "nothing", f"Choose some of {', '.join(PATCHES)}.")
        entries = np.zeros(self._gram.shape[1:], bool)
        for name in names:
            entries |= self._entries(name)
        patch = Patch(layer, other, entries, "query" in names)
        return Trace(self.model, self._gram, self.draw, (*self.patches, patch))

    @property
    def _tokens(self) -> tuple[int, int, int, str, str]:
        """How many contexts there are, and what the coordinates of their Gram matrices mean."""
        layout = self.model.layout
        return len(self), self._gram.shape[-1], self.model.dim, layout.attention, layout.coordinate

    def _entries(self, what: str | int) -> NDArray[np.bool_]:
        """Which entries of the Gram matrix a name means, [D, D]."""
        d, size = self.model.dim, self._gram.shape[-1]
        here = np.zeros((size, size), bool)
        if isinstance(what, int) and not isinstance(what, bool):
            at = integer("a coordinate of tokens", what, 0, size - 1)
            here[at] = here[:, at] = True
            return here
        if what not in PATCHES:
            rule = f"what is patched must be among {', '.join(PATCHES)}, or the number of a coordinate"
            refuse(rule, shown(what), "Choose some of these.")
        if what == "further" and size == d + 1:
            refuse("further coordinates need a layout that has some", repr(self.model), "Patch gram, S, b or q.")
        x, every = slice(d), slice(None)
        block: dict[str, Any] = {"S": (x, x), "b": (x, -1), "q": (-1, -1), "gram": every, "further": slice(d, -1)}
        if what != "query":
            here[block[what]] = True
        return here | here.T

    def _after_patches(self, layer: int, G: Float, C: Float) -> tuple[Float, Float]:
        """The state before a layer, with what patches put in its place."""
        for patch in self.patches:
            if patch.layer == layer:
                G = np.where(patch.entries, patch.other._state(layer)[0], G) if patch.entries.any() else G
                C = np.asarray(patch.other._state(layer)[1], C.dtype) if patch.query else C
        return G, C

    def _state(self, layer: int) -> tuple[Float, Float]:
        """The Gram matrices and products of one state, from what is kept if possible."""
        if {"G", "C"} <= set(self.kept):
            return self.G[layer], self.C[layer]
        for at, (G, C, _) in enumerate(self._states()):
            if at == layer:
                return G, C
        raise AssertionError("the layer was checked")


def _of_product(name: str, C: Float) -> Float:
    """A part of C = [M u; -w' a]."""
    block: Float = C[(..., *BLOCKS[name])]
    return -block if name == "w" else block
