"""Who comes in: good tokens only, in their own tenant, with their scopes; a refusal is logged without the token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from durable_jobs.api.keys import keys_of
from durable_jobs.api.tokens import BadToken, verifier_of
from durable_jobs.errors import InvalidSettings
from durable_jobs.settings import Settings
from tests.support.api_server import SECRET, ApiServer, bearer, token

GOOD = {"sub": "ada", "aud": "durable-jobs", "tenant": "acme", "scope": "read", "exp": 4_000_000_000}


def encoded(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers=headers or None)


def forged(header: dict[str, Any], claims: dict[str, Any], key: bytes = b"") -> str:
    """Make a token by hand, as no library would."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    signature = hmac.digest(key, b".".join(parts), hashlib.sha256) if key else b""
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


BAD = {
    "no dot": "garbage",
    "expired": encoded(GOOD | {"exp": datetime.now(UTC) - timedelta(seconds=30)}),
    "not yet": encoded(GOOD | {"nbf": datetime.now(UTC) + timedelta(hours=1)}),
    "audience": encoded(GOOD | {"aud": "somebody-else"}),
    "no audience": encoded({k: v for k, v in GOOD.items() if k != "aud"}),
    "no expiry": encoded({k: v for k, v in GOOD.items() if k != "exp"}),
    "no subject": encoded({k: v for k, v in GOOD.items() if k != "sub"}),
    "no tenant": encoded({k: v for k, v in GOOD.items() if k != "tenant"}),
    "empty tenant": encoded(GOOD | {"tenant": ""}),
    "tenants": encoded(GOOD | {"tenant": ["acme", "other"]}),
    "empty subject": encoded(GOOD | {"sub": ""}),
    "secret": encoded(GOOD, "another secret that is also long enough"),
    "alg none": forged({"alg": "none", "typ": "JWT"}, GOOD),
    "alg None": forged({"alg": "NONE", "typ": "JWT"}, GOOD),
    "other alg": forged({"alg": "HS512"}, GOOD, SECRET.encode()),
    "no alg": forged({"typ": "JWT"}, GOOD, SECRET.encode()),
    "crit": encoded(GOOD, crit=["exp"]),
    "kid": forged({"alg": "HS256", "kid": {"a": 1}}, GOOD, SECRET.encode()),
    "claims are a list": forged({"alg": "HS256"}, [1], SECRET.encode()),  # type: ignore[arg-type]
    "huge": "a" * 20_000,
}


@pytest.mark.parametrize("name", BAD)
def test_a_token_that_is_not_good_is_refused_and_not_logged(api: ApiServer, name: str) -> None:
    answer = httpx.get(f"{api.url}/jobs", headers={"Authorization": f"Bearer {BAD[name]}"}, timeout=60)
    assert answer.status_code == 401, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"].startswith('Bearer realm="durable-jobs", error="invalid_token"')
    assert BAD[name] not in answer.text
    assert BAD[name] not in api.log
    assert "denied" in api.log


@pytest.mark.parametrize("value", ["", "Bearer", "Basic YTpi", "bearer\ttoken", "Token x"])
def test_a_header_that_is_no_bearer_token_is_refused(api: ApiServer, value: str) -> None:
    answer = httpx.get(f"{api.url}/jobs", headers={"Authorization": value}, timeout=60)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_two_tokens_are_none(api: ApiServer) -> None:
    good = bearer()["Authorization"]
    answer = httpx.get(
        f"{api.url}/jobs", headers=[("Authorization", good), ("Authorization", good)], timeout=60
    )
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/jobs", "submit"),
        ("GET", "/jobs", "read"),
        ("GET", "/jobs/failed", "read"),
        ("GET", "/jobs/stats", "read"),
        ("GET", "/jobs/config", "read"),
        ("GET", "/jobs/purgeable", "read"),
        ("GET", "/health/workers", "read"),
        ("GET", "/health/redis", "read"),
        ("GET", "/metrics", "operate"),
        ("POST", "/jobs/0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55/retry", "operate"),
        ("POST", "/jobs/0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55/cancel", "operate"),
        ("POST", "/jobs/0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55/resubmit", "operate"),
        ("POST", "/queues/wide/pause", "operate"),
        ("POST", "/queues/wide/resume", "operate"),
        ("POST", "/types/ECHO/pause", "operate"),
        ("POST", "/types/ECHO/resume", "operate"),
        ("DELETE", "/jobs/purge", "operate"),
    ],
)
def test_each_endpoint_needs_its_scope(api: ApiServer, method: str, path: str, scope: str) -> None:
    others = {"submit", "read", "operate"} - {scope}
    body = {"json": {"type": "ECHO", "data": {"text": "x"}}} if path == "/jobs" and method == "POST" else {}
    with api.client(scopes=others) as caller:
        answer = caller.request(method, path, **body)
    assert answer.status_code == 403
    assert f'error="insufficient_scope", scope="{scope}"' in answer.headers["www-authenticate"]
    assert f"lacks the scope '{scope}'" in answer.json()["detail"]
    with api.client(scopes=[scope]) as caller:
        assert caller.request(method, path, **body).status_code not in (401, 403)


def test_scopes_that_are_no_words_are_ignored(api: ApiServer) -> None:
    claims = {k: v for k, v in GOOD.items() if k != "scope"} | {"scp": [{}, ["read"], 7, "read"]}
    answer = httpx.get(f"{api.url}/jobs", headers={"Authorization": f"Bearer {encoded(claims)}"}, timeout=60)
    assert answer.status_code == 200


def test_tenant_and_submitter_are_those_of_the_token(api: ApiServer) -> None:
    with api.client(tenant="acme", subject="grace") as caller:
        body = {"type": "ECHO", "data": {"text": "x"}}
        made = caller.post("/jobs", json=body, headers={"X-Tenant": "other", "X-Tenant-Id": "other"}).json()
        job = caller.get(f"/jobs/{made['jobId']}").json()
        assert (job["tenantId"], job["submittedBy"]) == ("acme", "grace")
        assert caller.post("/jobs", json=body | {"tenantId": "other"}).status_code == 400
        assert caller.post("/jobs", json=body | {"submittedBy": "other"}).status_code == 400


def pem(key: Any) -> bytes:
    return bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def jwks(**keys: Any) -> bytes:
    entries = []
    for kid, key in keys.items():
        algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        entries.append(algorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid, "use": "sig"})
    return json.dumps({"keys": entries}).encode()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "jwks.json"
    file.write_bytes(jwks(r1=RSA_KEY, e1=EC_KEY))
    return file


async def test_tokens_of_an_identity_provider(key_file: Path) -> None:
    for algorithm, key, kid in (("RS256", RSA_KEY, "r1"), ("ES256", EC_KEY, "e1")):
        verifier = verifier_of(
            Settings(jwt_jwks=str(key_file), jwt_algorithm=algorithm, jwt_issuer="https://id")
        )
        assert verifier is not None
        claims = GOOD | {"iss": "https://id"}
        caller = await verifier.caller(encoded(claims, key, algorithm, kid=kid))
        assert (caller.tenant, caller.subject, set(caller.scopes)) == ("acme", "ada", {"read"})
        for bad in (
            encoded(GOOD, key, algorithm, kid=kid),
            encoded(claims | {"iss": "https://other"}, key, algorithm, kid=kid),
            encoded(claims, key, algorithm, kid="unknown"),
            forged({"alg": "none", "kid": kid}, claims),
        ):
            with pytest.raises(BadToken):
                await verifier.caller(bad)


async def test_a_public_key_is_no_secret(key_file: Path) -> None:
    """Key confusion: what everybody can read must not sign a token as if it were a secret."""
    verifier = verifier_of(Settings(jwt_jwks=str(key_file)))
    assert verifier is not None
    for key in (pem(RSA_KEY), key_file.read_bytes()):
        with pytest.raises(BadToken):
            await verifier.caller(forged({"alg": "HS256", "kid": "r1"}, GOOD, key))


def test_a_symmetric_key_in_a_jwks_signs_nothing() -> None:
    symmetric = {"kty": "oct", "kid": "s", "k": base64.urlsafe_b64encode(b"0" * 32).decode()}
    with pytest.raises(ValueError, match="no RSA key for RS256"):
        keys_of(json.dumps({"keys": [symmetric]}).encode(), "RS256")


async def test_a_new_key_is_found_and_an_outage_forgets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_jobs.api.keys.PAUSE", timedelta(0))
    answers = [jwks(old=RSA_KEY), jwks(old=RSA_KEY, new=EC_KEY), b"no JWKS"]
    served: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.append(answers[min(len(served), 2)])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(served[-1])

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        answers[1] = jwks(old=RSA_KEY, new=other)
        verifier = verifier_of(Settings(jwt_jwks=f"http://127.0.0.1:{server.server_port}/jwks"))
        assert verifier is not None
        old, new = encoded(GOOD, RSA_KEY, "RS256", kid="old"), encoded(GOOD, other, "RS256", kid="new")
        assert (await verifier.caller(old)).subject == "ada"
        assert (await verifier.caller(new)).subject == "ada"
        with pytest.raises(BadToken):
            await verifier.caller(encoded(GOOD, other, "RS256", kid="third"))
        assert (await verifier.caller(new)).subject == "ada"
        assert len(served) == 3
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"jwt_secret": "too short"}, "at least 32"),
        ({"jwt_secret": SECRET, "jwt_jwks": "x"}, "both set"),
        ({"jwt_secret": SECRET, "jwt_algorithm": "RS256"}, "HS256"),
        ({"jwt_jwks": "/nowhere.json"}, "no file"),
        ({"jwt_jwks": "https://id/jwks", "jwt_algorithm": "HS256"}, "public"),
        ({"jwt_jwks": "http://id/jwks", "environment": "production"}, "https://"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words) as refused:
        verifier_of(Settings(**settings))
    assert "too short" not in str(refused.value)


async def test_scopes_may_be_a_list_and_unknown_ones_give_nothing() -> None:
    verifier = verifier_of(Settings(jwt_secret=SECRET))
    assert verifier is not None
    claims = {name: value for name, value in GOOD.items() if name != "scope"}
    for given, scopes in (
        ({"scp": ["read", "submit", 7, "everything"]}, {"read", "submit"}),
        ({"scope": "operate openid"}, {"operate"}),
        ({"scope": {"read": True}}, set()),
        ({}, set()),
    ):
        assert set((await verifier.caller(encoded(claims | given))).scopes) == scopes


async def test_without_a_tenant_claim_everybody_is_the_default_tenant() -> None:
    verifier = verifier_of(Settings(jwt_secret=SECRET, jwt_tenant_claim=""))
    assert verifier is not None
    assert (await verifier.caller(token(jwt_tenant_claim=""))).tenant == "default"
