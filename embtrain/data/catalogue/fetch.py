"""Find or download files by their sha256; the hash is always verified.

The places are tried in this order: an installed package, the cache, a mirror, the net.

EMBTRAIN_CACHE        the cache folder (folders.py); a file is stored there under its hash
EMBTRAIN_DATA_MIRROR  a folder (used in place) or an http(s) prefix of files by the recipes' `mirror` paths
EMBTRAIN_OFFLINE=1    nothing is downloaded

Every call hashes the file again; no earlier result is trusted.
A file without a verified hash (`unverified`) is accepted only with trust; its hash is then recorded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from embtrain.common import shipped, terminal
from embtrain.common.errors import DataError, EmbtrainError, ResourceError
from embtrain.common.files import read_json, temporary_folder, write_json
from embtrain.common.progress import Progress
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.download import download
from embtrain.data.catalogue.members import unpack_members
from embtrain.data.catalogue.mirror import mirror_path, mirror_url
from embtrain.data.catalogue.recipe_file import UNVERIFIED, RecipeFile
from embtrain.data.catalogue.recipes import KINDS, CorpusRecipe, Kind, Recipe, find_recipe, load_recipe
from embtrain.data.storage.folders import cache_folder, read_into_cache

Location = Literal["embedded", "cached", "mirror", "absent", "made"]
PIECE = 1 << 24  # bytes hashed at a time
MAX_UNKNOWN_SIZE = 2 << 30  # bytes of a download whose size is not in its recipe
_log = logging.getLogger("embtrain")


@dataclass(frozen=True)
class DataRow:
    """One line of `embtrain data list`."""

    name: str
    kind: Kind
    size: int | None
    where: Location
    licence: str


@dataclass(frozen=True)
class VerifiedFile:
    """A file whose hash was verified."""

    path: Path
    where: Location
    sha256: str


def fetch(file: RecipeFile, cache: Path | None = None, *, owner: str = "NAME", trust: bool = False) -> Path:
    """Return the path of a file, verified now. owner: name of the recipe, for errors.

    Raises DataError for wrong or untrusted bytes, ResourceError if the file is not available anywhere.
    """
    return _obtain(file, Path(cache) if cache is not None else cache_folder(), owner, trust).path


def corpus_paths(recipe: CorpusRecipe, cache: Path | None = None, *, trust: bool = False) -> list[Path]:
    """Return the paths of a corpus: its files, or the chosen members of its archives, unpacked in the cache.

    Raises as `fetch` and `unpack_members`.
    """
    cache = Path(cache) if cache is not None else cache_folder()
    paths: list[Path] = []
    for file in recipe.files:
        verified = _obtain(file, cache, recipe.name, trust)
        paths += [verified.path] if file.members is None else unpack_members(verified.path, verified.sha256,
                                                                             file.members, cache)
    return paths


def gold_path(recipe: EvalRecipe, cache: Path | None = None, *, trust: bool = False) -> Path:
    """Return the path of the first available copy of a benchmark's gold file. Raises as `fetch`."""
    return _first_copy(recipe, Path(cache) if cache is not None else cache_folder(), trust).path


def fetch_named(name: str, trust: bool = False) -> list[Path]:
    """Fetch all files that the recipe `name` needs; return their paths."""
    recipe = _recipe_with_files(find_recipe(name))
    return read_into_cache(lambda: corpus_paths(recipe, trust=trust) if isinstance(recipe, CorpusRecipe)
                           else [gold_path(recipe, trust=trust)])


def verify_named(name: str) -> list[VerifiedFile]:
    """Hash the local files of a recipe again. Nothing is downloaded; ResourceError if one is absent."""
    recipe, cache = _recipe_with_files(find_recipe(name)), cache_folder()
    files = recipe.files if isinstance(recipe, CorpusRecipe) else recipe.copies
    local = (_find_local(file, cache, name, trust=False) for file in files)
    verified_files = [file for file in local if file is not None]
    if len(verified_files) < (len(files) if isinstance(recipe, CorpusRecipe) else 1):
        raise ResourceError(f"{name}: is not on this machine; run: embtrain data fetch {name}")
    return verified_files


def _recipe_with_files(recipe: Recipe) -> Recipe:
    """Return the recipe whose files are needed: itself, or the corpus on which a benchmark trains."""
    trained = recipe.training if isinstance(recipe, EvalRecipe) else None
    return recipe if trained is None else load_recipe("corpora", trained.corpus)


def list_data() -> list[DataRow]:
    """Return a row for every recipe, with the location of its files. Nothing is hashed or downloaded."""
    return [_data_row(load_recipe(kind, name), kind, cache_folder()) for kind in KINDS for name in shipped.names(kind)]


def _data_row(recipe: Recipe, kind: Kind, cache: Path) -> DataRow:
    name, licence, recipe = recipe.name, recipe.licence, _recipe_with_files(recipe)
    if isinstance(recipe, CorpusRecipe):
        files, places = recipe.files, [_location(file, cache) for file in recipe.files]
        where = "absent" if "absent" in places else places[0] if places else "made"
        sizes = [file.bytes for file in files]
    else:
        places = [_location(file, cache) for file in recipe.copies]
        first = next((n for n, place in enumerate(places) if place != "absent"), 0)
        where, sizes = places[first], [recipe.copies[first].bytes]
    stated_sizes = [size for size in sizes if size is not None]
    return DataRow(name, kind, sum(stated_sizes) if len(stated_sizes) == len(sizes) else None, where, licence)


def _location(file: RecipeFile, cache: Path) -> Location:
    digest = _expected_digest(file, cache)
    if (path := _package_path(file)) is not None and path.is_file():
        return "embedded"
    if digest is not None and _cache_path(file, digest, cache).is_file():
        return "cached"
    return "mirror" if (path := mirror_path(file)) is not None and path.is_file() else "absent"


def _first_copy(recipe: EvalRecipe, cache: Path, trust: bool) -> VerifiedFile:
    errors: list[EmbtrainError] = []
    for file in recipe.copies:
        try:
            return _obtain(file, cache, recipe.name, trust)
        except (DataError, ResourceError) as error:
            errors.append(error)
    raise next((error for error in errors if isinstance(error, DataError)), errors[0])


def _obtain(file: RecipeFile, cache: Path, owner: str, trust: bool) -> VerifiedFile:
    try:
        try:
            local = _find_local(file, cache, owner, trust)
        except DataError as error:  # wrong bytes in a mirror folder; those of a mirror address are skipped too
            if file.url is None or file.sha256 == UNVERIFIED or _is_offline():
                raise
            _log.warning("%s; trying %s", error, file.url)
            local = None
        return local or _download(file, cache, owner, trust)
    except OSError as error:
        raise ResourceError(f"{owner}: {file.name}: {error.filename or cache}: {error.strerror or error}") from error


def _find_local(file: RecipeFile, cache: Path, owner: str, trust: bool) -> VerifiedFile | None:
    """Return the file from a location on this machine. A package of another version does not count."""
    digest = _expected_digest(file, cache)
    in_package = _package_path(file)
    if in_package is not None and in_package.is_file() and digest == (actual := _sha256(in_package)):
        return VerifiedFile(in_package, "embedded", actual)
    if digest is not None and (in_cache := _cache_path(file, digest, cache)).is_file():
        if _sha256(in_cache) == digest:
            return VerifiedFile(in_cache, "cached", digest)
        _log.warning("%s: %s: was damaged and has been removed", owner, in_cache)
        in_cache.unlink()
    in_mirror = mirror_path(file)
    if in_mirror is not None and in_mirror.is_file():
        actual = _check_digest(file, in_mirror, str(in_mirror), cache, owner, trust)
        return VerifiedFile(in_mirror, "mirror", actual)
    if in_package is not None and in_package.is_file() and not (file.mirror or file.url):
        raise DataError(_mismatch(owner, str(in_package), digest, _sha256(in_package)))
    return None


def _sha256(path: Path) -> str:
    """Hash a file in pieces, with progress."""
    digest, size = hashlib.sha256(), path.stat().st_size
    with open(path, "rb") as file, Progress(f"verifying {path.name}", size, "B") as progress:
        while piece := file.read(PIECE):
            digest.update(piece)
            progress.add(len(piece))
    return digest.hexdigest()


def _download(file: RecipeFile, cache: Path, owner: str, trust: bool) -> VerifiedFile:
    """Download the file from the mirror or its own address; it is verified before it enters the cache."""
    urls = [url for url in (mirror_url(file), file.url) if url]
    if not urls:
        raise ResourceError(f"{owner}: {file.name}: {_manual_steps(file)}")
    if _is_offline():
        raise ResourceError(f"{owner}: {file.name}: is not on this machine and EMBTRAIN_OFFLINE is set; unset it, or "
                            f"put the file below EMBTRAIN_DATA_MIRROR as {file.mirror or file.name}")
    cache.mkdir(parents=True, exist_ok=True)
    with temporary_folder(".download.", cache) as folder:
        path = folder / file.name
        digest = _download_first(urls, path, file, cache, owner, trust)
        target = _cache_path(file, digest, cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)
    return VerifiedFile(target, "cached", digest)


def _manual_steps(file: RecipeFile) -> str:
    """Return instructions for a file without an address."""
    if file.mirror is None:
        return f"is a file of the package {file.package}: pip install {file.package}"
    make = f"create it: {' '.join(file.derived.split())}; then " if file.derived else ""
    return f"it cannot be downloaded; {make}put it below the folder EMBTRAIN_DATA_MIRROR as {file.mirror}"


def _download_first(urls: list[str], path: Path, file: RecipeFile, cache: Path, owner: str, trust: bool) -> str:
    """Download from the first address that serves the file; return its hash. A mirror with wrong bytes is skipped."""
    *mirrors, last = urls
    for url in mirrors:
        try:
            return _download_from(url, path, file, cache, owner, trust)
        except (DataError, ResourceError) as error:
            if isinstance(error, DataError) and file.sha256 == UNVERIFIED:
                raise
            _log.warning("%s; trying %s", error, last)
            path.unlink(missing_ok=True)
    return _download_from(last, path, file, cache, owner, trust)


def _download_from(url: str, path: Path, file: RecipeFile, cache: Path, owner: str, trust: bool) -> str:
    download(url, path, file.bytes or MAX_UNKNOWN_SIZE, owner)
    return _check_digest(file, path, url, cache, owner, trust)


def _check_digest(file: RecipeFile, path: Path, origin: str, cache: Path, owner: str, trust: bool) -> str:
    """Return the hash of a downloaded file that may be used; DataError if it may not."""
    actual, digest = _sha256(path), _expected_digest(file, cache)
    if digest is None:
        terminal.note(f"{owner}: {origin}: sha256 {actual}, {path.stat().st_size:,} bytes; this hash is not verified")
        if not trust:
            raise DataError(f"{owner}: {file.name} has sha256 {actual} and its recipe contains none; compare it with a "
                            f"source you trust, then run: embtrain data fetch {owner} --trust")
        _remember(file, actual, cache)
    elif actual != digest:
        raise DataError(_mismatch(owner, origin, digest, actual))
    return actual


def _mismatch(owner: str, origin: str, digest: str | None, actual: str) -> str:
    return (f"{owner}: {origin}: has sha256 {actual} but the recipe requires {digest}; the file is damaged or another "
            "version: fetch it again")


def _expected_digest(file: RecipeFile, cache: Path) -> str | None:
    """Return the hash that a file must have; None if it is not known yet."""
    return file.sha256 if file.sha256 != UNVERIFIED else _trusted(cache).get(file.source)


def _trusted(cache: Path) -> dict[str, str]:
    path = cache / "trusted.json"
    try:
        digests = read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not a list of trusted hashes ({error}); delete it") from error
    if not isinstance(digests, dict) or not all(isinstance(digest, str) and len(digest) == 64
                                                for digest in digests.values()):
        raise DataError(f"{path}: is not a list of trusted hashes; delete it")
    return digests


def _remember(file: RecipeFile, digest: str, cache: Path) -> None:
    write_json(cache / "trusted.json", {**_trusted(cache), file.source: digest})


def _package_path(file: RecipeFile) -> Path | None:
    """Return the path within an installed package, which is not imported."""
    if file.package is None or file.path is None:
        return None
    spec = importlib.util.find_spec(file.package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0], file.path) if places else None


def _cache_path(file: RecipeFile, digest: str, cache: Path) -> Path:
    return cache / "files" / digest[:32] / file.name


def _is_offline() -> bool:
    return os.environ.get("EMBTRAIN_OFFLINE", "") not in ("", "0")
