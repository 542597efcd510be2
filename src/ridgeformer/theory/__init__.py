"""The paper's statements as running checks: each module holds one statement's mathematics and its `check`.

>>> from ridgeformer.theory import verify
>>> [check.passed for check in verify(["linear_model"])]
[True, True, True, True, True, True, True, True]
"""

from ridgeformer.theory.statement import Check
from ridgeformer.theory.verification import STATEMENTS, verify

__all__ = ["STATEMENTS", "Check", "verify"]
