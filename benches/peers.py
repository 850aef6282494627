"""The same questions as `store-whole ask`, asked by DuckDB and chDB of the same files.

    python3 benches/peers.py DIR [LOOKUPS]

DIR is a store. Needs duckdb and chdb from PyPI; one that is missing is passed over. Wall clock in milliseconds, all
cores, files in the page cache.
"""

import random
import sys
import time


def milliseconds(run):
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun) * 1e3


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))]


def duckdb_run(files):
    import duckdb

    connection = duckdb.connect()
    table = f"read_parquet('{files}')"
    quantiles = f"select name, quantile_cont(duration_nano, [.5, .99]) from {table} group by name"
    return (
        f"DuckDB {duckdb.__version__}",
        lambda query: connection.execute(query).fetchall(),
        table,
        {
            "quantiles by name": quantiles,
            "quantiles by name, approximate": quantiles.replace("quantile_cont", "approx_quantile"),
        },
    )


def chdb_run(files):
    import chdb

    table = f"file('{files}', Parquet)"
    ask = f"select name, %s(0.5, 0.99)(duration_nano) from {table} group by name"
    return (
        f"chDB {chdb.__version__}",
        lambda query: chdb.query(query, "TabSeparated").bytes().decode(errors="replace").splitlines(),
        table,
        {
            "quantiles by name": ask % "quantilesExact",
            "quantiles by name, approximate": ask % "quantilesTDigest",
        },
    )


def main():
    folder, lookups = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30
    files = f"{folder}/spans/*/*.parquet"
    for peer in (duckdb_run, chdb_run):
        try:
            name, run, table, questions = peer(files)
        except ImportError as error:
            print(f"passed over: {error}")
            continue
        count = run(f"select count(*) from {table}")
        print(f"{name}: {count[0]} spans")
        for text, query in questions.items():
            times = [milliseconds(lambda: run(query)) for _ in range(3)]
            print(f"  {text}: {', '.join(f'{time:.0f}' for time in times)} ms")
        ids = run(f"select distinct trace_id from {table} where duration_nano % 99991 = 7")
        ids = [found[0] if isinstance(found, tuple) else found for found in ids]
        random.Random(1).shuffle(ids)
        times = [
            milliseconds(lambda: run(f"select * from {table} where trace_id = '{trace}'"))
            for trace in ids[:lookups]
        ]
        print(
            f"  by id, {len(times)} traces: p50 {percentile(times, 0.5):.1f} "
            f"p99 {percentile(times, 0.99):.1f} ms"
        )


main()
