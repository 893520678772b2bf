"""Domains and populations by name, with errors for users."""

from __future__ import annotations

from pathlib import Path

from domains.base import Domain, FinitePopulation, Item, Population
from domains.registry import domain_names, get_domain
from domains.validate import validate
from pacbayes.pool import draw_from_pool
from pacbayes.sample import MethodLock, heldout_seed, sample_seed
from progressive_rlvr.errors import UserError

SELF_TEST_ITEMS = 20
SELF_TEST_ATTACKED = 2


def open_domain(name: str, data_dir: Path | None = None) -> Domain:
    """A domain by its name, its datasets from a folder or, without one, from the hub.

    Raises:
        UserError: there is none of that name.
    """
    try:
        return get_domain(name, data_dir)
    except KeyError as error:
        raise UserError(f"there is no domain {name!r}; there are {', '.join(domain_names())}") from error


def find_population(domain: Domain, name: str | None) -> Population:
    """A population of a domain by its name; without one `pocket`, or else the first.

    Raises:
        UserError: the domain has none of that name, or none at all.
    """
    populations = domain.populations()
    if name is None:
        name = next(iter(["pocket"] if "pocket" in populations else populations), "pocket")
    if name not in populations:
        raise UserError(f"domain {domain.name} has no population {name!r}; it has {', '.join(sorted(populations))}")
    return populations[name]


def pool_items(population: Population) -> list[Item]:
    """All items of a finite population, in its own order.

    Raises:
        UserError: it says that it is finite and does not list its items.
    """
    if not isinstance(population, FinitePopulation):
        raise UserError(f"population {population.name} has the design finite_pool, but no list of its items")
    return population.items


def draw_items(population: Population, method: MethodLock, beacon: str | None) -> dict[str, list[Item]]:
    """The sample and the held-out prompts that follow from the method lock and the beacon.

    Raises:
        UserError: the population gives other numbers of prompts than the lock asks for.
    """
    n, heldout = method.prompts, method.heldout
    seed = sample_seed(method.digest, beacon)
    if method.design.kind == "finite_pool":
        everything = pool_items(population)
        if n + heldout > len(everything):
            raise UserError(f"{population.name} has {len(everything)} prompts, the lock asks for {n + heldout}")
        drawn = [everything[i] for i in draw_from_pool(seed, len(everything), n + heldout)]
        return {"sample": drawn[:n], "heldout": drawn[n:]}
    items = {
        "sample": population.draw(seed, n),
        "heldout": population.draw(heldout_seed(method.digest, beacon), heldout),
    }
    for split, wanted in (("sample", n), ("heldout", heldout)):
        if len(items[split]) != wanted:
            raise UserError(f"{population.name}: asked for {wanted} {split} prompts, got {len(items[split])}")
    return items


def self_test(domain: Domain, population: Population) -> None:
    """A verifier must accept golds and refuse hostile completions before anything is trained on its word.

    Of a finite pool every gold is tried: one that cannot be checked must be found before the pool is locked.

    Raises:
        UserError: it does not; names the first fault.
    """
    n = len(pool_items(population)) if population.design == "finite_pool" else SELF_TEST_ITEMS
    report = validate(domain, population, n=n, seed="self-test before a run", attacked=SELF_TEST_ATTACKED)
    if not report.passed:
        faults = [*report.gold_failures, *report.false_rights] or [("no item", "the population is empty")]
        where, what = faults[0]
        raise UserError(
            f"the verifier of {domain.name}/{population.name} fails its self-test on {where}: {what} "
            f"({len(faults)} faults; see `prlvr domains validate {domain.name} --population {population.name}`)"
        )
