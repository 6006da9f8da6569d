"""Who asks: the requests that the portal answers, and for whom.

Theory of operation
===================

:class:`~tony_core.portal.access.gate.Gate` stands before the whole application. Of each request it
asks, in this order:

1. *Is it a question that needs no login?* ``/health``; ``/metrics`` from ``metrics-from``. Neither
   has the name of a user or a job.
2. *Is it for this host?* A name that the portal does not have means that a browser was led here by
   a name of another site (DNS rebinding): refused, whatever else the request has.
3. *May it change something?* Anything but GET and HEAD must come from a page of the portal's own
   origin, as the browser states it.
4. *Who asks?* One of four logins answers: a :class:`~tony_core.portal.viewer.Viewer`, or a refusal.
5. *Did a page of his send it?* What changes something carries the viewer's token (``sessions.py``).

Only then the application runs, with ``request.state.viewer`` and ``request.state.csrf``. Every
answer gets the security headers and a line in the access log.

======== ============================================ ================================
login    who decides                                  kept between requests
======== ============================================ ================================
socket   the kernel: the uid of the connection's end  nothing
header   a proxy, known by its address or its uid     nothing
oidc     an identity provider                         a session (a random cookie)
spnego   a KDC, by the service's keytab               a session
======== ============================================ ================================

Sessions are kept in memory and nowhere else: a cookie is a random number, so there is nothing to
forge and no key to steal, a logout ends it, and a restart asks for the login again.
"""
