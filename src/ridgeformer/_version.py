"""The version of the package; `pyproject.toml` reads it from here."""

__version__ = "0.2.0"
