"""The executor's ports, its way to the master, and the relay of MPI's PMI."""
