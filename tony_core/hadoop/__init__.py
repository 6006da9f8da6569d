"""Hadoop without a JVM, by the standard library alone.

From the bottom up: ``protobuf`` and ``messages`` (what is said), ``sasl`` and ``wire`` (how, as
bytes), ``connection``, ``failover`` and ``service`` (to whom), ``rm_client``, ``rm_master`` and
``nm`` (one method for each call); beside them ``siteconf`` and ``endpoints`` (where things
are), ``ids``, ``records``, ``tokens``, ``credentials``, ``launch`` and ``urls``.
"""
