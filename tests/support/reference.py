"""The generated parts of docs/reference: options from the commands, settings from their class, endpoints.

`python -m tests.support.reference` writes them anew; a test compares.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer

from durable_jobs.api.app import create_app
from durable_jobs.cli.main import app
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_OPTIONS = re.compile(r"(<!-- options of ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ENDPOINTS = re.compile(r"(<!-- endpoints -->\n).*?(<!-- end -->)", re.DOTALL)
_SETTINGS = re.compile(r"(<!-- settings -->\n).*?(<!-- end -->)", re.DOTALL)
HOME = "`~/.durable-jobs`; as root `/var/lib/durable-jobs`"


def _commands(group: Any, prefix: str = "") -> dict[str, Any]:
    """Return every command by its full name, those of a group behind the group's name."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        found |= _commands(command, f"{name} ") if inner else {f"{prefix}{name}": command}
    return found


COMMANDS = _commands(typer.main.get_command(app))


def cli(text: str) -> str:
    """Return cli.md with the options that the commands have."""
    return _OPTIONS.sub(lambda found: f"{found[1]}{_options(found[2])}\n{found[3]}", text)


def settings(text: str) -> str:
    """Return settings.md with the settings that there are."""
    rows = [f"| `DURABLE_JOBS_{n.upper()}` | {f.description} | {_default(n)} |" for n, f in _fields()]
    table = "\n".join(["| Setting | Meaning | Default |", "|---|---|---|", *rows])
    return _SETTINGS.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text)


def http_api(text: str) -> str:
    """Return http-api.md with the endpoints that the OpenAPI document has."""
    document = create_app(
        Settings(database_url="postgresql://nobody@nowhere/nothing"), Registry.of([])
    ).openapi()
    rows = [
        _endpoint(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    table = "\n".join(["| Request | Scope | What it does | Parameters |", "|---|---|---|---|", *rows])
    return _ENDPOINTS.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text)


def _endpoint(method: str, path: str, operation: Any) -> str:
    scopes = [scope for one in operation.get("security", []) for scopes in one.values() for scope in scopes]
    about = " ".join(operation["description"].split("\n\n")[0].split())
    inside = ("query", "header")
    names = [f"`{given['name']}`" for given in operation.get("parameters", []) if given["in"] in inside]
    return f"| `{method.upper()} {path}` | {', '.join(scopes)} | {about} | {', '.join(names)} |"


def _options(name: str) -> str:
    rows = [_row(parameter) for parameter in COMMANDS[name].params if parameter.name != "help"]
    return "\n".join(["", "| Argument | Meaning | Default |", "|---|---|---|", *rows, ""])


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[0] if is_option else parameter.metavar
    default = "" if parameter.default in (None, False) or not is_option else f"`{parameter.default}`"
    return f"| `{name}` | {(parameter.help or '').replace('|', chr(92) + '|')} | {default} |"


def _fields() -> list[tuple[str, Any]]:
    return list(Settings.model_fields.items())


def _default(name: str) -> str:
    if name == "home":
        return HOME
    value = Settings.model_fields[name].get_default()
    if value is None or value == ():
        return ""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    for file, generated in (("cli.md", cli), ("settings.md", settings), ("http-api.md", http_api)):
        path = FOLDER / file
        path.write_text(generated(path.read_text("utf-8")), "utf-8")
