"""A YARN of our own for tests: no JVM, real sockets, the real wire, a thousand nodes if asked.

From the bottom up: ``digest`` and ``wire`` (the server's side of RPC, no I/O), ``server`` (one
thread for all sockets and all clocks), ``tokens``; then what a cluster is made of:
``applications`` (records), ``nodes`` (NodeManagers), ``processes`` (real containers),
``scheduling`` (who gets what, at a node's heartbeat), ``manager`` (the ResourceManager), its two
protocols ``clients`` and ``masters``; and ``cluster`` (:class:`FakeYarn`) with what a test does
to it.

It stays honest by ``conversation``: the same calls go to a real cluster and to this one, and the
answers have to have the same shape.
"""
