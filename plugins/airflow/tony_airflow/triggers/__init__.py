"""The triggers: they wait for jobs while tasks are deferred."""
