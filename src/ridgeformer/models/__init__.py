"""Linear transformers: parameter families, the model itself, and its file."""

from ridgeformer.models.families import Diag as Diag, Full as Full, GDpp as GDpp
from ridgeformer.models.family import FAMILIES as FAMILIES, Family as Family, family_named as family_named
from ridgeformer.models.file import save as save
from ridgeformer.models.structured import (
    Channels as Channels,
    Looped as Looped,
    LowRank as LowRank,
    Preconditioned as Preconditioned,
    Registers as Registers,
)
from ridgeformer.models.trace import Trace as Trace
from ridgeformer.models.transformer import LinearTransformer as LinearTransformer
