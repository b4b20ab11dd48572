"""Logprobs, advantages, masks -> one scalar to minimise: pure functions of tensors in any float dtype."""
