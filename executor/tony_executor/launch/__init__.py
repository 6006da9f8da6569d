"""What a program needs before it starts, and its start."""
