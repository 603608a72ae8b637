"""TLS contexts, certificates, and what a failed handshake means.

The default is to verify, host name included; every way it can fail has its own kind.
"""

from __future__ import annotations

import ssl
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from durable_jobs.redis_health.address import TlsOptions
from durable_jobs.redis_health.trouble import Trouble

_HOST_MISMATCH = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_NOT_YET_VALID = 9  # X509_V_ERR_CERT_NOT_YET_VALID


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate a server showed."""

    subject: str
    expires_at: datetime


def client_context(options: TlsOptions, *, verify: bool | None = None) -> ssl.SSLContext:
    """A context of TLS 1.2 or newer; `verify=False` is for probes that send nothing secret.

    Raises:
        Trouble: `misconfigured`, when a file of the options cannot be used.
    """
    files = (options.ca_file, options.certificate_file, options.key_file)
    try:
        # Loading the authorities takes milliseconds that the loop must not lose at each probe; the
        # times of change are part of the key so that renewed files are read.
        changed = tuple(path.stat().st_mtime_ns if path else 0 for path in files)
        return _context(options, options.verify if verify is None else verify, changed)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(path) for path in files if path)
        raise Trouble("misconfigured", f"the TLS files cannot be used ({names}): {_short(error)}") from error


@lru_cache(maxsize=32)
def _context(options: TlsOptions, verify: bool, _changed: tuple[int, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = verify and options.check_host_name
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    elif options.ca_file:
        context.load_verify_locations(cafile=options.ca_file)
    else:
        context.load_default_certs()
    if options.certificate_file:
        context.load_cert_chain(options.certificate_file, options.key_file)
    return context


@lru_cache(maxsize=1)
def outdated_context() -> ssl.SSLContext:
    """A context that speaks nothing newer than TLS 1.1, to try whether a server still does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        # Python warns of these versions, and that is why they are tried.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def read_certificate(connection: ssl.SSLObject) -> Certificate | None:
    """The server's certificate, also when it was not verified; None when it cannot be read."""
    from cryptography import x509  # 50 ms that only a certificate is worth

    der = connection.getpeercert(binary_form=True)
    if not der:
        return None
    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError:
        return None
    return Certificate(certificate.subject.rfc4514_string(), certificate.not_valid_after_utc)


def explain(error: ssl.SSLError, host: str, ca_file: Path | None) -> Trouble:
    """Name what went wrong in a handshake, or right after it (TLS 1.3 refuses clients late)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, host, ca_file)
    reason = (error.reason or "").upper()
    if "CERTIFICATE_REQUIRED" in reason or "ALERT_UNKNOWN_CA" in reason or "HANDSHAKE_FAILURE" in reason:
        return Trouble(
            "tls_client_certificate",
            f"the server refused the handshake ({reason.lower()}): it wants a client certificate it knows",
        )
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return Trouble("not_tls", "the port does not speak TLS, but the URL says rediss://")
    if "PROTOCOL" in reason or "VERSION" in reason:
        return Trouble("tls_protocol", f"no common TLS version of 1.2 or newer ({reason.lower()})")
    return Trouble("tls_failed", f"the TLS handshake failed ({_short(error)})")


def _explain_certificate(error: ssl.SSLCertVerificationError, host: str, ca_file: Path | None) -> Trouble:
    if error.verify_code in _HOST_MISMATCH:
        return Trouble("tls_host_mismatch", f"the certificate is valid, but not for the host {host}")
    if error.verify_code == _EXPIRED:
        return Trouble("tls_expired", f"the certificate, or one that signed it, has expired ({_today()})")
    if error.verify_code == _NOT_YET_VALID:
        return Trouble("tls_not_yet_valid", f"the certificate is not valid yet ({_today()})")
    authorities = str(ca_file) if ca_file else "the system's authorities"
    return Trouble(
        "tls_untrusted", f"no trust in the certificate ({error.verify_message}): judged by {authorities}"
    )


def _today() -> str:
    return f"today is {datetime.now(UTC):%Y-%m-%d}"


def _short(error: BaseException) -> str:
    text = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return str(text).lower()
