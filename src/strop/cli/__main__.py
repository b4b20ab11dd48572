"""`python -m strop.cli` is `strop`."""

from strop.cli import main

main()
