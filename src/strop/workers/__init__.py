"""Runs user functions: a process for each, reached by HTTP, watched, and replaced when it fails.

The pool's side (`pool`, `instance`, `process`, `wire`) and the worker's side (`worker`, `guardian`, `app`,
`hosting`, `listening`) share `spec` alone. Nothing is imported here: a worker would pay for the pool's.
"""
