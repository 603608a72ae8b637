"""The block `redis-target`: one Redis to watch, with what is expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import quote

from prefect_redis.blocks import RedisDatabase
from pydantic import Field, HttpUrl, SecretStr

from durable_jobs.redis_health import InvalidRedisTarget, RedisTarget, TlsOptions
from durable_jobs.redis_health.target import ExpectedRole
from durable_jobs.settings import Environment


class RedisTargetBlock(RedisDatabase):
    """A Redis that `redis-health` watches: the jobs' own, or the one that carries Prefect's messages.

    Attributes:
        environment: In staging and production TLS and a password must be enforced.
        expected_role: What the server should be; anything else is reported.
        expect_persistence: Whether AOF being off is worth a warning.
        ca_file: Authorities that may sign the server's certificate.
        certificate_file: Certificate to show to a server that asks for one.
        key_file: Key of that certificate.
        verify: Whether the certificate is verified; switching it off is itself reported.
        check_host_name: Whether the certificate must be for this host; switching it off is reported.

    Example:
        ```python
        from durable_jobs.blocks.redis_target import RedisTargetBlock

        block = RedisTargetBlock.load("BLOCK_NAME")
        ```
    """

    _block_type_name: ClassVar[str] = "Redis Target"
    _block_type_slug: ClassVar[str] = "redis-target"
    _documentation_url: ClassVar[HttpUrl | None] = HttpUrl(
        "https://docs.prefect.io/integrations/prefect-redis"
    )

    environment: Literal["from settings"] | Environment = Field(
        "from settings", description="In staging and production TLS and a password must be enforced."
    )
    expected_role: ExpectedRole = Field(
        "primary", description="What the server should be; anything else is reported."
    )
    expect_persistence: bool = Field(True, description="Whether AOF being off is worth a warning.")
    ca_file: Path | None = Field(
        None, description="Authorities that may sign the server's certificate; empty: the system's."
    )
    certificate_file: Path | None = Field(
        None, description="Certificate to show to a server that asks for one."
    )
    key_file: Path | None = Field(None, description="Key of that certificate.")
    verify: bool = Field(
        True, description="Whether the certificate is verified; switching it off is itself reported."
    )
    check_host_name: bool = Field(
        True,
        description="Whether the certificate must be for this host; switching it off is itself reported.",
    )

    def to_target(self, name: str, environment: Environment) -> RedisTarget:
        """Return what the checks need; `environment` is used when the block names none.

        Raises:
            InvalidRedisTarget: the connection cannot be understood, or is one through Sentinels.
        """
        return RedisTarget(
            name=name,
            url=self._url(),
            environment=environment if self.environment == "from settings" else self.environment,
            expected_role=self.expected_role,
            expect_persistence=self.expect_persistence,
            tls=self._tls_options(),
        )

    def _url(self) -> SecretStr:
        if self.connection_url is not None:
            return self.connection_url
        user = quote(self.username.get_secret_value(), safe="") if self.username else ""
        password = quote(self.password.get_secret_value(), safe="") if self.password else ""
        credentials = f"{user}:{password}@" if user or password else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return SecretStr(f"{'rediss' if self.ssl else 'redis'}://{credentials}{host}:{self.port}/{self.db}")

    def _tls_options(self) -> TlsOptions | None:
        options = TlsOptions(
            self.ca_file, self.certificate_file, self.key_file, self.verify, self.check_host_name
        )
        # A connection URL may bring options of its own; the block's fields win when any is set.
        return options if options != TlsOptions() else None


async def load_targets(names: Sequence[str], environment: Environment) -> list[RedisTarget]:
    """The targets of blocks, by name.

    Raises:
        InvalidRedisTarget: there is no such block, or its connection cannot be understood.
    """
    return [(await _load(name)).to_target(name, environment) for name in names]


async def _load(name: str) -> RedisTargetBlock:
    try:
        return await RedisTargetBlock.aload(name)
    except ValueError as error:
        raise InvalidRedisTarget(
            f"there is no block redis-target/{name}: make it on the page Blocks, or correct the name"
        ) from error
