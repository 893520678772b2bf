"""The JSON Schema: complete, closed to unknown keys, and true of the certificate that the project published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pacbayes import __main__ as calculator
from pacbayes.evidence import _COLUMNS
from pacbayes.json_schema import DOCUMENTS, EvidenceHeader, EvidenceRow, json_schema

PUBLISHED = Path(__file__).parents[2] / "bounds_reports" / "published" / "smollm2-135m"


def errors(value: Any, schema: dict[str, Any], definitions: dict[str, Any], place: str = "") -> list[str]:
    """What of the JSON value contradicts the schema; the keywords that pydantic writes for these models."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        tried = [errors(value, option, definitions, place) for option in schema["anyOf"]]
        return min(tried, key=len)
    if "oneOf" in schema:
        fitting = [option for option in schema["oneOf"] if not errors(value, option, definitions, place)]
        return [] if len(fitting) == 1 else [f"{place}: fits {len(fitting)} of {len(schema['oneOf'])}"]
    found: list[str] = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{place}: not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: not one of {schema['enum']}")
    types = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None), "boolean": bool}
    kind = schema.get("type")
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        return [*found, f"{place}: no number"]
    if kind in types and (not isinstance(value, types[kind]) or (kind == "integer" and isinstance(value, bool))):
        return [*found, f"{place}: no {kind}"]
    if isinstance(value, dict) and kind == "object":
        properties = schema.get("properties", {})
        found += [f"{place}.{key}: missing" for key in schema.get("required", []) if key not in value]
        if schema.get("additionalProperties") is False:
            found += [f"{place}.{key}: unknown" for key in value if key not in properties]
        for key, inner in value.items():
            if key in properties:
                found += errors(inner, properties[key], definitions, f"{place}.{key}")
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, inner in enumerate(value[:20]):
            found += errors(inner, schema["items"], definitions, f"{place}[{index}]")
    return found


@pytest.mark.parametrize("name", ["mathematics.json", "mathematics/method.lock.json", "mathematics/sample.lock.json"])
def test_published_files_follow_it(name: str) -> None:
    schema = json_schema()
    content = json.loads((PUBLISHED / name).read_text())
    assert errors(content, {"oneOf": schema["oneOf"]}, schema["$defs"]) == []
    assert errors({**content, "endorsed": True}, {"oneOf": schema["oneOf"]}, schema["$defs"])
    assert errors({**content, "schema": "prlvr/certificate/99"}, {"oneOf": schema["oneOf"]}, schema["$defs"])


def test_evidence_has_the_columns_and_the_header_that_it_says() -> None:
    assert list(EvidenceRow.model_fields) == _COLUMNS.names
    header = pq.read_schema(PUBLISHED / "mathematics" / "evidence.parquet").metadata[b"prlvr"]
    assert EvidenceHeader.model_validate_json(header).policies["coded"]


def test_every_document_is_closed_and_names_its_version() -> None:
    definitions = json_schema()["$defs"]
    for model in DOCUMENTS:
        assert definitions[model.__name__]["additionalProperties"] is False
        assert definitions[model.__name__]["properties"]["schema"]["const"].startswith("prlvr/")


def test_the_calculator_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    calculator.main(["schema"])
    assert json.loads(capsys.readouterr().out) == json_schema()
