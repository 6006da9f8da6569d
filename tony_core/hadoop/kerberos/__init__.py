"""Kerberos for clients: who the user is, tickets, and the proof that a server is the right one.

Nothing on a node imports this: inside a container, tokens are enough.
"""
