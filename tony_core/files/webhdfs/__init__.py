"""HDFS by its HTTP interface, without anything but the standard library.

Theory of operation
===================

A NameNode is asked over a kept connection (``namenodes``), and answers at once, or leads to a
DataNode, which sends or takes the bytes (``datanodes``). ``client`` has one method for each
operation on a path of one file system. A DataNode that is out of reach is excluded, and the
NameNode asked for another one, while nothing was sent. ``responses`` checks what servers send and
translates what they refuse; ``connection`` is as much of HTTP/1.1 as that needs.

Whatever goes wrong is an ``OSError`` with the path as its ``filename``.

The package runs in two places: as ``tony_core.files.webhdfs`` below the file-system port, on
clients and nodes; and as ``tony_webhdfs`` beside ``tony.py``, in the user's program and on its
Python. So its modules import each other only by relative imports, nothing else of TonY, and keep
to Python 3.8.
"""
