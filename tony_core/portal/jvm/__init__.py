"""The JVM TonY's history: read for the portal and ``tony history import``, and written.

Theory of operation::

    ROOT/intermediate/ID/                 written by the job's master; so do we
    ROOT/finished/yyyy/MM/dd/ID/          where the JVM portal moves it, by the day of its end (UTC)
        tony-final.xml                    the configuration (config.xml before 0.3.5)
        ID-STARTED-ENDED-USER-STATUS.jhist     Avro: events; one file for each attempt of the master
        ID-STARTED-USER.jhist.inprogress       while it runs

:mod:`location` finds the jobs and opens their files, :mod:`names` reads and makes the files' names,
:mod:`avro` takes records out of a file, within bounds, :mod:`reading` makes the record that all
our readers know of them (:class:`~tony_core.history.reader.JobHistory`), :mod:`writing` makes a
``.jhist`` of such a record, and :mod:`publication` writes it where other tools look for it.

*The folder's name is the job's id*, and the owner of the files is its owner: what a file's name or
content says of another job is named as a problem, and opens nothing. *A file is a stranger's*: its
schema, its sizes and its numbers are checked before anything is decoded by them.
"""
