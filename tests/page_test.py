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

[click](javascript:window.harmed=3) [data](data:text/html,x) [good](https://example.org/a?b=1) https://example.com/x.

```html
<script>window.harmed = 4</script>
```

- one *soft* **loud** `<i>code</i>`
  - inside
- two

1. first
2. second

| a | b |
|---|---|
| 1 | <u>2</u> |

> quoted ** not closed `neither"""


class Browser:
    """A session of chromedriver."""

    def __init__(self, dark=False):
        self.profile = tempfile.TemporaryDirectory(prefix="braid-page-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                self.url = f"http://127.0.0.1:{found[1]}"
                break
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=900,760",
                 f"--user-data-dir={self.profile.name}"]
        if dark:
            words.append("--blink-settings=preferredColorScheme=0")
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
        return self.call("POST", self.session + "/execute/async", {"args": arguments, "script":
                         "const done = arguments[arguments.length - 1];"
                         f"(async (...args) => {{ {script} }})(...arguments).then(done, (e) => done('threw ' + e));"})

    def find(self, selector):
        return self.call("POST", self.session + "/element", {"using": "css selector", "value": selector})[ELEMENT]

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
        self.browser.open(self.home)
        self.browser.run("localStorage.clear();")
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
        self.until(f"return document.querySelectorAll('article').length === {before + 2} && !document.getElementById('log').ariaBusy;",
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

    def test_stop(self):
        self.browser.run("document.getElementById('think').value = 'off';")
        self.browser.run("window.slow = window.fetch; window.fetch = async (...a) => { const r = await slow(...a);"
                         "if (!String(a[0]).includes('chat')) return r;"
                         "const piece = 'data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\\n\\n';"
                         "return new Response(new ReadableStream({ async pull(c) { a[1].signal.throwIfAborted();"
                         "await new Promise((f) => setTimeout(f, 20)); c.enqueue(new TextEncoder().encode(piece)); } })); };")
        self.browser.type("#text", "Go on for ever")
        self.browser.press("enter")
        self.until("return document.querySelectorAll('article').length === 2 && document.querySelectorAll('article')[1].innerText.includes('word word');",
                   "no text")
        self.browser.press("escape")
        self.until("return !document.getElementById('send').hidden && document.body.innerText.includes('Stopped.');", "it did not stop")
        self.assertIn("word", self.articles()[1][1])

    def test_edit_and_again(self):
        self.ask("What is 17 + 25?")
        self.ask("Reverse PLANE.")
        self.browser.click("article:nth-child(4) button[aria-label='Answer again']")
        self.until("return document.querySelectorAll('article').length === 4 && !document.getElementById('log').ariaBusy;", "no answer")
        self.assertIn("ENALP", self.articles()[3][1])
        self.browser.click("article:nth-child(1) button[aria-label^='Edit']")
        self.browser.run("document.querySelector('.edit').value = '';")
        self.browser.type(".edit", "What is 20 + 25?")
        self.browser.press("enter")
        self.until("return document.querySelectorAll('article').length === 2 && !document.getElementById('log').ariaBusy;", "no answer")
        self.assertIn("45", self.articles()[1][1])

    def test_markdown_of_a_model_is_inert(self):
        shown = self.browser.run("""
            const { markdown } = await import('/page/markdown.js');
            const box = document.createElement('div');
            box.className = 'body';
            box.append(...markdown(args[0]));
            document.getElementById('log').replaceChildren(box);
            return [box.innerHTML, [...box.querySelectorAll('*')].map((e) => e.tagName.toLowerCase()),
                    [...box.querySelectorAll('a')].map((a) => a.getAttribute('href')), window.harmed ?? 0];""", HOSTILE)
        text, tags, links, harmed = shown
        self.assertEqual(harmed, 0)
        self.assertLessEqual(set(tags), {"h1", "p", "a", "pre", "code", "ul", "ol", "li", "em", "strong", "table", "thead", "tbody",
                                         "tr", "th", "td", "blockquote"})
        self.assertEqual(links, ["https://example.org/a?b=1", "https://example.com/x"])
        for expected in ("A &lt;b&gt;heading&lt;/b&gt;", "<pre><code>&lt;script&gt;", "<li>one <em>soft</em> <strong>loud</strong> "
                         "<code>&lt;i&gt;code&lt;/i&gt;</code><ul><li>inside</li></ul></li><li>two</li>",
                         "<ol start=\"1\"><li>first</li><li>second</li></ol>", "<td>&lt;u&gt;2&lt;/u&gt;</td>",
                         "<blockquote><p>quoted ** not closed `neither</p></blockquote>"):
            self.assertIn(expected, text)
        self.browser.screenshot("markdown")

    def test_inline_scripts_are_forbidden(self):
        self.browser.run("const s = document.createElement('script'); s.textContent = 'window.harmed = 5'; document.body.append(s);")
        self.assertEqual(self.browser.run("return window.harmed ?? 0;"), 0)

    def test_names_and_keyboard(self):
        """Everything that can be operated has a name, and Tab reaches it in the order of the page."""
        self.ask("Who are you?")
        self.browser.click("#toggle")
        nameless = self.browser.run("""
            return [...document.querySelectorAll('button, input, select, textarea')].filter((e) =>
              !(e.labels?.[0]?.innerText.trim() || e.getAttribute('aria-label') || e.innerText.trim())).map((e) => e.outerHTML);""")
        self.assertEqual(nameless, [])
        roles = self.browser.run("return ['log', 'status'].map((r) => document.querySelectorAll(`[role=${r}]`).length);")
        self.assertEqual(roles, [1, 1])
        self.browser.run("document.querySelector('.skip').focus();")
        order = []
        for _ in range(14):
            self.browser.press("tab")
            order.append(self.browser.run("const e = document.activeElement; return e.id || e.getAttribute('aria-label') || e.tagName;"))
        self.assertEqual(order[:10], ["new", "toggle", "system", "think", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"])
        self.assertIn("Copy this message", order)

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
        self.until("return document.querySelectorAll('article').length === 2 && !document.getElementById('log').ariaBusy;", "no answer")
        self.assertIn("2", self.articles()[1][1])

    def test_dark(self):
        browser = Browser(dark=True)
        self.addCleanup(browser.close)
        browser.open(self.home)
        color = browser.run("return getComputedStyle(document.body).backgroundColor;")
        self.assertLess(sum(map(int, re.findall(r"\d+", color))), 200, color)
        browser.run("document.getElementById('text').value = 'Sort the letters of CASTLE.'; document.getElementById('composer').requestSubmit();")
        time.sleep(1)
        browser.screenshot("dark")


if __name__ == "__main__":
    main()
