"""TonY for Apache Airflow. The package is reserved; it holds no operator yet."""
