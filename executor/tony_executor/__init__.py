"""The task executor: one per container, the user's program its child."""
