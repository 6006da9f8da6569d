"""TonY for Azkaban: the job type ``tony``, which needs no Java of its own.

:mod:`program` is what a server starts for a job; :mod:`verb` is ``tony azkaban``, by which an
administrator installs the job type and sweeps up.
"""
