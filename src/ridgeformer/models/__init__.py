"""Linear transformers: parameter families, the model itself, and its file."""

from ridgeformer.models.families import Diag, Full, GDpp
from ridgeformer.models.family import FAMILIES, Family, family_named
from ridgeformer.models.file import save
from ridgeformer.models.looped import Looped
from ridgeformer.models.structured import Channels, LowRank, Preconditioned, Registers
from ridgeformer.models.trace import Trace
from ridgeformer.models.transformer import LinearTransformer

__all__ = [
    "FAMILIES",
    "Channels",
    "Diag",
    "Family",
    "Full",
    "GDpp",
    "LinearTransformer",
    "Looped",
    "LowRank",
    "Preconditioned",
    "Registers",
    "Trace",
    "family_named",
    "save",
]
