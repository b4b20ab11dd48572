"""One chat path: read, render, sample, answer. `gateway` captures what it samples, `serving` only answers."""
