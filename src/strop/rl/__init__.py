"""The flow, a file a stage: dataset -> rollout -> reward -> advantage -> batch -> update -> publish -> save.

Begin with `producer.py` and `loop.py`: they alone know that order. The backends below (engine, gateway,
workers, trainer, store) stand behind the Protocols of `interfaces.py`; nothing here imports torch, a web
framework or a database.
"""
