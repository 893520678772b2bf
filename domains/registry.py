"""Domains by name: `get_domain("math")` is `get_domain("mathematics")`.

A third party adds a domain with one module and an entry point in the group ``prlvr.domains`` whose value is a callable
without arguments that returns a `Domain`, and more prompts for an existing domain with an entry point in
``prlvr.populations`` named ``<domain>.<population>`` whose value is a `Population`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from domains.base import Domain, Population

_BUILT_IN = {
    "mathematics": ("domains.mathematics", "Mathematics"),
    "programming": ("domains.programming", "Programming"),
    "knowledge": ("domains.knowledge", "Knowledge"),
    "text_to_sql": ("domains.text_to_sql", "TextToSQL"),
}
_ALIASES = {"math": "mathematics", "code": "programming", "sql": "text_to_sql", "text-to-sql": "text_to_sql"}
_POPULATIONS = {
    "mathematics": {
        "pocket": "domains.pocket.arithmetic",
        "addition": "domains.small.addition",
        "counting": "domains.small.counting",
    },
    "programming": {"pocket": "domains.pocket.functions"},
    "knowledge": {"pocket": "domains.pocket.world"},
    "text_to_sql": {"pocket": "domains.pocket.tables", "listing": "domains.small.listing"},
}
_open: dict[tuple[str, Path | None], Domain] = {}


def canonical_name(name: str) -> str:
    return _ALIASES.get(name.lower(), name.lower())


def domain_names() -> list[str]:
    return [*_BUILT_IN, *sorted({e.name for e in entry_points(group="prlvr.domains")} - set(_BUILT_IN))]


def get_domain(name: str, data_dir: Path | None = None) -> Domain:
    """The domain of that name (or alias), one instance per process. Datasets come from `data_dir`, or from the hub."""
    name = canonical_name(name)
    if (name, data_dir) not in _open:
        if name in _BUILT_IN:
            module, factory = _BUILT_IN[name]
            _open[name, data_dir] = getattr(import_module(module), factory)(data_dir)
        else:
            found = [e for e in entry_points(group="prlvr.domains") if e.name == name]
            if not found:
                raise KeyError(f"unknown domain {name!r}; known: {', '.join(domain_names())}")
            _open[name, data_dir] = found[0].load()()
    return _open[name, data_dir]


def generated_populations(domain: str) -> dict[str, Population]:
    """The populations of a domain that need no data: the built-in generators and those of installed entry points."""
    found: dict[str, Population] = {}
    for name, module in _POPULATIONS.get(domain, {}).items():
        if find_spec(module) is not None:
            found[name] = import_module(module).POPULATION
    for entry in entry_points(group="prlvr.populations"):
        owner, _, name = entry.name.partition(".")
        if canonical_name(owner) == domain:
            found[name] = entry.load()
    return found


def close_all() -> None:
    """End the workers of every domain that was opened here."""
    while _open:
        _open.popitem()[1].close()
