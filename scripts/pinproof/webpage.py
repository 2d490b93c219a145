"""The page of a verdict as HTML, which a report shows where it would only offer Markdown for download."""

from __future__ import annotations

from html import escape

from markdown_it import MarkdownIt

# One look on screen and paper, without a font or a colour that is fetched.
STYLE = """body { font-family: sans-serif; max-width: 75em; margin: 1em; line-height: 1.4 }
table { border-collapse: collapse; font-size: 85%; display: block; overflow-x: auto }
th, td { border: 1px solid #999; padding: 0.2em 0.6em; text-align: left; vertical-align: top }
th { background: #eee }"""


def of(page: str) -> str:
    """An HTML document of a Markdown page; HTML in its texts stays text."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(page)
    title = escape(page.partition("\n")[0].lstrip("# "))
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}</body></html>\n'
