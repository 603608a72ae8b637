"""TLS is proved by trying: plaintext must be refused, the certificate must be good, faults have names."""

from __future__ import annotations

import ssl
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durable_jobs.redis_health import CheckName, CheckResult, Outcome, RedisTarget, Severity, TlsOptions
from durable_jobs.redis_health.connection import check_connection
from durable_jobs.redis_health.encryption import check_encryption
from durable_jobs.redis_health.tls import client_context
from tests.integration.redis import peers
from tests.integration.redis.certificates import Authority
from tests.integration.redis.servers import BUSY, RedisServer

DAY = timedelta(days=1)
PASSWORD = ("--requirepass", "invented")


async def look(
    port: int,
    *,
    scheme: str = "rediss",
    environment: Any = "production",
    host: str = "127.0.0.1",
    **options: Any,
) -> dict[CheckName, CheckResult]:
    """Check connection and encryption together, each within two seconds."""
    target = RedisTarget(
        name="test",
        url=f"{scheme}://:invented@{host}:{port}",  # type: ignore[arg-type]
        environment=environment,
        tls=TlsOptions(**options),
    )
    started = time.monotonic()
    results = [*await check_connection(target)]
    middle = time.monotonic()
    results += await check_encryption(target)
    assert max(middle - started, time.monotonic() - middle) < 2 + BUSY
    return {result.check: result for result in results}


async def test_a_good_server_has_tls_enforced(authority: Authority) -> None:
    with RedisServer(*PASSWORD, tls=authority.server()) as server:
        results = await look(server.port, ca_file=authority.file)
    assert results[CheckName.CONNECTION].outcome is Outcome.OK
    tls, certificate = results[CheckName.TLS], results[CheckName.CERTIFICATE]
    assert (tls.outcome, tls.facts["version"], tls.facts["enforced"]) == (Outcome.OK, "TLSv1.3", True)
    assert certificate.outcome is Outcome.OK
    assert "expires_at" in certificate.facts


async def test_the_host_name_of_the_url_is_the_one_that_is_verified(authority: Authority) -> None:
    with RedisServer(*PASSWORD, tls=authority.server("localhost")) as server:
        results = await look(server.port, host="localhost", ca_file=authority.file)
    assert results[CheckName.CERTIFICATE].outcome is Outcome.OK


@pytest.mark.parametrize(
    ("hosts", "ends_in", "trusted", "kind"),
    [
        (("127.0.0.1",), 300 * DAY, False, "tls_untrusted"),
        (("redis.example",), 300 * DAY, True, "tls_host_mismatch"),
        (("127.0.0.1",), -DAY, True, "tls_expired"),
    ],
)
async def test_a_bad_certificate_has_its_own_reason(
    authority: Authority, hosts: tuple[str, ...], ends_in: timedelta, trusted: bool, kind: str
) -> None:
    with RedisServer(*PASSWORD, tls=authority.server(*hosts, ends_in=ends_in)) as server:
        results = await look(server.port, ca_file=authority.file if trusted else None)
    connection, certificate = results[CheckName.CONNECTION], results[CheckName.CERTIFICATE]
    assert (connection.kind, connection.severity) == (kind, Severity.CRITICAL)
    assert (certificate.kind, certificate.cause) == (kind, CheckName.CONNECTION)
    assert results[CheckName.TLS].outcome is Outcome.OK  # plaintext is refused all the same


async def test_a_certificate_that_ends_in_five_days_warns(authority: Authority) -> None:
    with RedisServer(*PASSWORD, tls=authority.server(ends_in=5 * DAY)) as server:
        results = await look(server.port, ca_file=authority.file)
    certificate = results[CheckName.CERTIFICATE]
    assert (certificate.kind, certificate.severity) == ("expiring", Severity.WARNING)
    assert results[CheckName.CONNECTION].outcome is Outcome.OK


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"verify": False}, "verification_off"), ({"check_host_name": False}, "host_name_not_checked")],
)
async def test_verification_switched_off_is_itself_reported(
    authority: Authority, options: dict[str, bool], kind: str
) -> None:
    with RedisServer(*PASSWORD, tls=authority.server("redis.example")) as server:
        results = await look(server.port, ca_file=authority.file, **options)
    assert results[CheckName.CONNECTION].outcome is Outcome.OK
    certificate = results[CheckName.CERTIFICATE]
    assert (certificate.kind, certificate.severity) == (kind, Severity.WARNING)
    assert "expires_at" in certificate.facts


@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
async def test_a_missing_client_certificate_is_named(authority: Authority, protocols: str) -> None:
    with RedisServer(*PASSWORD, tls=authority.server(clients="yes", protocols=protocols)) as server:
        without = await look(server.port, ca_file=authority.file)
        certificate, key = authority.issue("client", "client.example")
        shown = await look(server.port, ca_file=authority.file, certificate_file=certificate, key_file=key)
    assert without[CheckName.CONNECTION].kind == "tls_client_certificate"
    assert shown[CheckName.CONNECTION].outcome is Outcome.OK
    assert shown[CheckName.TLS].facts["version"] == protocols


@pytest.mark.parametrize(
    ("protocols", "connection"), [("TLSv1.1", "tls_protocol"), ("TLSv1.1 TLSv1.2 TLSv1.3", "ok")]
)
async def test_a_server_that_still_accepts_old_tls_is_critical(
    authority: Authority, protocols: str, connection: str
) -> None:
    files = authority.server(protocols=protocols)
    with RedisServer(*PASSWORD, "--tls-ciphers", "DEFAULT@SECLEVEL=0", tls=files) as server:
        results = await look(server.port, ca_file=authority.file)
    assert results[CheckName.CONNECTION].kind == connection
    assert (results[CheckName.TLS].kind, results[CheckName.TLS].severity) == (
        "outdated_accepted",
        Severity.CRITICAL,
    )


async def test_t25_plaintext_in_production_is_critical(server: RedisServer) -> None:
    results = await look(server.port, scheme="redis")
    tls = results[CheckName.TLS]
    assert (tls.kind, tls.severity) == ("plaintext_accepted", Severity.CRITICAL)
    assert results[CheckName.CONNECTION].outcome is Outcome.OK


async def test_t25_plaintext_in_staging_is_critical_and_in_development_is_not(server: RedisServer) -> None:
    staging = await look(server.port, scheme="redis", environment="staging")
    development = await look(server.port, scheme="redis", environment="development")
    assert staging[CheckName.TLS].severity is Severity.CRITICAL
    assert development[CheckName.TLS].outcome is Outcome.OK
    assert development[CheckName.TLS].facts["enforced"] is False


async def test_a_plaintext_port_behind_a_tls_url_is_named(server: RedisServer) -> None:
    results = await look(server.port)
    assert results[CheckName.CONNECTION].kind == "not_tls"
    assert results[CheckName.TLS].kind == "plaintext_accepted"


async def test_a_tls_port_behind_a_plaintext_url_is_named(authority: Authority) -> None:
    with RedisServer(*PASSWORD, tls=authority.server()) as server:
        results = await look(server.port, scheme="redis")
    assert results[CheckName.CONNECTION].kind == "tls_required"
    assert (results[CheckName.TLS].outcome, results[CheckName.CERTIFICATE].kind) == (
        Outcome.OK,
        "not_applicable",
    )


async def test_a_second_port_in_plaintext_is_found(authority: Authority) -> None:
    with RedisServer(*PASSWORD, tls=authority.server(), plain_port=True) as server:
        results = await look(server.port, ca_file=authority.file)
        assert str(server.plain_port) in results[CheckName.TLS].reason
    assert (results[CheckName.TLS].kind, results[CheckName.TLS].severity) == (
        "plaintext_accepted",
        Severity.CRITICAL,
    )


async def test_hanging_up_on_everything_proves_no_tls() -> None:
    async with peers.saying(b"\n") as port:
        results = await look(port)
    assert results[CheckName.TLS].outcome is Outcome.UNKNOWN


async def test_a_missing_authority_file_is_named(server: RedisServer, tmp_path: Path) -> None:
    results = await look(server.port, ca_file=tmp_path / "nothing.pem")
    assert results[CheckName.CONNECTION].kind == "misconfigured"
    assert "nothing.pem" in results[CheckName.CONNECTION].reason


async def test_a_renewed_authority_file_is_read_again(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    with RedisServer(*PASSWORD, tls=authority.server()) as server:
        before = await look(server.port, ca_file=other.file)
        other.file.write_bytes(authority.file.read_bytes())
        after = await look(server.port, ca_file=other.file)
    assert before[CheckName.CERTIFICATE].kind == "tls_untrusted"
    assert after[CheckName.CERTIFICATE].outcome is Outcome.OK


async def test_a_stopped_tls_server_is_silent(authority: Authority) -> None:
    with RedisServer(*PASSWORD, tls=replace(authority.server())) as server:
        server.freeze()
        results = await look(server.port, ca_file=authority.file)
    assert results[CheckName.CONNECTION].kind == "silent"
    assert {results[check].outcome for check in (CheckName.TLS, CheckName.CERTIFICATE)} == {Outcome.UNKNOWN}


def test_nothing_older_than_tls_1_2_is_spoken_whatever_the_system_allows() -> None:
    assert client_context(TlsOptions()).minimum_version is ssl.TLSVersion.TLSv1_2
