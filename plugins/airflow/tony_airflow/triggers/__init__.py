"""What waits for jobs while their tasks are deferred."""
