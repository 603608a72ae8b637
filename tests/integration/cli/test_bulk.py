"""`submit` of JSON Lines: all or nothing for each 1,000 lines, and never in doubt where it stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

from tests.support.cluster import Urls, in_database
from tests.support.command import COMMAND, Command
from tests.support.eventually import eventually


def lines(count: int, first: int = 1) -> bytes:
    return b"".join(b'{"text": "%d"}\n' % n for n in range(first, first + count))


def texts(connection: psycopg.Connection) -> list[str]:
    rows = connection.execute("SELECT payload->>'text' FROM job_history ORDER BY job_id")
    return [text for (text,) in rows]


def feed(process: subprocess.Popen[str], text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text.decode())
    process.stdin.flush()


def read_ids(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def blocked(connection: psycopg.Connection) -> bool:
    return bool(connection.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall())


def others_work(connection: psycopg.Connection) -> bool:
    query = (
        "SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    return bool(connection.execute(query).fetchall())


def test_each_line_is_a_job_and_its_id_a_line(command: Command, owner_connection: psycopg.Connection) -> None:
    options = ["--correlation-id", "import", "--priority", "3", "--tenant", "acme"]
    result = command("submit", "ECHO", "-", *options, stdin=lines(1_203))
    assert (result.code, result.err) == (0, "1,203 jobs registered\n")
    rows = owner_connection.execute(
        "SELECT job_id::text, payload->>'text', correlation_id, priority, tenant_id"
        " FROM job_history ORDER BY (payload->>'text')::int"
    ).fetchall()
    assert [row[0] for row in rows] == result.lines
    assert [row[1] for row in rows] == [str(n) for n in range(1, 1_204)]
    assert {row[2:] for row in rows} == {("import", 3, "acme")}


def test_lines_come_from_an_argument_too_and_empty_ones_do_not_count(command: Command) -> None:
    result = command("submit", "ECHO", '\n{"text": "a"}\r\n\n  {"text": "b"}\n\n', "--json")
    assert result.code == 0
    assert [line.count('"jobId"') for line in result.lines] == [1, 1]


def test_one_line_is_one_request(command: Command) -> None:
    result = command("submit", "ECHO", "-", "--idempotency-key", "k", stdin=lines(1))
    assert result.code == 0, result.err


def test_a_bad_line_is_named_and_its_thousand_is_left_out(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    whole = lines(1_500)
    broken = whole.replace(b'"1234"', b"1234")
    result = command("submit", "ECHO", "-", stdin=broken)
    assert result.code == 2
    assert "error: line 1234: payload of ECHO does not fit Note: text: Input should be a valid" in result.err
    assert "All lines up to 1000 are registered, and none behind; go on with --from-line 1001." in result.err
    assert len(result.lines) == len(texts(owner_connection)) == 1_000

    rest = command("submit", "ECHO", "-", "--from-line", "1001", stdin=whole)
    assert (rest.code, rest.err) == (0, "500 jobs registered\n")
    assert sorted(map(int, texts(owner_connection))) == list(range(1, 1_501))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"text": "a"}\n{"text": "b"}\n{"text": "\xff"}\n', "line 3: it is not UTF-8"),
        (b'{"text": "a"}\n\n{"text": \n', "line 3: payload of ECHO"),
        (b'{"text": "a"}\n{"txt": "b"}\n', "line 2: payload of ECHO"),
    ],
)
def test_what_is_wrong_in_the_first_thousand_registers_nothing(
    command: Command, owner_connection: psycopg.Connection, text: bytes, said: str
) -> None:
    result = command("submit", "ECHO", "-", stdin=text)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Nothing is registered" in result.err
    assert texts(owner_connection) == []


@pytest.mark.parametrize("option", [["--idempotency-key", "k"], ["--wait"]])
def test_options_for_one_request_are_refused(command: Command, option: list[str]) -> None:
    result = command("submit", "ECHO", "-", *option, stdin=lines(2))
    assert (result.code, result.out) == (2, "")
    assert f"{option[0]} is for one request, and this is JSON Lines" in result.err


def test_a_full_queue_stops_with_code_3_and_says_where(command: Command) -> None:
    result = command("submit", "NARROW", "-", stdin=b"{}\n{}\n{}\n")
    assert (result.code, result.out) == (3, "")
    assert "queue 'narrow' is full" in result.err
    assert "Nothing is registered; go on with --from-line 1." in result.err


def test_a_person_sees_a_bar_on_stderr_and_the_ids_go_where_they_should(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "requests.jsonl").write_bytes(lines(1_001))
    person, terminal = os.openpty()
    ran = subprocess.run(
        [COMMAND, "submit", "ECHO", "--file", "requests.jsonl"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        check=True,
        timeout=120,
    )
    os.close(terminal)
    seen = os.read(person, 100_000).decode()
    os.close(person)
    assert len({UUID(line) for line in ran.stdout.splitlines()}) == 1_001
    assert "100 %" in seen
    assert "1,001 jobs registered" in seen


def test_ctrl_c_loses_nothing_and_says_where_it_stopped(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    with command.process("submit", "ECHO", "-") as process:
        feed(process, lines(1_500))
        ids = read_ids(process, 1_000)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert "Interrupted. All lines up to 1000 are registered, and none behind" in err
    assert "--from-line 1001" in err
    rows = owner_connection.execute("SELECT job_id::text FROM job_history").fetchall()
    assert {row[0] for row in rows} == set(ids)


def test_a_second_ctrl_c_does_not_wait_and_says_what_is_in_doubt(
    command: Command, owner_connection: psycopg.Connection
) -> None:
    with command.process("submit", "ECHO", "-") as process:
        feed(process, lines(1_000))
        read_ids(process, 1_000)
        with owner_connection.transaction():
            owner_connection.execute("LOCK TABLE job_history IN ACCESS EXCLUSIVE MODE")
            feed(process, lines(1_000, first=1_001))
            asyncio.run(eventually(lambda: blocked(owner_connection)))
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert process.stderr.readline().startswith("Stopping when these lines are registered")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert (
        "Interrupted. All lines up to 1000 are registered. It is not known whether lines 1001 to 2000" in err
    )


def test_a_reader_that_goes_away_stops_it_and_is_told_where(command: Command) -> None:
    with command.process("submit", "ECHO", "-") as process:
        feed(process, lines(1_000))
        read_ids(process, 1)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stdin is not None
        try:
            feed(process, lines(2_000, first=1_001))
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.stderr is not None
        said = process.stderr.read()
        process.wait(20)
    assert "Nobody reads the ids. All lines up to" in said
    assert "Traceback" not in said


def test_a_database_that_goes_away_ends_it_with_code_4_and_says_what_is_in_doubt(
    broken_command: tuple[Command, Urls],
) -> None:
    command, urls = broken_command
    name = make_url(urls.admin).database or ""
    with command.process("submit", "ECHO", "-") as process:
        feed(process, lines(1_000))
        first = read_ids(process, 1_000)
        with psycopg.connect(in_database(urls.admin, "postgres"), autocommit=True) as server:
            server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            out, err = process.communicate(lines(500, first=1_001).decode(), timeout=120)
            server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(name)))
    assert (process.returncode, out) == (4, "")
    assert "All lines up to 1000 are registered, and none behind" not in err
    assert "All lines up to 1000 are registered." in err
    assert "It is not known whether lines 1001 to 1500 were" in err
    assert "--from-line 1501" in err
    assert "--from-line 1001" in err
    assert len(first) == 1_000
