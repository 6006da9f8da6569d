"""A real Airflow on this machine, for tests: its components, its REST interface, its pages."""
