"""The authorities that signed the certificates of a site's web servers (HTTPS).

A client trusts those of its machine (or of SSL_CERT_FILE), and those in the file that the property
:data:`CA_FILE` of the site's core-site.xml names, as PEM. A job carries that file's certificates to
its containers as the property :data:`CA_PEM`: they are public, and the nodes may lack them.
Java's truststores (``ssl.client.truststore.location``) cannot be read without Java.
"""

from __future__ import annotations

import re

from tony_core.hadoop.errors import ConfigurationError
from tony_core.hadoop.site.configuration import SiteConfiguration

CA_FILE = "tony.https.ca-file"
CA_PEM = "tony.https.ca-pem"

LONGEST = 48 << 10
"""Of the certificates: they stand in the credentials and the environment of each container."""

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----", re.ASCII
)


def read_authorities(conf: SiteConfiguration) -> str:
    """The site's authorities as PEM; empty where it names none.

    Raises :class:`ConfigurationError` for a file that holds none.
    """
    carried = conf.text(CA_PEM)
    path = conf.text(CA_FILE)
    if carried or not path:
        return carried
    where = f"{CA_FILE} is {path} in {conf.source(CA_FILE)}"
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise ConfigurationError(
            f"{where}, which cannot be read: {error.strerror or error}"
        ) from None
    found = "\n".join(_CERTIFICATE.findall(text))
    if not found:
        raise ConfigurationError(
            f"{where}, which holds no certificate as PEM. If it is a truststore of Java's, export"
            f" it: keytool -list -rfc -keystore {path} > authorities.pem"
        )
    if len(found) > LONGEST:
        raise ConfigurationError(
            f"{where}, which holds {len(found) >> 10} KB of certificates; at most"
            f" {LONGEST >> 10} KB travel with a job. Name a file with the authorities of the"
            " cluster only"
        )
    return found + "\n"
