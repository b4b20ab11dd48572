"""What a run can be seen by: the registry of metrics.

`metrics` answers what a name means and refuses names that nobody declared, `catalogue` holds the
declarations, `metrics_doc` makes the documentation of them. Pure Python, no torch, no database.
"""
