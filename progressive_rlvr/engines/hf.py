"""Generation with `transformers`: left-padded batches, one prefill for what all prompts share, keyed noise at every
token.

    engine = HfEngine(model, tokenizer)
    engine.generate([Request("12 + 30 =", key)], settings)      # [Completion(text=' 42', tokens=4, truncated=False)]

In float32 on a CPU a prompt's completion does not depend on its batch mates (as far as measured); in bfloat16 it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from pacbayes.gumbel import key_words
from pacbayes.gumbel_torch import sample_tokens
from progressive_rlvr.engines.base import Completion, Progress, Request, Settings, common_prefix, completed
from progressive_rlvr.models import replaced


def stop_tokens(tokenizer: PreTrainedTokenizerBase, stop: str | None) -> list[int]:
    """Ids of the tokens that end a completion: the end token, and every token whose text contains `stop`."""
    ids = {tokenizer.eos_token_id}
    if stop is not None:
        ids |= {i for i in range(len(tokenizer)) if stop in tokenizer.decode([i])}
    return sorted(ids)


class HfEngine:
    """Greedy decoding of logits / T + keyed Gumbel noise: exact samples from the policy, repeatable by key."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._stops: dict[str | None, list[int]] = {}

    @contextmanager
    def serving(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """For the time of a `with` block the base with these weights replaced; then the base again, bit for bit."""
        with replaced(self.model, weights):
            yield

    def generate(
        self, requests: Sequence[Request], settings: Settings, progress: Progress = lambda done: None
    ) -> list[Completion]:
        """Completions in the order of the requests; `progress` is told how many more are finished."""
        rows = self.tokenizer([r.prompt for r in requests])["input_ids"] if requests else []
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
        completions: dict[int, Completion] = {}
        for start in range(0, len(order), settings.batch_size):
            chosen = order[start : start + settings.batch_size]
            keys = key_words([requests[i].key for i in chosen])
            tokens = self._decode([rows[i] for i in chosen], keys, settings)
            completions |= dict(zip(chosen, (self._complete(t, settings) for t in tokens), strict=True))
            progress(len(chosen))
        return [completions[i] for i in range(len(rows))]

    def _complete(self, tokens: list[int], settings: Settings) -> Completion:
        return completed(self.tokenizer, tokens, self._stop_ids(settings.stop), settings.stop)

    def _stop_ids(self, stop: str | None) -> list[int]:
        if stop not in self._stops:
            self._stops[stop] = stop_tokens(self.tokenizer, stop)
        return self._stops[stop]

    @torch.inference_mode()
    def _decode(self, rows: list[list[int]], keys: np.ndarray, settings: Settings) -> list[list[int]]:
        """Token ids per row, the ending token included. rows: prompt ids; keys: (rows, 4) words."""
        device = self.model.device
        stops = torch.tensor(self._stop_ids(settings.stop), device=device)
        logits, cache, mask = self._prefill(rows)
        active = np.arange(len(rows))
        output: list[list[int]] = [[] for _ in rows]
        for position in range(settings.max_new_tokens):
            chosen = sample_tokens(logits, keys[active], position, settings.temperature)
            for row, token in zip(active.tolist(), chosen.tolist(), strict=True):
                output[row].append(token)
            running = ~torch.isin(chosen, stops)
            if position + 1 == settings.max_new_tokens or not bool(running.any()):
                break
            if not bool(running.all()):
                keep = running.nonzero()[:, 0]
                cache.batch_select_indices(keep)
                mask, chosen, active = mask[keep], chosen[keep], active[keep.cpu().numpy()]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            logits = self._forward(chosen[:, None], mask, cache)
        return output

    def _prefill(self, rows: list[list[int]]) -> tuple[Tensor, DynamicCache, Tensor]:
        """Logits after every prompt, the cache, and the attention mask (rows, shared + longest rest)."""
        shared = common_prefix(rows)
        longest = max(map(len, rows)) - shared
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        mask = torch.zeros(len(rows), shared + longest, dtype=torch.long)
        mask[:, :shared] = 1
        for i, row in enumerate(rows):
            ids[i, longest - len(row) + shared :] = torch.tensor(row[shared:])
            mask[i, shared + longest - len(row) + shared :] = 1
        ids, mask = ids.to(self.model.device), mask.to(self.model.device)
        cache = DynamicCache(config=self.model.config)
        if shared:
            prefix = torch.tensor([rows[0][:shared]], device=self.model.device)
            self._forward(prefix, torch.ones_like(prefix), cache)
            cache.batch_repeat_interleave(len(rows))
        return self._forward(ids, mask, cache), cache, mask

    def _forward(self, ids: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """Logits (rows, vocabulary) of the last position; the cache grows by the length of `ids`."""
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]
