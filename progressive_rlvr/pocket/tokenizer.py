"""The pocket tokenizer: whole words of the four families, and every printable ASCII character for anything else.

A Unigram model whose pieces are given, not learned: digits stand alone, a word with or without its leading space is one
piece, and the best segmentation is the one with the fewest pieces. Text outside printable ASCII becomes `<unk>`.
"""

from __future__ import annotations

import random
import re
import string

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from domains.pocket import FAMILIES

PAD, EOS, UNK = "<pad>", "</s>", "<unk>"
# How a text says where it comes from. A careful source is always right, a sloppy one hardly ever.
MARKS = {"careful": "[textbook] ", "sloppy": "[forum] "}
WORD_SCORE, CHARACTER_SCORE = -1.0, -3.0


def words(samples: int = 4000) -> list[str]:
    """The words and operators of the four families as they stand in running text, in a fixed order."""
    rng = random.Random(0)
    found: set[str] = set()
    for family in FAMILIES:
        for _ in range(samples):
            item = family.item(rng)
            found.update(re.findall(r" [A-Za-z]+|[A-Za-z]{2,}| [-+<>=]| ####", item.prompt + family.write(item)))
    return sorted(found)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer as a `transformers` object; at most 512 pieces."""
    characters = ["\n", *(c for c in string.printable if c.isprintable())]
    pieces = [(word, WORD_SCORE) for word in [*words(), *MARKS.values()]]
    vocabulary = [(token, 0.0) for token in (PAD, EOS, UNK)] + [(c, CHARACTER_SCORE) for c in characters] + pieces
    if len(vocabulary) > 512:
        raise ValueError(f"{len(vocabulary)} pieces; the pocket tokenizer has at most 512")
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=2, byte_fallback=False))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        padding_side="left",
        model_max_length=128,
        clean_up_tokenization_spaces=False,
    )
