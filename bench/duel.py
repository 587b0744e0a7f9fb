"""Two programs that take turns: what versus.py and versus_serve.py share.

A contender runs while the other is stopped, so that both see the same machine; rounds count once they have settled.
"""
import os
import signal
import statistics
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")
NEIGHBOUR_MAX = 0.05


def busy_seconds():
    """CPU seconds of all processors together since boot, and those stolen by the host."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS, steal / TICKS


def used_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


class Contender:
    """A process that runs `steps` steps per turn and is stopped between turns. turn() returns the seconds of each."""

    running = []  # of this program

    def __init__(self, command, **more):
        self.process = subprocess.Popen(command, text=True, **more)
        Contender.running.append(self)

    def let(self, run):
        os.kill(self.process.pid, signal.SIGCONT if run else signal.SIGSTOP)

    def alive(self, what):
        if self.process.poll() is not None:
            raise SystemExit(f"versus: {what} ended with code {self.process.returncode}")

    def used(self):
        return used_seconds(self.process.pid)

    def close(self):
        self.process.kill()
        self.process.wait()
        Contender.running.remove(self)

    @staticmethod
    def close_all():
        """Before the program ends, however it does: one that is stopped would not notice, and keep its memory."""
        for contender in list(Contender.running):
            contender.close()


def fastest(makers, seconds_of):
    """Makes the contenders one after another; returns the fastest and closes the others."""
    best, best_seconds = None, float("inf")
    for make in makers:
        contender = make()
        seconds = seconds_of(contender)
        if seconds < best_seconds:
            best, best_seconds, contender = contender, seconds, best
        if contender:
            contender.close()
    return best


def settled(rounds):
    """The last three agree within 5%, on every side."""
    sides = zip(*rounds[-3:])
    return len(rounds) >= 3 and all(max(side) <= 1.05 * min(side) for side in sides)


def duel(args, contenders, steps):
    """Seconds per step of each contender by round; the discarded warm-up rounds; the share of the processors used by others."""
    def one_round(number):  # who begins takes turns
        both = list(zip(contenders, steps))
        medians = [statistics.median(c.turn(n)) for c, n in (both if number % 2 == 0 else reversed(both))]
        return medians if number % 2 == 0 else medians[::-1]
    warm = []
    while not settled(warm) and len(warm) < args.warm_max:
        warm.append(one_round(len(warm)))
    busy, used, start = busy_seconds(), [c.used() for c in contenders], time.monotonic()
    rounds = [one_round(i) for i in range(args.rounds)]
    wall = (time.monotonic() - start) * os.cpu_count()
    mine = sum(c.used() for c in contenders) - sum(used)
    now = busy_seconds()
    return {"warm": warm, "rounds": rounds, "settled": settled(warm), "neighbours": max(0.0, (now[0] - busy[0] - mine) / wall),
            "stolen": (now[1] - busy[1]) / wall}


def summary(seconds, tokens):
    rates = sorted(tokens / s for s in seconds)
    return {"tokens_per_second": round(statistics.median(rates), 1), "slowest": round(rates[0], 1), "fastest": round(rates[-1], 1),
            "spread_percent": round(100 * (rates[-1] / rates[0] - 1), 1), "samples": [round(tokens / s, 1) for s in seconds]}


def compared(name, got, tokens, void):
    """One comparison as it is stored."""
    ours, theirs = zip(*got["rounds"])
    out = {"what": name, "braid": summary(ours, tokens), "peer": summary(theirs, tokens), "warm_rounds": len(got["warm"]),
           "neighbours": round(got["neighbours"], 4), "stolen": round(got["stolen"], 4)}
    out["ratio"] = round(out["braid"]["tokens_per_second"] / out["peer"]["tokens_per_second"], 3)
    if not got["settled"]:
        void.append(f"{name}: no three rounds in a row agreed within 5%")
    for what in ("neighbours", "stolen"):
        if got[what] > NEIGHBOUR_MAX:
            void.append(f"{name}: {what} used {100 * got[what]:.0f}% of the processors")
    return out
