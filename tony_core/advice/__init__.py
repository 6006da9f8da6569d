"""What a job could change so that it costs less, out of its history. Pure.

A job's history (:class:`tony_core.history.reader.JobHistory`) and its configuration become the
facts that rules read; a rule is a small module with one function, ``facts -> advice``, in the table
of :mod:`tony_core.advice.rules`. :func:`tony_core.advice.advise.advise` asks them all. A rule is
silent where its evidence is least: a short job, few samples, a metric that was not measured.
"""
