"""Priors over coded policies: code lengths, and the bytes that prove them."""

from pacbayes.codes.arithmetic_coding import Bits, CodeError, MessageError, SupportError
from pacbayes.codes.menu import Menu, MenuEntry
from pacbayes.codes.priors import (
    AdaptiveCode,
    Code,
    FixedCode,
    GaussianCode,
    LaplaceCode,
    MixtureCode,
    MixturePart,
    SparseCode,
    parse_code,
)

__all__ = [
    "AdaptiveCode",
    "Bits",
    "Code",
    "CodeError",
    "FixedCode",
    "GaussianCode",
    "LaplaceCode",
    "Menu",
    "MenuEntry",
    "MessageError",
    "MixtureCode",
    "MixturePart",
    "SparseCode",
    "SupportError",
    "parse_code",
]
