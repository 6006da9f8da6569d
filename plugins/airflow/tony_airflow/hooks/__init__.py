"""The hooks: TonY's client behind a connection of Airflow."""
