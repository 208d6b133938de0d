import re
from html.parser import HTMLParser

import pytest

from sbd.decoding import Autoregressive, SetBlock, generate
from sbd.errors import UserError
from sbd.samplers import EntropyBound
from sbd.trace import write_trace
from tests.decoding.helpers import prompts, tiny_model


class Letters:
    """Token 7 looks like markup, token 8 is a line break."""

    def decode(self, tokens):
        return "".join({7: "<b>&", 8: "\n"}.get(token, f"w{token} ") for token in tokens)


class Spans(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tokens, self.inside, self.tags = [], False, set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        attributes = dict(attrs)
        self.inside = "token" in (attributes.get("class") or "").split()
        if self.inside:
            self.tokens.append([attributes, ""])

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.tokens[-1][1] += data


def read(path):
    parser = Spans()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


def test_page_shows_every_token_with_its_pass_block_and_entropy(tmp_path):
    out = generate(
        tiny_model(), prompts([5, 7]), SetBlock(4, EntropyBound(0.8)), max_new_tokens=30, record_entropy=True
    )
    assert out.entropies is not None
    write_trace(tmp_path / "a.html", out, Letters(), row=1, prompt="<prompt>", title="a & b")  # type: ignore[arg-type]
    page = read(tmp_path / "a.html")
    assert [int(a["data-pass"]) for a, _ in page.tokens] == out.revealed_at[1]
    assert [text.replace("\u21b5", "") for _, text in page.tokens] == [Letters().decode([t]) for t in out.tokens[1]]
    assert [i for i, (a, _) in enumerate(page.tokens) if "start" in a["class"].split()] == out.block_starts[1]
    for (attributes, _), entropy in zip(page.tokens, out.entropies[1], strict=True):
        assert f"entropy {entropy:.3f} nats" in attributes["title"]
    assert "b" not in page.tags
    source = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "&lt;prompt&gt;" in source
    assert f"30 tokens in {out.forward_passes[1]} forward passes" in source
    assert f'max="{out.forward_passes[1]}"' in source
    assert "marks the start of a block" in source
    assert not re.search(r"https?://|src=|href=|@import", source)  # opens without a network


def test_page_without_blocks_and_entropies(tmp_path):
    out = generate(tiny_model(), prompts([5]), Autoregressive(), max_new_tokens=1)
    write_trace(tmp_path / "a.html", out, Letters())  # type: ignore[arg-type]
    page = read(tmp_path / "a.html")
    assert len(page.tokens) == 1
    assert "entropy" not in page.tokens[0][0]["title"]
    assert "start of a block" not in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_row_that_is_not_there(tmp_path):
    out = generate(tiny_model(), prompts([5]), Autoregressive(), max_new_tokens=1)
    with pytest.raises(UserError, match="row 1"):
        write_trace(tmp_path / "a.html", out, Letters(), row=1)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
