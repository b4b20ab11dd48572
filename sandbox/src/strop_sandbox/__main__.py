"""`python -m strop_sandbox` is `strop-sandbox`."""

from strop_sandbox.cli import main

main()
