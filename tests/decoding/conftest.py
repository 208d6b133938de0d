"""The model of the tests of decoding, in place of the one with a tokenizer."""

import pytest

from tests.decoding.helpers import tiny_model


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request):
    """A random float32 model of each architecture; a test that changes its weights puts them back."""
    return tiny_model(request.param)
