"""Certificates made on the spot by an authority of the test's own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True)
class ServerFiles:
    """What a redis-server needs for TLS."""

    certificate: Path
    key: Path
    authority: Path
    clients: str = "no"
    protocols: str = "TLSv1.2 TLSv1.3"

    def options(self) -> list[str]:
        return [
            "--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key),
            "--tls-ca-cert-file", str(self.authority), "--tls-auth-clients", self.clients,
            "--tls-protocols", self.protocols,
        ]  # fmt: skip


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *hosts: str, ends_in: timedelta = timedelta(days=300)) -> tuple[Path, Path]:
        """A certificate and its key, for these hosts."""
        now = datetime.now(UTC)
        issued = self._ca.issue_cert(*hosts, not_before=now - timedelta(days=400), not_after=now + ends_in)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        issued.private_key_pem.write_to_path(str(key))
        certificate.unlink(missing_ok=True)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(certificate), append=True)
        return certificate, key

    def server(
        self,
        *hosts: str,
        ends_in: timedelta = timedelta(days=300),
        clients: str = "no",
        protocols: str = "TLSv1.2 TLSv1.3",
    ) -> ServerFiles:
        """The files of a server with these host names."""
        certificate, key = self.issue("server", *(hosts or ("localhost", "127.0.0.1")), ends_in=ends_in)
        return ServerFiles(certificate, key, self.file, clients, protocols)
