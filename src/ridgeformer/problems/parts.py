"""Which parts of a problem go together."""

from __future__ import annotations

from ridgeformer.errors import refuse
from ridgeformer.problems.features import Features
from ridgeformer.problems.lengths import Lengths

__all__ = ["check_parts"]


def check_parts(features: Features, query: Features | None, lengths: Lengths) -> None:
    """Refuse parts of a problem that do not go together.

    Args:
        features: The law of the features.
        query: The law of the queries; None for that of the features.
        lengths: The numbers of examples.

    Raises:
        InputError: They do not.
    """
    if query is not None and not query.fixed:
        refuse("queries have one covariance for all sequences", query, "Pass a matrix or a spectrum.")
    if query is not None and features.standardised:
        refuse(
            "queries of standardised features have the covariance of the features",
            query,
            "Leave out query, or do not standardise.",
        )
    if features.standardised and lengths.least < 2:
        refuse("standardising needs at least two examples", f"context {lengths}", "Pass a larger context.")
