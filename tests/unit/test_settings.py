"""What a setting cannot be is refused by its name, with what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_jobs.errors import InvalidSettings
from durable_jobs.settings import Settings


@pytest.mark.parametrize("length", ["inf", "-inf", "nan", "1e30", "-5", "0", "soon"])
def test_a_length_of_time_that_cannot_be_is_refused(length: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_JOBS_POLL_INTERVAL", length)
    with pytest.raises(InvalidSettings, match=rf"DURABLE_JOBS_POLL_INTERVAL: .*{length}"):
        Settings.load()


def test_a_secrets_folder_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a start before the secrets are delivered would go on with defaults, without a word."""
    monkeypatch.setenv("DURABLE_JOBS_SECRETS_DIR", str(tmp_path / "vault"))
    with pytest.raises(InvalidSettings, match=r"DURABLE_JOBS_SECRETS_DIR: .*vault is not a folder"):
        Settings.load()
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "durable_jobs_crew").write_text("7")
    assert Settings.load().crew == 7


@pytest.mark.parametrize("name", ["DATABASE_URL", "ADMIN_DATABASE_URL", "REDIS_URL", "MODULES"])
def test_an_empty_variable_is_one_that_is_not_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"DURABLE_JOBS_{name}", raising=False)
    unset = Settings.load()
    monkeypatch.setenv(f"DURABLE_JOBS_{name}", "")
    assert Settings.load() == unset
