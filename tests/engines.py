"""Every engine an exported map must run on, real ones: each takes a map and scores and gives probabilities."""

import os
import pwd
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
    with pytest.importorskip("duckdb").connect() as connection:
        connection.execute(f"CREATE TABLE t (place INTEGER, {column} {kind})")
        connection.execute(
            "INSERT INTO t SELECT unnest(?), unnest(?)", [list(range(len(scores))), list(scores)]
        )
        rows = connection.execute(f"SELECT {expression} FROM t ORDER BY place").fetchall()  # noqa: S608  (what we test)
        return numbers([row[0] for row in rows])


def sqlite(fitted: cr.CalibrationMap, scores: np.ndarray) -> np.ndarray:
    return sqlite_query(to_sql(fitted, "sqlite"), scores.tolist())


def sqlite_query(
    expression: str, scores: Sequence[Any], kind: str = "REAL", column: str = "`score`"
) -> np.ndarray:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"CREATE TABLE t (place INTEGER, {column} {kind})")
        connection.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(scores)))
        rows = connection.execute(f"SELECT {expression} FROM t ORDER BY place")  # noqa: S608  (what we test)
        return numbers([row[0] for row in rows])
    except sqlite3.OperationalError as error:
        if "no such function" in str(error):
            pytest.skip(f"this SQLite has no mathematical functions: {error}")
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
        frame = spark.createDataFrame(
            list(enumerate(scores)), f"place INT, {column} {kind}"
        ).coalesce(1)
        rows = frame.selectExpr("place", f"{expression} AS probability").collect()
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
        texts = ("\\N" if score is None else repr(score) for score in scores)
        lines = "".join(f"{at}\t{text}\n" for at, text in enumerate(texts))
        script = (
            f"CREATE TEMP TABLE t (place integer, {column} {kind});\nCOPY t FROM STDIN;\n{lines}\\.\n"
            f"SELECT {expression} FROM t ORDER BY place;\n"
        )
        answer = self.run(script)
        return numbers(
            [float(line) if line else None for line in answer.removesuffix("\n").split("\n")]
        )

    def run(self, script: str) -> str:
        command = [
            "psql",
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(self.folder),
            "-U",
            "calibrank",
            "postgres",
        ]
        done = subprocess.run(
            [self.programs / command[0], *command[1:]],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose name is short enough for a socket's (pytest's are not)."""
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def postgresql_server(folder: Path) -> Iterator[Server]:
    """Start a server, or skip with the reason."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [
        Path(p) for p in [shutil.which("initdb")] if p
    ]
    if not found:
        pytest.skip("PostgreSQL's server programs (initdb, pg_ctl) are not installed")
    programs, data = found[-1].parent, folder / "data"
    user: list[str] = []
    if os.geteuid() == 0:  # which PostgreSQL refuses
        if shutil.which("setpriv") is None or "postgres" not in {
            entry.pw_name for entry in pwd.getpwall()
        }:
            pytest.skip("PostgreSQL refuses root, and there is no user postgres to be instead")
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(folder, "postgres", "postgres")

    def call(program: str, *arguments: str) -> None:
        command = [*user, str(programs / program), *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, cwd=folder
        )
        assert done.returncode == 0, (folder / "log").read_text()[-2000:]

    with (folder / "log").open("wb") as log:
        call(
            "initdb",
            "-D",
            str(data),
            "-U",
            "calibrank",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        )
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB"
        call("pg_ctl", "-D", str(data), "-o", options, "-w", "start")
        try:
            yield Server(programs, folder)
        finally:
            call("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")


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
