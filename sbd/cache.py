"""A preallocated, exact key-value cache with a length per row.

Slot j of a row holds the key and value of the token at position j of that row (prompts start at slot 0, padding is not
stored). A pass writes its keys and values at the slots it is told and reads the first ``view`` slots. What lies behind
a row's committed length is scratch: the next pass overwrites it. So keys and values of positions that were still masked
are dropped by not counting them, and nothing is ever allocated or moved while decoding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, [batch, capacity, kv_heads, head_dim]: the heads of a token lie side by side."""

    def __init__(self, owner: SlotCache, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device):
        super().__init__()
        self.owner = owner
        # Zeros, not empty memory: a hidden slot has weight 0, and 0 times a stray NaN would still be NaN.
        self.stored_keys = torch.zeros(shape, dtype=dtype, device=device)
        self.stored_values = torch.zeros(shape, dtype=dtype, device=device)
        self.keys, self.values = self.stored_keys, self.stored_values
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the memory is there from the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Store [batch, kv_heads, query, head_dim] at the slots of this pass; returns the first ``view`` slots."""
        keys, values = self.store(key_states.transpose(1, 2), value_states.transpose(1, 2))
        return keys.transpose(1, 2), values.transpose(1, 2)

    def store(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store [batch, query, kv_heads, head_dim]; returns the first ``view`` slots, laid out the same way."""
        view, slots = self.owner.view, self.owner.flat_slots
        for buffer, states in ((self.stored_keys, keys), (self.stored_values, values)):
            buffer.flatten(2).flatten(0, 1).index_copy_(0, slots, states.reshape(slots.shape[0], -1))
        rows = self.owner.rows
        return self.stored_keys[:rows, :view], self.stored_values[:rows, :view]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that ``update`` returns."""
        return self.owner.view, 0

    def get_seq_length(self) -> int:
        """Slots in view before this pass, for masks that transformers builds itself."""
        return self.owner.view - self.owner.queries

    def get_max_length(self) -> int:
        """Capacity in tokens."""
        return self.owner.capacity


class SlotCache(Cache):
    """The cache of all layers. ``place`` says before each pass where it writes and how much it reads."""

    def __init__(
        self, config: PreTrainedConfig, batch: int, capacity: int, dtype: torch.dtype, device: torch.device | str
    ):
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.capacity = capacity
        self.view = 0
        self.queries = 0
        self.rows = batch
        device = torch.device(device)
        self._row_starts = torch.arange(batch, device=device)[:, None] * capacity
        self.flat_slots = torch.zeros(0, dtype=torch.long, device=device)
        self.slot_layers = [
            SlotLayer(self, (batch, capacity, heads, width), dtype, device) for _ in range(config.num_hidden_layers)
        ]
        super().__init__(layers=list(self.slot_layers))

    def place(self, slots: Tensor, view: int) -> None:
        """Let the next pass write its queries at ``slots`` [rows, query] and attend to the first ``view`` slots.

        The pass may be one of the first rows only.
        """
        self.rows, self.queries = slots.shape
        self.flat_slots, self.view = (self._row_starts[: self.rows] + slots).flatten(), view

    def place_line(self, places: Tensor, rows: int, view: int) -> None:
        """The same for queries in one line, at ``places`` [queries] counted over the slots of all rows."""
        self.rows, self.flat_slots, self.view, self.queries = rows, places, view, len(places)

    def move(self, row: int, to: int) -> None:
        """Copy the slots in view of a row to the place ``to`` of another one, which is done."""
        for layer in self.slot_layers:
            for stored in (layer.stored_keys, layer.stored_values):
                stored[to, : self.view].copy_(stored[row, : self.view])

    def committed(self, layer: int, row: int, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values [kv_heads, length, head_dim] of the first ``length`` tokens of a row."""
        of = self.slot_layers[layer]
        return of.stored_keys[row, :length].transpose(0, 1), of.stored_values[row, :length].transpose(0, 1)
