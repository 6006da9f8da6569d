"""A real HDFS and YARN on this machine, from Maven Central's jars, for tests and to try.

    with Hadoop.up(folder, ["two_nodes", "gpu"]) as hadoop:
        os.environ["HADOOP_CONF_DIR"] = str(hadoop.conf_dir)

``jars`` fetches, ``plan`` and ``features`` decide on daemons and configuration, ``supervisor``
is the process that keeps the daemons and ends them whatever happens, ``cluster`` is the handle,
``fixture`` is pytest's and ``sandbox`` the command line's (bin/hadoop-sandbox). Standard
library only.
"""
