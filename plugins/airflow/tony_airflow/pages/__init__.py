"""The job of a task instance as a page of Airflow's own web server, also when it has ended."""
