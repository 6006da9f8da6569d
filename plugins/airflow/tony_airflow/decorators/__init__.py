"""``@task.tony``: a function's body as the program of a job."""
