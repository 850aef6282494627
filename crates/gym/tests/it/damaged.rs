//! Stores with damaged files, as commands and the process that fills them speak of them.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{Observer, gym, output, post, signal, text};

/// Has a process of its own store a trace of so many spans in files.
fn store_a_trace(dir: &Path, number: u8, spans: usize) {
    let observer = Observer::start(dir);
    let span = |at: usize| {
        format!(
            r#"{{"traceId":"{number:032x}","spanId":"{:016x}","name":"work {at}","kind":1,
                "startTimeUnixNano":"1796000000000000000","endTimeUnixNano":"1796000000001000000"}}"#,
            at + 1
        )
    };
    let spans: Vec<String> = (0..spans).map(span).collect();
    let body =
        format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","));
    let answer = post(observer.url("http"), "/v1/traces", "application/json", body.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(observer.stop(), Some(0));
}

/// Files of spans, in the order of their segments.
fn span_files(dir: &Path) -> Vec<PathBuf> {
    let out = output(gym().args(["store", "files", "--json"]).arg(dir));
    let listed: Value = serde_json::from_slice(&out.stdout).expect("a document");
    let of_spans = |file: &&Value| file["table"] == "spans";
    let files = listed["files"].as_array().expect("files").iter().filter(of_spans);
    files.map(|file| PathBuf::from(file["path"].as_str().expect("a path"))).collect()
}

/// Leaves the ends of a file, so that it still opens.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("its bytes");
    let middle = bytes.len() / 2;
    bytes[8..middle].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::write(file, bytes).expect("damage");
}

fn said_of(out: &Output, file: &Path) -> bool {
    let told = format!("warning: the answer lacks what was in {}: ", file.display());
    text(&out.stderr).matches(&told).count() == 1
}

/// Guarantees: no answer that lacks something is given as if it were whole, whoever is asked.
#[test]
fn an_answer_that_lacks_a_damaged_file_says_so_and_is_no_plain_yes() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("store");
    store_a_trace(&dir, 1, 30);
    store_a_trace(&dir, 2, 20);
    let files = span_files(&dir);
    assert_eq!(files.len(), 2);
    damage(&files[1]);
    let export = folder.path().join("out.json");
    let export = export.to_str().expect("text");
    let questions: [&[&str]; 4] = [
        &["trace", "list"],
        &["trace", "list", "--json"],
        &["trace", "search", "{ name = \"work 3\" }"],
        &["trace", "export", "--format", "otlp-json", "--output", export],
    ];
    for question in questions {
        let out = output(gym().args(question).arg(&dir));
        assert_eq!(out.status.code(), Some(1), "{question:?}: {}", text(&out.stderr));
        assert!(said_of(&out, &files[1]), "{question:?}: {}", text(&out.stderr));
        if question.contains(&"--json") {
            let document: Value = serde_json::from_slice(&out.stdout).expect("a document");
            assert_eq!(document["read"]["damage"].as_array().map(Vec::len), Some(1), "{document}");
            assert_eq!(document["traces"].as_array().map(Vec::len), Some(1), "{document}");
        }
    }
    let compacted = output(gym().args(["store", "compact"]).arg(&dir));
    let said = text(&compacted.stderr);
    assert_eq!(compacted.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("warning: left out: {}: ", files[1].display())), "{said}");
}

#[test]
fn the_process_that_fills_a_store_tells_what_turns_out_to_be_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("store");
    store_a_trace(&dir, 1, 30);
    let file = span_files(&dir).remove(0);
    damage(&file);
    let stderr = folder.path().join("stderr");
    let mut command = gym();
    command.args(["observe", "--json", "--dir"]).arg(&dir);
    command.args(["--listen-grpc", "127.0.0.1:0", "--listen-http", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(File::create(&stderr).expect("a file"));
    let mut observer = command.spawn().expect("it starts");
    let mut line = String::new();
    let stdout = observer.stdout.take().expect("stdout");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let ready: Value = serde_json::from_str(&line).expect("a document");
    let url = ready["http"][0].as_str().expect("a URL");
    let asked = output(gym().args(["trace", "list", url]));
    assert_eq!(asked.status.code(), Some(1), "{}", text(&asked.stderr));
    assert!(said_of(&asked, &file), "{}", text(&asked.stderr));
    signal(observer.id(), "TERM");
    assert_eq!(observer.wait().expect("it ends").code(), Some(0));
    let said = fs::read_to_string(&stderr).expect("what it said");
    assert_eq!(said.matches(&format!("warning: {}: ", file.display())).count(), 1, "{said}");
}
