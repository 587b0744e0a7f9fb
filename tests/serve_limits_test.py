"""braid serve: no request takes more than its share of the server, and answers are whole.

usage: serve_limits_test.py BRAID
"""
import select
import socket

from support.program import main
from support.server import ServerCase

SUM = {"role": "user", "content": "What is 17 + 25?"}


class Limits(ServerCase):
    def test_no_request_takes_more_than_its_share(self):
        many = {**{f"key{i}": 0 for i in range(6000)}, "messages": [SUM]}
        for path, body, says in (("/v1/chat/completions", many, "more than 5000 keys"),
                                 ("/v1/chat/completions", {"messages": [SUM], "chat_template_kwargs": many}, "more than 5000 keys"),
                                 ("/v1/completions", {"prompt": [[5] * 200] * 128, "echo": True, "logprobs": 20, "max_tokens": 0},
                                  "537600 log-probabilities; expected at most 524288")):
            self.assertIn(says, self.server.ask(path, body, 400)["error"]["message"])

    def test_one_more_than_the_largest_batch_of_the_evaluation_harness(self):
        """64 prompts of 4,096 tokens, a log-probability and an alternative each, are the limit."""
        self.assertIn("log-probabilities", self.server.ask("/v1/completions", {"prompt": [[5] * 4096] * 65, "echo": True, "logprobs": 1,
                                                                               "max_tokens": 0}, 400)["error"]["message"])

    def test_bodies_of_all_connections_have_a_bound(self):
        size, held = 31 << 20, []
        for _ in range(9):
            s = socket.create_connection((self.server.host, self.server.port), timeout=60)
            s.sendall(f"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size + 1}\r\n\r\n".encode())
            try:
                s.sendall(b" " * size)  # and never the last byte
            except OSError:
                pass  # it was refused meanwhile
            held.append(s)
        refused, _, _ = select.select(held, [], [], 30)  # the others still wait for the rest
        self.assertEqual([s.recv(1000).split()[1] for s in refused], [b"503"])
        for s in held:
            s.close()
        self.server.ask("/tokenize", {"content": "Hi", "a": " " * (15 << 20), "b": " " * (15 << 20)})

    def test_answers_are_whole_whatever_range_is_asked_for(self):
        request = {"prompt": "17 + 25 =", "max_tokens": 4, "temperature": 0}
        want = self.server.ask("/v1/completions", request)["choices"]
        got = self.server.ask("/v1/completions", request, Range="bytes=0-3")["choices"]
        self.assertEqual(got, want)


if __name__ == "__main__":
    main()
