"""Hours of bad luck in minutes: `make soak` kills and repeats, and writes what it found to docs/log.md.

Not part of `make test`. Everything here is the real program on a tiny random model.
"""
