"""DOCUMENT_ARCHIVE and the example through Postgres and a shift, as a user has them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from durable_jobs import Job, JobState, register_job, register_jobs
from durable_jobs.documents import ArchiveDocument
from durable_jobs.documents.archiving import index_of
from durable_jobs.documents.samples import write_samples
from durable_jobs.documents.store import DocumentStore
from durable_jobs.errors import InvalidPayload
from durable_jobs.executor.shift import Shift
from durable_jobs.runtime import Runtime
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import DEFAULT_TENANT, job_tenant_scope

EXAMPLE = Path(__file__).parents[3] / "examples" / "word_count.py"


@pytest.fixture
async def runtime(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runtime]:
    runtime = Runtime(Settings.load(database_url=database_url, modules=str(EXAMPLE)))
    monkeypatch.setattr("durable_jobs.runtime._installed", runtime)
    with job_tenant_scope(DEFAULT_TENANT):
        yield runtime
    await runtime.close()


async def executed(runtime: Runtime, *jobs: Job) -> list[Job]:
    """Run a shift until nothing is due, and return the jobs as they are then."""
    store: PgJobsStore = await runtime.store()
    await Shift(store, runtime.registry, runtime.settings, until_empty=True).run()
    return [await store.get(job.job_id) for job in jobs]


async def test_each_sample_is_archived_or_fails_for_its_reason(runtime: Runtime, tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "documents")
    store = tmp_path / "store"
    requests = [ArchiveDocument(source=str(path), store=store) for path in samples]

    jobs = await executed(runtime, *await register_jobs("DOCUMENT_ARCHIVE", requests))

    failed = {path.name: job for path, job in zip(samples, jobs, strict=True) if job.state is JobState.FAILED}
    reasons = {name: (job.failed_reason or "").partition(":")[0] for name, job in failed.items()}
    assert reasons == {
        "backup-of-everything.tar": "DocumentTooLarge",
        "deleted-meanwhile.txt": "DocumentVanished",
        "contracts.pdf": "NotADocument",
        "link-to-nothing.txt": "DocumentVanished",
        "scanner.pipe": "NotADocument",
        "board-only.txt": "DocumentUnreadable",
    }
    assert [name for name, job in failed.items() if not job.retryable] == ["backup-of-everything.tar"]
    archived = [job for job in jobs if job.state is JobState.SUCCEEDED]
    assert len(archived) == 40
    objects = DocumentStore(store)
    for job in archived:
        assert job.result["status"] == "OK"
        objects.verify(job.result["value"]["sha256"])
    assert {entry.archived_by for entry in index_of(store).entries()} == {str(job.job_id) for job in archived}


async def test_the_same_job_again_is_the_same_object_and_entry(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("the same")
    request = {"source": (tmp_path / "letter.txt").as_uri(), "store": str(tmp_path / "store")}

    first, second = await executed(runtime, *await register_jobs("DOCUMENT_ARCHIVE", [request, request]))

    assert first.payload["source"] == str(tmp_path / "letter.txt")
    assert first.result["value"]["sha256"] == second.result["value"]["sha256"]
    assert len(list(index_of(tmp_path / "store").entries())) == 1


async def test_a_request_that_cannot_be_right_is_refused_with_its_path(runtime: Runtime) -> None:
    with pytest.raises(InvalidPayload, match="source"):
        await register_job("DOCUMENT_ARCHIVE", {"source": "letter.txt", "store": "/archive"})


async def test_the_example_counts_words_and_gives_up_on_what_is_no_text(
    runtime: Runtime, tmp_path: Path
) -> None:
    (tmp_path / "poem.txt").write_text("A rose is a rose\nis a rose.\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")

    counted, refused = await executed(
        runtime,
        await register_job("WORD_COUNT", {"path": str(tmp_path / "poem.txt"), "top": 2}),
        await register_job("WORD_COUNT", {"path": str(tmp_path / "picture.png")}),
    )

    assert counted.queue == "texts"
    assert counted.result["value"] == {"lines": 2, "words": 8, "most_frequent": [["a", 3], ["rose", 3]]}
    assert refused.state is JobState.FAILED
    assert not refused.retryable
    assert "is not a text file" in (refused.failed_reason or "")
