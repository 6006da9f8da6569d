"""What works on Airflow 2.11, in an environment of its own (tests/envs/airflow-2.txt)."""
