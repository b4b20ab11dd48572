"""Curves and trajectories of a run -> findings: what goes wrong, what shows it, and what to do.

`texts` names the rules, `rules` and `hacks` hold them, `doctor` runs them step by step. Pure Python: no
torch, no web framework, no database.
"""
