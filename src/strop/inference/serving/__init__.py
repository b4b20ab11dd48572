"""A model -> an OpenAI address that answers: what `strop serve` runs, one model a process.

Shares with `gateway` how requests are read, prompts rendered and answers written; captures nothing.
"""
