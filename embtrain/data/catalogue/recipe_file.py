"""A file of a recipe: its locations, its size and its sha256.

A file is identified by its sha256, not by its address: any server of these bytes will do.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from embtrain.common.config import Section

UNVERIFIED = "unverified"


class RecipeFile(Section):
    """One file and its locations, tried in the order package, cache, mirror, url."""

    sha256: str = Field(
        description="sha256 of the whole file; 'unverified' if it could not be compared with the publisher's")
    bytes: int | None = Field(None, ge=0, le=2**40, description="size of the file; also the bound of a download")
    package: str | None = Field(None, description="an installed Python package that contains the file")
    path: str | None = Field(None, description="path of the file in that package")
    mirror: str | None = Field(None, description="path of the file below EMBTRAIN_DATA_MIRROR")
    url: str | None = Field(None, description="an address that always serves the same bytes (a pinned commit)")
    derived: str | None = Field(None, description="instructions that produce the file, if it has no address")

    @field_validator("sha256")
    @classmethod
    def _is_hash(cls, value: str) -> str:
        if value != UNVERIFIED and not re.fullmatch("[0-9a-f]{64}", value):
            raise ValueError(f"should be 64 hexadecimal digits in lower case, or {UNVERIFIED}")
        return value

    @field_validator("package")
    @classmethod
    def _is_package(cls, value: str | None) -> str | None:
        if value is not None and not value.isidentifier():
            raise ValueError("should be the name of a top-level package")
        return value

    @field_validator("path", "mirror")
    @classmethod
    def _stays_inside(cls, value: str | None) -> str | None:
        if value is not None:
            path = PurePosixPath(value)
            if path.is_absolute() or ".." in path.parts or not path.parts or re.search(r"[\\:\x00-\x1f]", value):
                raise ValueError("should be a relative path without '..'")
        return value

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s/]+/\S*[^\s/]", value):
            raise ValueError("should be an http or https address of a file")
        return value

    @model_validator(mode="after")
    def _has_location(self) -> RecipeFile:
        if (self.package is None) != (self.path is None):
            raise ValueError("package and path must be set together")
        if not (self.package or self.mirror or self.url):
            raise ValueError("has no location; set package and path, mirror or url")
        return self

    @property
    def name(self) -> str:
        """Return the file name under which it is cached."""
        address = self.mirror or self.path or urlsplit(self.url or "").path
        return re.sub(r"[^\w.+-]", "_", PurePosixPath(address).name)

    @property
    def source(self) -> str:
        """Return the location that identifies the file if its hash is not known."""
        return self.url or self.mirror or f"{self.package}:{self.path}"
