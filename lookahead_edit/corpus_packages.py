"""Releases from the package indexes of Python and npm, through pip and npm. Knows how to fetch, not what is inside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lookahead_edit.types import InvalidInput

FETCH_SECONDS = 600
Form = Literal["any", "wheel", "sdist"]

_PYTHON = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_NPM = re.compile(r"npm:((?:@[a-z0-9~_][a-z0-9._~-]*/)?[A-Za-z0-9~_][A-Za-z0-9._~-]*)@([0-9][A-Za-z0-9.+-]*)")


@dataclass(frozen=True, slots=True)
class Release:
    """One version of one package."""

    index: Literal["python", "npm"]
    name: str
    version: str

    def __str__(self) -> str:
        return f"npm:{self.name}@{self.version}" if self.index == "npm" else f"{self.name}=={self.version}"


def parse_release(text: str) -> Release:
    """Reads ``NAME==VERSION`` or ``npm:NAME@VERSION``; a version is written out, ranges and tags are none.

    >>> parse_release("npm:@scope/name@1.2.3")
    Release(index='npm', name='@scope/name', version='1.2.3')
    """
    if match := _PYTHON.fullmatch(text):
        return Release("python", match[1], match[2])
    if match := _NPM.fullmatch(text):
        return Release("npm", match[1], match[2])
    raise InvalidInput(f"expected NAME==VERSION or npm:NAME@VERSION, got {text!r}", param="release")


def require_pair(old: Release, new: Release) -> None:
    """Raises InvalidInput where these are not two versions of one package."""
    if (old.index, old.name.lower()) != (new.index, new.name.lower()) or old.version == new.version:
        raise InvalidInput(f"expected two versions of one package, got {old} and {new}", param="release")


def fetch_release(release: Release, folder: Path, form: Form = "any") -> Path:
    """Downloads a release's archive into an empty folder; dependencies stay out.

    `form` is Python's: pip runs the build backend of an sdist to read its name and version, a wheel runs nothing.
    "any" takes what pip prefers. npm runs no scripts.

    Raises:
        InvalidInput: pip or npm is missing, takes too long or finds no such release; its last words are given.
    """
    if release.index == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise InvalidInput(f"expected npm on the path to fetch {release}, found none", param="release")
        spec = f"{release.name}@{release.version}"
        command = [npm, "pack", "--loglevel=error", "--ignore-scripts", "--pack-destination", str(folder), spec]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        # Of this package only: what an sdist needs for its build may come as a wheel.
        command += {"any": [], "wheel": ["--only-binary", release.name], "sdist": ["--no-binary", release.name]}[form]
        command += ["--dest", str(folder), f"{release.name}=={release.version}"]
    try:
        finished = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidInput(f"fetching {release} took more than {FETCH_SECONDS} seconds", param="release") from None
    archives = [path for path in folder.iterdir() if path.is_file()]
    if finished.returncode != 0 or len(archives) != 1:
        raise InvalidInput(f"can't fetch {release}: {_reason(finished.stderr)}", param="release")
    return archives[0]


def _reason(output: str) -> str:
    """pip ends with the reason; npm begins with a code, goes on with the reason and ends with the name of a log."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    npm_errors = [line for line in lines if re.match(r"npm err(?:or|!) (?!code |A complete log)", line, re.IGNORECASE)]
    pip_errors = [line for line in lines if line.startswith("ERROR:")][::-1]
    return (npm_errors or pip_errors or lines[::-1] or ["no reason given"])[0][:300]
