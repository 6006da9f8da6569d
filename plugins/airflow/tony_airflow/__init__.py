"""TonY for Apache Airflow: distributed training as one task among others."""
