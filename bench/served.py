"""A `braid serve` on a free port, for the benches that ask it."""
import json
import re
import subprocess
import sys
import urllib.request


class Served:
    def __init__(self, braid, model, *options):
        self.process = subprocess.Popen([str(word) for word in (braid, "serve", model, "--port", "0", *options)],
                                        stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            found = re.search(r"at (http://\S+)", line)
            if found:
                self.url = found.group(1)
                return
            said.append(line)
        sys.exit(f"no server: {''.join(said)}")

    def ask(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
