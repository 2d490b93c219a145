"""Scope: what a case argues away (discharges, re-checked by machine) and what it leaves out, in so many words."""

from __future__ import annotations

from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field

from pinproof.baselines import Words
from pinproof.findings import Strict, alternatives
from pinproof.ids import Id


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"must be a requirement such as >=5.10.4 (got {text!r})") from None
    return text


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError(f"must be a version such as 5.14.1 (got {text!r})") from None
    return text


class Recorded(Strict):
    """A version that was resolved when the baselines were measured."""

    version: Annotated[str, AfterValidator(_version)] = Field(description="as recorded")
    at: Words = Field(description="at which pin, and where it is recorded")


class Argument(Strict):
    """What every discharge says: something moved, and why that cannot have moved a number."""

    id: Id = Field(description="name of the discharge")
    argument: Words = Field(description="the argument in words, for the verdict's page")
    arms: list[Id] | None = Field(default=None, min_length=1, description="arms that it is about; null: all")


class Floor(Argument):
    """Kind `floor`: a requirement's floor moved, and what was resolved satisfies the old floor and the new."""

    kind: Literal["floor"] = Field(description="a requirement whose floor moved")
    distribution: Id = Field(description="distribution that the requirement names, such as transformers")
    floors: list[Annotated[str, AfterValidator(_specifier)]] = Field(
        min_length=1, description="every floor that is to be satisfied, the old and the new; those of the wheels' own "
        "metadata are looked at besides"
    )  # fmt: skip
    recorded: list[Recorded] = Field(default=[], description="versions resolved when the baselines were measured")


class Inert(Argument):
    """Kind `inert`: a default moved that has no effect while one setting has one value on every row."""

    kind: Literal["inert"] = Field(description="a flag that has no effect under a setting of every row")
    flag: Words = Field(description="what moved, such as VLLM_ALLREDUCE_USE_FLASHINFER")
    options: list[Words] = Field(
        min_length=1, description="server arguments that give the setting, such as --tensor-parallel-size and -tp"
    )
    resolved: Id = Field(description="its name in the configuration that the engine logs, such as tensor_parallel_size")
    value: Words = Field(description="the value under which the flag has no effect")
    default: Words | None = Field(description="the engine's value where no argument gives one; null: not known")


class NotOwed(Strict):
    """Something that this verdict does not speak of, so that silence is not read as a pass."""

    what: Words = Field(description="what is not measured or checked here")
    why: Words = Field(description="why it is not owed")


Discharge = alternatives("kind", floor=Floor, inert=Inert)
