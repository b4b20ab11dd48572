"""The flow, a file a stage: dataset -> rollout -> reward -> advantage -> batch -> update -> publish -> save.

Begin with `loop.py`: it alone knows that order. The machines below it (engine, gateway, workers, learner,
store) stand behind the Protocols of `ports.py`; nothing here imports torch, a web framework or a database.
"""
