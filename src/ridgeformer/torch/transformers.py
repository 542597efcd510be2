"""Transformers outside moment form: softmax, ReLU or linear attention, causal or not, with MLP and LayerNorm or not.

They need tokens. Like every predictor that does, they have `predict(x, y, queries)`, so that `evaluate`, `compare` and
`profile` judge them through sampled queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ridgeformer.errors import kind_of, refuse
from ridgeformer.validation import array, choice, flag, integer

__all__ = ["Architecture", "Block", "Transformer"]

ATTENTIONS = ("softmax", "relu", "linear")
PART = 4096  # sequences at a time in `predict`, so that memory stays bounded


@dataclass(frozen=True)
class Architecture:
    """What a transformer is made of.

    Attributes:
        dim: The dimension d of the features.
        layers: How many layers.
        width: How many numbers a token has inside the transformer.
        heads: How many attention heads per layer; they share the width.
        attention: `softmax`; `relu`, the positive parts of the scores; or `linear`, the scores themselves. The last two
            are divided by the number of tokens attended to.
        causal: Whether a token of the context attends to itself and earlier ones only. Queries see the whole context.
        mlp: Whether every layer ends with an MLP of four times the width.
        layernorm: Whether the input of attention and MLP is normalised.
    """

    dim: int
    layers: int = 3
    width: int = 32
    heads: int = 2
    attention: Literal["softmax", "relu", "linear"] = "softmax"
    causal: bool = False
    mlp: bool = False
    layernorm: bool = False

    def __post_init__(self) -> None:
        for name in ("dim", "layers", "width", "heads"):
            object.__setattr__(self, name, integer(name, getattr(self, name), 1, 4096))
        if self.width % self.heads:
            refuse(
                "heads must divide the width",
                f"{self.heads} heads, width {self.width}",
                f"Pass width={self.heads * -(-self.width // self.heads)}.",
            )
        choice("attention", self.attention, ATTENTIONS)
        for name in ("causal", "mlp", "layernorm"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))


class Block(nn.Module):
    """One layer: attention, then an MLP if there is one, both added to the tokens.

    Args:
        shape: What the transformer is made of.
    """

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.heads, self.attention = shape.heads, shape.attention
        self.norm = nn.LayerNorm(shape.width) if shape.layernorm else nn.Identity()
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.mlp = None
        if shape.mlp:
            norm = nn.LayerNorm(shape.width) if shape.layernorm else nn.Identity()
            hidden = nn.Linear(shape.width, 4 * shape.width)
            self.mlp = nn.Sequential(norm, hidden, nn.GELU(), nn.Linear(4 * shape.width, shape.width))

    def forward(self, tokens: Tensor, count: int, seen: Tensor | None) -> Tensor:
        """Apply the layer.

        Args:
            tokens: The tokens, [B, n + m, width], the m queries last.
            count: The number n of tokens of the context; queries are attended to by nobody.
            seen: Which context tokens (columns) each token (row) attends to, [n + m, n]; None for all.

        Returns:
            The tokens after the layer, of the same shape.
        """
        batch, length, width = tokens.shape
        pieces = self.qkv(self.norm(tokens)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = pieces.permute(2, 0, 3, 1, 4)
        key, value = key[:, :, :count], value[:, :, :count]
        if self.attention == "softmax":
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        else:
            scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
            scores = scores.relu() if self.attention == "relu" else scores
            scores = scores / count if seen is None else scores * seen / seen.sum(-1, keepdim=True)
            mixed = scores @ value
        tokens = tokens + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return tokens if self.mlp is None else tokens + self.mlp(tokens)


class Transformer(nn.Module):
    """A transformer that predicts the labels of queries from a context of examples.

    A token (x, y) is mapped to `width` numbers by one linear map, and the prediction is another linear map of a query's
    last token. A query is the token (x, 0). There are no positions, so without a causal mask the order of the examples
    does not matter.

    Args:
        shape: What it is made of.
        seed: Seed of the random start.
    """

    def __init__(self, shape: Architecture, seed: int = 0) -> None:
        super().__init__()
        if not isinstance(shape, Architecture):
            refuse("a transformer needs an Architecture", kind_of(shape), "Pass Architecture(dim=5).")
        self.shape = shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer("seed", seed, 0))
            self.read_in = nn.Linear(shape.dim + 1, shape.width)
            self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
            self.read_out = nn.Linear(shape.width, 1)
            for layer in self.layers:  # the start is close to doing nothing, whatever the depth
                nn.init.normal_(layer.out.weight, std=0.3 / (shape.width * shape.layers) ** 0.5)

    def forward(self, x: Tensor, y: Tensor, queries: Tensor) -> Tensor:
        """Predict the labels of queries.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].
            queries: Features of the queries, [B, m, d].

        Returns:
            The predictions, [B, m].
        """
        count = x.shape[1]
        context = torch.cat([x, y[..., None]], -1)
        asked = torch.cat([queries, torch.zeros_like(queries[..., :1])], -1)
        tokens = self.read_in(torch.cat([context, asked], 1))
        seen = None
        if self.shape.causal:
            seen = torch.ones(tokens.shape[1], count, dtype=torch.bool, device=x.device).tril()
        for layer in self.layers:
            tokens = layer(tokens, count, seen)
        return self.read_out(tokens[:, count:])[..., 0]

    def predict(self, x: ArrayLike, y: ArrayLike, queries: ArrayLike) -> NDArray[np.floating[Any]]:
        """Predict for arrays, without a gradient.

        Args:
            x: As for `forward`, [B, n, d].
            y: As for `forward`, [B, n].
            queries: As for `forward`, [B, m, d].

        Returns:
            The predictions, [B, m].

        Raises:
            InputError: Shapes do not fit, or there are values that are not finite.
        """
        given = array("x", x, ("B", "n", self.shape.dim))
        labels, asked = array("y", y, given.shape[:2]), array("queries", queries, (len(given), "m", self.shape.dim))
        like = next(self.parameters())
        found = []
        with torch.no_grad():
            for first in range(0, len(given), PART):
                parts = (np.array(value[first : first + PART]) for value in (given, labels, asked))
                tensors = [torch.from_numpy(part).to(like.device, like.dtype) for part in parts]
                found.append(self(*tensors).cpu().numpy())
        return np.concatenate(found)
