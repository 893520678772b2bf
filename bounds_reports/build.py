"""From a run, or a folder of published certificates, to a page, a JSON file and a Markdown file.

The three say the same. They print what the certificates say and recompute no bound; a report of the same files is the
same bytes, so nothing in it depends on the clock, the machine or the caller's directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bounds_reports import charts, holdout, sentences
from bounds_reports.errors import ReportError
from bounds_reports.files import write_atomic
from bounds_reports.load import Metrics, Source, find_sources, read_config, read_metrics, unfinished
from bounds_reports.numbers import apportion, fixed, percent, places, points
from bounds_reports.samples import Specimens, read_specimens
from bounds_reports.schema import POLICIES, Certificate, Ledger, Measured
from bounds_reports.text import clip, markdown, slug, specimen, title, visible

_DIGEST = re.compile("[0-9a-fA-F]{64}")
JSON_SCHEMA = "prlvr/report/1"
_BITS, _DELTA = (1, 4), (2, 6)  # fewest and most decimals of the ledgers
_HEX_SHOWN, _INTEGERS_SHOWN, _CONFIG_SHOWN = 256, 256, 20_000


@dataclass(frozen=True)
class ReportPaths:
    """Where the three files of a report are."""

    html: Path
    json: Path
    markdown: Path


@dataclass(frozen=True)
class Section:
    """A certificate with everything that is shown beside it."""

    source: Source
    id: str
    name: str
    specimens: Specimens
    metrics: Metrics

    @property
    def certificate(self) -> Certificate:
        """What the certificate says."""
        return self.source.certificate


def build_report(run_dir: Path) -> ReportPaths:
    """Write `reports/report.{html,json,md}` into a run's folder or a folder of published certificates.

    Args:
        run_dir: `runs/<name>`, with `<domain>/certificate.json` and `<domain>/evidence.parquet`; or a folder with
            `<domain>.json` and `<domain>/evidence.parquet`.

    Raises:
        ReportError: a file is missing, cannot be read or does not follow its schema. Nothing is written then.
    """
    folder = Path(run_dir)
    sections = _sections(find_sources(folder))
    name = folder.resolve().name
    out = folder / "reports"
    paths = ReportPaths(out / "report.html", out / "report.json", out / "report.md")
    begun = unfinished(folder)
    page = _html(folder, name, sections, begun)
    data = json.dumps(_json(folder, name, sections, begun), indent=2, sort_keys=True) + "\n"
    text = _markdown(folder, name, sections, begun)
    for path, content in ((paths.json, data), (paths.markdown, text), (paths.html, page)):
        write_atomic(path, content.encode("utf-8"))
    return paths


def _sections(sources: list[Source]) -> list[Section]:
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
        sections.append(Section(source, anchor, name, specimens, metrics))
    return sections


# ---- numbers shared by the three files ------------------------------------------------------------------------------


def _accuracy(name: str, score: Measured | None) -> str:
    """A measured accuracy in print; the base model is never rounded down."""
    return "—" if score is None else percent(score.accuracy, "up" if name == "base" else "near")


def _gaps(c: Certificate) -> dict[str, Decimal]:
    """The three differences, as fractions; those that cannot be had are absent."""
    gaps = {"coded_minus_certified": c.coded.accuracy - c.certified}
    if c.lora is not None:
        gaps["lora_minus_certified"] = c.lora.accuracy - c.certified
    if c.base is not None:
        gaps["certified_minus_base"] = c.certified - c.base.accuracy
    return gaps


def _mismatch(section: Section) -> str | None:
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


# ---- HTML -----------------------------------------------------------------------------------------------------------


def _html(folder: Path, name: str, sections: list[Section], begun: list[str]) -> str:
    environment = Environment(
        loader=PackageLoader("bounds_reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    environment.filters.update(specimen=specimen, title=title, nbsp=_nbsp)
    certificates = [section.certificate for section in sections]
    config, config_cut = clip(read_config(folder) or "", _CONFIG_SHOWN)
    context = {
        "name": name,
        "sections": [_section_view(folder, section) for section in sections],
        "jointly": sentences.jointly(certificates),
        "development": any(c.development for c in certificates),
        "all_development": all(c.development for c in certificates),
        "DEVELOPMENT": sentences.DEVELOPMENT,
        "unfinished": begun,
        "overview": charts.both(charts.overview_chart, [_overview_row(s) for s in sections], _overview_label(sections)),
        "config": config,
        "config_cut": f"{config_cut:,}" if config_cut else "",
    }
    return environment.get_template("report.html.j2").render(context)


def _finalize(value: Any) -> Any:
    """Everything that a template prints goes through `visible`, and is then escaped unless it is Markup."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _nbsp(text: str) -> str:
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" bits", "\N{NO-BREAK SPACE}bits")


def _floor(c: Certificate) -> charts.Floor:
    gain = _gaps(c).get("certified_minus_base")
    text = "" if gain is None or gain <= 0 else f"+{points(gain, 'down')} points over the base model"
    return charts.Floor(float(c.certified), percent(c.certified, "down"), text, not c.development)


def _mark(key: str, score: Measured) -> charts.Mark:
    held = score.heldout
    return charts.Mark(
        key=key,
        name=POLICIES[key],
        value=float(score.accuracy),
        text=_accuracy(key, score),
        heldout=None if held is None else float(held.accuracy),
        heldout_text="" if held is None else percent(held.accuracy, "up" if key == "base" else "near"),
        interval=None if held is None else holdout.interval(float(held.correct), held.n),
    )


def _overview_row(section: Section) -> charts.Domain:
    c = section.certificate
    shown = [(key, score) for key, score in c.policies() if key in ("base", "coded", "lora")]
    return charts.Domain(section.name, _floor(c), tuple(_mark(key, score) for key, score in shown))


def _overview_label(sections: list[Section]) -> str:
    said = (
        f"{s.name}: {'not certified' if s.certificate.development else 'certified'} "
        f"{percent(s.certificate.certified, 'down')}, base {_accuracy('base', s.certificate.base)}, coded "
        f"{_accuracy('coded', s.certificate.coded)}, LoRA {_accuracy('lora', s.certificate.lora)}"
        for s in sections
    )
    return "Accuracy by domain. " + "; ".join(said) + "."


def _accuracy_label(c: Certificate) -> str:
    said = [f"{POLICIES[key]} {_accuracy(key, score)}" for key, score in c.policies()]
    word = "Not certified" if c.development else "Certified floor"
    return f"Accuracy on the {c.n:,} training prompts: {', '.join(said)}. {word} {percent(c.certified, 'down')}."


def _ledger_view(ledger: Ledger, decimals: tuple[int, int]) -> dict[str, Any]:
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


def _summary_row(section: Section) -> dict[str, Any]:
    c = section.certificate
    gaps = _gaps(c)
    return {
        "base": _accuracy("base", c.base),
        "lora": _accuracy("lora", c.lora),
        "coded": _accuracy("coded", c.coded),
        "bits": fixed(c.bits.total, 1, "up"),
        "n": f"{c.n:,}",
        "certified": percent(c.certified, "down"),
        "gap": points(gaps["coded_minus_certified"], "up"),
        "gain": points(gaps["certified_minus_base"], "down") if "certified_minus_base" in gaps else "—",
    }


def _gap_tiles(c: Certificate) -> list[dict[str, str]]:
    gaps = _gaps(c)
    tiles = [
        ("coded_minus_certified", "coded − certified", "the price of a guarantee"),
        ("lora_minus_certified", "LoRA − certified", "below the policy that training produced"),
        ("certified_minus_base", "certified − base", "shown to be gained, at the least"),
    ]
    shown = []
    for key, name, why in tiles:
        if key in gaps:
            gain = key == "certified_minus_base"
            value = points(gaps[key], "down" if gain else "up")
            if gain and gaps[key] <= 0:
                why = "no gain is shown"
            shown.append({"name": name, "value": f"+{value}" if gain and gaps[key] > 0 else value, "why": why})
    return shown


def _flat(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested JSON as (name, value) pairs for a definition list."""
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, dict):
            yield from _flat(value, f"{name} ")
        elif value is not None:
            text = ", ".join(map(_plain, value)) if isinstance(value, list | tuple) else _plain(value)
            shown, missing = clip(text, 200)
            yield name, shown + (f" … {missing:,} more characters" if missing else "")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _provenance(c: Certificate) -> dict[str, list[tuple[str, str]]]:
    """Model, attempt, engine and noise as facts; whatever is a digest goes to the table of digests."""
    known = {"design": c.design, "draws per prompt": c.draws, "attempt": c.attempt.number}
    known |= {"previous attempt": c.attempt.previous, "model": c.model, "engine": c.engine, "noise": c.noise}
    pairs = [*_flat(known), *_flat(c.digests)]
    return {
        "facts": [pair for pair in pairs if not _DIGEST.fullmatch(pair[1])],
        "digests": [pair for pair in pairs if _DIGEST.fullmatch(pair[1])],
    }


def _curve_views(metrics: Metrics) -> list[dict[str, Any]]:
    views = []
    for (stage, quantity), curve in metrics.curves.items():
        mean = charts.smooth(curve)
        first, last = (f"{mean[i][1]:.3g}" for i in (0, -1))
        label = f"{title(stage)}: {quantity} from {first} to {last} over {len(curve):,} steps."
        views.append(
            {
                "stage": stage,
                "quantity": quantity,
                "ends": f"{first} → {last}",
                "svg": charts.curve(curve, quantity, label),
            }
        )
    return views


def _message_view(c: Certificate) -> dict[str, Any]:
    shown, missing = clip(c.message.hex.lower(), _HEX_SHOWN)
    integers = c.message.integers[:_INTEGERS_SHOWN]
    length = fixed(c.message.bits, 0, "up")
    count = f"{len(c.message.integers):,} integers"
    return {
        "hex": " ".join(shown[i : i + 4] for i in range(0, len(shown), 4)),
        "hex_cut": f"{missing:,}" if missing else "",
        "bits": length,
        "bytes": f"{len(c.message.hex) // 2:,}",
        "entry": None if c.message.entry is None else clip(_plain(c.message.entry), 80)[0],
        "integers": " ".join(f"{q:d}".replace("-", "−") for q in integers),
        "integers_cut": f"{len(c.message.integers) - len(integers):,}"
        if len(integers) < len(c.message.integers)
        else "",
        "count": count,
        "bit_chart": charts.both(charts.bit_chart, shown, f"The {length} bits of the message as squares."),
        "integer_chart": charts.both(charts.integer_chart, integers, f"The {count} of the coded vector as bars."),
    }


def _section_view(folder: Path, section: Section) -> dict[str, Any]:
    c = section.certificate
    marks = [_mark(key, score) for key, score in c.policies()]
    population = c.population if isinstance(c.population, dict) else {"name": c.population}
    warning = sentences.verdict(c)
    return {
        "c": c,
        "id": section.id,
        "name": section.name,
        "row": _summary_row(section),
        "headline": sentences.headline(c),
        "verdict": warning,
        "remedies": sentences.remedies(c),
        "mismatch": _mismatch(section),
        "population": _plain(population.get("description") or population.get("name") or ""),
        "model": _plain(c.model.get("name", "")),
        "chart": charts.both(charts.accuracy_chart, marks, _floor(c), _accuracy_label(c)),
        "marks": marks,
        "has_heldout": any(mark.heldout is not None for mark in marks),
        "gaps": _gap_tiles(c),
        "bits": _ledger_view(c.bits, _BITS),
        "deltas": _ledger_view(c.deltas, _DELTA),
        "holdout": sentences.held_out(c),
        "novelty": sentences.novelty(c),
        "message": _message_view(c),
        "specimens": section.specimens,
        "curves": _curve_views(section.metrics),
        "unreadable": section.metrics.unreadable,
        "stages": [
            {
                "kind": str(stage.get("kind", "stage")),
                "facts": list(_flat({k: v for k, v in stage.items() if k != "kind"})),
            }
            for stage in c.stages
        ],
        "losses": f"{c.bound.losses:,f}".rstrip("0").rstrip(".") if c.bound.losses % 1 else f"{int(c.bound.losses):,}",
        **_provenance(c),
        "path": section.source.path.relative_to(folder).as_posix(),
    }


# ---- JSON and Markdown ----------------------------------------------------------------------------------------------


def _json(folder: Path, name: str, sections: list[Section], begun: list[str]) -> dict[str, Any]:
    return {
        "schema": JSON_SCHEMA,
        "run": name,
        "jointly": sentences.jointly([s.certificate for s in sections]),
        "unfinished": begun,
        "domains": [_json_section(folder, section) for section in sections],
    }


def _json_section(folder: Path, section: Section) -> dict[str, Any]:
    c = section.certificate
    return {
        "domain": c.domain,
        "label": section.source.label,
        "purpose": c.purpose,
        "certified_accuracy": float(c.certified),
        "n": c.n,
        "bits": float(c.bits.total),
        "delta": float(c.delta),
        "accuracy": {key: float(score.accuracy) for key, score in c.policies()},
        "heldout_accuracy": {k: float(s.heldout.accuracy) for k, s in c.policies() if s.heldout is not None},
        "gaps": {key: float(value) for key, value in _gaps(c).items()},
        "sentence": sentences.headline(c),
        "verdict": sentences.verdict(c),
        "remedies": sentences.remedies(c),
        "holdout": sentences.held_out(c),
        "reasons": dict(section.specimens.reasons),
        "warning": _mismatch(section),
        "verify": f"prlvr verify {section.source.path.relative_to(folder).as_posix()}",
        "certificate": section.source.raw,
    }


def _markdown(folder: Path, name: str, sections: list[Section], begun: list[str]) -> str:
    columns = ["domain", "base", "LoRA", "coded", "bits", "n", "certified", "gap"]
    rows = []
    for section in sections:
        row = _summary_row(section)
        label = markdown(section.name) + (f" (**{sentences.DEVELOPMENT}**)" if section.certificate.development else "")
        rows.append([label, *(row[key] for key in ("base", "lora", "coded", "bits", "n", "certified", "gap"))])
    lines = [
        f"# Certificates for {markdown(name)}",
        "",
        markdown(sentences.jointly([s.certificate for s in sections])),
        "",
    ]
    lines += [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", "Gap: coded minus certified, in points. Certified accuracy is rounded down, the base model's up."]
    if begun:
        lines += ["", f"Begun and not certified: {', '.join(markdown(title(domain)) for domain in begun)}."]
    for section in sections:
        c = section.certificate
        lines += ["", f"## {markdown(section.name)}", ""]
        if c.development:
            lines += [f"**{sentences.DEVELOPMENT.upper()}**", ""]
        if (warning := _mismatch(section)) is not None:
            lines += [f"**{markdown(warning)}**", ""]
        lines += [markdown(sentences.paragraph(c))]
        for heading, ledger, decimals in (("Bits", c.bits, _BITS), ("δ", c.deltas, _DELTA)):
            view = _ledger_view(ledger, decimals)
            lines += ["", f"| {heading} | | |", "|---|---:|---|"]
            lines += [f"| {markdown(r['name'])} | {r['value']} | {markdown(r['why'])} |" for r in view["rows"]]
            lines += [f"| **Total** | **{view['total']}** | |"]
        lines += ["", "Assumed:", ""] + [f"- {markdown(text)}" for text in c.assumptions]
        lines += ["", f"Check it: `prlvr verify {section.source.path.relative_to(folder).as_posix().replace('`', '')}`"]
    return "\n".join(lines) + "\n"


__all__ = ["ReportError", "ReportPaths", "build_report"]
