"""Baselines: what was published of a row, and where, at which pin, on which device, when."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from pinproof.findings import Strict
from pinproof.ids import Id

Words = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Citation(Strict):
    """Where figures stand: a line of a page, and the text on it that holds them."""

    file: Words = Field(description="page, relative to the folder that the case's `pages` names")
    line: int = Field(gt=0, description="number of the line, from 1")
    quote: Words = Field(
        description="text that stands on that line, with the figures; emphasis marks and runs of blanks do not count"
    )

    @field_validator("file")
    @classmethod
    def _stays_inside(cls, file: str) -> str:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"must be a path inside the folder of the pages (got {file!r})")
        return file

    @property
    def place(self) -> str:
        """FILE:LINE."""
        return f"{self.file}:{self.line}"


class Absolute(Strict):
    """What both arms measured when the ratio was published; without it a moved ratio cannot be split by arm."""

    cell: Id = Field(description="the cell, such as c1; `start` for a start-up")
    metric: Id = Field(description="which metric")
    unit: Words | None = Field(description="its unit as published; null: the record does not say")
    numerator: float = Field(gt=0, description="of the arm that is judged")
    denominator: float = Field(gt=0, description="of the arm that it is compared with")
    what: Words | None = Field(default=None, description="which of several sets of prompts, where a cell has several")


class Beside(Strict):
    """A figure that was published and is not gated."""

    what: Words = Field(description="cell and metric in words")
    figure: Words = Field(description="as printed")
    why: Words = Field(description="why it is not gated")


class Published(Strict):
    """The record behind a row's baselines: it changes no measurement, and the verdict prints what is wrong with it."""

    pin: Words | None = Field(
        description="commit (10 digits or more) or version of the denominator then; null: not recorded"
    )
    device: Words | None = Field(description="name of the device then; null: not recorded")
    date: Words | None = Field(description="when, as recorded; null: not recorded")
    cited: list[Citation] = Field(default=[], description="lines that hold the figures")
    absolutes: list[Absolute] = Field(default=[], description="of both arms, where the record keeps them")
    beside: list[Beside] = Field(default=[], description="figures of the row that are not gated")
    remarks: list[Words] = Field(default=[], description="what the record itself says against the row")
