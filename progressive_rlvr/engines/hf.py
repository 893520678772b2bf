"""Generation with `transformers`: continuous batches, one prefill for what all prompts share, keyed noise at every
token.

    engine = HfEngine(model, tokenizer)
    engine.generate([Request("12 + 30 =", key)], settings)      # [Completion(text=' 42', tokens=4, truncated=False)]

The longest prompts come first, and when sequences have ended, waiting prompts take their slots. So which prompts are
in the same batch at a token depends on how long others' completions are. In float32 on a CPU a prompt's completion does
not depend on its batch mates (as far as measured); in bfloat16 it does: docs/ENGINES.md says what that means for a
certificate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pacbayes.gumbel import key_words
from pacbayes.gumbel_torch import sample_tokens
from progressive_rlvr.engines.base import Completion, Progress, Request, Settings, common_prefix, completed
from progressive_rlvr.engines.slots import SlotCache, masks
from progressive_rlvr.errors import UserError
from progressive_rlvr.models import replaced

# Waiting prompts are let in when this share of the slots is free: a prefill of few sequences costs as much as one of
# many.
FREE_SHARE = 4
TOKENIZED_AT_ONCE = 1024


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

    @torch.inference_mode()
    def generate(
        self, requests: Sequence[Request], settings: Settings, progress: Progress = lambda done: None
    ) -> list[Completion]:
        """Completions in the order of the requests; `progress` is told how many more are finished.

        Raises:
            UserError: a prompt has no tokens, or the model has layers that are no attention over a cache.
        """
        if not requests:
            return []
        rows = self._tokenize([r.prompt for r in requests])
        if not all(map(len, rows)):
            raise UserError("a prompt is empty: there is no token to go on from")
        completions: list[Completion | None] = [None] * len(rows)
        batch = _Batch(self.model, rows, key_words([r.key for r in requests]), settings)
        stops = torch.zeros(self.model.config.vocab_size, dtype=torch.bool)
        stops[self._stop_ids(settings.stop)] = True
        while batch.unfinished:
            batch.admit()
            ended = batch.step(stops)
            for request, tokens in ended:
                completions[request] = self._complete(tokens, settings)
            if ended:
                progress(len(ended))
        return [c for c in completions if c is not None]

    def _tokenize(self, prompts: list[str]) -> list[np.ndarray]:
        """Token ids of every prompt, (length,) int32."""
        return [
            np.array(ids, np.int32)
            for start in range(0, len(prompts), TOKENIZED_AT_ONCE)
            for ids in self.tokenizer(prompts[start : start + TOKENIZED_AT_ONCE])["input_ids"]
        ]

    def _complete(self, tokens: list[int], settings: Settings) -> Completion:
        return completed(self.tokenizer, tokens, self._stop_ids(settings.stop), settings.stop)

    def _stop_ids(self, stop: str | None) -> list[int]:
        if stop not in self._stops:
            self._stops[stop] = stop_tokens(self.tokenizer, stop)
        return self._stops[stop]


class _Batch:
    """The sequences that are being decoded, in slots 0, 1, …, and the prompts that wait for a slot."""

    def __init__(
        self, model: PreTrainedModel, rows: Sequence[np.ndarray], keys: np.ndarray, settings: Settings
    ) -> None:
        self.model, self.rows, self.keys, self.settings = model, rows, keys, settings
        self.waiting = deque(sorted(range(len(rows)), key=lambda i: (-len(rows[i]), i)))
        self.active = 0  # how many slots are taken: the first ones
        slots, longest = min(settings.batch_size, len(rows)), len(rows[self.waiting[0]])
        self.request = np.zeros(slots, np.int64)
        self.length = np.zeros(slots, np.int64)  # tokens in the cache
        self.generated = np.zeros(slots, np.int64)
        self.next = np.zeros(slots, np.int64)  # the token that goes into the model next
        self.output = np.zeros((slots, settings.max_new_tokens), np.int64)
        self.cache = SlotCache(slots, longest + settings.max_new_tokens)
        self.shared = common_prefix(rows)
        if self.shared:
            self._forward(slice(0, 1), rows[0][None, : self.shared], np.zeros(1, np.int64))
            self.cache.spread(self.shared)

    @property
    def unfinished(self) -> bool:
        """Whether a prompt has no completion yet."""
        return bool(self.active or self.waiting)

    def admit(self) -> None:
        """Give free slots to waiting prompts. All but the last token of a prompt go into the cache here; the last one
        goes the way of every generated token.
        """
        free = len(self.request) - self.active
        if not self.waiting or free < max(1, len(self.request) // FREE_SHARE):
            return
        chosen = [self.waiting.popleft() for _ in range(min(free, len(self.waiting)))]
        new = slice(self.active, self.active + len(chosen))
        lengths = np.array([len(self.rows[i]) - 1 for i in chosen])
        ids = np.zeros((len(chosen), int(lengths.max()) - self.shared), np.int64)
        for line, i in zip(ids, chosen, strict=True):
            line[: len(self.rows[i]) - 1 - self.shared] = self.rows[i][self.shared : -1]
        if ids.shape[1]:
            self._forward(new, ids, np.full(len(chosen), self.shared))
        self.request[new], self.length[new], self.generated[new] = chosen, lengths, 0
        self.next[new] = [self.rows[i][-1] for i in chosen]
        self.active = new.stop

    def step(self, stops: Tensor) -> list[tuple[int, list[int]]]:
        """One more token for every sequence; returns (request, token ids) of those that ended, which leave.

        stops: (vocabulary,) whether a token ends a completion.
        """
        now = slice(0, self.active)
        logits = self._forward(now, self.next[now, None], self.length[now], logits=True)
        self.length[now] += 1
        positions = self.generated[now]
        drawn = torch.from_numpy(positions)
        tokens = sample_tokens(logits, self.keys[self.request[now]], drawn, self.settings.temperature).cpu()
        self.next[now] = tokens.numpy()
        self.output[np.arange(self.active), positions] = self.next[now]
        self.generated[now] += 1
        ended = stops[tokens].numpy() | (self.generated[now] == self.settings.max_new_tokens)
        if not ended.any():
            return []
        left = [
            (int(self.request[slot]), self.output[slot, : self.generated[slot]].tolist()) for slot in ended.nonzero()[0]
        ]
        self._close_ranks(ended)
        return left

    def _close_ranks(self, ended: np.ndarray) -> None:
        """Move the last running sequences into the slots of those that ended."""
        active = self.active - int(ended.sum())
        target = ended[:active].nonzero()[0]
        source = active + (~ended[active:]).nonzero()[0]
        if len(source):
            device = self.model.device
            columns = int(self.length[source].max())
            self.cache.move(torch.from_numpy(source).to(device), torch.from_numpy(target).to(device), columns)
            for state in (self.request, self.length, self.generated, self.next, self.output):
                state[target] = state[source]
        self.active = active

    def _forward(self, slots: slice, ids: np.ndarray, start: np.ndarray, logits: bool = False) -> Tensor:
        """Put tokens through the model and into the cache.

        Args:
            ids: (slots, tokens), the first of each line at position `start` of its sequence, (slots,).
            logits: whether they are wanted.

        Returns: (slots, vocabulary) after the last token, or nothing of it.
        """
        device, count = self.model.device, ids.shape[1]
        positions = torch.from_numpy(start[:, None] + np.arange(count)).to(device)
        seen = int(start.max()) + count
        if count == 1:
            self.cache.aim(slots, positions[:, 0], seen)
        else:
            self.cache.aim(slots, slice(int(start[0]), seen), seen)
        output = self.model(
            input_ids=torch.from_numpy(ids.astype(np.int64)).to(device),
            attention_mask=masks(self.model.config, positions, seen, self.model.dtype),
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1 if logits else torch.zeros(0, dtype=torch.int64, device=device),
        )
        return output.logits[:, -1] if logits else output.logits
