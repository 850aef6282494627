"""Opens a file of spans with one engine and prints what docs/reference/parquet.md asks of it, as JSON.

usage: open.py ENGINE FILE, where ENGINE is pandas, polars, duckdb or chdb
"""

import json
import sys

METHOD = "http.request.method"
TOKENS = "gen_ai.usage.output_tokens"
IDS = ["trace_id", "span_id", "parent_span_id"]


def with_pandas(path):
    import pandas

    columns = ["service_name", TOKENS, "attr_str", "events", "duration_nano"] + IDS
    frame = pandas.read_parquet(path, columns=columns)
    # A map is a list of pairs.
    is_post = frame["attr_str"].map(lambda pairs: dict(pairs).get(METHOD) == "POST")
    return {
        "spans": len(frame),
        "services": frame.groupby("service_name").size().to_dict(),
        "output_tokens": int(frame[TOKENS].sum()),
        "posts": int(is_post.sum()),
        "events": int(frame["events"].map(len).sum()),
        "longest_nano": int(frame["duration_nano"].max()),
        "traces": frame["trace_id"].nunique(),
        "first_span": frame["span_id"].min(),
        "children": int(frame["parent_span_id"].count()),
        "last_parent": frame["parent_span_id"].dropna().max(),
    }


def with_polars(path):
    import polars
    from polars import col, element

    # Before polars 2 a map is read as this list; from 2 on `col("attr_str").map.get(METHOD)` says it shorter.
    pairs = polars.List(polars.Struct({"key": polars.String, "value": polars.String}))
    is_post = (element().struct.field("key") == METHOD) & (element().struct.field("value") == "POST")
    frame = polars.scan_parquet(path)
    one = frame.select(
        polars.len().alias("spans"),
        col(TOKENS).sum().alias("output_tokens"),
        col("attr_str").cast(pairs).list.eval(is_post).list.any().sum().alias("posts"),
        col("events").list.len().sum().alias("events"),
        col("duration_nano").max().alias("longest_nano"),
        col("trace_id").n_unique().alias("traces"),
        col("span_id").min().alias("first_span"),
        col("parent_span_id").count().alias("children"),
        col("parent_span_id").max().alias("last_parent"),
    ).collect()
    services = frame.group_by("service_name").len().collect()
    return one.to_dicts()[0] | {"services": dict(services.iter_rows())}


def with_duckdb(path):
    import duckdb

    one = duckdb.execute(
        f"""
        SELECT count(*), sum("{TOKENS}"), count(*) FILTER (map_extract(attr_str, '{METHOD}')[1] = 'POST'),
               sum(len(events)), max(duration_nano), count(DISTINCT trace_id), count(parent_span_id),
               min(span_id), max(parent_span_id)
        FROM read_parquet(?)
        """,
        [path],
    ).fetchone()
    services = duckdb.execute(
        "SELECT service_name, count(*) FROM read_parquet(?) GROUP BY 1", [path]
    ).fetchall()
    return said(one, dict(services))


def with_chdb(path):
    import chdb

    def ask(sql):
        return [json.loads(line) for line in str(chdb.query(sql, "JSONCompactEachRow")).splitlines()]

    one = ask(
        f"""
        SELECT count(), sum(`{TOKENS}`), countIf(attr_str['{METHOD}'] = 'POST'),
               sum(length(events)), max(duration_nano), uniqExact(trace_id), count(parent_span_id),
               min(span_id), max(parent_span_id)
        FROM file('{path}', Parquet)
        """
    )[0]
    services = ask(f"SELECT service_name, count() FROM file('{path}', Parquet) GROUP BY 1")
    return said(one, {name: int(count) for name, count in services})


def said(one, services):
    names = ["spans", "output_tokens", "posts", "events", "longest_nano", "traces", "children"]
    *numbers, first_span, last_parent = one
    ids = {"first_span": first_span, "last_parent": last_parent}
    return dict(zip(names, map(int, numbers))) | ids | {"services": services}


if __name__ == "__main__":
    engine, path = sys.argv[1:]
    print(json.dumps(globals()[f"with_{engine}"](path)))
