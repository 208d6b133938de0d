"""The layers of Llama and Qwen3 written out over the weights of the Hugging Face model, without the cost of modules.

At a million parameters a pass of `transformers` spends about half of its time on module calls, mask preparation and
copies of the cache for grouped heads. Nothing here is new arithmetic: the weights are read from the model at every
pass, rotary angles come from its own module, and the tests compare the hidden states. Other architectures go through
their own forward.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3ForCausalLM

from sbd.cache import SlotCache, SlotLayer
from sbd.decoding import flash
from sbd.decoding.attend import Attend, Heads, Ragged, attention

_FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")


def is_supported(model: PreTrainedModel) -> bool:
    """Whether the model is what ``DirectForward`` writes out: no subclass, adapter, hook or sliding window.

    Its linear layers must be those of torch: quantised ones, of transformers too, hold weights that need their scales.
    """
    if type(model) not in (LlamaForCausalLM, Qwen3ForCausalLM):
        return False
    config, inner = model.config, model.model
    linear = [model.lm_head]
    for layer in inner.layers:
        linear += [getattr(layer.self_attn, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
        linear += [getattr(layer.mlp, name) for name in ("gate_proj", "up_proj", "down_proj")]
    if type(inner.embed_tokens) is not torch.nn.Embedding or any(type(part) is not torch.nn.Linear for part in linear):
        return False
    full = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or [])
    plain = all(
        type(module).__module__.startswith(("torch.nn.", "transformers."))
        and "forward" not in vars(module)
        and not module._forward_hooks
        and not module._forward_pre_hooks
        for module in model.modules()
    )
    rotation = (config.rope_parameters or {}).get("rope_type", "default")
    return full and plain and rotation in _FIXED_ROTATIONS and config.hidden_act == "silu"


class DirectForward:
    """Hidden states of one pass; built for one cache, whose capacity gives the table of rotary angles."""

    def __init__(self, model: PreTrainedModel, cache: SlotCache):
        config: Any = model.config
        inner: Any = model.model
        self.inner, self.cache = inner, cache
        heads = config.num_attention_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.heads = Heads(heads, config.num_key_value_heads, self.head_dim)
        self.eps = config.rms_norm_eps
        self.flash = flash.fits(model, self.head_dim)
        weight = inner.embed_tokens.weight
        positions = torch.arange(cache.capacity, device=weight.device)[None]
        cosine, sine = inner.rotary_emb(weight[:1, :1], positions)
        half = self.head_dim // 2
        # rotate_half(x) * sine = swapped halves of x * sine with its first half negated: one operation less per layer.
        self.cosine = cosine[0]
        self.sine = torch.cat((-sine[0, :, :half], sine[0, :, half:]), -1)

    def __call__(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, causal: int = 0, lengths: Tensor | None = None
    ) -> Tensor:
        """Tokens and positions [batch, query] -> hidden states [batch, query, hidden], after the last norm.

        causal: how many queries, the first ones, are a prompt from slot 0 on. mask: additive, [batch, 1, query or 1,
        view], of the others; None attends to the whole view, or, with flash-attn, to the first ``lengths`` [batch]
        slots.
        """
        if self.flash and mask is None:
            return self._layers(tokens, positions, lambda q, k, v: flash.attend(q, k, v, causal > 0, lengths))
        return self._layers(
            tokens, positions, attention(self.heads, mask, causal, tokens.shape[1], self.inner.embed_tokens.weight)
        )

    def line(self, tokens: Tensor, positions: Tensor, mask: Tensor, ragged: Ragged) -> Tensor:
        """The same of rows of different width: tokens and positions [queries] -> hidden states [queries, hidden].

        mask: additive, of the groups in which they attend.
        """
        return self._layers(tokens[None], positions[None], ragged.attention(mask))[0]

    def _layers(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        inner = self.inner
        cosine = F.embedding(positions, self.cosine)[:, :, None]
        sine = F.embedding(positions, self.sine)[:, :, None]
        x = F.embedding(tokens, inner.embed_tokens.weight)
        for number, layer in enumerate(inner.layers):
            h = self._norm(x, layer.input_layernorm)
            x = x + self._attention(h, layer.self_attn, self.cache.slot_layers[number], cosine, sine, attend)
            h, mlp = self._norm(x, layer.post_attention_layernorm), layer.mlp
            gate = F.silu(_linear(h, mlp.gate_proj), inplace=True)
            x = x + _linear(gate.mul_(_linear(h, mlp.up_proj)), mlp.down_proj)
        return self._norm(x, inner.norm)

    def _norm(self, x: Tensor, norm: Any) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], norm.weight, self.eps)

    def _attention(
        self,
        h: Tensor,
        attention: Any,
        layer: SlotLayer,
        cosine: Tensor,
        sine: Tensor,
        attend: Attend,
    ) -> Tensor:
        shape = (*h.shape[:-1], -1, self.head_dim)
        queries, keys = _linear(h, attention.q_proj).view(shape), _linear(h, attention.k_proj).view(shape)
        if hasattr(attention, "q_norm"):
            queries, keys = self._norm(queries, attention.q_norm), self._norm(keys, attention.k_norm)
        both = torch.cat((queries, keys), 2)
        half = self.head_dim // 2
        swapped = torch.cat((both[..., half:], both[..., :half]), -1)
        both = torch.addcmul(both * cosine, swapped, sine)
        queries, keys = both[:, :, : self.heads.queries], both[:, :, self.heads.queries :]
        keys, values = layer.store(keys, _linear(h, attention.v_proj))
        return _linear(attend(queries, keys, values).flatten(2), attention.o_proj)


def _linear(x: Tensor, module: torch.nn.Linear) -> Tensor:
    return F.linear(x, module.weight, module.bias)
