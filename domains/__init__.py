"""Prompts in, verdicts out. Importing this package is light: datasets, parsers and workers load on first use."""

from domains.base import Domain, FinitePopulation, GoldError, Item, Population, Reason, Verdict
from domains.registry import close_all, domain_names, get_domain

__all__ = [
    "Domain",
    "FinitePopulation",
    "GoldError",
    "Item",
    "Population",
    "Reason",
    "Verdict",
    "close_all",
    "domain_names",
    "get_domain",
]
