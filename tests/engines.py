"""The real engines on which exported maps are tested: each evaluates a map at given scores."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrank as cr
from calibrank.export import to_onnx, to_sql, to_torch
from tests.spark_session import session

Engine = Callable[[cr.CalibrationMap, np.ndarray], np.ndarray]


def numbers(values: Sequence[float | None]) -> np.ndarray:
    """A column as floats, NULL as NaN."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def duckdb(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    return duckdb_query(to_sql(fitted, "duckdb"), scores.tolist())


def duckdb_query(
    expression: str, scores: Sequence[Any], kind: str = "DOUBLE", column: str = '"score"'
) -> np.ndarray:
    query = f"SELECT {expression} FROM t ORDER BY position"  # noqa: S608  (what we test)
    with pytest.importorskip("duckdb").connect() as connection:
        connection.execute(f"CREATE TABLE t (position INTEGER, {column} {kind})")
        positions = list(range(len(scores)))
        connection.execute("INSERT INTO t SELECT unnest(?), unnest(?)", [positions, list(scores)])
        return numbers([row[0] for row in connection.execute(query).fetchall()])


def sqlite(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    return sqlite_query(to_sql(fitted, "sqlite"), scores.tolist())


def sqlite_query(
    expression: str, scores: Sequence[Any], kind: str = "REAL", column: str = "`score`"
) -> np.ndarray:
    query = f"SELECT {expression} FROM t ORDER BY position"  # noqa: S608  (what we test)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"CREATE TABLE t (position INTEGER, {column} {kind})")
        connection.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(scores)))
        return numbers([row[0] for row in connection.execute(query)])
    except sqlite3.OperationalError as error:
        if "no such function" in str(error):
            pytest.skip(f"SQLite was built without: {error}")  # an option of SQLite's build
        raise
    finally:
        connection.close()


def spark(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    return spark_query(to_sql(fitted, "spark"), scores.tolist())


def spark_query(
    expression: str,
    scores: Sequence[Any],
    kind: str = "DOUBLE",
    column: str = "`score`",
    *,
    ansi: bool = True,
) -> np.ndarray:
    spark = session()
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        schema = f"position INT, {column} {kind}"
        frame = spark.createDataFrame(list(enumerate(scores)), schema).coalesce(1)
        rows = frame.selectExpr("position", f"{expression} AS probability").collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
    return numbers([row["probability"] for row in sorted(rows)])


class Server:
    """A private PostgreSQL server in a folder, reached by a Unix socket."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder

    def query(
        self, expression: str, scores: Sequence[Any], kind: str = "float8", column: str = '"score"'
    ) -> np.ndarray:
        texts = ["\\N" if score is None else repr(score) for score in scores]
        lines = "".join(f"{position}\t{text}\n" for position, text in enumerate(texts))
        answer = self.run(
            f"CREATE TEMP TABLE t (position integer, {column} {kind});\n"
            f"COPY t FROM STDIN;\n{lines}\\.\n"
            f"SELECT {expression} FROM t ORDER BY position;\n"
        )
        answers = answer.removesuffix("\n").split("\n")
        return numbers([float(line) if line else None for line in answers])

    def run(self, script: str) -> str:
        quiet = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        server = ["-h", str(self.folder), "-U", "calibrank", "postgres"]
        result = subprocess.run(
            [self.programs / "psql", *quiet, *server],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-2000:]
        return result.stdout


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket (the path of tmp_path is too long)."""
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def postgresql_server(folder: Path) -> Iterator[Server]:
    """Start a PostgreSQL server, or skip the test with the reason."""
    programs = _postgresql_programs()
    prefix = _command_prefix(folder)
    data = folder / "data"

    def call(program: str, *arguments: str) -> None:
        result = subprocess.run(
            [*prefix, str(programs / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
            cwd=folder,
        )
        assert result.returncode == 0, (folder / "log").read_text()[-2000:]

    with (folder / "log").open("wb") as log:
        access = ["-U", "calibrank", "-A", "trust"]
        call("initdb", "-D", str(data), *access, "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB"
        call("pg_ctl", "-D", str(data), "-o", options, "-w", "start")
        try:
            yield Server(programs, folder)
        finally:
            call("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")


def _postgresql_programs() -> Path:
    """The folder of the newest PostgreSQL."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if installed:
        return installed[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are missing")  # a system part; .ci/run has it
    return Path(on_path).parent


def _command_prefix(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: what to put before a command to run as its own user."""
    if not hasattr(os, "geteuid"):
        pytest.skip("PostgreSQL's sockets need Unix")  # on Windows it would need a port of its own
    if os.geteuid() != 0:
        return []
    import pwd  # only Unix has it

    users = {entry.pw_name for entry in pwd.getpwall()}
    if shutil.which("setpriv") is None or "postgres" not in users:
        # Debian's package, which .ci/run installs, creates that user.
        pytest.skip("PostgreSQL refuses root, and there is no user postgres to run it as")
    shutil.chown(folder, "postgres", "postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


def onnx(dtype: str) -> Engine:
    def run(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
        runtime = pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
        model = to_onnx(fitted, dtype).SerializeToString()
        session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return session.run(None, {"score": scores.astype(dtype)})[0]

    run.__name__ = f"onnx_{dtype}"
    return run


def torch(dtype: str) -> Engine:
    def run(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
        library = pytest.importorskip("torch")
        return to_torch(fitted, dtype)(library.from_numpy(scores.astype(dtype))).numpy()

    run.__name__ = f"torch_{dtype}"
    return run
