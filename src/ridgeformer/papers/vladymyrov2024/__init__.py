"""The paper's evidence, measured again: Table 1, what its figures show, and what it claims."""
