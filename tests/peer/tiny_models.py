"""Writes tiny GGUF models with random weights and real tokenizers, so that tests need no download.

    PYTHONPATH=LLAMA_CPP_DIR/gguf-py python3 tiny_models.py LLAMA_CPP_DIR OUT_DIR

The tokenizers are those of the vocabulary files that llama.cpp ships (models/ggml-vocab-*.gguf). Weights
come from a fixed seed: the same script gives the same bytes.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYERS = 2
WIDTH = 64
FEED_FORWARD = 128
HEADS = 4
KEY_VALUE_HEADS = 2
CONTEXT = 2048
BERT_CONTEXT = 512
WINDOW = 48
# Of a state space layer.
STATE_WIDTH = 2 * WIDTH
STATE_SIZE = 16
STEP_RANK = 8
CONVOLUTION = 4
# Ordinary words of the llama vocabulary stand for "fill in the middle" tokens.
INFILL_TOKENS = {"pre": 31000, "suf": 31001, "mid": 31002}


@functools.cache
def read_tokenizer(vocabulary: Path) -> dict[str, tuple[gguf.GGUFValueType, Any]]:
    """Type and value of each tokenizer field of a GGUF file."""
    fields = gguf.GGUFReader(vocabulary).fields.items()
    return {
        key: (field.types[0], field.contents())
        for key, field in fields
        if key.startswith("tokenizer.")
    }


class TinyModel:
    """A GGUF file in the making."""

    def __init__(self, path: Path, architecture: str, vocabulary: Path) -> None:
        self._random = np.random.default_rng(1)
        self._path = path
        self.writer = gguf.GGUFWriter(path, architecture)
        self.vocabulary_size = self._copy_tokenizer(vocabulary)
        self.writer.add_vocab_size(self.vocabulary_size)
        self.writer.add_block_count(LAYERS)
        self.writer.add_embedding_length(WIDTH)
        self.writer.add_feed_forward_length(FEED_FORWARD)
        self.writer.add_head_count(HEADS)
        self.writer.add_file_type(gguf.LlamaFileType.ALL_F32)

    def _copy_tokenizer(self, vocabulary: Path) -> int:
        """The number of tokens."""
        fields = read_tokenizer(vocabulary)
        for key, (kind, value) in fields.items():
            if kind == gguf.GGUFValueType.ARRAY:
                self.writer.add_array(key, value)
            else:
                self.writer.add_key_value(key, value, kind)
        return len(fields["tokenizer.ggml.tokens"][1])

    def add_random(self, name: str, *shape: int, scale: float) -> None:
        weights = self._random.standard_normal(shape) * scale
        self.writer.add_tensor(name, weights.astype(np.float32))

    def add_ones(self, name: str, size: int = WIDTH) -> None:
        self.writer.add_tensor(name, np.ones(size, np.float32))

    def add_zeros(self, name: str, size: int) -> None:
        self.writer.add_tensor(name, np.zeros(size, np.float32))

    def add_affine(self, name: str, outputs: int, inputs: int, scale: float) -> None:
        self.add_random(f"{name}.weight", outputs, inputs, scale=scale)
        self.add_zeros(f"{name}.bias", outputs)

    def add_norm(self, name: str) -> None:
        self.add_ones(f"{name}.weight")
        self.add_zeros(f"{name}.bias", WIDTH)

    def write(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_llama(path: Path, vocabulary: Path, infill: bool = False) -> None:
    model = TinyModel(path, "llama", vocabulary)
    model.writer.add_context_length(CONTEXT)
    model.writer.add_head_count_kv(KEY_VALUE_HEADS)
    model.writer.add_layer_norm_rms_eps(1e-5)
    model.writer.add_rope_dimension_count(WIDTH // HEADS)
    if infill:
        for name, token in INFILL_TOKENS.items():
            model.writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", token)

    model.add_random("token_embd.weight", model.vocabulary_size, WIDTH, scale=1.0)
    model.add_random("output.weight", model.vocabulary_size, WIDTH, scale=0.3)
    model.add_ones("output_norm.weight")
    key_width = WIDTH // HEADS * KEY_VALUE_HEADS
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        model.add_ones(f"{block}.attn_norm.weight")
        model.add_ones(f"{block}.ffn_norm.weight")
        for name, outputs, inputs in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", key_width, WIDTH),
            ("attn_v", key_width, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", FEED_FORWARD, WIDTH),
            ("ffn_up", FEED_FORWARD, WIDTH),
            ("ffn_down", WIDTH, FEED_FORWARD),
        ):
            model.add_random(f"{block}.{name}.weight", outputs, inputs, scale=0.05)
    model.write()


def add_vocabulary(model: TinyModel, norm: str = "output_norm") -> None:
    """Small in, large out: what the layers add to a token decides what comes next."""
    model.add_random("token_embd.weight", model.vocabulary_size, WIDTH, scale=0.2)
    model.add_random("output.weight", model.vocabulary_size, WIDTH, scale=2.0)
    model.add_ones(f"{norm}.weight")


def add_attention(model: TinyModel, block: str) -> None:
    key_width = WIDTH // HEADS * KEY_VALUE_HEADS
    model.add_random(f"{block}.attn_q.weight", WIDTH, WIDTH, scale=0.5)
    model.add_random(f"{block}.attn_k.weight", key_width, WIDTH, scale=0.5)
    model.add_random(f"{block}.attn_v.weight", key_width, WIDTH, scale=0.5)
    model.add_random(f"{block}.attn_output.weight", WIDTH, WIDTH, scale=0.5)


def add_feed_forward(model: TinyModel, block: str) -> None:
    model.add_ones(f"{block}.ffn_norm.weight")
    model.add_random(f"{block}.ffn_gate.weight", FEED_FORWARD, WIDTH, scale=0.5)
    model.add_random(f"{block}.ffn_up.weight", FEED_FORWARD, WIDTH, scale=0.5)
    model.add_random(f"{block}.ffn_down.weight", WIDTH, FEED_FORWARD, scale=0.5)


def add_state_space(model: TinyModel, block: str) -> None:
    model.add_random(f"{block}.ssm_in.weight", 2 * STATE_WIDTH, WIDTH, scale=0.5)
    model.add_random(f"{block}.ssm_conv1d.weight", STATE_WIDTH, CONVOLUTION, scale=0.5)
    model.add_zeros(f"{block}.ssm_conv1d.bias", STATE_WIDTH)
    model.add_random(f"{block}.ssm_x.weight", STEP_RANK + 2 * STATE_SIZE, STATE_WIDTH, scale=0.5)
    model.add_random(f"{block}.ssm_dt.weight", STATE_WIDTH, STEP_RANK, scale=0.1)
    # Small steps that decay slowly: what was long ago still counts.
    model.writer.add_tensor(f"{block}.ssm_dt.bias", np.full(STATE_WIDTH, -3, np.float32))
    decay = np.tile(np.linspace(-0.02, -0.5, STATE_SIZE), (STATE_WIDTH, 1))
    model.writer.add_tensor(f"{block}.ssm_a", decay.astype(np.float32))
    model.add_ones(f"{block}.ssm_d", STATE_WIDTH)
    model.add_random(f"{block}.ssm_out.weight", WIDTH, STATE_WIDTH, scale=0.5)


def describe_state_space(model: TinyModel) -> None:
    model.writer.add_context_length(CONTEXT)
    model.writer.add_layer_norm_rms_eps(1e-5)
    model.writer.add_ssm_conv_kernel(CONVOLUTION)
    model.writer.add_ssm_inner_size(STATE_WIDTH)
    model.writer.add_ssm_state_size(STATE_SIZE)
    model.writer.add_ssm_time_step_rank(STEP_RANK)


def write_mamba(path: Path, vocabulary: Path) -> None:
    """Recurrent: one state per sequence and no cells."""
    model = TinyModel(path, "mamba", vocabulary)
    describe_state_space(model)
    add_vocabulary(model)
    for layer in range(LAYERS):
        model.add_ones(f"blk.{layer}.attn_norm.weight")
        add_state_space(model, f"blk.{layer}")
    model.write()


def write_jamba(path: Path, vocabulary: Path) -> None:
    """Hybrid: a layer with a state, then one with cells."""
    model = TinyModel(path, "jamba", vocabulary)
    describe_state_space(model)
    model.writer.add_head_count_kv([0, KEY_VALUE_HEADS])
    add_vocabulary(model)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        model.add_ones(f"{block}.attn_norm.weight")
        if layer == 0:
            add_state_space(model, block)
            model.add_ones(f"{block}.ssm_dt_norm.weight", STEP_RANK)
            model.add_ones(f"{block}.ssm_b_norm.weight", STATE_SIZE)
            model.add_ones(f"{block}.ssm_c_norm.weight", STATE_SIZE)
        else:
            add_attention(model, block)
        add_feed_forward(model, block)
    model.write()


def write_gemma3(path: Path, vocabulary: Path) -> None:
    """A layer with a sliding window, then one without."""
    model = TinyModel(path, "gemma3", vocabulary)
    model.writer.add_context_length(CONTEXT)
    model.writer.add_head_count_kv(KEY_VALUE_HEADS)
    model.writer.add_layer_norm_rms_eps(1e-5)
    model.writer.add_sliding_window(WINDOW)
    model.writer.add_sliding_window_pattern(2)
    add_vocabulary(model)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add_attention(model, block)
        add_feed_forward(model, block)
        for name in ("attn_norm", "post_attention_norm", "post_ffw_norm"):
            model.add_ones(f"{block}.{name}.weight")
        for name in ("attn_q_norm", "attn_k_norm"):
            model.add_ones(f"{block}.{name}.weight", WIDTH // HEADS)
    model.write()


def write_lfm2(path: Path, vocabulary: Path) -> None:
    """Hybrid, and of those whose states of the last tokens can be kept: the end can be taken back."""
    model = TinyModel(path, "lfm2", vocabulary)
    model.writer.add_context_length(CONTEXT)
    model.writer.add_layer_norm_rms_eps(1e-5)
    model.writer.add_head_count_kv([0, KEY_VALUE_HEADS])
    model.writer.add_shortconv_l_cache(CONVOLUTION)
    add_vocabulary(model, norm="token_embd_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        model.add_ones(f"{block}.attn_norm.weight")
        if layer == 0:
            for name, outputs, inputs in (
                ("conv", WIDTH, CONVOLUTION),
                ("in_proj", 3 * WIDTH, WIDTH),
                ("out_proj", WIDTH, WIDTH),
            ):
                model.add_random(f"{block}.shortconv.{name}.weight", outputs, inputs, scale=0.5)
        else:
            add_attention(model, block)
            for name in ("attn_q_norm", "attn_k_norm"):
                model.add_ones(f"{block}.{name}.weight", WIDTH // HEADS)
        add_feed_forward(model, block)
    model.write()


def write_bert(path: Path, vocabulary: Path, rerank: bool = False) -> None:
    pooling = gguf.PoolingType.RANK if rerank else gguf.PoolingType.CLS
    model = TinyModel(path, "bert", vocabulary)
    model.writer.add_context_length(BERT_CONTEXT)
    model.writer.add_layer_norm_eps(1e-12)
    model.writer.add_causal_attention(False)
    model.writer.add_pooling_type(pooling)

    model.add_random("token_embd.weight", model.vocabulary_size, WIDTH, scale=1.0)
    model.add_random("token_types.weight", 2, WIDTH, scale=0.05)
    model.add_random("position_embd.weight", BERT_CONTEXT, WIDTH, scale=0.05)
    model.add_norm("token_embd_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for name, outputs, inputs in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", WIDTH, WIDTH),
            ("attn_v", WIDTH, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_up", FEED_FORWARD, WIDTH),
            ("ffn_down", WIDTH, FEED_FORWARD),
        ):
            model.add_affine(f"{block}.{name}", outputs, inputs, scale=0.2)
        model.add_norm(f"{block}.attn_output_norm")
        model.add_norm(f"{block}.layer_output_norm")
    if rerank:
        model.add_affine("cls", WIDTH, WIDTH, scale=0.3)
        model.add_affine("cls.output", 1, WIDTH, scale=0.3)
    model.write()


def main() -> None:
    vocabularies, out = Path(sys.argv[1]) / "models", Path(sys.argv[2])
    llama_vocabulary = vocabularies / "ggml-vocab-llama-spm.gguf"
    bert_vocabulary = vocabularies / "ggml-vocab-bert-bge.gguf"
    out.mkdir(parents=True, exist_ok=True)
    write_llama(out / "tiny-llama.gguf", llama_vocabulary)
    write_llama(out / "tiny-infill.gguf", llama_vocabulary, infill=True)
    write_llama(out / "tiny-starcoder.gguf", vocabularies / "ggml-vocab-starcoder.gguf")
    write_mamba(out / "tiny-mamba.gguf", llama_vocabulary)
    write_jamba(out / "tiny-jamba.gguf", llama_vocabulary)
    write_gemma3(out / "tiny-gemma3.gguf", llama_vocabulary)
    write_lfm2(out / "tiny-lfm2.gguf", llama_vocabulary)
    write_bert(out / "tiny-bert.gguf", bert_vocabulary)
    write_bert(out / "tiny-rerank.gguf", bert_vocabulary, rerank=True)


if __name__ == "__main__":
    main()
