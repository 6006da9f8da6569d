"""What is observed of a program: use of resources, reports, GPUs, web servers, its end."""
