"""The paper's statements as running checks: each module holds one statement's mathematics and its `check`."""
