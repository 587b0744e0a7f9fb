"""Circuits in Verilog, made by code: 21 families of combinational logic, one to three sizes each. A name is FAMILY-SIZE.

usage: designs.py OUT     writes OUT/NAME.v
"""
import random
import sys
from pathlib import Path


def module(ports, body):
    """A module of `ports`, (direction, width, name) each."""
    heads = ", ".join(f"{kind} [{width - 1}:0] {name}" for kind, width, name in ports)
    return f"module top({heads});\n{body}endmodule\n"


def wires(width, *names):
    return "".join(f"wire [{width - 1}:0] {name};\n" for name in names)


def adder(n):
    """Three terms, with a carry."""
    return module([("input", n, "a"), ("input", n, "b"), ("input", n, "c"), ("output", n + 2, "s")], "assign s = a + b + c;\n")


def multiplier(n):
    return module([("input", n, "a"), ("input", n, "b"), ("output", 2 * n, "p")], "assign p = a * b;\n")


def mac(n):
    """Multiply, accumulate, saturate."""
    body = (f"wire [{2 * n + 1}:0] t = a * b + c;\nassign s = t[{2 * n + 1}:{2 * n}] != 0 ? {{{2 * n}{{1'b1}}}} : t[{2 * n - 1}:0];\n")
    return module([("input", n, "a"), ("input", n, "b"), ("input", 2 * n, "c"), ("output", 2 * n, "s")], body)


def alu(n):
    ops = ["a + b", "a - b", "a & b", "a | b", "a ^ b", "~(a | b)", "{a[0], a} >> 1", "a << b[2:0]"]
    cases = "".join(f"3'd{i}: r = {op};\n" for i, op in enumerate(ops))
    body = f"reg [{n - 1}:0] r;\nalways @* case (op)\n{cases}endcase\nassign y = r;\nassign z = r == 0;\nassign lt = a < b;\n"
    ports = [("input", n, "a"), ("input", n, "b"), ("input", 3, "op"), ("output", n, "y"), ("output", 1, "z"), ("output", 1, "lt")]
    return module(ports, body)


def sorter(n):
    """Five values of n bits by odd-even exchanges."""
    body, at = "", [f"x{i}" for i in range(5)]
    body += "".join(f"wire [{n - 1}:0] x{i} = x[{(i + 1) * n - 1}:{i * n}];\n" for i in range(5))
    for turn in range(5):
        for i in range(turn % 2, 4, 2):
            lo, hi = f"l{turn}_{i}", f"h{turn}_{i}"
            body += f"wire c{turn}_{i} = {at[i]} > {at[i + 1]};\n"
            body += f"wire [{n - 1}:0] {lo} = c{turn}_{i} ? {at[i + 1]} : {at[i]};\nwire [{n - 1}:0] {hi} = c{turn}_{i} ? {at[i]} : {at[i + 1]};\n"
            at[i], at[i + 1] = lo, hi
    return module([("input", 5 * n, "x"), ("output", 5 * n, "y")], body + f"assign y = {{{', '.join(reversed(at))}}};\n")


def shifter(n):
    """Left, right, arithmetic right or rotated."""
    bits = (n - 1).bit_length()
    body = ("reg [%d:0] r;\nalways @* case (op)\n2'd0: r = x << k;\n2'd1: r = x >> k;\n2'd2: r = $signed(x) >>> k;\n"
            "2'd3: r = (x << k) | (x >> (%d - k));\nendcase\nassign y = r;\n" % (n - 1, n))
    return module([("input", n, "x"), ("input", bits, "k"), ("input", 2, "op"), ("output", n, "y")], body)


def popcount(n):
    """How many bits are set, and whether more than half."""
    bits = n.bit_length()
    total = " + ".join(f"x[{i}]" for i in range(n))
    return module([("input", n, "x"), ("output", bits, "c"), ("output", 1, "most")], f"assign c = {total};\nassign most = c > {n // 2};\n")


def arbiter(n):
    """Round robin: the first request at or after a pointer, as a number and as one bit."""
    bits = (n - 1).bit_length()
    body = f"wire [{2 * n - 1}:0] d = {{r, r}} >> p;\nreg [{bits - 1}:0] f;\ninteger i;\n"
    body += f"always @* begin f = 0; for (i = {n - 1}; i >= 0; i = i - 1) if (d[i]) f = i; end\n"
    body += f"wire [{bits}:0] s = f + p;\nassign w = s >= {n} ? s - {n} : s;\nassign any = |r;\nassign g = any ? ({n}'d1 << w) : 0;\n"
    return module([("input", n, "r"), ("input", bits, "p"), ("output", bits, "w"), ("output", n, "g"), ("output", 1, "any")], body)


def crc(n):
    """CRC-32 of n bits."""
    body = "reg [31:0] r;\ninteger i;\nalways @* begin r = c;\n"
    body += f"for (i = 0; i < {n}; i = i + 1) r = (r >> 1) ^ ((r[0] ^ d[i]) ? 32'hEDB88320 : 32'd0);\nend\nassign y = r;\n"
    return module([("input", 32, "c"), ("input", n, "d"), ("output", 32, "y")], body)


def table(n):
    """Random tables of six bits to four, n of them, mixed."""
    draw, body, parts = random.Random(100 + n), "", []
    for t in range(n):
        cases = "".join(f"6'd{i}: t{t} = 4'd{draw.randrange(16)};\n" for i in range(64))
        body += f"reg [3:0] t{t};\nalways @* case (x[{6 * t + 5}:{6 * t}])\n{cases}endcase\n"
        parts.append(f"t{t}")
    return module([("input", 6 * n, "x"), ("output", 4 * n, "y")], body + f"assign y = {{{', '.join(parts)}}};\n")


def divider(n):
    return module([("input", n, "a"), ("input", n, "b"), ("output", n, "q"), ("output", n, "r")],
                  f"reg [{2 * n - 1}:0] t;\ninteger i;\nalways @* begin t = {{{n}'d0, a}};\n"
                  f"for (i = 0; i < {n}; i = i + 1) begin t = t << 1; if (t[{2 * n - 1}:{n}] >= b) begin "
                  f"t[{2 * n - 1}:{n}] = t[{2 * n - 1}:{n}] - b; t[0] = 1; end end\nend\nassign q = t[{n - 1}:0];\nassign r = t[{2 * n - 1}:{n}];\n")


def root(n):
    """The square root of n bits, n even."""
    half = n // 2
    body = f"reg [{n - 1}:0] x, r, m;\ninteger i;\nalways @* begin x = a; r = 0; m = 0;\n"
    body += f"for (i = {half - 1}; i >= 0; i = i - 1) begin m = r | (1 << (2 * i)); r = r >> 1;\n"
    body += f"if (x >= m) begin x = x - m; r = r | (1 << (2 * i)); end end\nend\nassign y = r[{half - 1}:0];\n"
    return module([("input", n, "a"), ("output", half, "y")], body)


def bcd(n):
    """Sums of n decimal digits."""
    body, carry = "", "1'b0"
    for i in range(n):
        part = f"{4 * i + 3}:{4 * i}"
        body += f"wire [4:0] t{i} = a[{part}] + b[{part}] + {carry};\nwire c{i} = t{i} > 9;\nassign s[{part}] = c{i} ? t{i} + 6 : t{i};\n"
        carry = f"c{i}"
    return module([("input", 4 * n, "a"), ("input", 4 * n, "b"), ("output", 4 * n, "s"), ("output", 1, "c")], body + f"assign c = {carry};\n")


def float_add(n):
    """Unsigned floats of five bits of exponent and n of mantissa: align, add, normalise."""
    body = wires(5, "ea", "eb", "e", "d") + wires(n + 1, "ma", "mb", "big", "small") + wires(n + 2, "sum")
    body += (f"assign ea = a[{n + 4}:{n}]; assign eb = b[{n + 4}:{n}];\nassign ma = {{1'b1, a[{n - 1}:0]}}; assign mb = {{1'b1, b[{n - 1}:0]}};\n"
             "wire swap = ea < eb;\nassign e = swap ? eb : ea; assign d = swap ? eb - ea : ea - eb;\n"
             "assign big = swap ? mb : ma; assign small = (swap ? ma : mb) >> d;\nassign sum = sub ? big - small : big + small;\n")
    body += f"reg [{n + 1}:0] m; reg [5:0] x; integer i;\nalways @* begin m = sum; x = e;\nif (m[{n + 1}]) begin m = m >> 1; x = x + 1; end\n"
    body += f"for (i = 0; i < {n}; i = i + 1) if (!m[{n}] && x != 0) begin m = m << 1; x = x - 1; end\nend\nassign y = {{x, m[{n - 1}:0]}};\n"
    return module([("input", n + 5, "a"), ("input", n + 5, "b"), ("input", 1, "sub"), ("output", n + 6, "y")], body)


def machine(n):
    """The next state and outputs of a random machine of n states with four inputs."""
    draw, bits = random.Random(200 + n), (n - 1).bit_length()
    body = f"reg [{bits - 1}:0] t; reg [5:0] o;\nalways @* begin t = s; o = 0;\ncase (s)\n"
    for state in range(n):
        body += f"{bits}'d{state}: begin o = 6'd{draw.randrange(64)};\n"
        for guard in range(3):
            bit, other = draw.sample(range(4), 2)
            word = "if" if guard == 0 else "else if"
            body += f"{word} ({draw.choice(['', '!'])}x[{bit}] && {draw.choice(['', '!'])}x[{other}]) begin t = {draw.randrange(n)}; o = o ^ 6'd{draw.randrange(64)}; end\n"
        body += "end\n"
    return module([("input", bits, "s"), ("input", 4, "x"), ("output", bits, "t_"), ("output", 6, "o_")],
                  body + "default: t = 0;\nendcase end\nassign t_ = t; assign o_ = o;\n")


def hamming(n):
    """Encodes n bits, and corrects one wrong bit of a received word."""
    checks = 1
    while 2 ** checks < n + checks + 1:
        checks += 1
    total = n + checks
    data = [i for i in range(1, total + 1) if i & (i - 1)]
    body = f"wire [{checks - 1}:0] s;\n"
    for c in range(checks):
        body += f"assign s[{c}] = {' ^ '.join(f'w[{i - 1}]' for i in range(1, total + 1) if i >> c & 1)};\n"
        body += f"assign p[{c}] = {' ^ '.join(f'd[{k}]' for k, i in enumerate(data) if i >> c & 1)};\n"
    body += "".join(f"assign y[{k}] = w[{i - 1}] ^ (s == {i});\n" for k, i in enumerate(data))
    return module([("input", total, "w"), ("input", n, "d"), ("output", n, "y"), ("output", checks, "p")], body)


def mixer(n):
    """Two rounds of add, rotate, xor over four words of n bits."""
    words, body = ["a", "b", "c", "d"], wires(n, "a", "b", "c", "d")
    body += "".join(f"assign {w} = x[{(i + 1) * n - 1}:{i * n}];\n" for i, w in enumerate(words))
    for turn, turns in enumerate((3, 5, 2, 1)):
        p, q, r = words[turn % 2], words[turn % 2 + 1], words[3 - turn % 2]
        body += wires(n, f"p{turn}", f"r{turn}", f"o{turn}") + f"assign p{turn} = {p} + {q};\nassign o{turn} = {r} ^ p{turn};\n"
        body += f"assign r{turn} = {{o{turn}[{n - 1 - turns}:0], o{turn}[{n - 1}:{n - turns}]}};\n"
        words[words.index(p)], words[words.index(r)] = f"p{turn}", f"r{turn}"
    return module([("input", 4 * n, "x"), ("output", 4 * n, "y")], body + f"assign y = {{{', '.join(words)}}};\n")


def distance(n):
    """The sum of four absolute differences, and which of the four is largest."""
    body = "".join(f"wire [{n - 1}:0] a{i} = a[{(i + 1) * n - 1}:{i * n}], b{i} = b[{(i + 1) * n - 1}:{i * n}];\n"
                   f"wire [{n - 1}:0] d{i} = a{i} > b{i} ? a{i} - b{i} : b{i} - a{i};\n" for i in range(4))
    body += "wire p = d1 > d0, q = d3 > d2;\nwire r = (q ? d3 : d2) > (p ? d1 : d0);\nassign w = {r, r ? q : p};\n"
    return module([("input", 4 * n, "a"), ("input", 4 * n, "b"), ("output", n + 2, "s"), ("output", 2, "w")],
                  body + "assign s = d0 + d1 + d2 + d3;\n")


def galois(n):
    """Products in GF(2^n): one of two values, and the cube of the first."""
    poly = {6: 0b1000011, 8: 0b100011101}[n]

    def times(out, a, b):
        text = f"reg [{n - 1}:0] {out}, {out}_a; integer i_{out};\nalways @* begin {out} = 0; {out}_a = {a};\n"
        return text + (f"for (i_{out} = 0; i_{out} < {n}; i_{out} = i_{out} + 1) begin if ({b}[i_{out}]) {out} = {out} ^ {out}_a;\n"
                       f"{out}_a = {out}_a[{n - 1}] ? ({out}_a << 1) ^ {n}'d{poly % 2 ** n} : {out}_a << 1; end\nend\n")

    body = times("p", "a", "b") + times("q", "a", "a") + times("c", "q", "a") + "assign y = p;\nassign z = c;\n"
    return module([("input", n, "a"), ("input", n, "b"), ("output", n, "y"), ("output", n, "z")], body)


def filter_(n):
    """A sum of five inputs of n bits, each times a constant."""
    terms = " + ".join(f"x[{(i + 1) * n - 1}:{i * n}] * 8'd{c}" for i, c in enumerate((7, 93, 151, 93, 7)))
    return module([("input", 5 * n, "x"), ("output", n + 10, "y")], f"assign y = {terms};\n")


def tree(n):
    """Random expressions over eight words of n bits."""
    draw, body, names = random.Random(300 + n), "", [f"x[{(i + 1) * n - 1}:{i * n}]" for i in range(8)]
    forms = ["{} + {}", "{} - {}", "{} & ~{}", "{} | {}", "{} ^ {}", "({0} < {1}) ? {0} : {1}", "{1} ^ ({0} >> 1)"]
    for i in range(22):
        body += f"wire [{n - 1}:0] e{i} = {draw.choice(forms).format(*draw.sample(names, 2))};\n"
        names = names[-9:] + [f"e{i}"]
    return module([("input", 8 * n, "x"), ("output", 4 * n, "y")], body + f"assign y = {{{', '.join(names[-4:])}}};\n")


FAMILIES = {
    "adder": (adder, 16, 32), "multiplier": (multiplier, 6, 7), "mac": (mac, 4, 6), "alu": (alu, 8, 16), "sorter": (sorter, 4, 6),
    "shifter": (shifter, 16, 24), "popcount": (popcount, 14, 20), "arbiter": (arbiter, 12, 24), "crc": (crc, 8, 16), "table": (table, 2),
    "divider": (divider, 6, 10), "root": (root, 12, 16), "bcd": (bcd, 4, 8), "float": (float_add, 6, 8), "machine": (machine, 24, 40),
    "hamming": (hamming, 11, 16), "mixer": (mixer, 8, 16), "distance": (distance, 4, 6), "galois": (galois, 6),
    "filter": (filter_, 3, 5), "tree": (tree, 6, 12)}


# Taken if abc aborts on others.
SPARE = {"alu": (alu, 12), "arbiter": (arbiter, 16), "bcd": (bcd, 6), "sorter": (sorter, 5), "float": (float_add, 7), "tree": (tree, 9)}


def all_designs():
    return {f"{family}-{size}": make(size) for families in (FAMILIES, SPARE) for family, (make, *sizes) in families.items() for size in sizes}


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, text in all_designs().items():
        (out / f"{name}.v").write_text(text)


if __name__ == "__main__":
    main()
