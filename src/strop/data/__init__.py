"""Rows and files -> samples and examples, every bad row reported before any work."""
