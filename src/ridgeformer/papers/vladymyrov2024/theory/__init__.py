"""The paper's statements as running checks: each module holds one statement's mathematics and its `check`.

>>> from ridgeformer.papers.vladymyrov2024.theory import verify
>>> [check.passed for check in verify(["linear_model"])]
[True, True, True, True, True, True, True, True]
"""

from ridgeformer.papers.vladymyrov2024.theory.statement import Bound
from ridgeformer.papers.vladymyrov2024.theory.verification import STATEMENTS, verify

__all__ = ["STATEMENTS", "Bound", "verify"]
