"""Reads, writes and lists files, of this host and in object storage; see the package."""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEMES = ("s3", "gs", "abfs", "abfss")
"""Object storage that is spoken to; ``s3a`` is taken for ``s3``, and ``file`` is a folder of this host."""

CONNECT_SECONDS = 10.0
"""So long a storage may take to take a connection."""

S3_ANSWER_SECONDS = 5.0
"""So long S3 may take to begin an answer, or to go on with it; then pyarrow asks again, three times in all."""

GOOGLE_RETRY_SECONDS = 30.0
"""For so long a request to Google Cloud Storage is repeated; pyarrow's own limit is a quarter of an hour."""

_READ_AT_ONCE = 256 * 2**20
"""An object up to this size is read at once, so that a failure of the storage is not taken for a torn file."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """A name in object storage; as a ``pathlib.Path`` it is made of parts, and it is no path of this host."""

    root: str
    """Storage and bucket: ``s3://bucket``, ``abfss://container@account.dfs.core.windows.net``."""
    path: PurePosixPath
    """What follows, without a slash in front."""

    def __str__(self) -> str:
        return self.root if self.path == PurePosixPath() else f"{self.root}/{self.path}"

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.root, self.path / name)

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self.path.stem

    @property
    def parent(self) -> ObjectPath:
        """The same without its last part."""
        return ObjectPath(self.root, self.path.parent)

    def with_name(self, name: str) -> ObjectPath:
        """Return the same with another last part."""
        return ObjectPath(self.root, self.path.with_name(name))


Location: TypeAlias = Path | ObjectPath
"""A folder or file: of this host, or in object storage."""


class FileInfo(NamedTuple):
    """A file that is there: when it was written (Unix seconds, by the clock of the storage), and its bytes."""

    written: float
    path: Location
    size: int

    @property
    def name(self) -> str:
        """The file with the folder that it is in, as ``<folder>/<name>``."""
        return f"{self.path.parent.name}/{self.path.name}"


def parse_location(text: str) -> Location:
    """Return what a path or URI names. Raises ValueError."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        return expand_home(Path(text))
    uri = urlsplit(text)
    if scheme == "file":
        if uri.netloc not in ("", "localhost"):
            raise ValueError("must be file:///PATH: another host's files cannot be named so")
        return Path(uri.path)
    scheme = "s3" if scheme == "s3a" else scheme
    if scheme not in SCHEMES:
        raise ValueError(f"must be a path, or a URI that begins with {', '.join(f'{one}://' for one in SCHEMES)}")
    user, at, host = uri.netloc.rpartition("@")
    # A slash in a key ends what is taken for the host.
    keyed = ":" in user or (":" in host and "@" in uri.path)
    if uri.query or uri.fragment or keyed or ((at or ":" in host) and not scheme.startswith("abfs")):
        raise ValueError(
            "cannot hold credentials, or anything after ?: they come from the environment, from the files of the "
            "cloud's own tools, or from the machine (docs/history.md)"
        )
    if not host:
        raise ValueError(f"must name a bucket: {scheme}://BUCKET/FOLDER")
    path = PurePosixPath(uri.path.strip("/"))
    if ".." in path.parts:
        raise ValueError("must not hold ..")
    return ObjectPath(f"{scheme}://{uri.netloc}", path)


def expand_home(path: Path) -> Path:
    """Return a path with ``~`` replaced. Raises ValueError for the home of a user that this host does not have."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(
            f"must name the whole path: nobody knows the home folder {path.parts[0]!r} on this host"
        ) from None


def s3_endpoint() -> str | None:
    """The S3 endpoint from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, None by default."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def open_file(path: Location) -> IO[bytes]:
    """Open a file to read it, without waiting for the writer of a pipe. Raises OSError."""
    if isinstance(path, Path):
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    storage, name = _within(path)
    with storage_calls(path):
        file = storage.open_input_file(name)
        if file.size() > _READ_AT_ONCE:
            return file  # type: ignore[no-any-return] # pyarrow has no types
        with file:
            return io.BytesIO(file.read())


def files_in(folder: Location, pattern: re.Pattern[str]) -> list[FileInfo]:
    """Return the regular files in a folder whose whole names match, in no order. Raises OSError.

    A folder that is not there has none, and a file that goes away meanwhile is left out.
    """
    if isinstance(folder, ObjectPath):
        return _list_objects(folder, pattern, deep=False)
    try:
        with os.scandir(folder) as entries:
            return [
                FileInfo(seen.st_mtime, folder / entry.name, seen.st_size)
                for entry in entries
                if pattern.fullmatch(entry.name) and (seen := _regular(entry)) is not None
            ]
    except FileNotFoundError:
        return []


def files_below(folder: Location, pattern: re.Pattern[str]) -> list[FileInfo]:
    """Return the same of a folder and all folders in it, at any depth. Raises OSError."""
    if isinstance(folder, Path):
        # Not by rglob, which takes a folder that may not be read for an empty one.
        names = (Path(at, name) for at, _, names in os.walk(folder, onerror=_raise) for name in names)
        found = [file_info(path) for path in names if pattern.fullmatch(path.name)]
        return [one for one in found if one is not None]
    return _list_objects(folder, pattern, deep=True)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def file_info(path: Location) -> FileInfo | None:
    """Return what is known of a regular file, None where there is none. Raises OSError."""
    if isinstance(path, Path):
        seen = _regular(path)
        return None if seen is None else FileInfo(seen.st_mtime, path, seen.st_size)
    storage, name = _within(path)
    with storage_calls(path):
        return _stored(path, storage.get_file_info(name))


def put(path: Location, write: Callable[[IO[bytes]], object]) -> None:
    """Make or replace a file with what ``write`` writes, whole or not at all.

    When this returns, it survives a crash of the machine. Raises OSError.
    """
    if isinstance(path, Path):
        _put_file(path, write)
        return
    content = io.BytesIO()
    write(content)
    storage, name = _within(path)
    with storage_calls(path):
        _put_object(storage, name, content)


def move(path: Location, target: Location) -> None:
    """Give a file another name in the same storage; where that takes two steps it is there twice in between."""
    if isinstance(path, Path) and isinstance(target, Path):
        path.replace(target)
        sync(target.parent)
        return
    with open_file(path) as file:
        content = file.read()
    put(target, lambda file: file.write(content))
    delete(path)


def make_folder(folder: Location) -> None:
    """Make a folder and those above it; in object storage there are none. Raises OSError."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)


def delete_folder(folder: Location) -> None:
    """Delete a folder with all that is in it; one that is not there is no error. Raises OSError."""
    if isinstance(folder, Path):
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
        return
    storage, name = _within(folder)
    with storage_calls(folder), suppress(FileNotFoundError):
        storage.delete_dir(name)


def delete(path: Location) -> None:
    """Delete a file; one that is not there is no error. Raises OSError."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    storage, name = _within(path)
    with storage_calls(path), suppress(FileNotFoundError):
        storage.delete_file(name)


def resolve_for_pyarrow(path: Location) -> tuple[str, FileSystem | None]:
    """Return a file or folder as pyarrow is given it: its name, and the file system, None for that of this host."""
    if isinstance(path, Path):
        return str(path), None
    storage, name = _within(path)
    return name, storage


def spark_uri(path: Location) -> str:
    """Return a file or folder as Spark is given it: S3 is ``s3a`` there.

    A path of this host has its scheme, or Hadoop would look for it in the file system that its settings name.
    """
    if isinstance(path, Path):
        return f"file://{path.absolute()}"
    return re.sub("^s3://", "s3a://", str(path))


def sync(path: Path) -> None:
    """Sync one file, or the names in one folder: they survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _regular(path: Path | os.DirEntry[str]) -> os.stat_result | None:
    try:
        seen = path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    return seen if stat.S_ISREG(seen.st_mode) else None


def _put_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)


def _put_object(storage: FileSystem, name: str, content: io.BytesIO) -> None:
    # In one write: a stream that fails in the middle of several would be closed, and so end as a shorter object.
    with storage.open_output_stream(name, compression=None) as stream:
        stream.write(content.getbuffer())


def _list_objects(folder: ObjectPath, pattern: re.Pattern[str], *, deep: bool) -> list[FileInfo]:
    from pyarrow.fs import FileSelector  # noqa: PLC0415 - as below

    storage, name = _within(folder)
    with storage_calls(folder):
        infos = storage.get_file_info(FileSelector(name, allow_not_found=True, recursive=deep))
    seen = (
        _stored(folder / info.path.removeprefix(f"{name}/"), info)
        for info in infos
        if pattern.fullmatch(info.base_name)
    )
    return [one for one in seen if one is not None]


def _stored(path: ObjectPath, info: object) -> FileInfo | None:
    """None also for an empty object: Azure shows one from when it is begun, and no file of ours is empty."""
    written, size = getattr(info, "mtime", None), getattr(info, "size", None)
    return FileInfo(written.timestamp(), path, size) if getattr(info, "is_file", False) and written and size else None


def _within(path: ObjectPath) -> tuple[FileSystem, str]:
    storage, base = _storage(path.root, s3_endpoint() if path.root.startswith("s3://") else None)
    return storage, f"{base}/{path.path}" if path.path != PurePosixPath() else base


@functools.cache
def _storage(root: str, endpoint: str | None) -> tuple[FileSystem, str]:
    """Return the storage and what names in it begin with. Raises OSError where its client cannot be made.

    ``endpoint`` is the server of S3, None for Amazon's: another server gets another client.
    """
    from pyarrow import fs  # noqa: PLC0415 - a tenth of a second, and few need it

    bucket = root.partition("://")[2]
    if root.startswith("s3://"):
        # Credentials and region are found as by Amazon's own tools; the endpoint pyarrow finds by from_uri alone.
        client = fs.S3FileSystem(
            endpoint_override=endpoint,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=S3_ANSWER_SECONDS,
            background_writes=False,
            allow_delayed_open=True,
        )
        return client, bucket
    limit = f"?retry_limit_seconds={GOOGLE_RETRY_SECONDS:.0f}" if root.startswith("gs://") else ""
    with storage_calls(ObjectPath(root, PurePosixPath())):
        storage, base = fs.FileSystem.from_uri(f"{root}/{limit}")
    return storage, str(base).rstrip("/")


_AWS_ERROR = re.compile(r"AWS Error (?P<code>[A-Z_]+)(?:.*ExceptionName: (?P<name>\w+))?")
_REFUSED = re.compile(
    "access|credential|expired|forbidden|identity|signature|skewed|token|unauthori|user", re.IGNORECASE
)
_ABSENT = {"NO_SUCH_BUCKET", "NO_SUCH_KEY"}
_SILENT = {"NETWORK_CONNECTION", "REQUEST_TIMEOUT", "SERVICE_UNAVAILABLE", "SLOW_DOWN", "THROTTLING"}


@contextmanager
def raise_os_errors(path: Path | ObjectPath) -> Iterator[None]:
    """Turn pyarrow's errors of object storage into OSErrors with a cause of few words, and no text of a request."""
    try:
        yield
    except OSError as error:
        if isinstance(path, Path):
            raise
        found = _AWS_ERROR.search(str(error))
        code = (found["name"] or found["code"]) if found else ""
        if isinstance(error, FileNotFoundError) or code in _ABSENT:
            number, cause = errno.ENOENT, "there is no such bucket or object"
        elif isinstance(error, PermissionError) or _REFUSED.search(code):
            number, cause = errno.EACCES, "the storage refuses access"
        elif isinstance(error, TimeoutError) or code in _SILENT:
            number, cause = errno.ETIMEDOUT, "the storage does not answer"
        else:
            number, cause = errno.EIO, "the storage failed"
        raise OSError(number, f"{cause} ({code})" if code else cause, str(path)) from None


@contextmanager
def storage_calls(path: Path | ObjectPath) -> Iterator[None]:
    """Turn whatever pyarrow raises for the state of object storage into OSErrors, as ``raise_os_errors`` does.

    For some states of GCS and Azure it raises errors of its own: for HTTP 400, and without a token.
    """
    from pyarrow import ArrowException  # noqa: PLC0415 - as above

    try:
        with raise_os_errors(path):
            yield
    except ArrowException as error:
        if isinstance(error, OSError):
            raise
        # Its text may quote a request.
        raise OSError(errno.EIO, f"the storage failed ({type(error).__name__})", str(path)) from None
