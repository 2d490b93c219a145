"""The page as HTML: the same words, and no text of a record becomes markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
from tests.builders import measured

from pinproof import page, webpage


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured(tmp_path_factory.mktemp("held")).verdict()


def body(text: str) -> ET.Element:
    return ET.fromstring(text[text.index("<body>") : text.index("</body>") + len("</body>")])


def test_headings_and_tables_are_those_of_the_page(verdict: dict[str, Any]) -> None:
    found = body(webpage.of(page.of(verdict)))
    assert found.findtext("h1") == "HOLD: Does the advance 1.0 -> 1.1 hold?"
    assert [head.text for head in found.iter("h2")][:2] == ["What to do", "Rows"]
    heads = [[cell.text for cell in table.iter("th")] for table in found.iter("table")]
    assert heads[0][:2] == ["cell", "metric"]


def test_html_in_a_record_stays_text(verdict: dict[str, Any]) -> None:
    text = webpage.of(page.of({**verdict, "question": "<script>alert(1)</script> <b>?"}))
    assert "<script" not in text
    assert body(text).findtext("h1") == "HOLD: <script>alert(1)</script> <b>?"
