"""TonY for Azkaban: the job type ``tony``, which needs no Java of its own.

A server starts :mod:`program` for each job; :mod:`verb` is ``tony azkaban``, with which an
administrator installs the job type and ends applications that jobs left.
"""
