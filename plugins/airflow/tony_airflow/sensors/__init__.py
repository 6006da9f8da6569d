"""The sensor: it waits for another task's job."""
