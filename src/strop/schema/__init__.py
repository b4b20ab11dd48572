"""Nouns that cross a process or the disk, each written once.

Pydantic models stand where outsiders write (`config`, `function`, `job`); frozen dataclasses where the loop
works (`sample`, `sampling`, `trajectory`, `batch`). Shape letters used in names everywhere:

    B packed rows   T tokens   G members of a group   S sequences   V vocabulary   E sampled edges of a pack
"""
