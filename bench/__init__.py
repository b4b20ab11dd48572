"""Measures Strop beside its peers: `make bench`, or `python -m bench --help` from the repository's root."""
