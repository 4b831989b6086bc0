"""Decodes the text of a file: by its byte-order mark, else by what a page declares, else as UTF-8.

`NotText` is raised, with the reason, for a file that cannot be decoded or contains NUL.
"""

import codecs
import re

import webencodings

MARKS = (
    # UTF-32 first, since its mark begins with UTF-16's.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
HOLDS_NUL = "holds NUL, so it is not text in UTF-8; save it as that"
"""Why UTF-16 without a byte-order mark, and binary data, are rejected."""

_DECLARATION = re.compile(
    rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)|<\?xml\s[^>]*?encoding\s*=\s*[\"']([^\"']+)", re.IGNORECASE
)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_SEARCHED = 1 << 14
"""Bytes of a page that are searched for its declaration; more than browsers search."""


class NotText(ValueError):
    """A file that cannot be read as text; the message is the reason for `rejected.parquet`."""


def marked_encoding(data: bytes) -> tuple[str, bytes]:
    """The encoding that a byte-order mark names, "" without a mark, and the bytes after it."""
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return encoding, data[len(mark) :]
    return "", data


def decode_text(data: bytes) -> str:
    """Decodes a text file, with line feeds as line ends: by its byte-order mark, else as UTF-8. Raises `NotText`."""
    encoding, data = marked_encoding(data)
    try:
        text = data.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        raise NotText(f"not {(encoding or 'utf-8').upper()}; save it as UTF-8") from None
    if "\x00" in text:
        raise NotText(HOLDS_NUL)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode: lone surrogates stand for bytes that were not decoded."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def decode_page(data: bytes) -> str:
    """Decodes an HTML page: by its byte-order mark, by what it declares, else as UTF-8. Raises `NotText`.

    Names of encodings mean what they mean in browsers, where `iso-8859-1` is `windows-1252`.
    """
    encoding, data = marked_encoding(data)
    codec, reason = codecs.lookup(encoding or "utf-8"), "as its byte-order mark says"
    if not encoding:
        declared = _declared(data)
        encoding, reason = declared or "utf-8", "as it declares" if declared else "and declares no encoding"
        known = webencodings.lookup(encoding)
        if known is None or known.name == "replacement":  # encodings that browsers refuse
            raise NotText(f"declares an encoding that is not known, {encoding[:40]!r}; save it as UTF-8")
        if not known.name.startswith("utf-16"):  # a page in UTF-16 could not declare it in ASCII
            codec = known.codec_info
    try:
        text, _ = codec.decode(data, "strict")
    except UnicodeDecodeError:
        raise NotText(f"not {codec.name.upper()}, {reason}; save it as UTF-8") from None
    if "\x00" in text:
        raise NotText(HOLDS_NUL)
    return text


def _declared(data: bytes) -> str:
    """The encoding that a page declares near its beginning, or ""."""
    found = _DECLARATION.search(_COMMENT.sub(b"", data[:_SEARCHED]))
    return (found[1] or found[2]).decode("ascii", errors="replace") if found else ""
