"""SAMPLE and SERVE: `local` is the engine, `chat` the path of a call; `gateway` captures, `serving` answers."""
