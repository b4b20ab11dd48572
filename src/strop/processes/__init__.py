"""The process kit: start a child, watch it, hold it to limits, and leave nothing of it behind.

Function workers, replicas of deployments, trainers and trackers stand on it. `child` is the parent's side of
a guarded process, `reaper` the process that stays between the two; `limits`, `watch` and `cgroups` hold a
tree of processes to what it may use; `ending` ends a plain process with its descendants, and says how one
ended; `mark` tells a process from a later one with the same id. Nothing is imported here: a child would pay
for its parent's part.
"""
