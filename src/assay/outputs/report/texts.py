"""Text of users, files and models, made fit to be shown."""


def shown_text(text: str) -> str:
    """Text without characters that steer whatever shows it, or that XML does not know.

    >>> shown_text("a\\x1b[31m b")
    'a\\\\x1b[31m b'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\\x" + format(ord(c), "02x") for c in text)
