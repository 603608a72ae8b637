"""What the demo shows."""

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console

from durable_jobs.deployments.demo_letter import SecondTry
from durable_jobs.deployments.demo_view import MOST_ROWS, Counts, counts_view, outcomes, totals
from durable_jobs.deployments.demo_work import documents_below
from durable_jobs.errors import BadInput
from durable_jobs.jobs import Job
from durable_jobs.states import JobState

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def job(source: str, *, number: int = 0, already_stored: bool = False, failed: str | None = None) -> Job:
    job_id, at = uuid4(), BEGAN + timedelta(seconds=number)
    value: dict[str, Any] = {
        "source": source,
        "sha256": "a" * 64,
        "size": 2_000_000,
        "stored_size": 1_000_000,
        "media_type": "text/plain",
        "object_path": "/archive/aa",
        "already_stored": already_stored,
    }
    return Job(
        job_id=job_id,
        root_job_id=job_id,
        tenant_id="default",
        job_type="DOCUMENT_ARCHIVE",
        queue="archive",
        state=JobState.FAILED if failed else JobState.SUCCEEDED,
        priority=0,
        run_at=at,
        payload={"source": source},
        payload_version=1,
        result=None if failed else {"status": "OK", "value": value},
        failed_reason=failed,
        retryable=True,
        retry_count=0,
        max_retries=3,
        claim_count=1,
        crash_count=0,
        dispatch_count=0,
        created_at=at,
        updated_at=at,
    )


def shown(jobs: list[Job]) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(outcomes(jobs))
    return out.getvalue()


def test_failures_come_first_with_their_reason() -> None:
    text = shown([job("/in/a.txt"), job("/in/b.txt", number=1, failed="DocumentVanished: gone [really]")])
    assert text.index("b.txt") < text.index("a.txt")
    assert "DocumentVanished: gone [really]" in text
    assert "text/plain, 2.0 MB in 1.0 MB, sha256 aaaaaaaaaaaa" in text


def test_of_many_documents_the_rest_is_counted() -> None:
    text = shown([job(f"/in/{number}.txt", number=number) for number in range(MOST_ROWS + 5)])
    assert "and 5 more" in text


def test_a_file_name_cannot_steer_the_terminal() -> None:
    text = shown([job("/in/\x1b[31mred.txt"), job("file:///in/%FFold.txt", number=1)])
    assert "\x1b" not in text
    assert "red.txt" in text
    assert "old.txt" in text


def test_totals_count_content_once() -> None:
    jobs = [job("/in/a.txt"), job("/in/copy.txt", already_stored=True), job("/in/c.txt", failed="no")]
    assert totals(jobs).startswith(
        "2 documents archived (1 of them stored already), 2.0 MB in 1.0 MB; 1 failed"
    )


def test_without_a_terminal_each_change_is_one_line() -> None:
    out = io.StringIO()
    with counts_view(Console(file=out, width=140)) as view:
        for counts in (Counts(2, queued=2), Counts(2, queued=2), Counts(2, succeeded=1, failed=1)):
            view.show(counts)
    assert out.getvalue().split("\n")[:-1] == [
        "          queued 2, running 0, succeeded 0, failed 0 of 2",
        "          queued 0, running 0, succeeded 1, failed 1 of 2",
    ]


def test_a_folder_of_documents_gives_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b.txt").write_text("b")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert [path.name for path in documents_below(tmp_path)] == ["a.txt", "b.txt", "nowhere"]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda _: None])
def test_a_folder_without_documents_is_refused(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "in")
    with pytest.raises(BadInput, match=f"--documents {tmp_path}/in"):
        documents_below(tmp_path / "in")


def test_a_retried_document_says_so() -> None:
    once = job("/a.txt").model_copy(update={"retry_count": 1})
    twice = job("/b.txt", failed="DocumentVanished: there is nothing").model_copy(update={"retry_count": 2})
    told = shown([once, twice])
    assert "retried: text/plain" in told
    assert "retried 2 times: DocumentVanished" in told


def test_a_second_try_names_both_jobs_and_where_prefect_shows_them() -> None:
    first, child = job("/a.txt"), job("/a.txt")
    said = SecondTry(first, child, None, "http://ui/events/event/1").lines()
    assert str(first.job_id) in said[0]
    assert f"{child.job_id}, which is SUCCEEDED" in said[1]
    assert said[2:] == ["    the event jobs.job.retried: http://ui/events/event/1"]
