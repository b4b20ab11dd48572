"""Runs user functions: each in a process of its own, called over HTTP, watched, and replaced when it fails.

The pool's side (`functions`, `instance`, `worker_pool`, `process`, `wire`) and the worker's side (`worker`,
`executor`, `app`, `listening`) share `spec` alone; both stand on `strop.processes`. Nothing is imported here:
a worker would pay for the pool's part.
"""
