"""`python -m ridgeformer`."""

from ridgeformer.cli import main

main()
