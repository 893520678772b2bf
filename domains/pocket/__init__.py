"""The four generated task families of the embedded pocket model, one per domain."""

from domains.pocket import arithmetic, functions, tables, world
from domains.pocket.family import Family

FAMILIES: tuple[Family, ...] = (
    arithmetic.POPULATION,
    functions.POPULATION,
    world.POPULATION,
    tables.POPULATION,
)

__all__ = ["FAMILIES", "Family"]
