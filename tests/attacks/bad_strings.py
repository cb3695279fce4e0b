"""Texts made to be taken for something else: by a browser, a terminal, a spreadsheet, a parser, a path, a reader."""

NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "{{7*7}}{% raw %}",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b]0;title\x07\x9b31m",
    "nul\x00l \x0b\x0c\uffff\ud800 half",
    "[red]bold[/][link=file:///etc/passwd]x[/link][/nothing]",
    "\nerror: all is lost\n| failures | 0 |\r",
    "\u202e../../../etc/passwd",
)
NAMES_THAT_ARE_PATHS = (
    "../../x",
    "/tmp/absolute",
    "CON",
    "x" * 400,
    "\u202eright-to-left",
    "\U0001f600" * 20,
    "..",
    "nul\x00l",
    "~root",
    "a/../../b",
)
# Taken for marks by what shows summaries and alerts: cells and code, links and pictures, people and issues to call.
NAMES_THAT_ARE_MARKS = (
    "`a``b|c\\|d\\",
    "@here #12 GH-12 www.evil.example http://evil.example a@evil.example",
    "![x](http://evil.example/x.png)[y](javascript:alert(1))",
    "{0} {{1}} [a](1) \\[b\\](2)",
    "**bold** _under_ ~~gone~~ :skull: $\\frac{1}{2}$ <!-- &lt;b&gt; &#64;",
    "]]><![CDATA[ <?xml?> &amp; --> ]]>",
    "",
)
AS_TEXT = tuple(name.encode("utf-8", "backslashreplace").decode() for name in NAMES)  # no half characters
CONTROLS = {chr(n) for n in (*range(32), *range(0x7F, 0xA0))} - {"\n", "\t"} | {"\u202e"}


def steers(text: str) -> set[str]:
    """The characters of an output that steer a terminal."""
    return set(text) & CONTROLS
