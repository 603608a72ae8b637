"""Loads the modules that declare job types: DURABLE_JOBS_MODULES and the entry point group.

A module that does not import stops the start, named together with its error.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from durable_jobs.errors import ModuleNotLoadable
from durable_jobs.registry import Registry

ENTRY_POINT_GROUP = "durable_jobs.job_types"


def load_registry(modules: Sequence[str]) -> Registry:
    """Load the named modules and every installed package that offers job types.

    Args:
        modules: module names, or paths that end in `.py`.

    Raises:
        ModuleNotLoadable: a module cannot be imported.
        InvalidDeclaration: what they declare does not fit together.
    """
    return _load(tuple(modules))


@lru_cache(maxsize=8)
def _load(modules: tuple[str, ...]) -> Registry:
    loaded = [_entry_point(point) for point in entry_points(group=ENTRY_POINT_GROUP)]
    loaded += [_import(name, "DURABLE_JOBS_MODULES") for name in modules]
    return Registry.from_modules(_with_submodules(loaded))


def _import(name: str, named_by: str) -> ModuleType:
    try:
        return _from_path(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a script without a guard ends itself
        raise ModuleNotLoadable(
            f"module {name!r} of {named_by} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def absolute(modules: Iterable[str]) -> list[str]:
    """Make paths absolute, for processes with another working folder."""
    return [str(Path(m).expanduser().resolve()) if m.endswith(".py") else m for m in modules]


def _entry_point(point: EntryPoint) -> ModuleType:
    owner = f" of the package {point.dist.name}" if point.dist else ""
    return _import(point.module, f"the entry point {point.name!r}{owner}")


def _from_path(path: Path) -> ModuleType:
    resolved = path.expanduser().resolve(strict=True)
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:8]
    name = f"durable_jobs_module_{resolved.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ImportError(f"{resolved} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _with_submodules(modules: Iterable[ModuleType]) -> list[ModuleType]:
    found = {module.__name__: module for module in modules}
    for name, module in list(sys.modules.items()):
        if any(name.startswith(f"{root}.") for root in list(found)) and isinstance(module, ModuleType):
            found.setdefault(name, module)
    return list(found.values())
