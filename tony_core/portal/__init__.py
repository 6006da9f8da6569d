"""The portal: one web site over every job of every day (``tony portal``).

Theory of operation::

    history locations (folders, HDFS, the JVM TonY's)      schedulers (embedded, YARN)
        |  names, owners, times                                |  running jobs, their pages, logs
        v                                                      v
    scan --> index (SQLite) ----- rows ----> pages and API <---- job sources
                                                 ^
                                                 |  who asks, and what he may see
                                              access

*Files are the truth.* The index holds what lists, searches and sums need; it is made from the
history files and may be removed at any time. A job's page reads that job's own files, and while it
runs its master's page, which answers in the same JSON (:mod:`tony_core.view`).

*The owner of a job is the owner of its files*, never what they say. What a file says is text:
it is escaped, it opens no other path, and it speaks for no other job.

*Reading only.* The one thing that can be done is to end a job, as the viewer.

Whatever may block (a name node, a ResourceManager, a large file) runs in a worker thread with a
deadline; what is not there by then is named on the page.
"""
