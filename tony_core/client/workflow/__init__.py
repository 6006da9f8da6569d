"""What a workflow engine's adapter (Airflow, Azkaban) needs to run a job as one of its tasks.

Find an earlier try's job, wait for a job or for many, report into the task's log, and describe the
end. Nothing here knows an engine.
"""
