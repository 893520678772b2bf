"""Populations for a small real model, such as SmolLM2-135M: generated prompts, with examples before the question."""

from domains.pocket.family import Family
from domains.small import addition, counting, listing

FAMILIES: tuple[Family, ...] = (addition.POPULATION, counting.POPULATION, listing.POPULATION)

__all__ = ["FAMILIES"]
