"""`nearwise learn` from several files or a folder, or with workers: nothing but a few rows is in memory."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nearwise.cli import _side
from nearwise.cli._common import (
    BadInput,
    limit_threads,
    refusing_bad_input,
    settings as told_settings,
    status,
    tell,
    whole_number,
)

_FILES = (".parquet", ".pq", ".npy")
_SECONDS_FOR_WORKERS = 60


def add_options(parser: argparse.ArgumentParser) -> None:
    """More files, and who works on them."""
    parser.add_argument(
        "more", nargs="*", metavar="DATA", help="more Parquet or .npy files, or folders of them"
    )
    where = parser.add_argument_group(
        "data larger than memory",
        "Several Parquet or .npy files, or a folder, are used in pieces; so is one file with these options, "
        "or with a folder or a Parquet file of 4 million rows as --pairs.",
    )
    where.add_argument(
        "--workers", type=whole_number(1), metavar="N", help="work in N processes of one thread (extra dask)"
    )
    where.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="work on the Dask cluster of this scheduler, which sees the same files",
    )


def wanted(arguments: argparse.Namespace) -> bool:
    """Whether the data are to be used in pieces."""
    if _is_said(arguments):
        return True
    if arguments.pairs is None or Path(arguments.data).suffix not in _FILES or arguments.conflicts:
        return False
    from nearwise.distributed import is_large

    with refusing_bad_input():
        return is_large(arguments.pairs)


def _is_said(arguments: argparse.Namespace) -> bool:
    several = bool(arguments.more) or Path(arguments.data).is_dir()
    return several or arguments.workers is not None or arguments.dask is not None


def run(arguments: argparse.Namespace, target: str) -> int:
    """Learn, write the model, and show what came out."""
    _check(arguments)
    import nearwise as nw
    from nearwise import study

    paths = [arguments.data, *arguments.more]
    settings = study.Settings(**told_settings(arguments))
    with (
        status("starting", arguments.quiet) as line,
        _refusing_lost_clusters(),
        _client(arguments) as client,
        limit_threads(arguments.threads),
    ):
        line.update("reading")
        from nearwise.cli._lines import exit_code
        from nearwise.data.side_files import READERS, Reading
        from nearwise.study import in_pieces

        with refusing_bad_input():
            vectors = in_pieces.open_files(
                paths, labels=arguments.labels, ids=arguments.id, features=arguments.features, client=client
            )
            if settings.rank is not None and settings.rank > vectors.shape[1]:
                raise BadInput(f"--rank {settings.rank}: the data have {vectors.shape[1]} features")
            found = _side.files(arguments)
            kinds = {name: found.pop(name) for name in READERS}
            side, notices = in_pieces.side_information(vectors, kinds, Reading(**found))
            fit = in_pieces.fit_in_pieces(vectors, side, settings, study.Watch(settings, line.update))
            told = in_pieces.story(fit, vectors, side, settings, " ".join(paths))
            model = in_pieces.remembering(fit.model, vectors, told, arguments.id, arguments.labels)
            nw.save(model, target)
    _tell(arguments, fit, told | {"model": target}, notices)
    return exit_code(told["status"])


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what needs all data at once, by name."""
    if arguments.workers is not None and arguments.dask is not None:
        raise BadInput("--workers makes a cluster and --dask names one: give one of them")
    options = ["structure", "group", "kernel", "report", "suspects", "held_out", "drop", "decimal"]
    options += ["thousands", "header", "show", "image", "color_by", "category", "convert"]
    given = [option for option in options if getattr(arguments, option)]
    given += [option for option in ("missing", "categorical") if getattr(arguments, option) != "refuse"]
    if arguments.rank is not None and arguments.method != "fixed-rank":
        given.insert(0, "rank")
    if given:
        name = given[0].replace("_", "-")
        raise BadInput(f"--{name} needs data in memory: one file, without --workers and --dask")
    if arguments.scale == "standard":
        raise BadInput(
            "--scale standard needs data in memory; scale the columns before, or give --scale none"
        )
    if arguments.penalty == math.inf:
        raise BadInput("--penalty inf needs data in memory: give a number, or auto")
    for path in (arguments.data, *arguments.more):
        if not Path(path).is_dir() and Path(path).suffix not in _FILES:
            raise BadInput(
                f"{path}: only folders and files that end in {', '.join(_FILES)} are used in pieces"
            )


@contextlib.contextmanager
def _client(arguments: argparse.Namespace) -> Iterator[Any]:
    """The Dask client that the options ask for; None for threads of this process."""
    if arguments.workers is None and arguments.dask is None:
        yield None
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise BadInput("--workers and --dask need Dask: pip install 'nearwise[dask]'") from error
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what is wrong is said in a sentence
    if arguments.dask is None:
        with (
            LocalCluster(
                n_workers=arguments.workers, threads_per_worker=1, dashboard_address=":0", silence_logs=40
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            _let_workers_finish(client)
            yield client
        return
    try:
        client = Client(arguments.dask, set_as_default=False, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise BadInput(f"--dask {arguments.dask}: no scheduler answers there ({error})") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_SECONDS_FOR_WORKERS)
        except TimeoutError as error:
            waited = f"within {_SECONDS_FOR_WORKERS} seconds"
            raise BadInput(f"--dask {arguments.dask}: no worker came to this scheduler {waited}") from error
        yield client


def _let_workers_finish(client: Any) -> None:
    """Ctrl-C in a terminal goes to all processes, and would end workers for whose answers the fit waits."""
    from distributed import WorkerPlugin

    class Uninterrupted(WorkerPlugin):
        name = "uninterrupted"

        def setup(self, worker: Any) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    client.register_plugin(Uninterrupted())


@contextlib.contextmanager
def _refusing_lost_clusters() -> Iterator[None]:
    """Say in one sentence what is wrong with a cluster."""
    from nearwise.distributed import ClusterError

    try:
        yield
    except ClusterError as error:
        raise BadInput(str(error)) from error


def _tell(arguments: argparse.Namespace, fit: Any, told: dict[str, Any], read: tuple[str, ...]) -> None:
    notices = [*read, *fit.notices, *([f"the fit was ended early: {fit.stopped}"] if fit.stopped else [])]
    if not _is_said(arguments):
        notices.append(f"{arguments.pairs} has so many pairs that the data are used in pieces")
    if arguments.rank is None and told["rank"] < told["features"]:
        learned = f"only {told['rank']} of {told['features']} dimensions were learned, the default of the"
        notices.append(f"{learned} method fixed-rank; the others do not count (--rank K learns K)")
    notices.append("nothing was held out and no column standardised, which needs all rows in memory")
    if arguments.json:
        print(json.dumps(told | {"seconds": fit.seconds, "notices": notices}, indent=2))
        return
    if not arguments.quiet:
        print(f"{told['rows']:,} rows, {told['features']:,} features, in pieces")
        print(f"learned from {told['learned_from']}")
        print(f"{told['constraints']:,} constraints in {fit.seconds:.1f} s")
        if fit.learner.result_ is not None:
            how = f"Rank {told['rank']}" if told["penalty"] is None else f"Penalty {told['penalty']:.3g}"
            print(f"{fit.learner.result_.message} {how}.")
        print(f"model:  {told['model']}")
    tell(notices, arguments.quiet)
