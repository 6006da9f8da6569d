"""RC4, as DIGEST-MD5's ``auth-conf`` wants it. Weak, and the only cipher we need to speak.

Here because no library on the nodes has it: newer OpenSSLs keep it in a provider that is
not loaded, and those in FIPS mode have none.
"""

from __future__ import annotations


class Rc4:
    """A stream of key bytes. The state goes on from one message to the next."""

    def __init__(self, key: bytes) -> None:
        state = list(range(256))
        j = 0
        for i in range(256):
            j = (j + state[i] + key[i % len(key)]) & 255
            state[i], state[j] = state[j], state[i]
        self._state = state
        self._i = 0
        self._j = 0

    def apply(self, data: bytes) -> bytes:
        """Encrypt or decrypt, which is the same."""
        state, i, j = self._state, self._i, self._j
        stream = bytearray(len(data))
        for n in range(len(data)):
            i = (i + 1) & 255
            a = state[i]
            j = (j + a) & 255
            b = state[j]
            state[i] = b
            state[j] = a
            stream[n] = state[(a + b) & 255]
        self._i, self._j = i, j
        # One operation on two long numbers is much faster than one on each byte.
        mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")
        return mixed.to_bytes(len(data), "little")
