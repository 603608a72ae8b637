"""What kept a probe from going on: a stable kind and a sentence, never a secret."""

from __future__ import annotations


class Trouble(Exception):
    """A probe could not go on.

    `kind` is one of the words of the reference page, `reason` a sentence for people.
    """

    def __init__(self, kind: str, reason: str) -> None:
        """Keep both parts; the message is the reason."""
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
