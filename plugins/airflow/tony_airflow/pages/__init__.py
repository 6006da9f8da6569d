"""The plugin in Airflow's web server: pages of tasks' jobs, and the end of marked tasks' jobs."""
