"""SAMPLE and SERVE: `local` is the engine, `chat` the path of a call, captured or served."""
