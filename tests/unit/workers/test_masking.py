"""Secrets leave no text."""

from strop.workers.masking import Mask


def test_known_values_are_masked_the_longest_first() -> None:
    mask = Mask(["secret-123", "secret-123-long"])
    assert mask("a secret-123-long b secret-123 c") == "a *** b *** c"


def test_short_values_are_left_alone() -> None:
    assert Mask(["true", "8000"])("true on port 8000") == "true on port 8000"


def test_a_key_is_hidden_while_any_call_has_it() -> None:
    mask = Mask([])
    with mask.hiding("key-of-a-call"):
        with mask.hiding("key-of-a-call"):
            assert mask("key-of-a-call") == "***"
        assert mask("key-of-a-call") == "***"
    assert mask("key-of-a-call") == "key-of-a-call"


def test_a_value_of_the_environment_stays_hidden_when_a_call_had_it_too() -> None:
    mask = Mask(["shared-secret"])
    with mask.hiding("shared-secret"):
        pass
    assert mask("shared-secret") == "***"
