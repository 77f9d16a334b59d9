"""LoRA adapters of random weights for a model, written on the spot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

RANK = 4


def write(llama_source: Path, model: Path, path: Path, seed: int, strength: float) -> Path:
    """Writes an adapter of every attention output of `model` and returns its path.

    `strength` is the standard deviation of what it adds to a weight at scale 1.
    """
    sys.path.insert(0, str(llama_source / "gguf-py"))
    import gguf

    reader = gguf.GGUFReader(model)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(RANK))
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Any:
        deviation = np.sqrt(strength / np.sqrt(RANK))
        return (random.standard_normal((rows, columns)) * deviation).astype(np.float32)

    for tensor in reader.tensors:
        if not tensor.name.endswith("attn_output.weight"):
            continue
        n_in, n_out = (int(size) for size in tensor.shape)
        writer.add_tensor(f"{tensor.name}.lora_a", matrix(RANK, n_in))
        writer.add_tensor(f"{tensor.name}.lora_b", matrix(n_out, RANK))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
