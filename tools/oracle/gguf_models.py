#!/usr/bin/env python3
"""Writes tests/data/gguf: model folders with random weights and a tokenizer, and model.gguf, converted from each by
llama.cpp's own converter.

    gguf_models.py LLAMA_CPP OUT [NAME...]

LLAMA_CPP is a checkout of llama.cpp. Needs what its converter needs (torch, transformers), and safetensors. Parts
of the converter are replaced: it identifies a tokenizer by a hash of its ids for a text, so a tokenizer trained here
has to be named; it reads configs through transformers, which does not know `deci` and adds defaults to
`nemotron_h`; and its `llama` and `deci` try readers of other kinds of vocabularies first.
"""
import json
import os
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, pre_tokenizers, normalizers

import tokenizer_golden as make

TEMPLATE = ("{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
            "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
            "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{%- endif %}{%- endif %}")
ONE_DIGIT = make.DIGITS_BY_THREE.replace(r"\p{N}{1,3}", r"\p{N}")
LATE = [AddedToken("<|im_start|>", special=True, normalized=False), AddedToken("<|im_end|>", special=True, normalized=False),
        AddedToken("<think>", special=False, normalized=False), AddedToken("</think>", special=False, normalized=False)]
VOCABULARY, ROWS = 490, 512
COMMON = {"vocab_size": ROWS, "hidden_size": 48, "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def block(attention, ffn):
    group = attention if isinstance(attention, int) else None
    return {"attention": {"n_heads_in_group": group, "no_op": attention is None,
                          "replace_with_linear": attention == "linear"},
            "ffn": {"ffn_mult": ffn, "no_op": ffn is None, "replace_with_linear": False}}


MODELS = {
    # Biases, a tied head, and RoPE whose frequencies are stored as a tensor.
    "llama": dict(COMMON, **ATTENTION, architectures=["LlamaForCausalLM"], model_type="llama", num_hidden_layers=2,
                  intermediate_size=80, attention_bias=True, tie_word_embeddings=True, rope_theta=500000.0,
                  rope_scaling=LLAMA3),
    # Attention of two widths, a linear map in its place, none; no feed-forward, and neither.
    "deci": dict(COMMON, architectures=["DeciLMForCausalLM"], model_type="nemotron-nas", hidden_size=32,
                 num_attention_heads=4, num_hidden_layers=5, hidden_act="silu", tie_word_embeddings=False,
                 rope_theta=500000.0, rope_scaling=LLAMA3,
                 block_configs=[block(2, 1.0), block(None, 0.5), block("linear", None), block(None, None), block(4, 0.5)]),
    "qwen3moe": dict(COMMON, **ATTENTION, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe",
                     num_hidden_layers=2, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
                     intermediate_size=64, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                     tie_word_embeddings=False, rope_theta=1000000.0),
    # Every kind of layer; the converter reads this spelling of the config only.
    "nemotron_h_moe": dict(COMMON, architectures=["NemotronHForCausalLM"], model_type="nemotron_h",
                           hybrid_override_pattern="MEM*E", num_hidden_layers=5, num_attention_heads=4,
                           num_key_value_heads=2, attention_head_dim=16, intermediate_size=80, mamba_num_heads=4,
                           mamba_head_dim=32, ssm_state_size=32, mamba_n_groups=2, mamba_d_conv=4, mamba_expand=2,
                           mamba_chunk_size=64, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
                           n_shared_experts=1, moe_shared_expert_intermediate_size=40, routed_scaling_factor=2.5,
                           norm_topk_prob=True, n_group=1, topk_group=1, layer_norm_epsilon=1e-5, norm_eps=1e-5,
                           tie_word_embeddings=False, pad_token_id=0),
}
TOKENIZERS = {
    "llama": ("llama-bpe", lambda: make.byte_level(make.split_by(make.DIGITS_BY_THREE), bos="<s>", ignore_merges=True,
                                                   late=LATE)),
    "deci": ("gpt-2", lambda: make.byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), late=LATE)),
    "nemotron_h_moe": ("pixtral", lambda: make.byte_level(make.split_by(make.CASE_AWARE), ignore_merges=True, late=LATE)),
    "qwen3moe": ("qwen2", lambda: make.byte_level(make.split_by(ONE_DIGIT), normalizer=normalizers.NFC(), late=LATE)),
}


def hybrid_shapes(c):
    h, heads, dim, width = c["hidden_size"], c["num_attention_heads"], c["attention_head_dim"], c["moe_intermediate_size"]
    m, inner = c["mamba_num_heads"], c["mamba_num_heads"] * c["mamba_head_dim"]
    conv = inner + 2 * c["mamba_n_groups"] * c["ssm_state_size"]
    yield "backbone.embeddings.weight", (ROWS, h)
    yield "backbone.norm_f.weight", (h,)
    yield "lm_head.weight", (ROWS, h)
    kinds = {
        "M": {"in_proj.weight": (inner + conv + m, h), "conv1d.weight": (conv, 1, c["mamba_d_conv"]),
              "conv1d.bias": (conv,), "A_log": (m,), "D": (m,), "dt_bias": (m,), "norm.weight": (inner,),
              "out_proj.weight": (h, inner)},
        "*": {"q_proj.weight": (heads * dim, h), "k_proj.weight": (c["num_key_value_heads"] * dim, h),
              "v_proj.weight": (c["num_key_value_heads"] * dim, h), "o_proj.weight": (h, heads * dim)},
        "E": {"gate.weight": (c["n_routed_experts"], h), "gate.e_score_correction_bias": (c["n_routed_experts"],),
              "shared_experts.up_proj.weight": (c["moe_shared_expert_intermediate_size"], h),
              "shared_experts.down_proj.weight": (h, c["moe_shared_expert_intermediate_size"])}}
    for e in range(c["n_routed_experts"]):
        kinds["E"] |= {f"experts.{e}.up_proj.weight": (width, h), f"experts.{e}.down_proj.weight": (h, width)}
    for i, letter in enumerate(c["hybrid_override_pattern"]):
        yield f"backbone.layers.{i}.norm.weight", (h,)
        for name, shape in kinds[letter].items():
            yield f"backbone.layers.{i}.mixer.{name}", shape


def shapes(c):
    """Every tensor of a model."""
    if "hybrid_override_pattern" in c:
        yield from hybrid_shapes(c)
        return
    h, heads = c["hidden_size"], c["num_attention_heads"]
    dim = c.get("head_dim") or h // heads
    yield "model.embed_tokens.weight", (ROWS, h)
    yield "model.norm.weight", (h,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (ROWS, h)
    for i in range(c["num_hidden_layers"]):
        at, blocks = f"model.layers.{i}.", c.get("block_configs")
        attention = blocks[i]["attention"] if blocks else {"n_heads_in_group": heads // c["num_key_value_heads"]}
        mult = blocks[i]["ffn"]["ffn_mult"] if blocks else 0
        if attention.get("replace_with_linear"):
            yield at + "self_attn.linear_attn.weight", (h, h)
        elif attention["n_heads_in_group"]:
            rows = {"q": heads * dim, "k": heads // attention["n_heads_in_group"] * dim, "o": h}
            rows["v"] = rows["k"]
            for name, n in rows.items():
                yield at + f"self_attn.{name}_proj.weight", (n, heads * dim if name == "o" else h)
                if c.get("attention_bias"):
                    yield at + f"self_attn.{name}_proj.bias", (n,)
            if c["model_type"].startswith("qwen3"):
                yield at + "self_attn.q_norm.weight", (dim,)
                yield at + "self_attn.k_norm.weight", (dim,)
        if not attention.get("no_op"):
            yield at + "input_layernorm.weight", (h,)
        if mult is None:
            continue
        yield at + "post_attention_layernorm.weight", (h,)
        width = -(-int(2 * mult * h / 3) // 256) * 256 if blocks else c["intermediate_size"]
        prefixes = [at + "mlp."]
        if "num_experts" in c:
            yield at + "mlp.gate.weight", (c["num_experts"], h)
            prefixes, width = [at + f"mlp.experts.{e}." for e in range(c["num_experts"])], c["moe_intermediate_size"]
        for prefix in prefixes:
            yield prefix + "gate_proj.weight", (width, h)
            yield prefix + "up_proj.weight", (width, h)
            yield prefix + "down_proj.weight", (h, width)


def draw(name, shape):
    values = torch.randn(shape)
    if name.endswith(("A_log", "dt_bias")):
        return values - (2 if name.endswith("dt_bias") else 0)
    if "norm" in name:
        return 1 + 0.1 * values
    return values * (0.3 if len(shape) == 1 or "embed" in name else 1.5 / shape[-1] ** 0.5)


def write_folder(name, folder):
    torch.manual_seed(sorted(MODELS).index(name))
    os.makedirs(folder, exist_ok=True)
    config = MODELS[name]
    weights = {n: draw(n, s).to(torch.bfloat16) for n, s in shapes(config)}
    save_file(weights, f"{folder}/model.safetensors", {"format": "pt"})
    make.VOCABULARY = VOCABULARY
    tokenizer = TOKENIZERS[name][1]()
    tokenizer.save(f"{folder}/tokenizer.json", pretty=False)
    bos = {"bos_token": "<s>", "eos_token": "</s>"} if tokenizer.token_to_id("<s>") is not None else {}
    ends = [i for i in map(tokenizer.token_to_id, ["</s>", "<|im_end|>"]) if i is not None]
    config = dict(config, eos_token_id=ends[0], bos_token_id=1 if bos else None)
    for file, value in {"config.json": config, "generation_config.json": {"eos_token_id": ends},
                        "tokenizer_config.json": dict(bos, tokenizer_class="PreTrainedTokenizerFast",
                                                      chat_template=TEMPLATE)}.items():
        pathlib.Path(f"{folder}/{file}").write_text(json.dumps(value, indent=1) + "\n")


def convert(llama_cpp, folder, pre):
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import convert_hf_to_gguf
    import transformers
    from conversion import base, deci, llama
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    transformers.AutoTokenizer.from_pretrained = transformers.PreTrainedTokenizerFast.from_pretrained
    base.ModelBase.load_hparams = staticmethod(lambda path, *_, **__: json.loads((path / "config.json").read_text()))
    for model in (deci.DeciModel, llama.LlamaModel):
        model.set_vocab = base.TextModel._set_vocab_gpt2
    sys.argv = ["convert", folder, "--outfile", f"{folder}/model.gguf", "--outtype", "bf16"]
    convert_hf_to_gguf.main()


def main():
    if sys.argv[1] == "--convert":
        return convert(*sys.argv[2:])
    llama_cpp, out = sys.argv[1:3]
    for name in sys.argv[3:] or MODELS:
        write_folder(name, f"{out}/{name}")
        subprocess.run([sys.executable, __file__, "--convert", llama_cpp, f"{out}/{name}", TOKENIZERS[name][0]], check=True)


main()
