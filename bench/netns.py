#!/usr/bin/env python3
"""Ranks on two network namespaces of this machine, with a real delay between them: answers by tensor parallelism, whose
sums go round a ring or by NVRAR, and data-parallel steps, whose gradients travel after the backward pass or during it.

    bench/netns.py BRAID [--delay 50] [--megabits 0] [--rounds 5] [--tokens 48] [-o RESULTS.json]

Needs root, /dev/net/tun, `ip netns` and a C++ compiler; where one is missing it prints which and exits with 77. The delay is
made by bench/relay.cc, a process between two TUN interfaces, and the first line of the output is what a ping-pong over
blocking sockets measures of it. Ranks wait in poll(2). Settings take turns, round by round, so that other load of the
machine falls on all of them; medians and their ratio are printed. The delay is emulated; that of a network card is not
what it says.
"""
import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from about import about, steps_per_second

HERE = Path(__file__).resolve().parent
SIDES = {"a": "10.77.0.1", "b": "10.77.0.2"}
RECIPE = """
config = "hybrid-8.5m"
steps = {steps}
batch = 2
length = 64
dtype = "f32"
out = "{out}"
[data]
kind = "markov"
[parallel]
zero = 1
overlap = {overlap}
[log]
jsonl = "log.jsonl"
[checkpoint]
every = 0
"""


def skip(why):
    print(f"netns.py: {why}; nothing was measured", file=sys.stderr)
    sys.exit(77)


def ip(*words):
    return subprocess.run(["ip", *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


class Link:
    """Two namespaces and the relay between them."""

    def __init__(self, delay, megabits):
        self.folder = tempfile.mkdtemp(prefix="braid-netns-")
        self.spaces = {side: f"braid-{os.getpid()}-{side}" for side in SIDES}
        self.relay = None
        self.delay, self.megabits = delay, megabits

    def __enter__(self):
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        if os.geteuid() != 0 or not compiler or not shutil.which("ip") or not os.path.exists("/dev/net/tun"):
            skip("needs root, a C++ compiler, ip and /dev/net/tun")
        relay = f"{self.folder}/relay"
        subprocess.run([compiler, "-std=c++20", "-O2", HERE / "relay.cc", "-o", relay], check=True)
        try:
            for space in self.spaces.values():
                ip("netns", "add", space)
        except subprocess.CalledProcessError as error:
            self.__exit__()
            skip(f"network namespaces are not allowed here ({error.output.strip()})")
        tuns = {side: f"br{os.getpid() % 100000}{side}" for side in SIDES}
        self.relay = subprocess.Popen([relay, *tuns.values(), str(self.delay), str(self.megabits)],
                                      stdout=subprocess.PIPE, text=True)
        if self.relay.stdout.readline() != "ready\n":
            self.__exit__()
            skip("no TUN interface can be made")
        for side, own in SIDES.items():
            other = SIDES["b" if side == "a" else "a"]
            ip("link", "set", tuns[side], "netns", self.spaces[side])
            ip("-n", self.spaces[side], "addr", "add", own, "peer", other, "dev", tuns[side])
            ip("-n", self.spaces[side], "link", "set", tuns[side], "mtu", "9000", "txqueuelen", "10000", "up")
            ip("-n", self.spaces[side], "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        if self.relay:
            self.relay.kill()
            self.relay.wait()
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, side, words, **more):
        return subprocess.Popen(["ip", "netns", "exec", self.spaces[side], *map(str, words)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **more)

    def both(self, words_of):
        """Standard output of side a; words_of(rank) is a command."""
        runs = [self.start(side, words_of(rank)) for rank, side in enumerate(SIDES)]
        outputs = [run.communicate(timeout=600) for run in runs]
        for run, (_, stderr) in zip(runs, outputs):
            if run.returncode != 0:
                sys.exit(f"netns.py: {' '.join(run.args)} failed: {stderr}")
        return outputs[0][0]

    def round_trip_us(self):
        """The median of 200 messages there and back."""
        server = self.start("b", [sys.executable, __file__, "--echo"])
        server.stdout.readline()
        text = self.start("a", [sys.executable, __file__, "--ping"]).communicate(timeout=60)[0]
        server.wait()
        return float(text)


def echo():
    with socket.create_server((SIDES["b"], 4999)) as listening:
        print("listening", flush=True)
        peer, _ = listening.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while byte := peer.recv(1):
            peer.sendall(byte)


def ping():
    with socket.create_connection((SIDES["b"], 4999)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(200):
            begin = time.perf_counter()
            peer.sendall(b"x")
            peer.recv(1)
            times.append(1e6 * (time.perf_counter() - begin))
    print(statistics.median(times))


def hosts(port):
    return ",".join(f"{address}:{port}" for address in SIDES.values())


def answer(link, o, port, table):
    """Tokens a second, and the tokens."""
    out = link.both(lambda rank: [
        o.braid, "run", "tiny", "-p", "Once there was", "-n", o.tokens, "--temp", 0, "--ignore-eos", "-t", 1, "--tp", 2, "--json",
        "--hosts", hosts(port), "--rank", rank, "--times", table])
    found = json.loads(out)
    return steps_per_second(found["timings"]), found["ids"]


def step(link, o, port, overlap):
    """Mean milliseconds of a step, and those of it that the first rank waited for gradients; the losses."""
    out = f"{link.folder}/run-{port}"
    recipe = f"{link.folder}/recipe.toml"
    Path(recipe).write_text(RECIPE.format(steps=o.steps, out=out, overlap=str(overlap).lower()), encoding="utf-8")
    link.both(lambda rank: [o.braid, "train", recipe, "-t", 1, "--hosts", hosts(port), "--rank", rank])
    lines = [json.loads(line) for line in Path(out, "log.jsonl").read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(out)
    waited = statistics.mean(line["waited_ms"] for line in lines[1:])
    ms = statistics.mean(1e3 * 128 / line["tokens_per_second"] for line in lines[1:])
    return ms, waited, [line["loss"] for line in lines]


def tables(folder):
    """One table of times for each algorithm, which therefore wins."""
    files = {}
    for name in ("ring", "recursive", "nvrar"):
        files[name] = f"{folder}/{name}.csv"
        Path(files[name]).write_text(f"op,nodes,per_node,bytes,algorithm,us\nall_reduce,2,1,1024,{name},1\n", encoding="utf-8")
    return files


def measure(link, o):
    files, port = tables(link.folder), 5000
    rates, ids = {name: [] for name in files}, {}
    steps = {False: [], True: []}
    losses = {}
    for round_ in range(o.rounds + 1):  # the first is not counted
        for name, table in files.items():
            port += 1
            rate, ids[name] = answer(link, o, port, table)
            if round_ > 0:
                rates[name].append(rate)
        for overlap, taken in steps.items():
            port += 1
            ms, waited, losses[overlap] = step(link, o, port, overlap)
            if round_ > 0:
                taken.append((ms, waited))
    if len({tuple(x) for x in ids.values()}) != 1 or losses[False] != losses[True]:
        sys.exit("netns.py: ways to sum give other results")
    return rates, steps


def main():
    if sys.argv[1:] in (["--echo"], ["--ping"]):
        return echo() if sys.argv[1] == "--echo" else ping()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("--delay", type=float, default=50, help="microseconds, one way")
    parser.add_argument("--megabits", type=float, default=0, help="a second, each way; 0: no limit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("-o", "--out")
    o = parser.parse_args()
    o.braid = os.path.abspath(o.braid)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Link(o.delay, o.megabits) as link:
        trip = link.round_trip_us()
        print(f"round trip {trip:.0f} us, for a delay of {o.delay:g} us each way, emulated")
        rates, steps = measure(link, o)
    median = {name: statistics.median(taken) for name, taken in rates.items()}
    for name, rate in median.items():
        print(f"tiny over 2 ranks, sums by {name}: {rate:.1f} tokens/s, {rate / median['ring']:.2f} of ring's")
    train = {("during" if overlap else "after"): [statistics.median(x) for x in zip(*taken)] for overlap, taken in steps.items()}
    for name, (ms, waited) in train.items():
        print(f"hybrid-8.5m over 2 ranks, gradients {name} the backward pass: {ms:.0f} ms a step, of which "
              f"{waited:.0f} ms waiting for them")
    if o.out:
        result = {"benchmark": "netns", **about(o.braid), "delay_us": o.delay, "megabits": o.megabits,
                  "round_trip_us": trip, "rounds": o.rounds, "tokens_per_second": rates,
                  "step_and_waited_ms": {"after": steps[False], "during": steps[True]}}
        Path(o.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
