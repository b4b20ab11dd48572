"""OpenAI's wire: calls to deployed models."""
