"""A picture of one decode: a self-contained page that shows which token was revealed in which pass."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from sbd.errors import UserError
from sbd.files import write_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from sbd.decoding import Generation

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1b1b; }}
h1 {{ font-size: 1.3rem; margin: 0 0 .25rem; }}
p.counts {{ margin: 0 0 1rem; color: #555; }}
#controls {{ position: sticky; top: 0; background: #fff; padding: .5rem 0; display: flex; gap: .75rem;
  align-items: center; }}
#controls input {{ flex: 1; }}
#controls output {{ min-width: 13rem; font-variant-numeric: tabular-nums; }}
.text {{ font: 15px/2.1 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }}
.prompt {{ color: #777; }}
.token {{ padding: .15rem .1rem; border-radius: .2rem; cursor: default; }}
.token.start {{ border-left: 3px solid #1b1b1b; margin-left: .15rem; padding-left: .2rem; }}
.token.hidden {{ background: #e9e9e9 !important; color: transparent; }}
.token.now {{ outline: 2px solid #1b1b1b; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="counts">{counts}</p>
<div id="controls">
<button id="play" type="button">Play</button>
<input id="pass" type="range" min="0" max="{passes}" value="{passes}" aria-label="pass">
<output id="shown"></output>
</div>
<div class="text"><span class="prompt">{prompt}</span>{tokens}</div>
<p class="counts">Colour runs from the first pass (blue) to the last (yellow).{block_note}
Point at a token for its pass{entropy_note}.</p>
<script>
const slider = document.getElementById("pass"), shown = document.getElementById("shown");
const tokens = [...document.querySelectorAll(".token")];
function draw() {{
  const pass = Number(slider.value);
  let known = 0;
  for (const token of tokens) {{
    const at = Number(token.dataset.pass);
    token.classList.toggle("hidden", at > pass);
    token.classList.toggle("now", at === pass && pass < Number(slider.max));
    known += at <= pass;
  }}
  shown.textContent = `pass ${{pass}} of ${{slider.max}}: ${{known}} of ${{tokens.length}} tokens`;
}}
slider.addEventListener("input", draw);
let timer = null;
document.getElementById("play").addEventListener("click", () => {{
  clearInterval(timer);
  slider.value = 0;
  draw();
  timer = setInterval(() => {{
    slider.value = Number(slider.value) + 1;
    draw();
    if (slider.value === slider.max) clearInterval(timer);
  }}, 400);
}});
draw();
</script>
</body>
</html>
"""


def trace_page(
    generation: Generation,
    tokenizer: PreTrainedTokenizerBase,
    row: int = 0,
    prompt: str = "",
    title: str = "Decoding, pass by pass",
) -> str:
    """The page as a string; see ``write_trace``."""
    if not 0 <= row < len(generation.tokens):
        raise UserError(f"row {row} is not in this generation, which has rows 0 to {len(generation.tokens) - 1}")
    tokens, at = generation.tokens[row], generation.revealed_at[row]
    passes, starts = generation.forward_passes[row], set(generation.block_starts[row])
    entropies = generation.entropies[row] if generation.entropies is not None else None
    spans = []
    for number, (token, revealed) in enumerate(zip(tokens, at, strict=True)):
        tip = f"token {number + 1}, id {token}, revealed in pass {revealed}"
        if entropies is not None:
            tip += f", entropy {entropies[number]:.3f} nats"
        text = html.escape(str(tokenizer.decode([token]))).replace("\n", "\u21b5\n") or "\u2205"
        start = " start" if number in starts else ""
        spans.append(
            f'<span class="token{start}" data-pass="{revealed}" title="{tip}" '
            f'style="background:{_colour(revealed, passes)}">{text}</span>'
        )
    together = len(tokens) / passes
    counts = f"{len(tokens)} tokens in {passes} forward passes: {together:.2f} tokens per forward pass"
    if generation.prefill_passes[row]:
        counts += f" (prefill apart: {generation.prefill_passes[row]})"
    return _PAGE.format(
        title=html.escape(title),
        counts=f"{counts}. Ended by {generation.finish_reasons[row]}.",
        passes=passes,
        prompt=html.escape(prompt),
        tokens="".join(spans),
        block_note=" A bar on the left marks the start of a block." if starts else "",
        entropy_note=" and its entropy" if entropies is not None else "",
    )


def write_trace(
    path: str | Path,
    generation: Generation,
    tokenizer: PreTrainedTokenizerBase,
    row: int = 0,
    prompt: str = "",
    title: str = "Decoding, pass by pass",
) -> None:
    """Write a page that opens without a network: colour by pass, entropy on hover, blocks marked, a slider over passes.

    ``generation`` comes from ``sbd.generate(..., record_entropy=True)``; without recorded entropies the page lacks only
    them. ``prompt`` is shown in front of the new tokens.
    """
    write_text(path, trace_page(generation, tokenizer, row, prompt, title))


def _colour(revealed: int, passes: int) -> str:
    """A light colour from blue (first pass) over green to yellow (last), dark text readable on all of them."""
    share = 0.0 if passes <= 1 else (revealed - 1) / (passes - 1)
    return f"hsl({220 - 165 * share:.0f} 75% 84%)"
