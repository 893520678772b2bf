"""The page: what it says, in which order, and that hostile text stays text."""

from __future__ import annotations

import json
import re
import shutil
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from report_run import ACCURACY, outcomes, sha, write_certificate, write_domain, write_evidence, write_run

from bounds_reports import ReportPaths, build_report
from bounds_reports.accounting import Accounting, Charge
from bounds_reports.numbers import percent

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m\x00\x07",
    "\u202eevil\u202c\u2066x\u2069 zero\u200bwidth \U000e0041",
    "A" * 3000,
    "'\"&<>`{{ 7*7 }}{% raw %}\n\n\ttab",
    "line\u2028break\u0085\u007f\ue000",
]


class Balance(HTMLParser):
    """Collects tags; complains of any that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(str(found["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def parse(path: Path) -> Balance:
    parser = Balance()
    parser.feed(path.read_text("utf-8"))
    parser.close()
    assert parser.open == []
    return parser


def words(path: Path) -> str:
    return " ".join("".join(parse(path).text).replace("\u00a0", " ").split())


def test_page_is_balanced_and_self_contained(report: ReportPaths) -> None:
    page = parse(report.html)
    assert len(page.ids) == len(set(page.ids))
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in page.tags}
    assert not re.search(r"(?:src|href)=\"(?!#)|url\(|@import|https?:", report.html.read_text("utf-8"))
    for tag, attributes in page.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        assert not any(name.startswith("on") for name in attributes)
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_each_domain_says_its_number_in_a_sentence(run_dir: Path, report: ReportPaths) -> None:
    said = words(report.html)
    for domain in ACCURACY:
        made = json.loads((run_dir / domain / "certificate.json").read_text())
        certified = percent(Decimal(repr(made["bound"]["certified_accuracy"])), "down")
        assert (
            f"With probability at least 95 %, this model answers at least {certified} of new prompts of this kind "
            "correctly on the first try; it was trained on all 400 of the labelled prompts and no test set was used."
        ) in said
        assert made["digests"]["message"] in said
        assert f"prlvr verify {domain}/certificate.json" in said
        for text in made["assumptions"]:
            assert text in said
    assert said.count("Quantization 24 candidates; best") == 4
    assert "all 4 together with probability at least 80 %" in said


def test_same_files_same_bytes(run_dir: Path, report: ReportPaths) -> None:
    before = [path.read_bytes() for path in (report.html, report.json, report.markdown)]
    again = build_report(run_dir)
    assert [path.read_bytes() for path in (again.html, again.json, again.markdown)] == before
    assert sorted(path.name for path in report.html.parent.iterdir()) == ["report.html", "report.json", "report.md"]
    assert str(run_dir).encode() not in b"".join(before)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> ReportPaths:
    run = tmp_path_factory.mktemp("runs") / "<b>bold\u202e"
    made = write_domain(run / "odd", "mathematics")
    rows = outcomes("mathematics", 400, 200, Random("mathematics"))
    for i, row in enumerate(rows):
        row["completion"] = HOSTILE[i % len(HOSTILE)]
        row["prompt"] += HOSTILE[(i + 1) % len(HOSTILE)]
        row["prompt_digest"] = sha(row["prompt"])
        row["reason"] = row["reason"] if row["correct"] else "<i>wrong</i>"
    write_evidence(run / "odd" / "evidence.parquet", rows)
    nasty = "<script>\u202e\x1b[2J|`*[x](javascript:1)\ud800"
    made |= {"domain": nasty, "statement": nasty, "population": nasty, "assumptions": [nasty], "engine": {nasty: nasty}}
    made["bits"]["lines"][0] |= {"name": nasty, "why": nasty}
    made["message"]["entry"] = nasty
    made["stages"] = [{"kind": nasty, nasty: nasty}]
    made["model"]["name"] = nasty
    write_certificate(run / "odd" / "certificate.json", made)
    (run / "config.resolved.yaml").write_text("name: </code><script>1</script>\x1b\n", "utf-8")
    (run / "odd" / "metrics.jsonl").write_text(
        "".join(json.dumps({"stage": nasty, "step": i, "reward": 0.5}) + "\n" for i in range(9)) + '{"stage": "x"',
        "utf-8",
    )
    return build_report(run)


def test_hostile_text_stays_text(hostile: ReportPaths) -> None:
    page = parse(hostile.html)
    tags = {tag for tag, _ in page.tags}
    assert not {"script", "img", "object"} & tags
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    raw = hostile.html.read_text("utf-8")
    for char in "\x00\x07\x1b\x7f\x85\u200b\u202e\u202c\u2028\u2066\u2069\ue000\U000e0041":
        assert char not in raw, f"U+{ord(char):04X}"
    for spelled in ("⟨ESC⟩[31mred", "⟨U+202E⟩", "⟨U+200B⟩", "⟨U+D800⟩", "2,720 more characters", "{{ 7*7 }}"):
        assert spelled in "".join(page.text)


def test_hostile_text_is_inert_in_markdown(hostile: ReportPaths) -> None:
    text = hostile.markdown.read_text("utf-8")
    assert not re.search(r"(?<!\\)<|[\x00-\x09\x0b-\x1f\u202e]", text)
    assert r"\<script\>⟨U+202E⟩⟨ESC⟩\[2J\|" in text
    json.loads(hostile.json.read_text("ascii"))


def test_half_a_metrics_line_is_left_out_and_said(hostile: ReportPaths) -> None:
    assert "1 line of the metrics could not be read and is left out." in words(hostile.html)


def test_development_is_loud(tmp_path: Path) -> None:
    made = write_domain(tmp_path / "run" / "mathematics", "mathematics")
    made["purpose"] = "development"
    made["attempt"]["number"] = 0
    write_certificate(tmp_path / "run" / "mathematics" / "certificate.json", made)
    paths = build_report(tmp_path / "run")
    said = words(paths.html)
    assert said.count("Development, not a certificate") >= 3
    assert "Nothing on this page is certified." in said
    assert "With probability at least 95 %, this model" not in said
    assert "DEVELOPMENT, NOT A CERTIFICATE" in paths.markdown.read_text("utf-8")
    assert json.loads(paths.json.read_text())["domains"][0]["purpose"] == "development"


@pytest.mark.parametrize(("certified", "sentence"), [(0.0, "is vacuous"), (0.2, "promises less than the base model")])
def test_a_weak_certificate_says_so_and_what_to_shrink(tmp_path: Path, certified: float, sentence: str) -> None:
    made = write_domain(tmp_path / "run" / "mathematics", "mathematics", vector_bits=600.0)
    made["bound"]["certified_accuracy"] = certified
    write_certificate(tmp_path / "run" / "mathematics" / "certificate.json", made)
    said = words(build_report(tmp_path / "run").html)
    assert sentence in said
    for term in ("Prompts:", "Bits:", "Risk:"):
        assert term in said


def test_evidence_that_is_not_the_certificates_is_reported(tmp_path: Path) -> None:
    made = write_domain(tmp_path / "run" / "mathematics", "mathematics")
    evidence = tmp_path / "run" / "mathematics" / "evidence.parquet"
    rows = pq.read_table(evidence).to_pylist()
    write_evidence(evidence, [*rows[:-1], rows[-1] | {"completion": "changed"}])
    assert "The evidence is not the file that the certificate names" in words(build_report(tmp_path / "run").html)
    made["coded"]["correct"] += 1
    write_certificate(tmp_path / "run" / "mathematics" / "certificate.json", made)
    assert "this certificate will not pass verification" in words(build_report(tmp_path / "run").html)


def test_prompts_come_from_a_file_beside_the_evidence_when_their_digest_matches(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "mathematics"
    write_domain(folder, "mathematics")
    table = pq.read_table(folder / "evidence.parquet")
    prompts = {row["prompt_digest"]: row["prompt"] for row in table.to_pylist()}
    pq.write_table(table.drop_columns(["prompt"]), folder / "evidence.parquet")
    assert "Question: What is" not in words(build_report(tmp_path / "run").html)
    lines = [
        json.dumps({"prompt_digest": digest, "prompt": prompt, "gold": "GOLD"}) for digest, prompt in prompts.items()
    ]
    (folder / "prompts.jsonl").write_text("\n".join(lines), "utf-8")
    said = words(build_report(tmp_path / "run").html)
    assert "Question: What is" in said
    assert "GOLD" in said
    wrong = [json.dumps({"prompt_digest": digest, "prompt": "forged"}) for digest in prompts]
    (folder / "prompts.jsonl").write_text("\n".join(wrong), "utf-8")
    assert "forged" not in words(build_report(tmp_path / "run").html)


def test_a_domain_of_which_training_seeds_are_certified_is_not_unfinished(tmp_path: Path) -> None:
    """Published seeds share the locks in `<domain>/`; there is no `<domain>.json`."""
    write_domain(tmp_path / "mathematics-seed0", "mathematics", n=60, heldout=20)
    shutil.move(tmp_path / "mathematics-seed0" / "certificate.json", tmp_path / "mathematics-seed0.json")
    for domain in ("mathematics", "knowledge"):
        (tmp_path / domain).mkdir()
        (tmp_path / domain / "method.lock.json").write_text("{}")
    assert json.loads(build_report(tmp_path).json.read_text())["unfinished"] == ["knowledge"]


def test_unfinished_domains_are_named(tmp_path: Path) -> None:
    write_run(tmp_path / "run", n=60, heldout=20)
    (tmp_path / "run" / "world_two").mkdir()
    (tmp_path / "run" / "world_two" / "method.lock.json").write_text("{}")
    assert "Begun and not certified: World two." in words(build_report(tmp_path / "run").html)


AUDIT = {
    "schema": "prlvr/merge-audit/1",
    "quantization": "nf4",
    "prompts": 500,
    "logits": {"positions": 4321, "mean_divergence": 0.01234, "same_argmax": 0.987},
    "completions": {"changed": 37},
    "verdicts": {"right_before": 450, "right_after": 441, "right_to_wrong": 12, "wrong_to_right": 3},
}


def test_a_merge_audit_is_shown_beside_its_own_certificate_only(tmp_path: Path) -> None:
    """The audit of another message, or a damaged one, is not shown: it says nothing about this certificate."""
    folder = tmp_path / "audited"
    folder.mkdir()
    write_run(folder)
    domain = folder / "knowledge"
    message = json.loads((domain / "certificate.json").read_text())["digests"]["message"]
    words = "12 right answers turn wrong and 3 wrong ones right"
    for audit, shown in (({**AUDIT, "message": message}, True), ({**AUDIT, "message": "0" * 64}, False), ({}, False)):
        (domain / "merge-audit.json").write_text(json.dumps(audit))
        paths = build_report(folder)
        assert (words in paths.html.read_text("utf-8")) is shown
        assert (words in paths.markdown.read_text("utf-8")) is shown
        found = {d["domain"]: d["merge_audit"] for d in json.loads(paths.json.read_text("utf-8"))["domains"]}
        assert (found["knowledge"] is not None) is shown
        assert found["mathematics"] is None


def test_the_candidate_that_was_taken_is_marked_where_the_stage_names_it(tmp_path: Path) -> None:
    """One that answered a quarter of the prompts may stand higher by luck."""
    folder = tmp_path / "run" / "mathematics"
    made = write_domain(folder, "mathematics", n=60, heldout=20)
    rows = [{"stage": "quantize", "step": k, "entry": "e", "bits": 40.0 + k, "expected": 0.9 - k / 100} for k in (0, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert "2 candidates; best 40.0 bits, 90.0 %" in words(build_report(tmp_path / "run").html)
    assert "The line is the frontier" in words(build_report(tmp_path / "run").html)
    made["stages"][3] |= {"bits": 41.0, "expected": 0.89}
    write_certificate(folder / "certificate.json", made)
    assert "2 candidates; chosen 41.0 bits, 89.0 %" in words(build_report(tmp_path / "run").html)


@pytest.mark.parametrize("bits", [None, 0, -5, True, "1000", 1e6])
def test_compressibility_needs_a_count_of_bits(tmp_path: Path, bits: object) -> None:
    made = write_domain(tmp_path / "run" / "mathematics", "mathematics", n=60, heldout=20)
    made["stages"][0]["bits_bfloat16"] = bits
    write_certificate(tmp_path / "run" / "mathematics" / "certificate.json", made)
    paths = build_report(tmp_path / "run")
    assert "in bfloat16" not in words(paths.html)
    assert json.loads(paths.json.read_text())["domains"][0]["compressibility"] is None


def test_both_counts_of_bits_and_their_quotient_rounded_down(tmp_path: Path) -> None:
    """1,310,720 / 41.385 = 31,671.4."""
    made = write_domain(tmp_path / "run" / "mathematics", "mathematics", n=60, heldout=20)
    assert made["bits"]["total"] == 41.385
    made["stages"][0]["bits_bfloat16"] = 1_310_720
    write_certificate(tmp_path / "run" / "mathematics" / "certificate.json", made)
    paths = build_report(tmp_path / "run")
    said = "takes 1,310,720 bits in bfloat16, as its stage wrote down; the message is charged 41.4 bits, 31,671 times"
    assert said in words(paths.html)
    assert said in paths.markdown.read_text("utf-8")
    found = json.loads(paths.json.read_text())["domains"][0]["compressibility"]
    assert found == {"lora_bits_bfloat16": 1_310_720, "factor": 31_671}


def test_other_accountings_are_printed_and_escaped(tmp_path: Path) -> None:
    write_domain(tmp_path / "run" / "mathematics", "mathematics", n=60, heldout=20)
    own = Charge(
        "declared", Decimal("54.4427"), {"binomial": Decimal("0.90539"), "hoeffding": Decimal("0.8829")}, "<b>"
    )
    lora = Charge("bfloat16", Decimal(1_310_720), {"binomial": Decimal("1e-9"), "hoeffding": Decimal(0)})
    paths = build_report(tmp_path / "run", lambda _: Accounting("binomial", (own, lora)))
    assert "This message, declared code<b>54.588.2 %90.5 %" in words(paths.html)
    assert "&lt;b&gt;" in paths.html.read_text("utf-8")
    assert "| LoRA adapter in bfloat16 | 1,310,720 | nothing | nothing |" in paths.markdown.read_text("utf-8")
    charges = json.loads(paths.json.read_text())["domains"][0]["accounting"]["charges"]
    assert [charge["kind"] for charge in charges] == ["declared", "bfloat16"]
    missing = build_report(tmp_path / "run", lambda _: Accounting("", (), missing="<script>no lock"))
    assert "Not shown: <script>no lock" in words(missing.html)
    assert "script" not in {tag for tag, _ in parse(missing.html).tags}
    assert r"\<script\>no lock" in missing.markdown.read_text("utf-8")
