#!/usr/bin/env python3
"""The corpora of the fuzz targets that load whole models: small ones in every layout, packed as the targets read them, and
some that are damaged.

usage: tools/fuzz_models.py BRAID
"""
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus"
HYBRID = {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "vocab_size": 16, "hidden_size": 32,
          "layers_block_type": ["mamba", "moe", "attention"], "num_hidden_layers": 3, "expand": 2, "mamba_num_heads": 4,
          "mamba_head_dim": 8, "n_groups": 1, "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 16, "use_conv_bias": True,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 32, "n_routed_experts": 2,
          "num_experts_per_tok": 1, "n_shared_experts": 1, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32,
          "n_group": 1, "topk_group": 1, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": False}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16, "hidden_size": 32, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": True}


def packed(config, weights):
    return struct.pack("<I", len(config)) + config + weights


def damaged(config, weights):
    """By what is wrong."""
    size, = struct.unpack("<Q", weights[:8])
    header = json.loads(weights[8:8 + size])
    name = "backbone.layers.0.mixer.in_proj.weight"

    def with_header(change):
        made = json.loads(json.dumps(header))
        change(made)
        text = json.dumps(made).encode()
        return packed(config, struct.pack("<Q", len(text)) + text + weights[8 + size:])

    begin = 8 + size + header[name + "_scale_2"]["data_offsets"][0]
    return {"turned_scales": with_header(lambda h: h[name + "_scale"]["shape"].reverse()),
            "no_scale": with_header(lambda h: h[name + "_scale_2"].update(shape=[2, 0], data_offsets=[0, 0])),
            "nan_scale": packed(config, weights[:begin] + struct.pack("<f", float("nan")) + weights[begin + 4:]),
            "cut": packed(config, weights)[:-100],
            "more_experts": packed(config.replace(b'"n_routed_experts": 2', b'"n_routed_experts": 3'), weights),
            "wide": packed(config.replace(b'"hidden_size": 32', b'"hidden_size": 64'), weights)}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    run = lambda *words: subprocess.run([sys.argv[1], *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    folders, files = CORPUS / "coded_folder_fuzz", CORPUS / "gguf_model_fuzz"
    for corpus in (folders, files):
        shutil.rmtree(corpus, ignore_errors=True)
        corpus.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        for name, config in (("hybrid", HYBRID), ("llama", LLAMA)):
            (place / f"{name}.json").write_text(json.dumps(config))
            run("new", place / f"{name}.json", place / name)
            tables = lambda form: ("--format", form, "--embedding-format", form, *(["--head-format", form] if name == "hybrid" else []))
            for form in ("nvfp4", "fp8", "int4") if name == "hybrid" else ("mxfp4", "int8"):
                run("quantize", place / name, place / f"{name}-{form}", *tables(form))
                folder = place / f"{name}-{form}"
                text = (folder / "config.json").read_bytes()
                weights = (folder / "model.safetensors").read_bytes()
                (folders / f"{name}_{form}").write_bytes(packed(text, weights))
                if (name, form) == ("hybrid", "nvfp4"):
                    for what, data in damaged(text, weights).items():
                        (folders / f"{form}_{what}").write_bytes(data)
            for form in ("q8_0", "nvfp4") if name == "hybrid" else ("q4_0", "mxfp4"):
                run("convert", place / name, place / f"{form}.gguf", "--type", form)
                data = (place / f"{form}.gguf").read_bytes()
                (place / f"{form}.gguf").unlink()
                (files / f"{name}_{form}").write_bytes(data)
                if (name, form) == ("llama", "q4_0"):
                    (files / "cut").write_bytes(data[:-1000])
                    (files / "wide").write_bytes(data.replace(struct.pack("<I", 32), struct.pack("<I", 64), 1))


if __name__ == "__main__":
    main()
