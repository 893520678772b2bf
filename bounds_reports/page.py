"""The page: what the template is given, prepared so that the template only lays it out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bounds_reports import charts, holdout, sentences, svg
from bounds_reports.accounting import NOTE, accounting_view
from bounds_reports.load import Metrics, read_config
from bounds_reports.numbers import fixed, percent, points
from bounds_reports.schema import POLICIES, Certificate, Measured
from bounds_reports.section import BITS, DELTA, Section, accuracy, gaps_of, ledger_view, mismatch, summary_row
from bounds_reports.text import clip, specimen, title, visible

_DIGEST = re.compile("[0-9a-fA-F]{64}")
_HEX_SHOWN, _INTEGERS_SHOWN, _CONFIG_SHOWN = 256, 256, 20_000


def environment() -> Environment:
    """Templates that escape whatever they print."""
    made = Environment(
        loader=PackageLoader("bounds_reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    made.filters.update(specimen=specimen, title=title, nbsp=_nbsp)
    return made


def html(folder: Path, name: str, sections: list[Section], begun: list[str]) -> str:
    """The report as one self-contained page."""
    certificates = [section.certificate for section in sections]
    config, config_cut = clip(read_config(folder) or "", _CONFIG_SHOWN)
    context = {
        "name": name,
        "sections": [_section_view(folder, section) for section in sections],
        "jointly": sentences.jointly(certificates),
        "development": any(c.development for c in certificates),
        "all_development": all(c.development for c in certificates),
        "DEVELOPMENT": sentences.DEVELOPMENT,
        "NOTE": NOTE,
        "unfinished": begun,
        "overview": svg.both(charts.overview_chart, [_overview_row(s) for s in sections], _overview_label(sections)),
        "config": config,
        "config_cut": f"{config_cut:,}" if config_cut else "",
    }
    return environment().get_template("report.html.j2").render(context)


def _finalize(value: Any) -> Any:
    """Everything that a template prints goes through `visible`, and is then escaped unless it is Markup."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _nbsp(text: str) -> str:
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" bits", "\N{NO-BREAK SPACE}bits")


def _floor(c: Certificate) -> charts.Floor:
    gain = gaps_of(c).get("certified_minus_base")
    text = "" if gain is None or gain <= 0 else f"+{points(gain, 'down')} points over the base model"
    return charts.Floor(float(c.certified), percent(c.certified, "down"), text, not c.development)


def _mark(c: Certificate, key: str, score: Measured) -> charts.Mark:
    held = score.heldout
    # Several draws of a prompt are not as many independent prompts: no interval is drawn for them.
    tested = held if c.draws == 1 else None
    return charts.Mark(
        key=key,
        name=POLICIES[key],
        value=float(score.accuracy),
        text=accuracy(key, score),
        heldout=None if held is None else float(held.accuracy),
        heldout_text="" if held is None else percent(held.accuracy, "up" if key == "base" else "near"),
        interval=None if tested is None else holdout.interval(float(tested.correct), tested.n),
    )


def _overview_row(section: Section) -> charts.Domain:
    c = section.certificate
    shown = [(key, score) for key, score in c.policies() if key in ("base", "coded", "lora")]
    return charts.Domain(section.name, _floor(c), tuple(_mark(c, key, score) for key, score in shown))


def _overview_label(sections: list[Section]) -> str:
    said = (
        f"{s.name}: {'not certified' if s.certificate.development else 'certified'} "
        f"{percent(s.certificate.certified, 'down')}, base {accuracy('base', s.certificate.base)}, coded "
        f"{accuracy('coded', s.certificate.coded)}, LoRA {accuracy('lora', s.certificate.lora)}"
        for s in sections
    )
    return "Accuracy by domain. " + "; ".join(said) + "."


def _accuracy_label(c: Certificate) -> str:
    said = [f"{POLICIES[key]} {accuracy(key, score)}" for key, score in c.policies()]
    word = "Not certified" if c.development else "Certified floor"
    return f"Accuracy on the {c.n:,} training prompts: {', '.join(said)}. {word} {percent(c.certified, 'down')}."


def _gap_tiles(c: Certificate) -> list[dict[str, str]]:
    gaps = gaps_of(c)
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
    return f"{value:.6g}" if isinstance(value, Decimal) else str(value)


def _provenance(c: Certificate) -> dict[str, list[tuple[str, str]]]:
    """Model, attempt, engine and noise as facts; whatever is a digest goes to the table of digests."""
    known = {"design": c.design, "draws per prompt": c.draws, "attempt": c.attempt.number}
    known |= {"previous attempt": c.attempt.previous, "model": c.model, "engine": c.engine, "noise": c.noise}
    pairs = [*_flat(known), *_flat(c.digests)]
    return {
        "facts": [pair for pair in pairs if not _DIGEST.fullmatch(pair[1])],
        "digests": [pair for pair in pairs if _DIGEST.fullmatch(pair[1])],
    }


def _chosen(c: Certificate, tried: list[charts.Candidate]) -> charts.Candidate | None:
    """The candidate that stage `quantize` says it took."""
    stage: dict[str, Any] = next((stage for stage in c.stages if stage.get("kind") == "quantize"), {})
    said = [float(value) for key in ("bits", "expected") if isinstance(value := stage.get(key), Decimal | int)]
    return next((candidate for candidate in tried if [candidate.bits, candidate.expected] == said), None)


def _curve_views(metrics: Metrics, c: Certificate) -> list[dict[str, Any]]:
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
    if len(metrics.candidates) > 1:
        tried = [charts.Candidate(bits, expected) for bits, expected in metrics.candidates]
        # One that answered fewer prompts may expect more by luck: what was taken need not stand highest.
        chosen = _chosen(c, tried)
        shown = chosen or max(tried, key=lambda candidate: (candidate.expected, -candidate.bits))
        word = "chosen" if chosen else "best"
        ends = f"{word} {fixed(Fraction(shown.bits), 1, 'up')} bits, {percent(Fraction(shown.expected), 'down')}"
        label = f"Certified accuracy that {len(tried):,} candidate messages could expect, against their bits; {ends}."
        frontier = charts.frontier_chart(tried, shown, label)
        views.append({"stage": "quantize", "quantity": f"{len(tried):,} candidates;", "ends": ends, "svg": frontier})
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
        "bit_chart": svg.both(charts.bit_chart, shown, f"The {length} bits of the message as squares."),
        "integer_chart": svg.both(charts.integer_chart, integers, f"The {count} of the coded vector as bars."),
    }


def _section_view(folder: Path, section: Section) -> dict[str, Any]:
    c = section.certificate
    marks = [_mark(c, key, score) for key, score in c.policies()]
    population = c.population if isinstance(c.population, dict) else {"name": c.population}
    warning = sentences.verdict(c)
    return {
        "c": c,
        "id": section.id,
        "name": section.name,
        "row": summary_row(section),
        "headline": sentences.headline(c),
        "verdict": warning,
        "remedies": sentences.remedies(c),
        "mismatch": mismatch(section),
        "population": _plain(population.get("description") or population.get("name") or ""),
        "model": _plain(c.model.get("name", "")),
        "chart": svg.both(charts.accuracy_chart, marks, _floor(c), _accuracy_label(c)),
        "marks": marks,
        "has_heldout": any(mark.heldout is not None for mark in marks),
        "gaps": _gap_tiles(c),
        "bits": ledger_view(c.bits, BITS),
        "deltas": ledger_view(c.deltas, DELTA),
        "holdout": sentences.held_out(c),
        "novelty": sentences.novelty(c),
        "message": _message_view(c),
        "compressed": sentences.compressed(c),
        "accounting": accounting_view(section.accounting),
        "merged": sentences.merged(section.merge_audit) if section.merge_audit else None,
        "specimens": section.specimens,
        "curves": _curve_views(section.metrics, c),
        "frontier": len(section.metrics.candidates) > 1,
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
