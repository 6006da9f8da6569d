"""The hook: TonY's client behind a connection of Airflow."""
