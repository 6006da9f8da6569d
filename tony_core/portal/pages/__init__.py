"""The pages of the portal. Each module has ``routes(site)``.

What answers may block (an index, files, a scheduler), so it runs in a worker thread; only what
waits for news is asynchronous.
"""
