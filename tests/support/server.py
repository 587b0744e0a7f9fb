"""A running `braid serve`, and plain HTTP to it."""
import http.client
import json
import re
import signal
import subprocess

from support.program import BRAID, DATA, ENVIRONMENT, Case

CHAT = str(DATA / "tiny-chat")


class Server:
    def __init__(self, *words, model=CHAT, temperature=("--temp", "0")):
        self.process = subprocess.Popen([BRAID, "serve", model, "--port", "0", *temperature, *map(str, words)], env=ENVIRONMENT,
                                        stderr=subprocess.PIPE, text=True)
        self.before, self.greeting = "", self.process.stderr.readline()
        while self.greeting.startswith("the file of cached prefixes"):
            self.before, self.greeting = self.before + self.greeting, self.process.stderr.readline()
        found = re.search(r"at http://([^:]+):(\d+)$", self.greeting.strip())
        assert found, self.greeting + self.process.stderr.read()
        self.host, self.port = found.group(1), int(found.group(2))

    def send(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        text = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **dict(headers)})
        return connection, connection.getresponse()

    def ask(self, path, body=None, status=200, **headers):
        connection, answer = self.send("POST" if body is not None else "GET", path, body, headers)
        text = answer.read().decode()
        connection.close()
        assert answer.status == status, (answer.status, text)
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text

    def metric(self, name):
        """The value of /metrics with this name, whatever its labels."""
        found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.ask("/metrics"), re.M)
        assert found, name
        return float(found[1])

    def chat(self, *messages, **more):
        return self.ask("/v1/chat/completions", {"model": "any", "messages": messages, **more})

    def events(self, path, body):
        """The data of every event of a stream, [DONE] included, and the comments."""
        connection, answer = self.send("POST", path, {**body, "stream": True})
        assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream", answer.read()
        blocks = answer.read().decode().split("\n\n")
        connection.close()
        assert blocks.pop() == ""
        return [b[6:] for b in blocks if b.startswith("data: ")], [b for b in blocks if not b.startswith("data: ")]

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(20)
        self.process.stderr.close()
        return code


class ServerCase(Case):
    """Tests that share one server."""
    words, model = (), CHAT

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.words, model=cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
