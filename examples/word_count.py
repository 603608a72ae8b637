"""A job type of one's own in one file: count the words of a text file.

export DURABLE_JOBS_MODULES=examples/word_count.py
durable-jobs submit WORD_COUNT '{"path": "/usr/share/common-licenses/GPL-3"}' --wait
"""

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, Field

from durable_jobs import JobContext, NotRetryable, Queue, job_type

# At most two of these jobs run at once, whatever the number of processes; a thousand may wait.
texts = Queue("texts", concurrency=2, max_pending=1000)


class CountWords(BaseModel):
    """What is asked; a request that does not fit is refused when it is submitted, naming the field."""

    path: Path
    top: int = Field(10, ge=1, le=1000, description="How many of the most frequent words to tell.")


class WordCount(BaseModel):
    """What is answered; it is kept with the job."""

    lines: int
    words: int
    most_frequent: list[tuple[str, int]]


@job_type("WORD_COUNT", queue="texts", max_retries=2, timeout=timedelta(minutes=5))
def count_words(request: CountWords, context: JobContext) -> WordCount:
    """Count the words; a plain function runs in a thread, `async def` works as well."""
    found: Counter[str] = Counter()
    lines = 0
    try:
        with request.path.open(encoding="utf-8") as text:
            for lines, line in enumerate(text, start=1):
                found.update(re.findall(r"\w+", line.lower()))
                if lines % 10_000 == 0:
                    context.progress(lines, message="lines read")
    except UnicodeDecodeError as error:
        # Trying again would not help, so the job is never retried. Any other error may be retried.
        raise NotRetryable(f"{request.path} is not a text file: {error}") from error
    context.logger.info("%s has %s lines", request.path, lines)
    return WordCount(lines=lines, words=found.total(), most_frequent=found.most_common(request.top))
