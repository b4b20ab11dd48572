"""LEARN: batches -> new weights. Torch lives here and in `engine`.

Begin with `update.py`, the learner; it packs (`trees`), runs the model (`forward`, `llama`,
`tree_attention`, `logprobs`), takes the loss (`loss`) and steps (`optimizer`, `schedule`). `checkpoint` makes
folders that are whole or absent; `models` finds and loads weights by name.
"""
