"""LEARN (torch): batches -> new weights. `local` trains on one machine; `losses` are functions of tensors."""
