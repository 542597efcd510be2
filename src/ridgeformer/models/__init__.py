"""Linear transformers: parameter families, the model itself, and its file."""

from ridgeformer.models.families import FAMILIES, Diag, Family, Full, GDpp
from ridgeformer.models.file import load, save
from ridgeformer.models.trace import Trace
from ridgeformer.models.transformer import LinearTransformer

__all__ = ["FAMILIES", "Diag", "Family", "Full", "GDpp", "LinearTransformer", "Trace", "load", "save"]
