"""One module a measured program. Each runs as a process of its own, warm, and works only when told to."""
