"""What a run that learns from rows refuses before it begins, in both languages."""

from types import SimpleNamespace

import pytest

from strop.cli.offline_session import refuse_too_long
from strop.errors import ModelError, told_of
from strop.locales import rendered


def test_a_model_that_is_made_for_shorter_texts_is_refused_in_both_languages():
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=64))
    refuse_too_long(model, 64)
    with pytest.raises(ModelError) as refused:
        refuse_too_long(model, 65)
    assert rendered(told_of(refused.value), "zh") == (
        "max_length 65 超出模型支持的 64 个位置\n  修正：把 max_length 设为不超过 64"
    )
