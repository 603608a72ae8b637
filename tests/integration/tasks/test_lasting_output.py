"""A flow run whose runner was killed goes on printing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from durable_jobs.tasks.lasting_output import outlive_reader
outlive_reader()
print("first", flush=True)
sys.stdin.readline()
for number in range(20_000):
    print("line", number)
    print("trouble", number, file=sys.stderr, flush=True)
Path(sys.argv[1]).write_text("survived")
print("last")
"""


def start(mark: Path, **variables: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    environment = {"PATH": os.environ["PATH"]} | variables
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mark],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=environment,
    )


@pytest.mark.parametrize(("variables", "survives"), [({"PREFECT__FLOW_RUN_ID": "1"}, True), ({}, False)])
def test_a_dead_reader_does_not_end_the_run(
    tmp_path: Path, variables: dict[str, str], survives: bool
) -> None:
    mark = tmp_path / "mark"
    with start(mark, **variables) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == "first\n"
        run.stdout.close()
        run.stderr.close()
        run.stdin.write("go on\n")
        run.stdin.flush()
        run.wait(30)
    assert mark.exists() is survives


def test_a_living_reader_gets_every_line_in_order(tmp_path: Path) -> None:
    with start(tmp_path / "mark", PREFECT__FLOW_RUN_ID="1") as run:
        out, err = run.communicate("go on\n", timeout=60)
    lines = out.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("first", "last", 20_002)
    assert lines[1:-1] == [f"line {number}" for number in range(20_000)]
    assert err.count("trouble") == 20_000
    assert run.returncode == 0
