"""A run's curves -> trackers that people have already: TensorBoard, MLflow, Weights & Biases, Prometheus.

`tracking` starts a process for each that a job names and hands it the values; `child` is that process. So a
tracker that hangs, crashes or fills the memory costs its own curves and nothing of the run.
"""
