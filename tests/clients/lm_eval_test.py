"""lm-evaluation-harness, unmodified, against a running server: log-likelihoods of token-id batches are those of
`braid score` and of transformers, those of tokens after a cached prompt too, and a multiple-choice task comes out far above chance. Through
local-chat-completions a generative task does too.

usage: lm_eval_test.py BRAID

The harness is that of this interpreter, or of BRAID_LM_EVAL_PYTHON (lm-eval[api] and transformers, for the tokenizer);
without it the test is skipped.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from support.elsewhere import restart_or_skip

MODEL = str(Path(__file__).resolve().parents[2] / "models" / "tiny")
try:
    import transformers
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI
except ImportError as error:
    restart_or_skip(error, "BRAID_LM_EVAL_PYTHON", "lm-eval[api] and transformers")

try:
    import torch
    REFERENCE = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, experts_implementation="eager").eval()
    for module in REFERENCE.modules():  # transformers clamps dt at time_step_min, which is meant for initialisation
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))
except (ImportError, ValueError, KeyError, TypeError, RuntimeError) as reason:
    print(f"SKIPPED lm_eval: the log-likelihoods of transformers: {reason}")
    REFERENCE = None

from support.program import Case, braid, main
from support.server import Server

SUMS = [(a, b) for a in range(11, 60, 7) for b in (14, 25, 38)]


class LmEval(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--dtype", "f32", model="tiny")
        url = f"http://127.0.0.1:{cls.server.port}"
        cls.model = LocalCompletionsAPI(base_url=url + "/v1/completions", model="tiny", tokenizer=MODEL, batch_size=8,
                                        max_length=2048)
        cls.tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def loglikelihoods(self, pairs):
        requests = [Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=i) for i, pair in enumerate(pairs)]
        return self.model.loglikelihood(requests, disable_tqdm=True)

    def prompt(self, a, b):
        return f"<|im_start|>user\nWhat is {a} + {b}?<|im_end|>\n<|im_start|>assistant\n<think></think>"

    def test_log_likelihoods_are_those_of_score(self):
        pairs = [(self.prompt(a, b), str(a + b + wrong)) for a, b in SUMS[:6] for wrong in (0, 1)]
        lines = "".join(json.dumps({"prompt": p, "completion": c}) + "\n" for p, c in pairs)
        scored = braid("score", "tiny", "--dtype", "f32", "--jsonl", "-", text=lines)
        want = [sum(json.loads(line)["logprobs"]) for line in scored.stdout.splitlines()]
        self.assertEqual(len(want), len(pairs), scored.stderr)
        others = [self.with_transformers(p, c) for p, c in pairs]
        for (found, _), expected, other in zip(self.loglikelihoods(pairs), want, others):
            self.assertLess(abs(found - expected), 1e-3)
            if other is not None:
                self.assertLess(abs(found - other), 1e-3)
        for a, b in SUMS[:6]:
            self.server.ask("/v1/completions", {"prompt": self.prompt(a, b), "max_tokens": 2})
        # Prompts with log-probabilities are read whole; those of an answer may continue from the cache.
        for (prompt, completion), expected in zip(pairs, want):
            found, cached = self.after_the_cache(prompt, completion)
            self.assertGreater(cached, 0)
            self.assertLess(abs(found - expected), 1e-3)

    def after_the_cache(self, prompt, completion):
        """The log-likelihood of a completion, token by token after a prompt that was read before, and cached tokens."""
        ids, total, cached = self.server.ask("/tokenize", {"content": completion})["tokens"], 0, 0
        read = self.server.ask("/tokenize", {"content": prompt})["tokens"]
        for token in ids:
            answer = self.server.ask("/v1/completions", {"prompt": read, "max_tokens": 1, "logprobs": 1,
                                                         "logit_bias": {str(token): 100}, "temperature": 0})
            total += answer["choices"][0]["logprobs"]["token_logprobs"][0]
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            read = read + [token]
        return total, cached

    def with_transformers(self, prompt, completion):
        """The log-likelihood of the completion; None where this transformers has no such model."""
        if REFERENCE is None:
            return None
        ids = self.tokenizer(prompt + completion, add_special_tokens=False, return_tensors="pt")["input_ids"]
        first = len(self.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        with torch.no_grad():
            logprobs = REFERENCE(ids, use_cache=False).logits[0].float().log_softmax(-1)
        return sum(float(logprobs[t - 1, ids[0, t]]) for t in range(first, ids.shape[1]))

    def test_a_multiple_choice_task(self):
        pairs = [(self.prompt(a, b), str(a + b + wrong)) for a, b in SUMS for wrong in (0, 1, -2, 10)]
        found = [ll for ll, _ in self.loglikelihoods(pairs)]
        right = sum(max(range(4), key=lambda k: found[4 * i + k]) == 0 for i in range(len(SUMS)))
        self.assertGreater(right, 0.8 * len(SUMS))

    def test_generation(self):
        args = (self.prompt(17, 25), {"until": ["<|im_end|>"], "max_gen_toks": 8, "temperature": 0})
        request = Instance(request_type="generate_until", doc={}, arguments=args, idx=0)
        self.assertEqual(self.model.generate_until([request], disable_tqdm=True), ["42"])

    def test_a_generative_task_of_chat(self):
        model = LocalChatCompletion(base_url=f"http://127.0.0.1:{self.server.port}/v1/chat/completions", model="tiny",
                                    num_concurrent=1, max_length=2048)
        requests = []
        for i, (a, b) in enumerate(SUMS):
            messages = model.apply_chat_template([{"role": "user", "content": f"What is {a} + {b}?"}])
            options = {"until": ["<|im_end|>"], "max_gen_toks": 200, "temperature": 0}
            requests.append(Instance(request_type="generate_until", doc={}, arguments=(messages, options), idx=i))
        answers = model.generate_until(requests, disable_tqdm=True)
        right = sum(answer.strip().split()[-1:] == [str(a + b)] for answer, (a, b) in zip(answers, SUMS))
        self.assertGreater(right, 0.8 * len(SUMS), answers)
        with self.assertRaises(NotImplementedError):  # as with every chat server: log-likelihoods need completions
            model.loglikelihood(requests[:1])


if __name__ == "__main__":
    main()
