"""The links of a task, and their addresses."""
