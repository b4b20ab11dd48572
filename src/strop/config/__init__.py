"""THE JOB: one schema; loading, checking, aliases, describing."""
