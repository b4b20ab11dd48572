"""HTTP -> the store and the processes that work: the control plane, one router a noun.

`create_app` in `app` makes it; `strop up` serves it. Nothing here imports the pipeline, the policy or the
engine: trainers are processes of their own that read the store.
"""
