"""YARN, without a JVM: the port's client side and master side on the protocols of ``hadoop``.

``client`` submits, reads and kills applications; ``master`` holds an application's containers;
``node`` starts processes on a node; ``logs`` reads the logs of containers.
"""
