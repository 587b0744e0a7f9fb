"""The chat page of braid serve in a real browser: Debian's chromium, driven by its own driver over the WebDriver protocol.

usage: page_test.py BRAID

Screenshots go to $BRAID_ARTIFACTS if that is set.
"""
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

from support.program import Case, main
from support.server import Server

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "tab": "\ue004", "shift": "\ue008"}
ARTIFACTS = os.environ.get("BRAID_ARTIFACTS")
HOSTILE = """# A <b>heading</b>

<script>window.harmed = 1</script><img src=x onerror="window.harmed = 2">

[click](javascript:window.harmed=3) [data](data:text/html,x) [good](https://example.org/a?b=1 "title") https://example.com/x.

```html
<script>window.harmed = 4</script>
```

> quoted ** not closed `neither"""
MARKDOWN = [  # by CommonMark 0.31 and GitHub's extensions, but for headings, which begin at the third level
    ("one *soft* and **loud**", "<p>one <em>soft</em> and <strong>loud</strong></p>"),
    ("***both*** and **a*b*c**", "<p><em><strong>both</strong></em> and <strong>a<em>b</em>c</strong></p>"),
    ("_a_ snake_case_name __b__", "<p><em>a</em> snake_case_name <strong>b</strong></p>"),
    ("*a **b *c*", "<p>*a **b <em>c</em></p>"),
    ("x*a****a**", "<p>x<em>a</em>***a**</p>"),
    ("a\\`` b`", "<p>a`<code> b</code></p>"),
    ("\\``` b", "<p>``` b</p>"),
    ("(https://e.com/a_(b)). https://e.com/c!", '<p>(<a href="https://e.com/a_(b)" rel="noopener noreferrer nofollow" target="_blank">'
     'https://e.com/a_(b)</a>). <a href="https://e.com/c" rel="noopener noreferrer nofollow" target="_blank">https://e.com/c</a>!</p>'),
    ("2 * 3 * 4, **open", "<p>2 * 3 * 4, **open</p>"),
    ("~~gone~~ ~~not", "<p><del>gone</del> ~~not</p>"),
    (r"\*not\* `\*code\*`", r"<p>*not* <code>\*code\*</code></p>"),
    ("`` a`b `` and `<i>`", "<p><code>a`b</code> and <code>&lt;i&gt;</code></p>"),
    ("- one\n  - inside\n    - deeper\n- two", "<ul><li>one<ul><li>inside<ul><li>deeper</li></ul></li></ul></li><li>two</li></ul>"),
    ("3. first\n\n   more\n4. second", '<ol start="3"><li>first<p>more</p></li><li>second</li></ol>'),
    ("- a\n\nb", "<ul><li>a</li></ul><p>b</p>"),
    ("- a\n* b", "<ul><li>a</li></ul><ul><li>b</li></ul>"),
    ("1. a\n  - b", "<ol><li>a<ul><li>b</li></ul></li></ol>"),  # CommonMark wants three spaces; models write two
    ("It was in\n2023. Then", "<p>It was in\n2023. Then</p>"),
    ("> a\nb\n\nc", "<blockquote><p>a\nb</p></blockquote><p>c</p>"),
    ("# One #\n### Three\n---", "<h3>One</h3><h5>Three</h5><hr>"),
    ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
    ("| a | b |\n|--:|---|\n| 1 | <u>2</u> |", '<table><thead><tr><th class="right">a</th><th>b</th></tr></thead>'
     '<tbody><tr><td class="right">1</td><td>&lt;u&gt;2&lt;/u&gt;</td></tr></tbody></table>'),
    ("[**x**](https://example.org/a_(b))", '<p><a href="https://example.org/a_(b)" rel="noopener noreferrer nofollow" '
     'target="_blank"><strong>x</strong></a></p>'),
    ("[x](javascript:alert(1)) [y] [z](/here)", "<p>[x](javascript:alert(1)) [y] [z](/here)</p>"),
    ("[a [b](javascript:c) *d*](data:e)", "<p>[a [b](javascript:c) <em>d</em>](data:e)</p>"),
]
# Each, many times, is a text that costs a careless parser the square of its length, or nodes as deep as that.
PIECES = ["*a ", "**a_", "[", "[a](javascript:", "`a``", "> ", "- ", "|-", "\\", "https://a.b)", "~~~\n", "1. a\n  ", "<", "![", "a|b\n-|-\n",
          "#", "](https://a.b/(", "_*"]
PIECES = [*((piece, "") for piece in PIECES), ("*a ", "a* "), ("**_", "_**"), ("[", "](https://a.b)")]

# The texts on the page whose contrast with what is behind them is below 4.5 to 1.
CONTRAST = """
    const light = (color) => { const [r, g, b] = color.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const parts = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [[r, g, b], a]; };
    const behind = (e) => { const [color, alpha] = parts(getComputedStyle(e).backgroundColor); return alpha > 0 ? color : behind(e.parentElement); };
    const bad = [];
    for (const e of document.querySelectorAll('body *')) {
      if (!e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.tagName === 'OPTION') continue;
      const a = light(parts(getComputedStyle(e).color)[0]), b = light(behind(e));
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) bad.push([e.outerHTML.slice(0, 80), ratio]);
    }
    return bad;"""


class Browser:
    """A session of chromedriver."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="braid-page-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                self.url = f"http://127.0.0.1:{found[1]}"
                break
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=900,760",
                 f"--user-data-dir={self.profile.name}"]
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": words}, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = f"/session/{made['sessionId']}"

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def open(self, url):
        self.call("POST", self.session + "/url", {"url": url})

    def run(self, script, *arguments):
        value, thrown = self.call("POST", self.session + "/execute/async", {"args": arguments, "script":
                                  "const done = arguments[arguments.length - 1];"
                                  f"(async (...args) => {{ {script} }})(...[...arguments].slice(0, -1))"
                                  ".then((value) => done([value, null]), (e) => done([null, String(e)]));"})
        if thrown is not None:
            raise AssertionError(thrown)
        return value

    def emulate(self, command, **how):
        """Of Chromium's own protocol: "setEmulatedMedia", "setDeviceMetricsOverride"."""
        return self.call("POST", self.session + "/goog/cdp/execute", {"cmd": "Emulation." + command, "params": how})

    def scheme(self, name):
        self.emulate("setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def find(self, selector):
        return self.call("POST", self.session + "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def all(self, selector):
        return [e[ELEMENT] for e in self.call("POST", self.session + "/elements", {"using": "css selector", "value": selector})]

    def get(self, element, what):
        return self.call("GET", f"{self.session}/element/{element}/{what}")

    def click(self, selector):
        self.call("POST", f"{self.session}/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call("POST", f"{self.session}/element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys):
        """To whatever has the focus; modifiers first."""
        codes = [KEYS.get(k, k) for k in keys]
        actions = [{"type": "keyDown", "value": k} for k in codes] + [{"type": "keyUp", "value": k} for k in reversed(codes)]
        self.call("POST", self.session + "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def screenshot(self, name):
        self.run("for (let n = 0; n < 3; ++n) await new Promise(requestAnimationFrame);")  # what was changed is drawn
        picture = base64.b64decode(self.call("GET", self.session + "/screenshot"))
        if ARTIFACTS:
            Path(ARTIFACTS).mkdir(parents=True, exist_ok=True)
            (Path(ARTIFACTS) / f"{name}.png").write_bytes(picture)
        return picture

    def complaints(self):
        return [entry["message"] for entry in self.call("POST", self.session + "/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait(20)
            self.driver.stdout.close()
            self.profile.cleanup()


@unittest.skipUnless(shutil.which("chromium") and shutil.which("chromedriver"),
                     "chromium or chromedriver is missing (Debian: chromium, chromium-driver)")
class Page(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(model="tiny")
        cls.home = f"http://{cls.server.host}:{cls.server.port}/"
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.stop()

    def setUp(self):
        self.browser.scheme("light")
        self.browser.open(self.home)
        self.browser.run("localStorage.clear(); sessionStorage.clear();")
        self.browser.open(self.home)
        self.browser.complaints()  # those before are not of this test

    def until(self, script, what):
        """Waits until a script returns something true, and returns it."""
        for _ in range(600):
            found = self.browser.run(script)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what}; the page shows: " + self.browser.run("return document.body.innerText;"))

    def articles(self):
        return self.browser.run("return [...document.querySelectorAll('article')].map((a) => [a.className, a.querySelector('.body').innerText]);")

    def ask(self, text):
        before = self.browser.run("return document.querySelectorAll('article').length;")
        self.browser.type("#text", text)
        self.browser.press("enter")
        self.answered(before + 2)

    def answered(self, articles):
        self.until(f"return document.querySelectorAll('article').length === {articles} && !document.getElementById('log').ariaBusy;",
                   "no answer")

    def test_an_answer_and_its_thinking(self):
        self.ask("What is 17 + 25?")
        self.assertEqual([kind for kind, _ in self.articles()], ["user", "assistant"])
        self.assertIn("42", self.articles()[1][1])
        self.assertFalse(self.browser.run("return document.querySelector('details').open;"))
        self.browser.click("summary")
        self.assertIn("17+25", self.browser.run("return document.querySelector('details pre').innerText;").replace(" ", ""))
        self.assertRegex(self.browser.run("return document.getElementById('speed').innerText;"),
                         r"^\d+ tokens, [\d.]+ tokens/s, prompt \d+ tokens, \d+ of them cached$")
        self.assertRegex(self.until("return document.getElementById('server').innerText;", "no metrics"), r"\d+ MiB|GiB")
        self.browser.screenshot("light")
        self.assertEqual(self.browser.complaints(), [])

    def test_a_reload_keeps_the_conversation_and_settings(self):
        self.browser.click("#toggle")
        self.browser.type("#max_tokens", "77")
        self.ask("Reverse PLANE.")
        before = self.articles()
        self.browser.open(self.home)
        self.assertEqual(self.articles(), before)
        self.assertEqual(self.browser.run("return document.getElementById('max_tokens').value;"), "77")
        self.browser.click("#new")
        self.assertEqual(self.articles(), [])

    def endless(self):
        """From here on answers have no end of their own."""
        self.browser.run("const send = window.fetch; window.fetch = (url, how) => send(url, how?.body ? { ...how, body: "
                         "JSON.stringify({ ...JSON.parse(how.body), ignore_eos: true, max_tokens: 3500 }) } : how);")

    def test_stop(self):
        self.endless()
        for keys in (False, True):
            articles = len(self.articles())
            self.browser.type("#text", "What is 17 + 25?")
            self.browser.press("enter")
            self.until(f"return document.querySelectorAll('article')[{articles + 1}]?.innerText.includes('42');", "no text")
            self.assertEqual(self.browser.run("return document.getElementById('log').ariaBusy;"), "true")
            self.assertRegex(self.browser.run("return document.getElementById('speed').innerText;"), r"^\d+ tokens, [\d.]+ tokens/s$")
            if keys:
                self.browser.press("escape")
            else:
                self.browser.click("#stop")
            self.until("return !document.getElementById('send').hidden && [...document.querySelectorAll('.note')].at(-1).innerText === 'Stopped.';",
                       "it did not stop")
            self.assertIn("42", self.articles()[articles + 1][1])
            self.assertEqual(self.browser.run("return document.activeElement.id;"), "text")
            self.until("return (await (await fetch('/state')).json()).requests.running === 0;", "the server goes on")

    def test_a_reload_in_an_answer_keeps_what_there_is(self):
        self.endless()
        self.browser.type("#text", "What is 17 + 25?")
        self.browser.press("enter")
        self.until("return document.querySelectorAll('article')[1]?.innerText.includes('42');", "no text")
        self.browser.open(self.home)
        self.assertIn("42", self.articles()[1][1])
        self.assertEqual(self.browser.run("return document.getElementById('log').ariaBusy;"), None)

    def test_what_is_kept_has_a_limit(self):
        self.browser.run("localStorage.setItem('braid.chat', JSON.stringify({ messages: Array.from({ length: 60 }, (_, n) => "
                         "({ role: n % 2 ? 'assistant' : 'user', content: n + 'x'.repeat(5e4) })) }));")
        self.browser.open(self.home)
        self.assertEqual(len(self.articles()), 60)
        self.browser.run("document.getElementById('system').dispatchEvent(new Event('change'));")
        self.assertLess(self.browser.run("return localStorage.getItem('braid.chat').length;"), 2.01e6)
        self.browser.open(self.home)
        articles = self.articles()
        self.assertEqual(articles[0][0], "user")
        self.assertTrue(articles[-1][1].startswith("59x"))
        self.assertGreater(len(articles), 30)

    def test_a_tool_call(self):
        self.browser.click("#toggle")
        self.browser.type("#tools", "[{")
        self.browser.type("#text", "What is 345 * 678?")
        self.browser.press("enter")
        self.until("return document.querySelector('.wrong')?.innerText.startsWith('The tools are not JSON');", "no complaint")
        self.browser.run("const t = document.getElementById('tools'); t.value = args[0]; document.getElementById('think').value = 'off';",
                         json.dumps([{"type": "function", "function": {"name": "calculator", "parameters": {
                             "type": "object", "properties": {"expression": {"type": "string"}}}}}]))
        self.browser.click("button[aria-label='Answer again']")
        self.until("return document.querySelector('.call form')?.checkVisibility();", "no call")
        self.assertEqual(self.browser.run("return document.querySelector('.call b').innerText;"), "calculator")
        self.assertIn("345", self.browser.run("return JSON.parse(document.querySelector('.call pre').innerText).expression;"))
        self.browser.click("#toggle")
        self.browser.screenshot("tool-call")
        self.browser.type("[aria-label='Result of the call']", "233910")
        self.browser.press("enter")
        self.answered(3)
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.body')].at(-1).innerText;"), "233910")

    def test_edit_and_again(self):
        self.ask("What is 17 + 25?")
        self.ask("Reverse PLANE.")
        self.browser.click("article:nth-child(4) button[aria-label='Answer again']")
        self.answered(4)
        self.assertIn("ENALP", self.articles()[3][1])
        self.browser.click("article:nth-child(1) button[aria-label^='Edit']")
        self.browser.run("document.querySelector('.edit').value = '';")
        self.browser.type(".edit", "What is 20 + 25?")
        self.browser.press("enter")
        self.answered(2)
        self.assertIn("45", self.articles()[1][1])

    def rendered(self, *texts):
        """What the renderer makes of texts, one after another, in an element of the page."""
        return self.browser.run("""
            const { render } = await import('/page/markdown.js');
            const box = document.createElement('div');
            box.className = 'body';
            document.getElementById('log').replaceChildren(box);
            for (const text of args) render(box, text);
            return box.innerHTML;""", *texts)

    def test_hostile_markdown_is_inert(self):
        text = self.rendered(HOSTILE)
        tags = self.browser.run("return [...document.querySelectorAll('.body *')].map((e) => e.tagName.toLowerCase());")
        self.assertLessEqual(set(tags), {"h3", "p", "a", "pre", "code", "blockquote", "div", "span", "button"})
        links = self.browser.run("return [...document.querySelectorAll('.body a')].map((a) => [a.getAttribute('href'), a.rel]);")
        self.assertEqual(links, [[url, "noopener noreferrer nofollow"] for url in ("https://example.org/a?b=1", "https://example.com/x")])
        for expected in ("A &lt;b&gt;heading&lt;/b&gt;", "<pre><code>&lt;script&gt;", "<blockquote><p>quoted ** not closed `neither</p></blockquote>"):
            self.assertIn(expected, text)
        self.assertEqual(self.browser.run("return window.harmed ?? 0;"), 0)
        self.assertEqual(self.browser.complaints(), [])

    def test_markdown(self):
        for text, expected in MARKDOWN:
            with self.subTest(text):
                self.assertEqual(self.rendered(text), expected)

    def test_markdown_in_pieces_is_that_of_the_whole(self):
        """And blocks that are complete keep their nodes."""
        whole = "\n\n".join(text for text, _ in MARKDOWN) + HOSTILE
        self.assertEqual(self.rendered(*(whole[:n] for n in range(0, len(whole), 3)), whole), self.rendered(whole))
        self.assertTrue(self.browser.run("""
            const { render } = await import('/page/markdown.js');
            const box = document.createElement('div');
            render(box, 'a\\n\\nb');
            const first = box.firstChild;
            render(box, 'a\\n\\nb c\\n\\nd');
            return box.firstChild === first && box.innerHTML === '<p>a</p><p>b c</p><p>d</p>';"""))

    def test_markdown_keeps_to_its_limits(self):
        for piece in PIECES:
            with self.subTest(piece=piece):
                # What takes the square of the length would not be done when chromedriver's limit of a script is over.
                deep = self.browser.run("""
                    const { render } = await import('/page/markdown.js');
                    const box = document.createElement('div');
                    const [times, before, after] = [args[0].includes('\\n') ? 1e4 : 1e5, ...args];
                    render(box, before.repeat(times) + after.repeat(times));
                    let deep = 0;
                    for (let level = [box]; level.length; ++deep) level = level.flatMap((e) => [...e.children]);
                    return deep;""", *piece)
                self.assertLess(deep, 64)

    def test_inline_scripts_are_forbidden(self):
        for script in ("const s = document.createElement('script'); s.textContent = 'window.harmed = 5'; document.body.append(s);",
                       "document.body.innerHTML = '<img src=x onerror=\"window.harmed = 6\">';"):
            with self.assertRaisesRegex(AssertionError, "requires 'Trusted"):
                self.browser.run(script)
        self.browser.run("const s = document.createElement('script'); s.append('window.harmed = 7'); document.body.append(s);")
        self.assertEqual(self.browser.run("return window.harmed ?? 0;"), 0)

    def test_names_and_headings(self):
        """What assistive technology is told, as the browser computes it."""
        self.ask("What is 17 + 25?")
        self.browser.click("#toggle")
        for selector in ("button", "input", "select", "textarea", "summary", "section", "main", "form"):
            for element in self.browser.all(selector):
                if self.browser.get(element, "displayed"):
                    self.assertRegex(self.browser.get(element, "computedlabel") or self.browser.get(element, "text"), r"\w", selector)
        roles = {selector: (self.browser.get(self.browser.find(selector), "computedrole"), self.browser.get(self.browser.find(selector), "computedlabel"))
                 for selector in ("#text", "#send", "#log", "#status", "#settings", "#top_p", "#think", "#toggle", ".tools button")}
        self.assertEqual(roles, {
            "#text": ("textbox", "Message"), "#send": ("button", "Send"), "#log": ("log", "Conversation"), "#status": ("status", ""),
            "#settings": ("region", "Settings"), "#top_p": ("spinbutton", "Top-p"), "#think": ("combobox", "Thinking"),
            "#toggle": ("button", "Settings"), ".tools button": ("button", "Copy this message")})
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('h1, h2, h3')].map((e) => e.tagName + ' ' + e.textContent);"),
                         ["H1 Braid tiny", "H2 You", "H2 Model"])
        self.assertEqual(self.browser.run("const t = document.getElementById('toggle'); return [t.ariaExpanded, t.getAttribute('aria-controls')];"),
                         ["true", "settings"])

    def test_what_a_screen_reader_hears(self):
        self.browser.run("window.heard = []; new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((n) => heard.push(n.textContent))))"
                         ".observe(document.getElementById('status'), { childList: true });")
        self.ask("What is 17 + 25?")
        heard = self.browser.run("return heard;")
        self.assertEqual(heard[0], "Thinking")
        self.assertEqual([text for text in heard if "42" in text], [self.articles()[1][1]])
        self.assertEqual(self.browser.run("return document.getElementById('log').ariaLive;"), "off")

    def test_the_keyboard_alone(self):
        """Tab goes through the page in its order, and everything can be done with keys, with the focus visible."""
        self.ask("Who are you?")
        self.browser.run("document.querySelector('.skip').focus();")
        order = []
        for _ in range(7):
            self.browser.press("tab")
            focus = self.browser.run("const e = document.activeElement, s = getComputedStyle(e); return [e.id || e.getAttribute('aria-label') || e.tagName,"
                                     "s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2];")
            order.append(focus[0])
            self.assertTrue(focus[1], f"the focus on {focus[0]} cannot be seen")
        thinking = ["SUMMARY"] if self.browser.run("return document.querySelector('details').checkVisibility();") else []
        expected = ["new", "toggle", "Copy this message", "Edit this message and ask again", *thinking, "Copy this message", "Answer again", "text"]
        self.assertEqual(order, expected[:7])
        self.browser.run("document.querySelector('.skip').focus();")
        self.browser.press("enter")
        self.assertEqual(self.browser.run("return document.activeElement.id;"), "text")
        self.browser.press("a")
        self.browser.press("shift", "enter")
        self.browser.press("b")
        self.assertEqual(self.browser.run("return document.getElementById('text').value;"), "a\nb")
        self.assertEqual(len(self.articles()), 2)
        self.browser.run("document.querySelector('[aria-label^=Edit]').focus();")
        self.browser.press("enter")
        self.assertEqual(self.browser.run("return document.activeElement.className;"), "edit")
        self.browser.press("escape")
        self.assertEqual(self.browser.run("return document.activeElement.getAttribute('aria-label');"), "Edit this message and ask again")
        self.browser.run("document.getElementById('toggle').focus();")
        self.browser.press("enter")
        self.browser.press("tab")
        self.assertEqual(self.browser.run("return document.activeElement.id;"), "system")

    def test_a_server_that_says_no(self):
        self.browser.click("#toggle")
        self.browser.type("#temperature", "99999")
        self.browser.type("#text", "Hello")
        self.browser.press("enter")
        self.until("return document.querySelector('.wrong')?.innerText.includes('400');", "no error")
        self.assertEqual([kind for kind, _ in self.articles()], ["user"])

    def test_the_key(self):
        server = Server("--api-key", "secret", model="tiny")
        self.addCleanup(server.stop)
        self.browser.open(f"http://{server.host}:{server.port}/")
        self.browser.type("#text", "What is 1 + 1?")
        self.browser.press("enter")
        self.until("return document.activeElement.id === 'key';", "the key is not asked for")
        self.browser.type("#key", "secret")
        self.browser.click("button[aria-label='Answer again']")
        self.answered(2)
        self.assertIn("2", self.articles()[1][1])

    def test_light_dark_and_small(self):
        """Texts are legible by WCAG 2's level AA, and nothing is wider than a telephone."""
        shown = "\n\n".join([MARKDOWN[0][0], HOSTILE, *(text for text, _ in MARKDOWN[7:])])
        self.browser.run("localStorage.setItem('braid.chat', JSON.stringify({ messages: [{ role: 'user', content: 'Show me Markdown.' },"
                         "{ role: 'assistant', reasoning: 'A list, a table.', content: args[0] + '\\n\\n' + 'long'.repeat(99), note: 'Stopped.' }] }));",
                         shown)
        self.addCleanup(self.browser.emulate, "clearDeviceMetricsOverride")
        papers = []
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            for width in (900, 340):
                self.browser.emulate("setDeviceMetricsOverride", width=width, height=760, deviceScaleFactor=1, mobile=False)
                self.browser.open(self.home)
                self.browser.click("#toggle")
                self.browser.screenshot(f"{scheme}-{width}-settings")
                self.assertEqual(self.browser.run(CONTRAST), [])
                self.assertEqual(self.browser.run("return document.documentElement.scrollWidth;"), width)
                self.assertLessEqual(self.browser.run("return document.getElementById('log').scrollWidth;"), width)
                self.browser.click("#toggle")
                self.browser.run("document.getElementById('log').scrollTop = 0;")
                self.browser.screenshot(f"{scheme}-{width}")
            papers.append(self.browser.run("return getComputedStyle(document.body).backgroundColor;"))
        self.assertNotEqual(*papers)

    def test_headers(self):
        self.assertLess(sum(path.stat().st_size for path in (Path(__file__).parents[1] / "src/serve/page").iterdir()), 60_000)
        for path in ("/", "/page/style.css", "/page/app.js"):
            connection, answer = self.server.send("GET", path)
            answer.read()
            connection.close()
            self.assertEqual((answer.status, answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"]), (200, "no-cache", "nosniff"))
            rules = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
            self.assertEqual((rules["default-src"], rules["script-src"], rules["style-src"]), ("'none'", "'self'", "'self'"))
            connection, again = self.server.send("GET", path, headers={"If-None-Match": answer.headers["ETag"]})
            self.assertEqual((again.status, again.read()), (304, b""))
            connection.close()


if __name__ == "__main__":
    main()
