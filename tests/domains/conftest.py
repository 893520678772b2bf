"""Open domains that the tests share: their workers are warm and are closed at the end, as in a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from domains.knowledge import Knowledge
from domains.mathematics import Mathematics
from domains.programming import Programming
from domains.text_to_sql import TextToSQL


@pytest.fixture(scope="session")
def mathematics() -> Iterator[Mathematics]:
    domain = Mathematics()
    yield domain
    domain.close()


@pytest.fixture(scope="session")
def programming() -> Iterator[Programming]:
    domain = Programming()
    yield domain
    domain.close()


@pytest.fixture(scope="session")
def knowledge() -> Knowledge:
    return Knowledge()


@pytest.fixture(scope="session")
def text_to_sql() -> Iterator[TextToSQL]:
    domain = TextToSQL()
    yield domain
    domain.close()
