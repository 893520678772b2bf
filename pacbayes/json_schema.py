"""One JSON Schema for everything that is locked, measured or certified: `python -m pacbayes schema`.

Each kind of file names its own version in its key ``schema``; a file with another one is refused by this version. All
digests are SHA-256 of the canonical JSON (RFC 8785). Evidence is a Parquet file: here stand its header and its rows.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from pacbayes.certificate import Certificate, JointCertificate, TransferCertificate
from pacbayes.pool import Pool
from pacbayes.sample import AttemptEntry, MethodLock, SampleLock
from pacbayes.schema import Frozen, HexDigest
from pacbayes.transfer import TransferLock

SCHEMA_NAME: Final = "prlvr/json-schema/1"


class EvidenceHeader(Frozen):
    """The metadata ``prlvr`` of an evidence file: which lock its rows belong to and what was evaluated."""

    schema_: Literal["prlvr/evidence/1"] = Field(alias="schema")
    sample_lock: HexDigest
    policies: dict[str, HexDigest]


class EvidenceRow(Frozen):
    """One completion and its verdict; the columns of an evidence file, in order."""

    policy: str
    split: Literal["sample", "heldout", "fresh"]
    index: int = Field(ge=0)
    prompt_digest: HexDigest
    occurrence: int = Field(ge=0)
    draw: int = Field(ge=0)
    correct: bool
    reason: str
    tokens: int = Field(ge=0)
    completion: str


DOCUMENTS: Final[tuple[type[BaseModel], ...]] = (
    MethodLock,
    SampleLock,
    Pool,
    TransferLock,
    AttemptEntry,
    EvidenceHeader,
    Certificate,
    TransferCertificate,
    JointCertificate,
)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12): one of the documents, and evidence rows among the definitions."""
    models = [(model, "validation") for model in (*DOCUMENTS, EvidenceRow)]
    _, definitions = models_json_schema(models, title="prlvr")  # type: ignore[arg-type]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_NAME,
        "title": "Locks, evidence and certificates",
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in DOCUMENTS],
        "$defs": definitions["$defs"],
    }
