"""The executor's exit codes: why a container has ended."""

EXIT_SHUT_DOWN = 0
EXIT_USAGE = 64
EXIT_NO_MASTER = 65  # no master was ever reached
EXIT_MASTER_LOST = 66  # no master came back in time, or none will
EXIT_NO_TASK = 67  # a master was reached, but never assigned a task
EXIT_INTERNAL = 70  # a fault of ours
EXIT_TERMINATED = 143
