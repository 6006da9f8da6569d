"""The buttons on a task: where they lead, and how they get there."""
