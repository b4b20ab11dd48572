"""What can be done with jobs, files, functions, models, deployments and evaluations, below every door."""
