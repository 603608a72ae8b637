"""Tokens: what makes one good, who it says is calling, and how one is made for development.

The algorithm is pinned by the settings, whatever a token's header says; a token is never partly good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from durable_jobs.api.callers import Caller, Scope
from durable_jobs.api.keys import Jwks, KeySource, OneSecret, UnknownKey, require_place
from durable_jobs.errors import BadInput, InvalidSettings
from durable_jobs.settings import Settings
from durable_jobs.tenants import DEFAULT_TENANT, validated

SHORTEST_SECRET = 32
MAX_SUBJECT = 255
MAX_TOKEN = 16_384


class BadToken(Exception):
    """The token is not good; the message says why and holds nothing of it."""


class TokenVerifier:
    """Says who a token's caller is."""

    def __init__(self, source: KeySource, algorithm: str, settings: Settings) -> None:
        """Take keys from the source, for one algorithm."""
        self._source, self._algorithm = source, algorithm
        self._audience, self._issuer = settings.jwt_audience, settings.jwt_issuer
        self._leeway, self._tenant_claim = settings.jwt_leeway, settings.jwt_tenant_claim

    async def caller(self, token: str) -> Caller:
        """Return the caller.

        Raises:
            BadToken: it is not a token of ours, or not any more.
            StoreUnavailable: the keys cannot be had now.
        """
        if len(token) > MAX_TOKEN:
            raise BadToken(f"it is longer than {MAX_TOKEN:,} characters")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") != self._algorithm:
                raise BadToken(f"it is not signed with {self._algorithm}")
            key = await self._source.key(header.get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=[self._algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=self._leeway,
                options={"require": ["exp", "sub", "aud"]},
            )
        except (jwt.InvalidTokenError, UnknownKey) as error:
            raise BadToken(_why(error)) from error
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        subject = claims["sub"]
        if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT or not subject.isprintable():
            raise BadToken(f"its claim sub must have 1 to {MAX_SUBJECT} printable characters")
        return Caller(self._tenant(claims), subject, scopes_of(claims))

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        if not self._tenant_claim:
            return DEFAULT_TENANT
        tenant = claims.get(self._tenant_claim)
        if not isinstance(tenant, str):
            raise BadToken(f"it has no claim {self._tenant_claim!r} that names the tenant")
        try:
            return validated(tenant)
        except BadInput as error:
            raise BadToken(f"its claim {self._tenant_claim!r} cannot name a tenant") from error


def _why(error: Exception) -> str:
    """Say what is wrong with a token, in words that tell nothing of it."""
    match error:
        case jwt.ExpiredSignatureError():
            return "it has expired; get a new one"
        case jwt.InvalidAudienceError():
            return "it is not for this audience"
        case jwt.InvalidIssuerError():
            return "it is not from the issuer that is trusted here"
        case jwt.ImmatureSignatureError():
            return "it is not valid yet"
        case jwt.MissingRequiredClaimError():
            return f"it lacks the claim {error.claim!r}"
        case jwt.InvalidSignatureError():
            return "its signature is not good"
        case UnknownKey():
            return str(error)
    return "it is not a token that can be read"


def scopes_of(claims: Mapping[str, Any]) -> frozenset[Scope]:
    """Return the scopes that claims name: `scope` as words (RFC 8693), or `scp` as a list; others are ignored."""
    given = claims.get("scope", claims.get("scp", ""))
    words = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    return frozenset(scope for scope in Scope if scope in words)


def verifier_of(settings: Settings) -> TokenVerifier | None:
    """Return what checks tokens as the settings say; None when they say nothing of tokens.

    Raises:
        InvalidSettings: they contradict themselves, or the secret is too short.
    """
    algorithm = settings.jwt_algorithm
    if settings.jwt_secret is not None and settings.jwt_jwks is not None:
        raise InvalidSettings(
            "DURABLE_JOBS_JWT_SECRET and DURABLE_JOBS_JWT_JWKS are both set: tokens are signed either with a"
            " secret or with the keys of a JWKS; remove one"
        )
    if settings.jwt_secret is not None:
        if algorithm not in (None, "HS256"):
            raise InvalidSettings(
                f"DURABLE_JOBS_JWT_ALGORITHM is {algorithm}, and a secret signs with HS256;"
                " set DURABLE_JOBS_JWT_JWKS instead of the secret, or leave the algorithm out"
            )
        return TokenVerifier(OneSecret(_secret(settings)), "HS256", settings)
    if settings.jwt_jwks is not None:
        if algorithm == "HS256":
            raise InvalidSettings(
                "DURABLE_JOBS_JWT_ALGORITHM is HS256, and the keys of a JWKS are public: use RS256 or ES256"
            )
        place = require_place(settings.jwt_jwks, settings.environment)
        return TokenVerifier(Jwks(place, algorithm or "RS256"), algorithm or "RS256", settings)
    return None


def make_token(
    settings: Settings,
    *,
    tenant: str,
    subject: str,
    scopes: Iterable[Scope],
    lifetime: timedelta,
    now: datetime | None = None,
) -> str:
    """Make a token that the API of these settings accepts.

    Raises:
        InvalidSettings: no secret is set, or it is too short.
    """
    begun = now or datetime.now(UTC)
    claims: dict[str, Any] = {
        "sub": subject,
        "aud": settings.jwt_audience,
        "scope": " ".join(sorted(scopes)),
        "iat": begun,
        "exp": begun + lifetime,
    }
    if settings.jwt_tenant_claim:
        claims[settings.jwt_tenant_claim] = validated(tenant)
    if settings.jwt_issuer is not None:
        claims["iss"] = settings.jwt_issuer
    return jwt.encode(claims, _secret(settings), algorithm="HS256")


def _secret(settings: Settings) -> str:
    secret = settings.jwt_secret.get_secret_value() if settings.jwt_secret is not None else ""
    if not secret:
        raise InvalidSettings(
            "DURABLE_JOBS_JWT_SECRET is not set: only a program that knows the secret can make tokens"
        )
    if len(secret.encode()) < SHORTEST_SECRET:
        raise InvalidSettings(
            f"DURABLE_JOBS_JWT_SECRET has {len(secret.encode())} bytes, at least {SHORTEST_SECRET} are needed;"
            " make one with: openssl rand -base64 48"
        )
    return secret
