"""braid bench serve against braid serve: what it counts is what was asked for, whichever requests it sends.

usage: bench_serve_test.py BRAID
"""
import json
import socket
import threading

from support.program import Case, braid, main
from support.server import Server


class BenchServe(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 4, model="tiny")
        cls.url = f"http://{cls.server.host}:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def measured(self, *words, code=0):
        answer = braid("bench", "serve", "--base-url", self.url, "--json", *words)
        self.assertEqual(answer.returncode, code, answer.stderr)
        return json.loads(answer.stdout)

    def test_counts_are_those_of_the_requests(self):
        out = self.new_folder() / "result.json"
        found = self.measured("--num-prompts", 12, "--random-input-len", 40, "--random-output-len", 8, "--ignore-eos",
                              "--max-concurrency", 3, "--goodput", "ttft:600000", "--save-result", out)
        self.assertEqual((found["completed"], found["failed"], found["total_output_tokens"]), (12, 0, 96))
        self.assertAlmostEqual(found["total_input_tokens"], 480, delta=24)
        self.assertLessEqual(found["max_concurrent_requests"], 3)
        self.assertEqual(found["request_goodput"], found["request_throughput"])
        self.assertEqual(found["num_prompts"], 12)
        for name in ("ttft", "tpot", "itl", "e2el"):
            self.assertGreater(found[f"mean_{name}_ms"], 0)
            self.assertLessEqual(found[f"median_{name}_ms"], found[f"p99_{name}_ms"])
        self.assertLess(found["mean_ttft_ms"], found["mean_e2el_ms"])
        self.assertGreaterEqual(found["max_output_tokens_per_s"], found["output_throughput"])
        self.assertEqual(json.loads(out.read_text()), found)

    def test_the_address_is_as_clients_have_it(self):
        for end in ("/nope", "/v1/chat", "?a=b"):
            self.assertRefused(braid("bench", "serve", "--base-url", self.url + end), "--base-url", "has a path", end)
        for end in ("/", "/v1", "/v1/"):
            answer = braid("bench", "serve", "--base-url", self.url + end, "--json", "--num-prompts", 1,
                           "--random-input-len", 8, "--random-output-len", 1)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertEqual(json.loads(answer.stdout)["completed"], 1)

    def test_paced_chats_of_a_file(self):
        file = self.new_folder() / "prompts.jsonl"
        file.write_text("".join(json.dumps({"messages": [{"role": "user", "content": f"What is {n} + 4?"}]}) + "\n"
                                for n in range(3)))
        found = self.measured("--endpoint", "chat", "--dataset-path", file, "--num-prompts", 6, "--request-rate", 50)
        self.assertEqual((found["completed"], found["request_rate"]), (6, 50))
        self.assertGreater(found["total_output_tokens"], 30)

    def test_failures_are_named_and_counted(self):
        answer = braid("bench", "serve", "--base-url", self.url, "--num-prompts", 2, "--random-input-len", 100000)
        self.assertOneLineOf(answer.stderr, "no request was answered", "context")
        refused = socket.create_server(("127.0.0.1", 0))

        def hang_up():
            while True:
                try:
                    refused.accept()[0].close()
                except OSError:
                    return
        threading.Thread(target=hang_up, daemon=True).start()
        answer = braid("bench", "serve", "--base-url", f"http://127.0.0.1:{refused.getsockname()[1]}", "--num-prompts", 2)
        refused.close()
        self.assertEqual(answer.returncode, 1)
        self.assertOneLineOf(answer.stderr, "no request was answered")

    def test_refusals_are_said_once_with_what_helps(self):
        load = ("--num-prompts", 3, "--random-input-len", 8, "--random-output-len", 1)
        server = Server("--api-key", "secret", model="tiny")
        self.addCleanup(server.stop)
        answer = braid("bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}", *load)
        self.assertRefused(answer, "401", "try --api-key")
        answer = braid("bench", "serve", "--base-url", self.url, *load[:2], "--random-input-len", 100000)
        self.assertRefused(answer, "400: prompt is too long", "lengths")
        for file, says in (("/nosuch/x", "No such file"), (self.new_folder(), "not a regular file")):
            answer = braid("bench", "serve", "--base-url", "http://127.0.0.1:1", *load, "--save-result", file)
            self.assertRefused(answer, says)  # before the load, which nobody would answer

    def assertOneLineOf(self, text, *says):
        last = text.strip().splitlines()[-1]
        self.assertTrue(last.startswith("braid: ["), text)
        for words in says:
            self.assertIn(words, last)

    def test_odd_values_are_refused(self):
        for words in (("--num-prompts", 0), ("--request-rate", -1), ("--request-rate", "nan"), ("--goodput", "x:5"),
                      ("--base-url", "https://a"), ("--random-range-ratio", 1), ("--dataset-path", "/nonexistent"),
                      ("--burstiness", 0), ("--endpoint", "messages")):
            self.assertRefused(braid("bench", "serve", "--base-url", self.url, *words))


if __name__ == "__main__":
    main()
