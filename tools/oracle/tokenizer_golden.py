#!/usr/bin/env python3
"""Writes tests/data/tokenizers: small tokenizer.json files of every kind that the model families use, and the ids that
Hugging Face's `tokenizers` gives for difficult strings.

    tokenizer_golden.py OUT

needs: tokenizers. The vocabularies are trained on this repository's own pages and sources, so that every clone can
regenerate them; split patterns, normalisers, decoders and options are those of the kinds they represent.
"""
import glob
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
VOCABULARY = 700
DIGITS_BY_THREE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CASE_AWARE = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
              r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
              r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORLD = "Żółw über naïve Ærøskøbing Straße İstanbul Привет мир Ελληνικά שלום العربية हिन्दी ไทย 漢字 かな カナ 한국어 🙂👍🏽"


def corpus():
    for path in sorted(glob.glob(f"{ROOT}/*.md") + glob.glob(f"{ROOT}/docs/*.md") + glob.glob(f"{ROOT}/src/sys/*.cc")):
        with open(path, encoding="utf-8") as f:
            yield f.read()
    yield " ".join([WORLD] * 20)


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(pre_tokenizer, bos=None, normalizer=None, ignore_merges=False, late=()):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre_tokenizer, decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<unk>", "<s>", "</s>"] if bos else [],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_tokens(list(late))
    if bos:
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                          special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def sentencepiece(prepends):
    """Llama 2's two variants: a normaliser that marks spaces, or a Metaspace pre-tokenizer that splits nothing."""
    pieces = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    pieces.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    pieces.train_from_iterator((" ".join(text.split()) for text in corpus()), trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False, limit_alphabet=120))
    whole = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if prepends:
        whole.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        whole.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    whole.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    document, trained = json.loads(whole.to_str()), json.loads(pieces.to_str())["model"]
    document["model"]["vocab"], document["model"]["merges"] = trained["vocab"], trained["merges"]
    document["added_tokens"] = [
        {"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True} for i, c in enumerate(special[:3])]
    t = Tokenizer.from_str(json.dumps(document))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                     special_tokens=[("<s>", 1)])
    return t


EDGES = [AddedToken("<tool_call>", special=False, normalized=False), AddedToken("wörd", single_word=True),
         AddedToken("<L>", lstrip=True, special=True), AddedToken("<R>", rstrip=True, special=True)]
KINDS = {
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)),
    "case-aware": lambda: byte_level(split_by(CASE_AWARE), bos="<s>", ignore_merges=True),
    "digits-nfc-added": lambda: byte_level(split_by(DIGITS_BY_THREE), normalizer=normalizers.NFC(), late=EDGES),
    "spm-prepend": lambda: sentencepiece(True),
    "spm-metaspace": lambda: sentencepiece(False),
}
HARD = ["", " ", "  ", "\n", "\t\n \r\n", " a ", "  a  b   c ", "Hello, world! DON'T ’tis we'LL I'M", "1 12 123 1234567",
        "3.14159e-10 0x1F ½ ² Ⅷ ١٢٣", "x = [1];\n\n\n    y += x[0]  # ç\r\n", "éé e\u0301 ﬁ Å \u212b", WORLD,
        "👨‍👩‍👧‍👦🇫🇷", "\u200b\ufeff\u00a0\u2003x\u3000y\u0085z", "a\u0300\u0301\u0302b", "\x00\x01\x7f\x80", "\ufffd",
        "<s>", "</s><s> x", "a<L>b  <L>  c", "a  <R>  b <R>c", "wörd xwörd wördx wörd.", "<tool_call>{}</tool_call>",
        "//////\n/", " \n \n x", "ABCdefGHI jklMNO", "ǅ ǆ ʰa", "a" * 40, " " * 50, "\n" * 30, "\U0010ffff\U000e0001"]


def strings():
    yield from HARD
    draw = random.Random(1)
    alphabet = list("abcXYZ 0123  \n\t'\"./<>|_-éßİıſΩж漢か한🙂") + ["\u0301", "\u200d", "\r\n", "'s", "<s>", "<R>", "wörd"]
    for _ in range(60):
        yield "".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 40)))


def main():
    for name, make in KINDS.items():
        folder, t, cases = f"{sys.argv[1]}/{name}", make(), []
        os.makedirs(folder, exist_ok=True)
        t.save(f"{folder}/tokenizer.json", pretty=False)
        for s in strings():
            plain = t.encode(s, add_special_tokens=False).ids
            cases.append({"text": s, "ids": plain, "ids_special": t.encode(s, add_special_tokens=True).ids,
                          "decoded": t.decode(plain, skip_special_tokens=False),
                          "decoded_skip": t.decode(plain, skip_special_tokens=True)})
        with open(f"{folder}/golden.json", "w", encoding="utf-8") as f:
            json.dump(cases, f, ensure_ascii=True, separators=(",", ":"))
        print(f"{name}: {t.get_vocab_size()} tokens, {len(cases)} strings")


if __name__ == "__main__":
    main()
