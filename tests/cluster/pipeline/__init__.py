"""The retraining pipeline of dags/examples, run for real."""
