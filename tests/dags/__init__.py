"""The examples for Airflow (dags/examples)."""
