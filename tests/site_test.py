"""The static site of tools/site: every link and anchor in it resolves, text is escaped, and Markdown that it does not know
is refused with one line before anything is written.

usage: site_test.py
"""
import re
import subprocess
import sys
import unittest
from html.parser import HTMLParser
from pathlib import Path

from support.program import Case

ROOT = Path(__file__).resolve().parents[1]
ALONE = {"meta", "link"}  # tags without an end


class Html(HTMLParser):
    """The anchors and links of a page, and whether its tags are balanced."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.open, self.balanced = [], [], [], True
        self.feed(text)
        self.balanced &= not self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if "href" in attrs else []
        self.open += [] if tag in ALONE else [tag]

    def handle_endtag(self, tag):
        self.balanced &= bool(self.open) and self.open.pop() == tag


class Site(Case):
    def site(self, out, *words):
        return subprocess.run([sys.executable, ROOT / "tools" / "site", out, *words], capture_output=True, text=True)

    def page(self, text):
        """A repository of one page with that text below its title, and an empty folder for its site."""
        root = self.new_folder()
        (root / "README.md").write_text("# Name\n\n" + text)
        return root, root / "site"

    def body(self, text):
        root, out = self.page(text)
        done = self.site(out, "--root", root)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"</h1>\n(.*)\n</main>", (out / "index.html").read_text(), re.S)[1]

    def test_every_link_of_the_site_resolves(self):
        out = self.new_folder() / "site"
        for _ in ("new", "again over the first"):
            done = self.site(out)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        pages = {path: Html(path.read_text()) for path in out.rglob("*.html")}
        for source in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
            name = source.relative_to(ROOT).with_suffix(".html").as_posix().replace("README", "index")
            self.assertIn(out / name, pages)
        for path, html in pages.items():
            self.assertTrue(html.balanced, path)
            self.assertEqual(len(html.ids), len(set(html.ids)), path)
            for link in html.links:
                name, _, anchor = link.partition("#")
                if "://" not in link:
                    to = (path.parent / name).resolve() if name else path
                    self.assertTrue(to.is_file(), f"{path}: {link}")
                    self.assertTrue(not anchor or anchor in pages[to].ids, f"{path}: {link}")

    def test_blocks(self):
        self.assertEqual(self.body("one\ntwo\n\n    $ a\n\n      b\n\nthree\n"),
                         "<p>one\ntwo</p>\n<pre><code>$ a\n\n  b</code></pre>\n<p>three</p>")
        self.assertEqual(self.body("- a\n  b\n- c\n  1. d\n  2. e\n"),
                         "<ul>\n<li>a\nb</li>\n<li>c\n<ol>\n<li>d</li>\n<li>e</li>\n</ol></li>\n</ul>")
        self.assertEqual(self.body("```sh\n# no heading\n```"), "<pre><code># no heading</code></pre>")
        table = self.body("| a | b |\n|---|--:|\n| `x\\|y` | 2 |\n")
        self.assertIn('<tr><th>a</th><th class="right">b</th></tr>', table)
        self.assertIn('<tr><td><code>x|y</code></td><td class="right">2</td></tr>', table)
        self.assertNotIn("thead", self.body("| | |\n|---|---|\n| a | b |\n"))

    def test_headings_have_the_anchors_of_github(self):
        self.assertEqual(Html(self.body("## A `b_c`, d\n\n## A b_c d\n\n[e](#a-b_c-d-1)\n")).ids, ["a-b_c-d", "a-b_c-d-1"])

    def test_text_is_escaped(self):
        self.assertEqual(self.body("a < b & `<i>&amp;` **c > d** *`e` f* 2 * 3 [`&`](https://e.org/?f=1&g=\"2)\n"),
                         "<p>a &lt; b &amp; <code>&lt;i&gt;&amp;amp;</code> <strong>c &gt; d</strong> <em><code>e</code> f</em> 2 * 3 "
                         '<a href="https://e.org/?f=1&amp;g=&quot;2"><code>&amp;</code></a></p>')
        self.assertEqual(self.body("    <b>&\n"), "<pre><code>&lt;b&gt;&amp;</code></pre>")

    def test_links(self):
        root, out = self.page("[a](docs/a.md#b-c) [d](data/d.txt)\n")
        (root / "docs" / "deep").mkdir(parents=True)
        (root / "data").mkdir()
        (root / "docs" / "a.md").write_text("# A\n\n[up](../README.md)\n\n## B c\n\n[e](deep/e.md)\n")
        (root / "docs" / "deep" / "e.md").write_text("# E\n\n[a](../a.md#b-c) [d](../../data/d.txt)\n")
        (root / "data" / "d.txt").write_text("text")
        self.assertEqual(self.site(out, "--root", root).returncode, 0)
        self.assertIn('<a href="docs/a.html#b-c">a</a> <a href="data/d.txt">d</a>', (out / "index.html").read_text())
        self.assertIn('<a href="../a.html#b-c">a</a> <a href="../../data/d.txt">d</a>',
                      (out / "docs" / "deep" / "e.html").read_text())
        self.assertEqual((out / "data" / "d.txt").read_text(), "text")

    def test_what_is_not_known_is_refused(self):
        for text, says in (("a\n[b](none.md)", "README.md:3: the link leads to no file of the repository: none.md"),
                           ("[b](../)", "leads to no file"), ("[b](/etc/passwd)", "leads to no file"),
                           ("[b](#none)", "README.md:3: there is no heading of that name: README.md#none"),
                           ("a\n\n<b>c</b>", "README.md:5: raw HTML"), ("![a](b.png)", "an image"), ("a `b", "a ` without"),
                           ("a *b", "a * without"), ("*`b`", "a * without"), ("`b`*", "a * without"), ("a _b_", "emphasis"), ("> a", "quotation"), ("* a", "a list with *"),
                           ("a\n===", "underlined"), ("---", "a rule"), ("[a]: b", "reference"), ("[a][b]", "another form"),
                           ("&nbsp;", "an entity"), ("a\n    b", "README.md:4: an indented line"), ("```\na", "without its end"),
                           ("- a\nb", "is indented by 2"), ("3. a", "begins with 1."), ("| a |\n| b |", "the line of dashes"),
                           ("| a | b |\n|---|---|\n| c |", "README.md:5: a row of 1 cells in a table of 2")):
            with self.subTest(text=text):
                root, out = self.page(text + "\n")
                done = self.site(out, "--root", root)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, r"\Asite: README\.md:\d+: [^\n]+\n\Z")
                self.assertIn(says, done.stderr)
                self.assertFalse(out.exists())

    def test_only_a_site_is_written_over(self):
        root, out = self.page("a\n")
        out.mkdir()
        (out / "index.html").write_text("mine")
        done = self.site(out, "--root", root)
        self.assertEqual((done.returncode, done.stderr), (1, f"site: {out}: is not empty, and not a site that this script wrote\n"))
        self.assertEqual((out / "index.html").read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
