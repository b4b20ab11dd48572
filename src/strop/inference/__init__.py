"""SAMPLE and SERVE: `local` is the engine, `gateway` captures what agents sample, `serving` answers."""
