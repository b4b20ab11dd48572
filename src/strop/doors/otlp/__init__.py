"""OTLP/HTTP: the receiver of spans."""
