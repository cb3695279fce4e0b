"""Hooks of mkdocs: no word for our tests on the site, and no script from another machine.

So that search works from the disk, the theme takes one from elsewhere; here it is ours.
"""

import re
from posixpath import relpath
from typing import Any

OURS = "assets/search-from-disk.js"
_THEIRS = re.compile(r"<script[^>]*\ssrc=\"?https://unpkg\.com/iframe-worker/shim\"?[^>]*>")
_UNSEEN = re.compile(r"<!--\s*(?:notest|python):.*?-->\n?", re.DOTALL)
_UNTESTED = re.compile(r"^( *```\w+) notest=\"[^\"]*\"", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page without what only the tests of its code blocks read."""
    return _UNSEEN.sub("", _UNTESTED.sub(r"\1", markdown))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The page with our script in the place of theirs."""
    folder = page.url.rpartition("/")[0]
    return _THEIRS.sub(f'<script src="{relpath(OURS, folder or ".")}">', output)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same for pages without a source, such as the one for a wrong address."""
    return _THEIRS.sub(f'<script src="{OURS}">', output_content)
