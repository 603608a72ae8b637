"""A Redis URL, taken apart.

Only this module reads the URL. Nothing of it but host, port and database number may reach a log, an
event or an error text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from durable_jobs.redis_health.errors import InvalidRedisTarget

DEFAULT_PORT = 6379
_HINT = "write rediss://[user]:password@host[:port][/db] (redis:// without TLS), special characters %-encoded"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How the server's certificate is judged, and which one is shown to it.

    `ca_file` replaces the system's authorities. With `verify` off nothing is judged; with
    `check_host_name` off the certificate may be anybody's: both are reported by the checks.
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True
    check_host_name: bool = True


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis is and as whom to speak to it."""

    host: str
    port: int
    db: int
    username: str | None
    password: str | None = field(repr=False)
    tls: bool
    tls_options: TlsOptions

    @property
    def endpoint(self) -> str:
        """Host and port as a person writes them; safe to show."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_redis_url(url: str, *, setting: str = "url") -> RedisAddress:
    """Read a redis:// or rediss:// URL, with the TLS options that redis-py takes in its query.

    Raises:
        InvalidRedisTarget: the URL cannot be understood; the message names `setting`, never the URL.
    """
    parts = _split(url, setting)
    # urlsplit's own errors quote the text around a port, which may be half of a password.
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise InvalidRedisTarget(f"{setting}: the port is not a number up to 65535; {_HINT}") from None
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    return RedisAddress(
        host=unquote(parts.hostname or "localhost"),
        port=port,
        db=_db(query.get("db", parts.path.strip("/")), setting),
        username=unquote(parts.username or "") or query.get("username"),
        password=unquote(parts.password or "") or query.get("password"),
        tls=parts.scheme == "rediss",
        tls_options=_tls_options(query, setting),
    )


def _split(url: str, setting: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise InvalidRedisTarget(f"{setting}: this is not a URL; {_HINT}") from None
    if parts.scheme not in ("redis", "rediss"):
        known = {"unix", "redis+sentinel", "rediss+sentinel"}
        what = f"{parts.scheme}:// is not watched" if parts.scheme in known else "the scheme is not known"
        raise InvalidRedisTarget(f"{setting}: {what}; name each server itself: {_HINT}")
    return parts


def _db(text: str, setting: str) -> int:
    if not text:
        return 0
    if not text.isdecimal():
        raise InvalidRedisTarget(
            f"{setting}: the database after the host must be a number, as in /0; {_HINT}"
        )
    return int(text)


def _tls_options(query: dict[str, str], setting: str) -> TlsOptions:
    options = {name: value for name, value in query.items() if name.startswith("ssl_")}
    ca_file, certificate, key = (
        Path(value) if value else None
        for value in (options.pop(name, "") for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"))
    )
    verify = options.pop("ssl_cert_reqs", "required") != "none"
    check_host_name = options.pop("ssl_check_hostname", "true").lower() not in ("false", "0", "no", "off")
    if options:
        raise InvalidRedisTarget(
            f"{setting}: {', '.join(sorted(options))} cannot be used here;"
            " known are ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs and ssl_check_hostname"
        )
    return TlsOptions(ca_file, certificate, key, verify, check_host_name)
