"""Hadoop without a JVM, on the standard library alone.

``rpc`` holds the wire protocol from the bottom up: protocol buffers, SASL, connections, and calls
with failover. ``yarn`` has one typed method for each call of the ResourceManager and NodeManagers,
``site`` reads a site's configuration, and ``logs`` reads aggregated logs. Tokens and credentials
belong to all of them.
"""
