"""The file of cached prefixes of braid serve: used after a restart, by one server, and ignored where it is damaged.

usage: serve_cache_file_test.py BRAID
"""
import signal

from support.program import Case, braid, main
from support.server import CHAT, Server

SUM = {"role": "user", "content": "What is 17 + 25?"}


class CacheFile(Case):
    def test_prefixes_survive_a_restart(self):
        file = self.new_folder() / "prefixes.cache"
        words = ("--cache-file", file, "--exact", "--memory", "64MiB")
        first = Server(*words)
        one = first.chat(SUM)
        turn = [SUM, one["choices"][0]["message"], {"role": "user", "content": "What is 3 + 4?"}]
        self.assertEqual(first.ask("/cache/save", {}), {"saved": str(file)})
        self.assertGreater(file.stat().st_size, 10000)
        want = first.chat(*turn)
        self.assertEqual(first.stop(), 143)
        second = Server(*words)
        again = second.chat(SUM)
        self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], one["usage"]["prompt_tokens"])
        self.assertEqual(again["choices"], one["choices"])
        got = second.chat(*turn)
        self.assertEqual(got["usage"]["prompt_tokens_details"]["cached_tokens"], want["usage"]["prompt_tokens"])
        self.assertEqual(got["choices"], want["choices"])
        metrics = second.ask("/metrics")
        cached = again["usage"]["prompt_tokens"] + got["usage"]["prompt_tokens"]  # all of both
        label = '{model_name="tiny-chat"}'
        for line in ("braid:cache_hits_total 2", "braid:pages_leaked 0", f"vllm:prefix_cache_queries_total{label} {cached}",
                     f"vllm:prefix_cache_hits_total{label} {cached}", f"vllm:prompt_tokens_total{label} {cached}"):
            self.assertIn("\n" + line + "\n", metrics)
        second.stop()
        # Of other numbers: ignored with one line, which comes first.
        third = Server(*words[:2])
        self.assertIn("other number formats", third.before)
        self.assertEqual(third.chat(SUM)["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        third.stop()
        whole = file.read_bytes()
        file.write_bytes(whole[:len(whole) // 2])
        fourth = Server(*words[:2])
        self.assertEqual(fourth.before.count("\n"), 1)
        ignored = file.read_bytes()
        self.assertEqual(fourth.stop(), 143)
        self.assertEqual(file.with_name(file.name + ".old").read_bytes(), ignored)  # put aside

    def test_a_cache_file_has_one_server(self):
        file = self.new_folder() / "prefixes.cache"
        words = ("--cache-file", file, "--memory", "64MiB")
        first = Server(*words)
        self.assertRefused(braid("serve", CHAT, "--port", 0, *words, timeout=20), "--cache-file", "another process uses this file", str(file))
        first.chat(SUM)
        self.assertEqual(first.ask("/cache/save", {}), {"saved": str(file)})  # another file has the name now
        self.assertRefused(braid("serve", CHAT, "--port", 0, *words, timeout=20), "another process uses this file")
        link = file.with_name("link")
        link.symlink_to(file)
        self.assertRefused(braid("serve", CHAT, "--port", 0, "--cache-file", link, timeout=20), "another process uses this file")
        self.assertEqual(first.stop(signal.SIGKILL), -9)
        second = Server(*words)
        self.assertGreater(second.chat(SUM)["usage"]["prompt_tokens_details"]["cached_tokens"], 20)
        self.assertEqual(second.stop(), 143)

    def test_a_cache_file_that_is_hardly_begun(self):
        file = self.new_folder() / "prefixes.cache"
        link = file.with_name("link")
        link.symlink_to(file)
        for content in (b"x", b"BRAIDPF", b""):
            file.write_bytes(content)
            server = Server("--cache-file", link, "--memory", "64MiB")
            self.assertEqual(server.before.count("is ignored"), 1, server.before)
            server.chat(SUM)
            self.assertEqual(server.stop(), 143)
            self.assertEqual(file.with_name(file.name + ".old").read_bytes(), content)  # put aside
            self.assertTrue(link.is_symlink())
            self.assertGreater(file.stat().st_size, 10000)
        file.write_bytes(b"a list of things to buy")
        self.assertRefused(braid("serve", CHAT, "--port", 0, "--cache-file", link, timeout=20), "another file has this name")


if __name__ == "__main__":
    main()
