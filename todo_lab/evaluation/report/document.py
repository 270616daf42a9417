"""A report as a list of blocks, which becomes Markdown with image files and one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #111; background: #fff; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid #bbb; padding-top: 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.85rem; margin: 1rem 0; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { border-bottom: 1px solid #111; vertical-align: bottom; white-space: normal; }
td:first-child, th:first-child { text-align: left; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; } figcaption { font-size: 0.85rem; color: #444; }
"""


@dataclass
class Document:
    """Add blocks in order, then get Markdown or HTML. Texts are plain; they are escaped as needed."""

    title: str
    _markdown: list[str] = field(default_factory=list)
    _html: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Start a section."""
        self._add(f"## {text}", f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._add(text, f"<p>{html.escape(text)}</p>")

    def items(self, texts: Sequence[str]) -> None:
        """Add a list."""
        rows = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
        self._add("\n".join(f"- {text}" for text in texts), f"<ul>{rows}</ul>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table. The first column is text; the others are numbers."""
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
        page = (
            f'<div class="wide"><table><thead><tr>{_cells("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'
        )
        self._add(markdown_table([head, *rows]), page)

    def image(self, path: Path | None, caption: str, folder: Path) -> None:
        """Add a PNG or WebP below ``folder``; None adds nothing."""
        if path is None:
            return
        source = f"data:image/{path.suffix[1:]};base64,{base64.b64encode(path.read_bytes()).decode()}"
        alt, name = html.escape(caption, quote=True), path.relative_to(folder).as_posix()
        page = f'<figure><img src="{source}" alt="{alt}"><figcaption>{alt}</figcaption></figure>'
        self._add(f"![{caption}]({name})\n\n*{caption}*", page)

    def markdown(self) -> str:
        """The report as Markdown, with links to the images."""
        return "\n\n".join([f"# {self.title}", *self._markdown]) + "\n"

    def html(self) -> str:
        """The report as one HTML file that contains the images."""
        title = html.escape(self.title)
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
        body = "\n".join(self._html)
        page = f"<head>{head}<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}</body>"
        return f"<!doctype html>\n<html lang=en>{page}</html>\n"

    def _add(self, markdown: str, page: str) -> None:
        self._markdown.append(markdown)
        self._html.append(page)


def markdown_table(table: Sequence[Sequence[str]]) -> str:
    """A table as Markdown. Its first row is the head; the first column is text, the others are numbers."""
    head, *body = map(_line, table)
    return "\n".join([head, "|---|" + "---:|" * (len(table[0]) - 1), *body])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells).strip() + " |"


def _cells(tag: str, cells: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
