"""Names of Kerberos as Hadoop reads them. Pure.

A principal is ``NAME@REALM`` or, of a service, ``NAME/INSTANCE@REALM``. A configured principal may
have ``_HOST`` as its instance, which stands for the server's host. The *short name* is the user's
name on the cluster; the rules in ``hadoop.security.auth_to_local`` make it:

``DEFAULT``
    A name or a service of our own realm, without what stands behind the name.
``RULE:[COUNT:FORMAT](MATCH)s/PATTERN/REPLACEMENT/g/L``
    For principals with COUNT components: FORMAT, in which ``$1`` and ``$2`` are components and
    ``$0`` is the realm, must match the whole of MATCH; then the substitution (once, or with ``g``
    everywhere) makes the name, in lower case with ``/L``.

The first rule that fits decides. The servers apply their own rules; a client needs the name for
its own folders, and for the owner of a job.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from tony_core.hadoop.errors import ConfigurationError

HOST = "_HOST"

_PRINCIPAL = re.compile(r"([^/@]+)(?:/([^/@]+))?(?:@([^/@]+))?")
_RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?"
    r"(?:s/((?:[^/\\]|\\.)*)/((?:[^/\\]|\\.)*)/(g)?)?/?(L)?)\s*"
)
_COMPONENT = re.compile(r"\$(\d)")


class Principal(NamedTuple):
    """A principal's parts; the empty text for one that it does not have."""

    name: str
    instance: str = ""
    realm: str = ""

    def __str__(self) -> str:
        instance = f"/{self.instance}" if self.instance else ""
        realm = f"@{self.realm}" if self.realm else ""
        return f"{self.name}{instance}{realm}"


def parse_principal(text: str) -> Principal:
    """The parts of a principal; raises :class:`ConfigurationError`."""
    found = _PRINCIPAL.fullmatch(text.strip())
    if not found:
        raise ConfigurationError(f"{text!r} is no principal of the form NAME/HOST@REALM")
    return Principal(found[1], found[2] or "", found[3] or "")


def expand_host(principal: str, host: str) -> str:
    """A service's principal on a host: ``_HOST`` replaced, in lower case as Hadoop does."""
    parts = parse_principal(principal)
    if parts.instance != HOST:
        return str(parts)
    return str(parts._replace(instance=host.lower().rstrip(".")))


class Rule(NamedTuple):
    """One rule of ``hadoop.security.auth_to_local``."""

    text: str
    components: Optional[int] = None  # None: DEFAULT
    format: str = ""
    match: str = ""
    pattern: Optional[str] = None
    replacement: str = ""
    everywhere: bool = False
    lower: bool = False

    def apply(self, principal: Principal, default_realm: str) -> Optional[str]:
        """The short name; None if the rule is not for this principal."""
        if self.components is None:
            ours = not principal.realm or principal.realm == default_realm
            return principal.name if ours else None
        parts = [principal.realm, principal.name]
        if principal.instance:
            parts.append(principal.instance)
        if len(parts) - 1 != self.components:
            return None
        base = _COMPONENT.sub(lambda found: _component(parts, int(found[1])), self.format)
        if self.match and not re.fullmatch(self.match, base):
            return None
        if self.pattern is not None:
            replacement = re.sub(r"\$(\d)", r"\\g<\1>", self.replacement)
            base = re.sub(self.pattern, replacement, base, count=0 if self.everywhere else 1)
        return base.lower() if self.lower else base


def _component(parts: Sequence[str], number: int) -> str:
    return parts[number] if number < len(parts) else ""


def parse_rules(text: str) -> Tuple[Rule, ...]:
    """The rules of ``hadoop.security.auth_to_local``; raises :class:`ConfigurationError`."""
    rules: List[Rule] = []
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if not found or found.end() == at:
            raise ConfigurationError(
                f"hadoop.security.auth_to_local has a rule that cannot be read: {text[at:].strip()}"
            )
        at = found.end()
        rule = Rule(found[0].strip())
        if not found[1]:
            rule = rule._replace(
                components=int(found[2] or 0),
                format=found[3],
                match=found[4] or "",
                pattern=found[5],
                replacement=found[6] or "",
                everywhere=bool(found[7]),
                lower=bool(found[8]),
            )
            _compile(rule)
        rules.append(rule)
    return tuple(rules) or (Rule("DEFAULT"),)


def _compile(rule: Rule) -> None:
    for pattern in (rule.match, rule.pattern or ""):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(
                f"hadoop.security.auth_to_local has an invalid pattern in {rule.text}: {error}"
            ) from None


def short_name(principal: Principal, rules: Sequence[Rule], default_realm: str) -> str:
    """The user's name on the cluster; raises :class:`ConfigurationError` if no rule applies."""
    for rule in rules:
        name = rule.apply(principal, default_realm)
        if name is not None:
            if not name or re.search(r"[/@\s]", name):
                raise ConfigurationError(
                    f"hadoop.security.auth_to_local makes {name!r} of {principal}, which is no name"
                    f" of a user ({rule.text})"
                )
            return name
    raise ConfigurationError(
        f"no rule of hadoop.security.auth_to_local in core-site.xml applies to {principal}"
        f" (the default realm is {default_realm or 'not known'}): log in as a principal of the"
        " cluster's realm (kinit NAME@REALM). If this is one, name the site's krb5.conf by"
        " KRB5_CONFIG, or the administrator adds a rule"
    )
