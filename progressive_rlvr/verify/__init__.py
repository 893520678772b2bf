"""The verification ladder: what a certificate says, held against more and more of what it came from.

- V0 computes digests, bits, counts and bounds again from the files (`pacbayes.verify_certificate`). Seconds.
- V1 judges every stored completion again, with the prompts drawn again from the locked seed. Needs the domain.
- V2 generates a random part of the completions again from base model and message, and bounds the flips. Needs torch.
- V3 runs the whole training again.

A level includes those below it, and a level is not begun if one below found a difference.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from pacbayes.certificate import find_part, not_checked_in, verify_certificate
from pacbayes.certificate.verification import JOINT_SCHEMA, TRANSFER_SCHEMA, read_joint_certificate, schema_of
from progressive_rlvr.errors import EXPECTED, UserError
from progressive_rlvr.verify.case import Finding, Options, Progress, read_case

__all__ = ["Audit", "Finding", "Options", "Progress", "verify"]


@dataclass(frozen=True)
class Audit:
    """What was found up to a level.

    Attributes:
        level: the highest level that was carried out, 0 to 3.
        findings: everything that was looked at, in order.
        refused: why a level that was asked for could not be carried out here; says nothing about the certificate.
        not_checked: what remains open at `level`; empty if something differs.
    """

    level: int
    findings: tuple[Finding, ...]
    refused: str | None
    not_checked: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that was looked at held; a refused level was not looked at."""
        return all(finding.ok for finding in self.findings)


def verify(path: Path, level: int, options: Options, progress: Progress) -> Audit:
    """Verify a certificate of any origin up to a level. Never raises for what its files contain.

    Args:
        path: a certificate; its files are looked for as V0 does. Of a joint certificate every part is verified.
        level: 0 to 3.
        options: what the levels above 0 may be told.
        progress: told about the work of the levels above 0.
    """
    findings = [Finding(0, check.name, check.ok, check.detail) for check in verify_certificate(path)]
    reached, refused = 0, None
    if level > 0 and all(finding.ok for finding in findings):
        try:
            for part in _parts(path):
                reached, refused = _climb(part, level, options, progress, findings)
                if refused:
                    break
        finally:
            from domains.registry import close_all

            close_all()
    ok = all(finding.ok for finding in findings)
    return Audit(reached, tuple(findings), refused, tuple(not_checked_in(path, reached)) if ok else ())


def _parts(path: Path) -> list[Path]:
    if schema_of(path) == JOINT_SCHEMA:
        return [find_part(path, part.domain) for part in read_joint_certificate(path).domains]
    return [path]


def _climb(
    path: Path, level: int, options: Options, progress: Progress, findings: list[Finding]
) -> tuple[int, str | None]:
    """V1 and above of one accuracy certificate: adds findings; returns the level reached and why no higher."""
    reached = 0
    try:
        if schema_of(path) == TRANSFER_SCHEMA:
            raise UserError(
                "a transfer certificate has V0 only; V1 and above are for the accuracy certificate of the same sample"
            )
        # Each level's needs are imported when it begins: V1 runs without torch.
        from progressive_rlvr.verify.rescore import draw_again, rescore

        case = read_case(path)
        questions = draw_again(case, options)
        for finding in rescore(case, questions, progress):
            findings.append(finding)
        reached = 1
        if level > 1 and _hold(findings):
            logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it advises its users when it is imported
            from progressive_rlvr.verify.regenerate import regenerate

            for finding in regenerate(case, questions, options, progress):
                findings.append(finding)
            reached = 2
        if level > 2 and reached == 2 and _hold(findings):
            from progressive_rlvr.verify.rerun import rerun

            for finding in rerun(case, options, progress):
                findings.append(finding)
            reached = 3
    except ModuleNotFoundError as error:
        return reached, f"V{reached + 1} needs {error.name}: pip install 'progressive-rlvr[train]'"
    except EXPECTED as error:
        return reached, " ".join(str(error).split())
    except Exception as error:  # files of any origin: what nobody foresaw is a failed check too, not a traceback
        text = " ".join(str(error).split())[:200]
        findings.append(Finding(reached + 1, "files", False, f"cannot be checked: {type(error).__name__}: {text}"))
    return reached, None


def _hold(findings: list[Finding]) -> bool:
    return all(finding.ok for finding in findings)
