"""Domains and populations by name, with errors for users."""

from __future__ import annotations

from domains.base import Domain, Population
from domains.registry import domain_names, get_domain
from progressive_rlvr.errors import UserError


def open_domain(name: str) -> Domain:
    """A domain by its name.

    Raises:
        UserError: there is none of that name.
    """
    try:
        return get_domain(name)
    except KeyError as error:
        raise UserError(f"there is no domain {name!r}; there are {', '.join(domain_names())}") from error


def find_population(domain: Domain, name: str) -> Population:
    """A population of a domain by its name.

    Raises:
        UserError: the domain has none of that name.
    """
    populations = domain.populations()
    if name not in populations:
        raise UserError(f"domain {domain.name} has no population {name!r}; it has {', '.join(sorted(populations))}")
    return populations[name]
