"""One certificate with what is shown beside it, and the numbers that page, JSON and Markdown have in common."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bounds_reports.load import Metrics, Source, read_merge_audit, read_metrics
from bounds_reports.numbers import apportion, fixed, percent, places, points
from bounds_reports.samples import Specimens, read_specimens
from bounds_reports.schema import Certificate, Ledger, Measured, MergeAudit
from bounds_reports.text import slug, title

BITS, DELTA = (1, 4), (2, 6)  # fewest and most decimals of the ledgers


@dataclass(frozen=True)
class Section:
    """A certificate with everything that is shown beside it."""

    source: Source
    id: str
    name: str
    specimens: Specimens
    metrics: Metrics
    merge_audit: MergeAudit | None = None

    @property
    def certificate(self) -> Certificate:
        """What the certificate says."""
        return self.source.certificate


def sections_of(sources: list[Source]) -> list[Section]:
    order = ["mathematics", "programming", "knowledge", "text_to_sql"]

    def key(source: Source) -> tuple[int, str]:
        domain = source.certificate.domain
        return (order.index(domain) if domain in order else len(order), source.label)

    sections: list[Section] = []
    taken: set[str] = set()
    for source in sorted(sources, key=key):
        domain = source.certificate.domain
        name = title(domain)
        if source.label != domain:
            name += f" · {title(source.label.removeprefix(domain).strip('-_ ') or source.label).lower()}"
        wish = anchor = slug(source.label)
        while anchor in taken:
            anchor += "-" + str(sum(t.startswith(wish) for t in taken) + 1)
        taken.add(anchor)
        specimens, metrics = read_specimens(source.evidence), read_metrics(source.metrics)
        audit = read_merge_audit(source.evidence.parent / "merge-audit.json", source.certificate.digests.get("message"))
        sections.append(Section(source, anchor, name, specimens, metrics, audit))
    return sections


def accuracy(name: str, score: Measured | None) -> str:
    """A measured accuracy in print; the base model is never rounded down."""
    return "—" if score is None else percent(score.accuracy, "up" if name == "base" else "near")


def gaps_of(c: Certificate) -> dict[str, Decimal]:
    """The three differences, as fractions; those that cannot be had are absent."""
    gaps = {"coded_minus_certified": c.coded.accuracy - c.certified}
    if c.lora is not None:
        gaps["lora_minus_certified"] = c.lora.accuracy - c.certified
    if c.base is not None:
        gaps["certified_minus_base"] = c.certified - c.base.accuracy
    return gaps


def mismatch(section: Section) -> str | None:
    """A warning when the evidence that is shown does not add up to the certificate."""
    c = section.certificate
    if section.specimens.right_in_all != c.coded.correct:
        return (
            f"The evidence holds {section.specimens.right_in_all:,} right answers of the coded policy and the "
            f"certificate counts {c.coded.correct:,f}: this certificate will not pass verification."
        )
    said = c.digests.get("evidence")
    if said is not None and said != section.specimens.digest:
        return "The evidence is not the file that the certificate names: this certificate will not pass verification."
    return None


def ledger_view(ledger: Ledger, decimals: tuple[int, int]) -> dict[str, Any]:
    digits = places([*(line.value for line in ledger.lines), ledger.total], *decimals)
    printed = apportion([line.value for line in ledger.lines], ledger.total, digits)
    if printed is None:
        values = [fixed(line.value, digits, "up") for line in ledger.lines]
        printed = (values, fixed(ledger.total, digits, "up"))
        adds_up = False
    else:
        adds_up = True
    values, total = printed
    rows = [
        {"name": title(line.name), "value": value, "why": line.why}
        for line, value in zip(ledger.lines, values, strict=True)
    ]
    return {"rows": rows, "total": total, "adds_up": adds_up}


def summary_row(section: Section) -> dict[str, Any]:
    c = section.certificate
    gaps = gaps_of(c)
    return {
        "base": accuracy("base", c.base),
        "lora": accuracy("lora", c.lora),
        "coded": accuracy("coded", c.coded),
        "bits": fixed(c.bits.total, 1, "up"),
        "n": f"{c.n:,}",
        "certified": percent(c.certified, "down"),
        "gap": points(gaps["coded_minus_certified"], "up"),
        "gain": points(gaps["certified_minus_base"], "down") if "certified_minus_base" in gaps else "—",
    }
