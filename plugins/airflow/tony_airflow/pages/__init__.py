"""What is in Airflow's own web server: the page of a task instance's job, and its end by a mark."""
