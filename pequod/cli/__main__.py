"""`python -m pequod.cli` is `pequod`."""

from pequod.cli import main

main()
